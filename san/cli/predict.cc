// san predict: a model folder and graphs or molecules in, a CSV of predictions out. Streams: memory does not grow with the input.
#include <ATen/Parallel.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "san/base/file.h"
#include "san/base/parallel.h"
#include "san/cli/commands.h"
#include "san/cli/main.h"
#include "san/data/batch.h"
#include "san/data/csv.h"
#include "san/data/stream.h"
#include "san/nn/san_model.h"
#include "san/nn/task.h"

namespace san::cli {
namespace {

// Pairs of one batch at most: bounds memory whatever --batch-size says. A larger graph is a batch of its own.
constexpr int64_t kPairsPerBatch = int64_t{1} << 20;

struct Options {
  std::string model, data, out = "-", precision = "double", on_error = "skip";
  SourceOptions source;
  bool raw = false;
  int batch_size = 64;
  int threads = 0;
};

// The model in `folder`, or the members of an ensemble there (`san train --ensemble`).
std::vector<StoredModel> read_members(const std::filesystem::path& folder) {
  const std::filesystem::path index = folder / "ensemble.json";
  if (!std::filesystem::exists(index)) return {read_model(folder)};
  std::vector<StoredModel> members;
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

class Predicting {
 public:
  explicit Predicting(const Options& options)
      : options_(options),
        stored_(read_members(options.model)),
        description_(stored_[0].description),
        writer_(options.out) {
    const at::ScalarType dtype = options.precision == "float" ? at::kFloat : at::kDouble;
    for (const StoredModel& member : stored_) networks_.emplace_back(member, dtype);
  }

  int run() {
    SourceOptions source_options = options_.source;
    source_options.labels_required = false;
    if (description_.input.featuriser != "none") source_options.featuriser = description_.input.featuriser;
    const std::unique_ptr<GraphSource> source = open_source(options_.data, source_options);
    write_header(source->id_name());

    StreamOptions stream;
    stream.spectral = description_.input.spectral;
    stream.with_spectra = false;
    for (const StoredModel& member : stored_) {
      stream.with_spectra = stream.with_spectra || member.description.model.lpe.kind != LpeKind::kNone;
    }
    stream.threads = options_.threads;
    stream.skip_bad_records = options_.on_error == "skip";
    stream.on_bad_record = [](const std::string& message) { fmt::print(stderr, "san: {}\n", message); };
    const auto check = [&](Streamed& item) {
      for (const StoredModel& member : stored_) check_graph(member.description.model, item.graph, item.where);
    };
    const int64_t skipped = stream_graphs(*source, stream, check, [&](Streamed& item) { add(std::move(item.graph)); });
    predict();
    SAN_CHECK(done_ + skipped > 0, "{}: nothing to predict in it", options_.data);
    writer_.commit();
    if (skipped == 0) return kDone;
    fmt::print(stderr, "san: {} of {} records could not be read and have no prediction\n", skipped, skipped + done_);
    return kFailed;
  }

 private:
  bool node_task() const { return description_.model.readout == Readout::kNode; }

  void write_header(const std::string& id_name) {
    std::string header;
    append_csv_field(header, id_name);
    if (node_task()) header += ",node";
    const std::vector<std::string> names = output_names(description_);
    for (const char* suffix : {"", "_std"}) {
      if (*suffix != 0 && stored_.size() == 1) continue;
      for (size_t i = 0; i < names.size(); ++i) {
        header += ',';
        append_csv_field(header, (options_.raw ? fmt::format("y{}", i) : names[i]) + suffix);
      }
    }
    writer_.write(header + '\n');
  }

  void add(Graph graph) {
    const int64_t nodes = graph.num_nodes;
    const int64_t cost = description_.model.full() ? nodes * nodes : static_cast<int64_t>(graph.edges.size());
    if (static_cast<int>(graphs_.size()) >= options_.batch_size || pairs_ + cost > kPairsPerBatch) predict();
    graphs_.push_back(std::move(graph));
    pairs_ += cost;
  }

  // Predicts what has gathered and writes its rows.
  void predict() {
    if (graphs_.empty()) return;
    std::vector<const Graph*> pointers;
    for (const Graph& graph : graphs_) pointers.push_back(&graph);
    const Batch batch = make_batch(pointers, description_.input.spectral.num_pairs);
    const at::NoGradGuard no_grad;
    std::vector<at::Tensor> results;
    for (size_t k = 0; k < networks_.size(); ++k) {
      nn::SanModel& network = networks_[k];
      at::Tensor outputs =
          network.forward(nn::to_tensors(batch, network.config(), network.dtype(), network.device()), {});
      if (!options_.raw) outputs = nn::task_predictions(stored_[k].description.task, outputs);
      results.push_back(outputs.to(at::kDouble));
    }
    at::Tensor table = results[0];
    if (results.size() > 1) {
      const at::Tensor all = at::stack(results);
      table = at::cat({all.mean(0), all.std(0, /*unbiased=*/true)}, 1);
    }
    table = table.contiguous();
    const double* values = table.data_ptr<double>();
    std::string rows;
    for (const Graph& graph : graphs_) {
      for (int32_t row = 0; row < (node_task() ? graph.num_nodes : 1); ++row) {
        append_csv_field(rows, graph.id);
        if (node_task()) rows += fmt::format(",{}", row);
        for (int64_t i = 0; i < table.size(1); ++i) {
          SAN_CHECK(std::isfinite(*values), "graph '{}': the model's output is not a finite number",
                    printable(graph.id));
          rows += fmt::format(",{:.9g}", *values++);
        }
        rows += '\n';
      }
    }
    writer_.write(rows);
    done_ += static_cast<int64_t>(graphs_.size());
    graphs_.clear();
    pairs_ = 0;
  }

  const Options& options_;
  std::vector<StoredModel> stored_;
  const ModelDescription& description_;
  std::vector<nn::SanModel> networks_;
  FileWriter writer_;
  std::vector<Graph> graphs_;
  int64_t pairs_ = 0, done_ = 0;
};

}  // namespace

int run_predict(int argc, char** argv) {
  Options options;
  CLI::App app(
      "Predictions of a model as CSV: the id, (the node,) then one column per output; regression in the label's "
      "units,\n"
      "probabilities for classes. Molecules are featurised as the model was trained with. Eigenpairs given with graphs "
      "are\n"
      "used as they are. An ensemble gives mean and standard deviation.\n\n"
      "  san predict --model runs/my/model --data new.csv --out predictions.csv");
  app.add_option("--model", options.model, "model folder (config.json + model.safetensors)")->required();
  app.add_option("--data", options.data, "CSV of SMILES, Graph JSONL (.gz too), TU or OGB folder; - = standard input")
      ->required();
  app.add_option("--out", options.out, "CSV to write; - = standard output")->capture_default_str();
  app.add_flag("--raw", options.raw, "the head's own outputs (logits, unscaled) as y0, y1, ...");
  app.add_option("--smiles-column", options.source.smiles_column, "CSV column of the SMILES")->capture_default_str();
  app.add_option("--id-column", options.source.id_column, "CSV column to label predictions with; default: the first");
  app.add_option("--format", options.source.format, "auto, csv, jsonl, tu or ogb")->capture_default_str();
  app.add_option("--on-error", options.on_error, "a record that cannot be read: skip (report, go on) or fail")
      ->check(CLI::IsMember({"skip", "fail"}))
      ->capture_default_str();
  app.add_option("--batch-size", options.batch_size, "graphs at once; does not change results")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app.add_option("--precision", options.precision, "arithmetic of the network: double or float")
      ->check(CLI::IsMember({"double", "float"}))
      ->capture_default_str();
  app.add_option("--threads", options.threads, "threads; 0 = all cores")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  int exit_code = 0;
  if (!parse_flags(app, argc, argv, exit_code)) return exit_code;
  if (options.threads == 0) options.threads = available_threads();
  at::set_num_threads(options.threads);
  return Predicting(options).run();
}

}  // namespace san::cli
