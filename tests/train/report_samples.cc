// Writes sample reports, one per kind of task and some awkward ones, into a folder: report_samples FOLDER. The browser test
// opens them; people look at them after a change of the page.
#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <limits>

#include "san/base/file.h"
#include "san/base/random.h"
#include "san/train/metrics.h"
#include "san/train/report.h"
#include "san/train/reproduction.h"

namespace {

constexpr double kMissing = std::numeric_limits<double>::quiet_NaN();

san::ReportInput base(const std::string& title, san::TaskKind kind, int outputs) {
  san::ReportInput input;
  input.title = title;
  input.command =
      "san train --data my.csv --target-columns y --task regression --split scaffold --seed 7 --out runs/my "
      "--set model.gamma=1e-5";
  input.description.task.kind = kind;
  input.description.model.outputs = outputs;
  input.model = {{"parameters", "454,753"},
                 {"layers, width, heads", "10, 56, 8"},
                 {"attention", "full, gamma 1e-5"},
                 {"LPE", "node, 8 wide, 2 layers, 10 pairs"},
                 {"readout", "sum"}};
  input.data = {{"file", "../data/molecules/my.csv.gz"},
                {"train / valid / test", "902 / 113 / 113"},
                {"split", "scaffold, seed 7"},
                {"targets", "1"},
                {"labels missing", "0"}};
  input.environment = {
      {"san", "0.1.0"}, {"host", "workstation"}, {"threads", "2"}, {"started", "2026-11-16 10:00 UTC"}};
  input.config_toml =
      "[data]\npath = \"my.csv\"\n\n[model]\nlayers = 10\nhidden_dim = 56\ngamma = 1e-05\n\n[train]\nepochs = 120\n";
  return input;
}

// A training that gets better, then overfits; the metric goes from `start` to about `end`.
void train(san::ReportInput& input, int epochs, const std::string& metric, double start, double end) {
  san::Random random(1);
  double best = std::numeric_limits<double>::infinity();
  for (int epoch = 1; epoch <= epochs; ++epoch) {
    const double t = static_cast<double>(epoch) / epochs;
    san::EpochRecord record;
    record.epoch = epoch;
    record.seconds = 13.7 * epoch;
    record.learning_rate = 7e-4 * std::pow(0.5, std::floor(t * 6));
    record.train_loss = 1.9 * std::exp(-6 * t) + 0.02 + 0.01 * random.uniform();
    record.valid_loss = 1.8 * std::exp(-7 * t) + 0.1 + 0.09 * t + 0.03 * random.uniform();
    const auto at = [&](double shift) {
      return end + (start - end) * (std::exp(-6 * t) + shift) + 0.02 * (start - end) * random.normal();
    };
    record.train_metrics = {{metric, at(-0.04)}};
    record.valid_metrics = {{metric, at(0.06 + 0.05 * t)}};
    record.test_metrics = {{metric, at(0.09 + 0.05 * t)}};
    if (record.valid_loss < best) {
      best = record.valid_loss;
      input.best_epoch = epoch;
    }
    input.epochs.push_back(std::move(record));
  }
}

san::ReportInput regression(int rows) {
  auto input = base("ESOL, scaffold split", san::TaskKind::kRegression, 1);
  input.description.task.targets = {"log solubility (mol/L)"};
  san::Random random(2);
  for (int i = 0; i < rows; ++i) {
    const double y = -3 + 2.1 * random.normal();
    input.test_labels.push_back(y);
    input.test_predictions.push_back(0.93 * y - 0.15 + (random.chance(0.03) ? 2.0 : 0.45) * random.normal());
    input.test_ids.push_back(fmt::format("CC(C)c1ccc(cc1)C(C)C(=O)N{}", i));
  }
  train(input, 120, "mae", 1.8, 0.42);
  input.label_columns = 1;
  input.test_metrics = san::task_metrics(input.description.task, input.test_labels, input.test_predictions, 1);
  return input;
}

san::ReportInput many_targets() {
  auto input = base("QM-like, eight targets", san::TaskKind::kRegression, 8);
  input.description.task.loss = san::Loss::kMse;
  for (int c = 0; c < 8; ++c) input.description.task.targets.push_back(fmt::format("property {}", c));
  san::Random random(3);
  for (int i = 0; i < 9000; ++i) {
    for (int c = 0; c < 8; ++c) {
      const double y = std::pow(10.0, c - 4) * random.normal();
      input.test_labels.push_back(c == 5 || random.chance(0.2) ? kMissing : y);
      input.test_predictions.push_back(y + 0.2 * std::pow(10.0, c - 4) * random.normal());
    }
    input.test_ids.push_back(fmt::format("molecule {}", i));
  }
  train(input, 3000, "rmse", 20, 0.4);
  input.epochs[1000].train_loss = 1e4;
  input.epochs[1001].train_loss = std::numeric_limits<double>::infinity();
  input.label_columns = 8;
  input.test_metrics = san::task_metrics(input.description.task, input.test_labels, input.test_predictions, 8);
  return input;
}

san::ReportInput binary(int tasks, int rows) {
  auto input =
      base(tasks == 1 ? "MolHIV, full attention" : "Tox21, twelve assays and more", san::TaskKind::kBinary, tasks);
  input.description.task.loss = san::Loss::kCrossEntropy;
  for (int c = 0; c < tasks; ++c)
    input.description.task.targets.push_back(tasks == 1 ? "HIV_active" : fmt::format("NR-assay-{}", c));
  san::Random random(4);
  for (int i = 0; i < rows; ++i) {
    for (int c = 0; c < tasks; ++c) {
      const double y = c == 3 ? 0 : random.chance(tasks == 1 ? 0.2 : 0.1) ? 1 : 0;
      const double logit = -1.5 + (1.2 + 0.15 * c) * y + random.normal();
      input.test_labels.push_back(tasks > 1 && random.chance(0.2) ? kMissing : y);
      input.test_predictions.push_back(1 / (1 + std::exp(-logit)));
    }
  }
  train(input, 60, "roc_auc", 0.5, 0.86);
  input.label_columns = tasks;
  input.test_metrics = san::task_metrics(input.description.task, input.test_labels, input.test_predictions, tasks);
  return input;
}

san::ReportInput nodes(int classes, san::TaskKind kind) {
  auto input = base(classes == 6 ? "CLUSTER, reduced" : "Many classes", kind, classes);
  input.description.task.loss = san::Loss::kWeightedCrossEntropy;
  if (kind == san::TaskKind::kMulticlass) {
    for (int c = 0; c < classes; ++c) input.description.task.classes.push_back(fmt::format("species number {}", c));
  }
  san::Random random(5);
  for (int i = 0; i < 12000; ++i) {
    const int y = random.range(0, classes);
    input.test_labels.push_back(y);
    const int guess = random.chance(0.7) ? y : random.chance(0.5) ? (y + 1) % classes : random.range(0, classes);
    for (int c = 0; c < classes; ++c) input.test_predictions.push_back(c == guess ? 0.8 : 0.2 / classes);
  }
  const bool node = kind == san::TaskKind::kNodeClassification;
  train(input, 40, node ? "mean_class_recall" : "accuracy", node ? 17 : 0.06, node ? 76 : 0.76);
  input.label_columns = 1;
  input.test_metrics = san::task_metrics(input.description.task, input.test_labels, input.test_predictions, classes);
  return input;
}

san::ReportInput hostile() {
  auto input = regression(3);
  const std::string bad =
      "\"'><script>throw new Error('injected')</script><img src=x onerror=\"throw 1\"> &amp; \x01\xff";
  input.title = input.command = input.config_toml = bad;
  input.config_toml += "</pre></details></script>";
  input.model = input.data = input.environment = {{bad, bad}};
  input.description.task.targets = {bad};
  input.test_ids = {bad, bad, bad};
  for (auto& epoch : input.epochs) epoch.valid_metrics = {{bad, 1.0}};
  input.test_metrics = {{bad, 0.5}};
  return input;
}

san::ReportInput diverged() {
  auto input = regression(50);
  for (auto& epoch : input.epochs) {
    if (epoch.epoch > 3) epoch.train_loss = epoch.valid_loss = kMissing;
    epoch.valid_metrics = epoch.train_metrics = epoch.test_metrics = {{"mae", kMissing}};
  }
  for (double& value : input.test_predictions) value = kMissing;
  input.test_metrics = san::task_metrics(input.description.task, input.test_labels, input.test_predictions, 1);
  return input;
}

san::ReportInput empty() {
  return {};
}

san::ReportInput one_epoch() {
  auto input = binary(1, 40);
  input.epochs.resize(1);
  input.best_epoch = 1;
  return input;
}

// A sweep of gamma, an ablation, a run under way and one that was never begun.
san::Reproduction reproduction() {
  san::Reproduction out;
  out.benchmark = &san::benchmark_of("zinc");
  san::Random random(3);
  const auto add = [&](const std::string& variant, double gamma, double score, int seeds) {
    san::ReproducedGroup group;
    group.variant = group.name = variant;
    san::RunConfig config = san::variant_config(*out.benchmark, san::variant_of(variant));
    if (gamma != config.model.gamma && config.model.full()) group.name += "-gamma-" + san::gamma_text(gamma);
    if (config.model.full()) config.model.gamma = gamma;
    config.train.time_limit = 0.2;
    for (int seed = 0; seed < seeds; ++seed) {
      san::ReproducedRun run;
      run.seed = seed;
      run.config = config;
      for (int epoch = 1; epoch <= 40 + 10 * seed; ++epoch) {
        san::EpochRecord record;
        record.epoch = epoch;
        record.seconds = 12.0 * epoch;
        record.valid_metrics = {{"mae", score + 0.6 * std::exp(-epoch / 8.0) + 0.02 * random.uniform()}};
        run.epochs.push_back(record);
      }
      san::TrainResult result;
      result.stopped = seed == 0 ? "time" : "rule";
      result.metric = "mae";
      result.epochs = static_cast<int64_t>(run.epochs.size());
      result.best_epoch = run.epochs[*run.best()].epoch;
      result.best_valid = run.epochs[*run.best()].valid_metrics[0].second;
      result.test_metrics = {{"mae", score + 0.02 * random.uniform()}};
      result.published_metrics = {{"mae", result.test_metrics[0].second + 0.001}};
      result.seconds = run.epochs.back().seconds;
      result.graphs_per_second = 800;
      result.parameters = 454753;
      result.machine = "a machine";
      run.result = result;
      group.runs.push_back(std::move(run));
    }
    out.groups.push_back(std::move(group));
  };
  add("optimised", 1e-5, 0.14, 4);
  add("sparse-none", 0, 0.27, 4);
  add("sparse-node", 0, 0.2, 4);
  add("full-none", 1e-5, 0.26, 3);
  for (const double gamma : {1e-8, 1e-6, 1e-5, 1e-3, 1e-1}) add("full-node", gamma, 0.16 + gamma, gamma < 1e-2 ? 5 : 2);
  out.groups.back().runs[0].result.reset();
  out.groups.back().runs.push_back({});
  out.groups.back().runs.back().seed = 2;
  return out;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    fmt::print(stderr, "usage: report_samples FOLDER\n");
    return 2;
  }
  const std::filesystem::path folder = argv[1];
  std::filesystem::create_directories(folder);
  const std::pair<const char*, san::ReportInput> samples[] = {
      {"regression", regression(1128)},
      {"many_targets", many_targets()},
      {"binary", binary(1, 4000)},
      {"many_tasks", binary(15, 1500)},
      {"nodes", nodes(6, san::TaskKind::kNodeClassification)},
      {"multiclass", nodes(16, san::TaskKind::kMulticlass)},
      {"hostile", hostile()},
      {"diverged", diverged()},
      {"empty", empty()},
      {"one_epoch", one_epoch()},
  };
  for (const auto& [name, input] : samples) {
    san::write_file(folder / (std::string(name) + ".html"), san::render_report(input));
  }
  san::write_file(folder / "reproduction.html", san::render_page(std::vector{reproduction()}));
  return 0;
}
