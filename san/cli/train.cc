// san train: data in, a run folder with a trained model and a report out.
#include <ATen/Parallel.h>
#include <unistd.h>

#include <csignal>
#include <nlohmann/json.hpp>
#include <numeric>

#include "san/base/file.h"
#include "san/base/parallel.h"
#include "san/cli/commands.h"
#include "san/cli/main.h"
#include "san/cli/progress.h"
#include "san/model/model_folder.h"
#include "san/train/trainer.h"

namespace san::cli {
namespace {

std::atomic<bool> stop_requested{false};
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler may only touch lock-free atomics");

// The first signal asks for a clean stop after the step under way; the second one ends the process.
void on_signal(int signal) {
  if (stop_requested.exchange(true)) {
    std::signal(signal, SIG_DFL);
    std::raise(signal);
  }
}

struct Options {
  std::string config, out, resume;
  std::vector<std::string> set;
  int threads = 0, ensemble = 1;
  bool quiet = false, list_options = false;
};

std::string duration(double seconds) {
  if (seconds < 90) return fmt::format("{:.0f}s", seconds);
  if (seconds < 5400) return fmt::format("{:.0f}min", seconds / 60);
  return fmt::format("{:.1f}h", seconds / 3600);
}

std::string metrics_text(const std::vector<std::pair<std::string, double>>& metrics) {
  std::string out;
  for (const auto& [name, value] : metrics) out += fmt::format("{}{} {:.4f}", out.empty() ? "" : "  ", name, value);
  return out;
}

// A live line on a terminal, one plain line per epoch elsewhere.
class Display {
 public:
  explicit Display(bool quiet) : quiet_(quiet), live_(!quiet && ::isatty(STDERR_FILENO) != 0) {}

  void operator()(const TrainProgress& p) {
    if (quiet_) return;
    if (p.record == nullptr) {
      if (!live_) return;
      fmt::print(stderr, "\r\033[Kepoch {:>3}/{}  {:>4}/{} batches  {:.0f} graphs/s  loss {:.4f}{}  ETA {}",
                 p.epoch + 1, p.epochs, p.batch, p.batches, p.graphs_per_second, p.loss, best_,
                 duration(p.seconds_left));
      return;
    }
    const EpochRecord& r = *p.record;
    const auto& metrics = r.valid_metrics.empty() ? r.train_metrics : r.valid_metrics;
    const char* part = r.valid_metrics.empty() ? "train" : "valid";
    if (p.best && !metrics.empty()) best_ = fmt::format("  best {} {:.4f}", metrics[0].first, metrics[0].second);
    fmt::print(stderr, "{}epoch {:>3}/{}  loss {:.4f}  {} loss {:.4f}  {}{}  lr {:.2g}  {:.0f} graphs/s{}\n",
               live_ ? "\r\033[K" : "", r.epoch, p.epochs, r.train_loss, part,
               r.valid_metrics.empty() ? r.train_loss : r.valid_loss, metrics_text(metrics),
               r.test_metrics.empty() ? "" : "  test " + metrics_text(r.test_metrics), r.learning_rate,
               p.graphs_per_second, p.best ? "  *" : "");
  }

 private:
  bool quiet_, live_;
  std::string best_;
};

std::string command_line(int argc, char** argv) {
  std::string out = argv[0];
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const bool plain =
        !word.empty() &&
        word.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:=,+@%") ==
            std::string::npos;
    std::string quoted = "'";
    for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
    out += ' ' + (plain ? word : quoted + "'");
  }
  return out;
}

Dataset prepare_data(const RunConfig& config, int threads, bool quiet) {
  const std::unique_ptr<GraphSource> source = open_source(config.data.path, source_options(config.data));
  PrepareOptions options;
  options.spectral = config.spectral;
  options.with_spectra = config.model.lpe.kind != LpeKind::kNone;
  options.threads = threads;
  options.skip_bad_records = config.data.skip_bad_records;
  ProgressBar bar("preparing", "graphs");
  if (!quiet) options.progress = [&](const Progress& progress) { bar.update(progress.done, progress.fraction); };
  options.on_bad_record = [&](const std::string& message) {
    bar.clear();
    fmt::print(stderr, "san: {}\n", message);
  };
  return Dataset::prepare(*source, options);
}

void print_result(const TrainResult& result, const std::filesystem::path& folder) {
  if (!result.metric.empty()) {
    fmt::print("best epoch {}: {} {:.4f} (validation)\n", result.best_epoch, result.metric, result.best_valid);
  }
  if (!result.test_metrics.empty()) fmt::print("test: {}\n", metrics_text(result.test_metrics));
  if (!result.published_metrics.empty()) {
    fmt::print("test, mean of batch means as published: {}\n", metrics_text(result.published_metrics));
  }
  fmt::print("{} epochs in {}; model {}, report {}\n", result.epochs, duration(result.seconds),
             (folder / "model").string(), (folder / "report.html").string());
}

int interrupted(const std::filesystem::path& folder) {
  fmt::print(stderr, "\nsan: stopped; go on with: san train --resume {}\n", folder.string());
  return kFailed;
}

int train_one(RunConfig config, const Dataset& data, const std::filesystem::path& folder, bool resume,
              const std::string& command, bool quiet, TrainResult& result) {
  TrainJob job;
  job.splits = resume ? read_splits(folder / "splits.json", data.size()) : make_splits(config.data, data);
  job.description = resolve(config, data, job.splits);
  job.config = config;
  job.folder = folder;
  job.command = command;
  job.resume = resume;
  job.stop = &stop_requested;
  Display display(quiet);
  job.progress = [&](const TrainProgress& progress) { display(progress); };
  if (!quiet) {
    fmt::print(stderr, "{} graphs (train {}, valid {}, test {}), {} parameters\n", data.size(), job.splits.train.size(),
               job.splits.valid.size(), job.splits.test.size(), parameter_count(job.description.model));
  }
  result = train(job, data);
  return result.interrupted ? interrupted(folder) : kDone;
}

// K runs with consecutive seeds side by side, and one model folder that holds them all.
int train_ensemble(const RunConfig& config, const Dataset& data, const std::filesystem::path& folder, int members,
                   const std::string& command, bool quiet) {
  std::vector<std::string> names;
  for (int k = 0; k < members; ++k) {
    RunConfig one = config;
    one.train.seed = config.train.seed + k;
    const std::filesystem::path run = folder / fmt::format("seed-{}", one.train.seed);
    const bool resume = std::filesystem::exists(run / "last" / "state.safetensors");
    if (!quiet) fmt::print(stderr, "member {}/{}: {}{}\n", k + 1, members, run.string(), resume ? " (resuming)" : "");
    TrainResult result;
    const int code = train_one(one, data, run, resume, command, quiet, result);
    if (code != kDone) return code;
    print_result(result, run);
    const std::string name = fmt::format("member-{}", k);
    write_model(folder / "model" / name, read_model(run / "model"));
    names.push_back(name);
  }
  const nlohmann::json index = {{"format", "san-ensemble"}, {"version", 1}, {"members", names}};
  write_file(folder / "model" / "ensemble.json", index.dump(1) + "\n");
  fmt::print("ensemble of {}: model {}\n", members, (folder / "model").string());
  return kDone;
}

}  // namespace

int run_train(int argc, char** argv) {
  const std::string command = command_line(argc, argv);
  Options options;
  CLI::App app(
      "Trains a Spectral Attention Network.\n\n"
      "  san train --data molecules.csv --target-columns logP --task regression --out runs/logp\n"
      "  san train --config configs/zinc.toml --data FOLDER --out runs/zinc --set train.epochs=100\n"
      "  san train --resume runs/zinc");
  std::vector<std::string> assignments;  // flags as --set would say them, in order
  const auto flag = [&](const char* name, const char* option, const char* help, const char* group) {
    app.add_option_function<std::string>(
           name,
           [&assignments, option](const std::string& value) {
             assignments.push_back(fmt::format("{}={}", option, value));
           },
           help)
        ->group(group);
  };
  // Strings are quoted for TOML, so that a column called "1" stays a string.
  const auto text_flag = [&](const char* name, const char* option, const char* help, const char* group) {
    app.add_option_function<std::string>(
           name,
           [&assignments, option](const std::string& value) {
             assignments.push_back(fmt::format("{}={}", option, nlohmann::json(value).dump()));
           },
           help)
        ->group(group);
  };
  constexpr const char* kData = "Data";
  text_flag("--data", "data.path", "CSV of SMILES, Graph JSONL, TU or OGB folder, generate:pattern|cluster|csl", kData);
  text_flag("--smiles-column", "data.smiles_column", "CSV column of the SMILES [smiles]", kData);
  app.add_option_function<std::vector<std::string>>(
         "--target-columns",
         [&](const std::vector<std::string>& names) {
           assignments.push_back("data.target_columns=" + nlohmann::json(names).dump());
         },
         "CSV columns to learn; blank = missing")
      ->delimiter(',')
      ->group(kData);
  text_flag("--split-column", "data.split_column", "CSV column of train / valid / test", kData);
  text_flag("--split", "data.split", "auto, random, stratified, scaffold, given, k-fold or file [auto]", kData);
  text_flag("--task", "data.task", "regression, binary, multiclass or node-classification", kData);
  text_flag("--featuriser", "data.featuriser", "molecules: ogb or zinc [ogb]", kData);
  app.add_option_function<std::string>(
         "--on-error",
         [&](const std::string& value) {
           assignments.push_back(fmt::format("data.skip_bad_records={}", value == "skip"));
         },
         "a record that cannot be read: fail or skip [fail]")
      ->check(CLI::IsMember({"skip", "fail"}))
      ->group(kData);
  constexpr const char* kTraining = "Training";
  flag("--epochs", "train.epochs", "at most so many", kTraining);
  flag("--seed", "train.seed", "seed of weights, order, dropout and signs", kTraining);
  flag("--eval-test-every", "train.eval_test_every", "test score every so many epochs (published protocol)", kTraining);
  text_flag("--engine", "train.engine", "what computes: fused (default) or torch", kTraining);
  app.add_option("--threads", options.threads, "threads; 0 = all cores")->check(CLI::Range(0, 1024))->group(kTraining);
  app.add_option("--ensemble", options.ensemble, "train so many seeds; predict gives mean and standard deviation")
      ->check(CLI::Range(1, 1000))
      ->group(kTraining);
  constexpr const char* kRun = "Run";
  app.add_option("--config", options.config, "TOML file, as in configs/")->group(kRun);
  app.add_option("--set", options.set, "any option: --set model.gamma=1e-5 (see --list-options)")->group(kRun);
  app.add_option("--out", options.out, "run folder to write")->group(kRun);
  app.add_option("--resume", options.resume, "run folder to go on with")->group(kRun);
  app.add_flag("--quiet", options.quiet, "only the result")->group(kRun);
  app.add_flag("--list-options", options.list_options, "print every option of config files and --set")->group(kRun);
  int exit_code = 0;
  if (!parse_flags(app, argc, argv, exit_code)) return exit_code;
  if (options.list_options) return fmt::print("{}", describe_options()), kDone;

  RunConfig config;
  std::filesystem::path folder = options.out;
  const bool resume = !options.resume.empty();
  if (resume) {
    SAN_CHECK(options.config.empty() && options.out.empty(),
              "--resume goes without --config and --out: the run folder has them");
    folder = options.resume;
    SAN_CHECK(std::filesystem::exists(folder / "config.toml"), "{}: not a run folder (no config.toml)",
              folder.string());
    read_toml(config, folder / "config.toml");
  } else {
    SAN_CHECK(!options.out.empty(), "--out is missing: the run folder to write");
    if (!options.config.empty()) read_toml(config, options.config);
  }
  for (const std::string& assignment : assignments) set_option(config, assignment);
  for (const std::string& assignment : options.set) set_option(config, assignment);
  SAN_CHECK(!config.data.path.empty(), "--data is missing: what to train on");
  SAN_CHECK(config.is_given("data.task"), "--task is missing: regression, binary, multiclass or node-classification");
  validate(config);

  if (options.threads == 0) options.threads = available_threads();
  at::set_num_threads(options.threads);
  std::signal(SIGINT, on_signal);
  std::signal(SIGTERM, on_signal);
  const Dataset data = prepare_data(config, options.threads, options.quiet);
  if (options.ensemble > 1) return train_ensemble(config, data, folder, options.ensemble, command, options.quiet);
  TrainResult result;
  const int code = train_one(config, data, folder, resume, command, options.quiet, result);
  if (code == kDone) print_result(result, folder);
  return code;
}

}  // namespace san::cli
