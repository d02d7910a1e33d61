#include "san/cli/model_flags.h"

#include <charconv>
#include <nlohmann/json.hpp>

#include "san/base/file.h"
#include "san/data/csv.h"

namespace san::cli {

const char* const kPredictHelp =
    "Predictions of a model as CSV: the id, (the node,) then one column per output; regression in the label's units,\n"
    "probabilities for classes. Molecules are featurised as the model was trained with. Eigenpairs given with graphs "
    "are\n"
    "used as they are. An ensemble gives mean and standard deviation. Streams: any number of rows in constant "
    "memory.\n\n"
    "  san predict --model runs/my --data new.csv --out predictions.csv\n"
    "  printf 'smiles\\nCCO\\n' | san predict --model runs/my --data - --format csv\n";

void add_input_flags(CLI::App& app, std::string& data, SourceOptions& source) {
  app.add_option("--data", data, "CSV of SMILES, Graph JSONL (.gz too), TU or OGB folder; - = standard input")
      ->required();
  app.add_option("--smiles-column", source.smiles_column, "CSV column of the SMILES")->capture_default_str();
  app.add_option("--id-column", source.id_column, "CSV column to label rows with; default: the first");
  app.add_option("--format", source.format, "auto, csv, jsonl, tu or ogb")->capture_default_str();
}

std::unique_ptr<GraphSource> open_input(const std::string& data, SourceOptions source, const ModelDescription& model) {
  source.labels_required = false;
  if (model.input.featuriser != "none") source.featuriser = model.input.featuriser;
  return open_source(data, source);
}

void fill_block(StreamBlock& block, std::span<const ModelConfig* const> models,
                const std::function<void(std::span<const Graph* const>, std::string&)>& append_rows) {
  std::vector<const Graph*> graphs;
  for (size_t i = 0; i < block.graphs.size(); ++i) {
    const Streamed& item = *block.graphs[i];
    try {
      for (const ModelConfig* model : models) check_graph(*model, item.graph, item.where);
      graphs.push_back(&item.graph);
    } catch (const RecordError& error) {
      block.problems[i] = error.what();
    }
  }
  if (graphs.empty()) return;
  try {
    append_rows(graphs, block.text);
    return;
  } catch (const Error&) {
    // One graph of them is too much for the network: which?
    block.text.clear();
  }
  for (size_t i = 0; i < block.graphs.size(); ++i) {
    if (!block.problems[i].empty()) continue;
    const Graph* graph = &block.graphs[i]->graph;
    const size_t length = block.text.size();
    try {
      append_rows({&graph, 1}, block.text);
    } catch (const Error& error) {
      block.text.resize(length);
      block.problems[i] = fmt::format("{}: {}", block.graphs[i]->where, error.what());
    }
  }
}

void add_batch_size_flag(CLI::App& app, int& batch_size, const std::string& what) {
  app.add_option_function<std::string>(
         "--batch-size",
         [&batch_size](const std::string& text) {
           batch_size = 0;
           if (text == "auto") return;
           const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), batch_size);
           if (error != std::errc{} || end != text.data() + text.size() || batch_size < 1 || batch_size > 1 << 20) {
             throw CLI::ValidationError("--batch-size", "auto or a whole number from 1 to 1048576 is expected");
           }
         },
         what)
      ->default_str("auto");
}

void add_predict_flags(CLI::App& app, PredictFlags& flags) {
  app.add_option("--model", flags.model, "model folder (config.json + model.safetensors)")->required();
  add_input_flags(app, flags.data, flags.source);
  app.add_option("--out", flags.out, "CSV to write; - = standard output")->capture_default_str();
  app.add_flag("--raw", flags.raw, "the head's own outputs (logits, unscaled) as y0, y1, ...");
  app.add_option("--on-error", flags.on_error, "a record that cannot be read: skip (report, go on) or fail")
      ->check(CLI::IsMember({"skip", "fail"}))
      ->capture_default_str();
  add_batch_size_flag(app, flags.batch_size, "graphs at once: auto or a number; does not change results");
  app.add_option(
         "--precision", flags.precision,
         "arithmetic of the network. float: fast, without libtorch. double: the definition itself, by libtorch. "
         "auto: double for models that san import made of the authors' networks (they are compared digit by "
         "digit) and for those that only libtorch computes, else float")
      ->check(CLI::IsMember({"auto", "float", "double"}))
      ->capture_default_str();
  app.add_option("--threads", flags.threads, "threads; 0 = all cores; does not change results")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
}

std::vector<StoredModel> read_members(const std::filesystem::path& given) {
  const std::filesystem::path folder = model_in(given);
  const std::filesystem::path index = folder / "ensemble.json";
  std::vector<StoredModel> members;
  if (!std::filesystem::exists(index)) {
    members.push_back(read_model(folder));
    return members;
  }
  try {
    const auto json = nlohmann::json::parse(read_file(index, size_t{1} << 20));
    SAN_CHECK(json.at("format") == "san-ensemble" && json.at("version") == 1, "{}: not an ensemble of this program",
              index.string());
    for (const auto& name : json.at("members")) {
      const std::filesystem::path member = name.get<std::string>();
      SAN_CHECK(member.is_relative() && member == member.filename(), "{}: '{}' is not a folder here", index.string(),
                printable(member.string()));
      members.push_back(read_model(folder / member));
    }
  } catch (const nlohmann::json::exception& error) {
    fail("{}: not valid: {}", index.string(), printable(error.what(), 200));
  }
  SAN_CHECK(!members.empty(), "{}: no members", index.string());
  for (const StoredModel& member : members) {
    SAN_CHECK(member.description.model.outputs == members[0].description.model.outputs &&
                  member.description.task.kind == members[0].description.task.kind &&
                  member.description.input.featuriser == members[0].description.input.featuriser &&
                  member.description.input.spectral == members[0].description.input.spectral,
              "{}: the members do not fit together", index.string());
  }
  return members;
}

bool imported(const ModelDescription& description) {
  if (description.provenance.empty()) return false;
  const auto json = nlohmann::json::parse(description.provenance, nullptr, /*allow_exceptions=*/false);
  return json.is_object() && json.contains("imported");
}

std::string predictions_header(const ModelDescription& description, const std::string& id_name, bool raw,
                               bool deviations) {
  std::string header;
  append_csv_field(header, id_name);
  if (description.model.readout == Readout::kNode) header += ",node";
  const std::vector<std::string> names = output_names(description);
  for (const char* suffix : {"", "_std"}) {
    if (*suffix != 0 && !deviations) continue;
    for (size_t i = 0; i < names.size(); ++i) {
      header += ',';
      append_csv_field(header, (raw ? fmt::format("y{}", i) : names[i]) + suffix);
    }
  }
  return header + '\n';
}

}  // namespace san::cli
