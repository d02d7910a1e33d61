// san train: data in, a run folder with a trained model and a report out.
#include <ATen/Parallel.h>

#include <nlohmann/json.hpp>

#include "san/base/file.h"
#include "san/base/parallel.h"
#include "san/cli/commands.h"
#include "san/cli/main.h"
#include "san/cli/progress.h"
#include "san/cli/training.h"
#include "san/model/model_folder.h"

namespace san::cli {
namespace {

struct Options {
  std::string config, out, resume;
  std::vector<std::string> set;
  int threads = 0, ensemble = 1;
  bool quiet = false, list_options = false;
};

// As a string of TOML, so that a column called "1" stays a string.
std::string quoted(const char* flag, const nlohmann::json& text) {
  try {
    return text.dump();
  } catch (const nlohmann::json::exception&) {
    fail("{}: its text is not UTF-8, as configuration files must be", flag);
  }
}

int interrupted(const std::filesystem::path& folder) {
  say("\nsan: stopped; go on with: san train --resume {}\n", folder.string());
  return kFailed;
}

// K runs with consecutive seeds side by side, and one model folder that holds them all.
int train_ensemble(const RunConfig& config, const Dataset& data, const std::filesystem::path& folder, int members,
                   const std::string& command, bool quiet) {
  std::vector<std::string> names;
  for (int k = 0; k < members; ++k) {
    RunConfig one = config;
    one.train.seed = config.train.seed + k;
    const std::filesystem::path run = folder / fmt::format("seed-{}", one.train.seed);
    const bool resume = has_checkpoint(run);
    if (!quiet) say("member {}/{}: {}{}\n", k + 1, members, run.string(), resume ? " (resuming)" : "");
    const TrainResult result = train_one(one, data, run, resume, command, quiet);
    if (result.interrupted) return interrupted(run);
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
      "  san train --config configs/zinc.toml --data train=A.csv,valid=B.csv,test=C.csv --target-columns y --out "
      "runs/zinc\n"
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
  const auto text_flag = [&](const char* name, const char* option, const char* help, const char* group) {
    app.add_option_function<std::string>(
           name,
           [&assignments, name, option](const std::string& value) {
             assignments.push_back(fmt::format("{}={}", option, quoted(name, value)));
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
           assignments.push_back("data.target_columns=" + quoted("--target-columns", names));
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
  if (options.list_options) {
    fmt::print(
        "{}\nWhat is not given and follows from the data and the task: tables, values, outputs, readout, loss; and, "
        "where none of\n"
        "model.layers, model.hidden_dim and model.heads is given, sizes of the network and of its LPE, dropout and "
        "gamma.\n"
        "A run's config.toml names what was chosen.\n",
        describe_options());
    return kDone;
  }

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
  const int epochs_before = config.train.epochs;
  for (const std::string& assignment : assignments) set_option(config, assignment);
  for (const std::string& assignment : options.set) set_option(config, assignment);
  SAN_CHECK(!config.data.path.empty(), "--data is missing: what to train on");
  SAN_CHECK(config.is_given("data.task"), "--task is missing: regression, binary, multiclass or node-classification");
  validate(config);
  if (resume && config.train.schedule == ScheduleKind::kCosine && config.train.epochs != epochs_before &&
      !options.quiet) {
    say("san: the learning rate goes on along a cosine over {} epochs instead of {}\n", config.train.epochs,
        epochs_before);
  }
  SAN_CHECK(!resume || options.ensemble == 1, "--ensemble goes without --resume: its own command goes on with it");
  SAN_CHECK(options.ensemble == 1 || !std::filesystem::exists(folder / "config.toml"),
            "{}: holds a run of one network; choose another --out for an ensemble", folder.string());
  SAN_CHECK(options.ensemble > 1 || !std::filesystem::exists(folder / "model" / "ensemble.json"),
            "{}: holds an ensemble; choose another --out", folder.string());

  if (options.threads == 0) options.threads = available_threads();
  at::set_num_threads(options.threads);
  stop_on_signals();
  const std::optional<Dataset> data = prepare_data(config, options.threads, options.quiet);
  if (!data && resume) return interrupted(folder);
  if (!data) return say("\nsan: stopped before anything was trained\n"), kFailed;
  if (options.ensemble > 1) return train_ensemble(config, *data, folder, options.ensemble, command, options.quiet);
  const TrainResult result = train_one(config, *data, folder, resume, command, options.quiet);
  if (result.interrupted) return interrupted(folder);
  print_result(result, folder);
  return kDone;
}

}  // namespace san::cli
