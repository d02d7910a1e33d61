// san eval: how good a model is on labelled data.
#include <numeric>

#include "san/base/parallel.h"
#include "san/cli/commands.h"
#include "san/cli/evaluate.h"
#include "san/cli/main.h"
#include "san/cli/progress.h"
#include "san/data/splits.h"

namespace san::cli {

int run_eval(int argc, char** argv) {
  std::string model_folder, data_path, part = "all", splits_file, on_error = "fail";
  SourceOptions source_options;
  int batch_size = 64, threads = 0;
  bool published = false;
  CLI::App app(
      "Loss and metrics of a model on labelled data, in float, without libtorch.\n\n  san eval --model runs/my "
      "--data test.csv --target-columns logP");
  app.add_option("--model", model_folder, "model folder")->required();
  app.add_option("--data", data_path, "labelled data, anything that san train takes")->required();
  app.add_option("--smiles-column", source_options.smiles_column, "CSV column of the SMILES")->capture_default_str();
  app.add_option("--target-columns", source_options.target_columns,
                 "CSV columns of the labels; default: the model's targets")
      ->delimiter(',');
  app.add_option("--split-column", source_options.split_column, "CSV column of train / valid / test");
  app.add_option("--splits", splits_file, "splits.json of a run");
  app.add_option("--part", part, "all, train, valid or test")
      ->check(CLI::IsMember({"all", "train", "valid", "test"}))
      ->capture_default_str();
  app.add_option("--on-error", on_error, "a record that cannot be read: fail or skip")
      ->check(CLI::IsMember({"skip", "fail"}))
      ->capture_default_str();
  app.add_option("--batch-size", batch_size, "graphs per batch; only published metrics depend on it")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app.add_option("--threads", threads, "threads; 0 = all cores")->check(CLI::Range(0, 1024))->capture_default_str();
  app.add_flag("--published-metrics", published, "also means of batch means, as the published program reports them");
  int exit_code = 0;
  if (!parse_flags(app, argc, argv, exit_code)) return exit_code;
  SAN_CHECK(splits_file.empty() || part != "all", "--splits goes with --part train, valid or test");
  if (threads == 0) threads = available_threads();

  StoredModel model = read_model(model_folder);
  if (!cannot_evaluate(model.description.model).empty()) return start_torch_program("eval", argc, argv);
  if (model.description.input.featuriser != "none") source_options.featuriser = model.description.input.featuriser;
  if (source_options.target_columns.empty()) source_options.target_columns = model.description.task.targets;
  const auto source = open_source(data_path, source_options);
  PrepareOptions prepare;
  prepare.spectral = model.description.input.spectral;
  prepare.with_spectra = model.description.model.lpe.kind != LpeKind::kNone;
  prepare.threads = threads;
  prepare.skip_bad_records = on_error == "skip";
  ProgressBar bar("preparing", "graphs");
  prepare.progress = [&](const Progress& progress) { bar.update(progress.done, progress.fraction); };
  prepare.on_bad_record = [&](const std::string& message) {
    bar.clear();
    say("san: {}\n", message);
  };
  const Dataset data = Dataset::prepare(*source, prepare);
  bar.clear();
  const bool per_node = model.description.model.readout == Readout::kNode;
  SAN_CHECK((!data.node_labels() && data.label_columns() == 0) || data.node_labels() == per_node,
            "{}: has labels of {}, the model predicts {}", data_path, per_node ? "graphs" : "nodes",
            per_node ? "nodes" : "graphs");

  std::vector<int64_t> graphs(static_cast<size_t>(data.size()));
  std::iota(graphs.begin(), graphs.end(), 0);
  if (part != "all") {
    std::vector<std::string> words;
    for (int64_t i = 0; i < data.size(); ++i) words.push_back(data.split(i));
    const Splits splits = splits_file.empty() ? given_split(words) : read_splits(splits_file, data.size());
    graphs = part == "train" ? splits.train : part == "valid" ? splits.valid : splits.test;
  }
  SAN_CHECK(!graphs.empty(), "{}: the part '{}' is empty", data_path, part);
  for (const int64_t i : graphs) check_graph(model.description.model, data.graph(i), data_path);
  const EvalResult result = evaluate_graphs(std::move(model), data, graphs, batch_size, threads);
  SAN_CHECK(result.labelled, "{}: no labels to compare with", data_path);
  fmt::print("{} graphs\nloss {:.6g}\n", graphs.size(), result.loss);
  for (const auto& [name, value] : result.metrics) fmt::print("{} {:.6g}\n", name, value);
  if (published) {
    for (const auto& [name, value] : result.published_metrics) fmt::print("published_{} {:.6g}\n", name, value);
  }
  if (data.bad_records() == 0) return kDone;
  say("san: {} of {} records are bad and were left out\n", with_commas(data.bad_records()),
      with_commas(data.bad_records() + data.size()));
  return kFailed;
}

}  // namespace san::cli
