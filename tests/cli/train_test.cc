// `san train`, `eval` and `predict` as people run them: every task, resume after kill -9 at any moment, signals, two runs at once.
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>
#include <thread>

#include "san/base/random.h"
#include "san/data/csv.h"
#include "san/graph/generators.h"
#include "san/graph/jsonl.h"
#include "san/model/safetensors.h"
#include "tests/cli/run.h"

namespace san {
namespace {

using testing::contains;
using testing::Ran;
using testing::run;
using testing::TemporaryFolder;

// 32 small graphs of two kinds of features, with labels that the features decide.
std::string write_graphs(const TemporaryFolder& folder, const std::string& kind) {
  std::string text;
  Random random(7);
  for (int i = 0; i < 32; ++i) {
    Graph graph = make_random_graph(random.range(4, 10), 0.4, static_cast<uint64_t>(i));
    graph.id = "g" + std::to_string(i);
    graph.split = i < 24 ? "train" : i < 28 ? "valid" : "test";
    graph.node_features = {1, 0, {}, {}};
    double ones = 0;
    for (int node = 0; node < graph.num_nodes; ++node) {
      graph.node_features.categories.push_back(random.range(0, 3));
      ones += graph.node_features.categories.back() == 1;
      if (kind == "node") graph.node_labels.push_back(graph.node_features.categories.back() == 2 ? 1 : 0);
    }
    const double share = ones / graph.num_nodes;
    if (kind == "regression") graph.graph_labels = {10 + 3 * share, i % 5 == 0 ? std::nan("") : -share};
    if (kind == "binary") graph.graph_labels = {share > 0.3 ? 1.0 : 0.0};
    if (kind == "multiclass") graph.graph_labels = {share < 0.2 ? 0.0 : share < 0.4 ? 1.0 : 2.0};
    text += format_graph(graph) + "\n";
  }
  const std::string path = folder.file(kind + ".jsonl");
  write_file(path, text);
  return path;
}

std::vector<std::string> train_arguments(const std::string& data, const std::string& task, const std::string& out,
                                         int epochs) {
  return {"train",
          "--data",
          data,
          "--task",
          task,
          "--out",
          out,
          "--epochs",
          std::to_string(epochs),
          "--set",
          "model.hidden_dim=16",
          "--set",
          "model.heads=2",
          "--set",
          "model.layers=2",
          "--set",
          "model.lpe.ff_dim=16",
          "--set",
          "model.lpe.dim=4",
          "--set",
          "model.lpe.heads=2",
          "--set",
          "train.batch_size=8",
          "--set",
          "spectral.num_pairs=4",
          "--threads",
          "1"};
}

// Between the numbers of two predictions files, relative to the largest number.
double largest_difference(const std::string& a, const std::string& b) {
  std::istringstream left(a), right(b);
  std::string line, other;
  double difference = 0, largest = 0;
  for (bool header = true; std::getline(left, line); header = false) {
    if (!std::getline(right, other)) return INFINITY;
    if (header) continue;
    std::istringstream fields(line), others(other);
    for (std::string x, y; std::getline(fields, x, ',') && std::getline(others, y, ',');) {
      if (x.starts_with("g")) continue;  // the id
      difference = std::max(difference, std::abs(std::stod(x) - std::stod(y)));
      largest = std::max(largest, std::abs(std::stod(y)));
    }
  }
  return largest > 0 && !std::getline(right, other) ? difference / largest : INFINITY;
}

TEST(TrainCommand, LearnsEveryTaskAndItsModelPredictsAndEvaluates) {
  const TemporaryFolder folder;
  for (const auto& [kind, task] : {std::pair<std::string, std::string>{"regression", "regression"},
                                   {"binary", "binary"},
                                   {"multiclass", "multiclass"},
                                   {"node", "node-classification"}}) {
    SCOPED_TRACE(task);
    const std::string data = write_graphs(folder, kind), out = folder.file("run-" + kind);
    const Ran trained = run(folder, train_arguments(data, task, out, 3));
    ASSERT_EQ(trained.code, 0) << trained.err;
    EXPECT_TRUE(contains(trained.out, "test: ")) << trained.out;
    for (const char* file :
         {"config.toml", "splits.json", "metrics.csv", "model/config.json", "model/model.safetensors",
          "last/state.safetensors", "test_predictions.csv", "report.html"}) {
      EXPECT_TRUE(std::filesystem::exists(std::filesystem::path(out) / file)) << file;
    }
    const Ran predicted = run(folder, {"predict", "--model", out + "/model", "--data", data});
    EXPECT_EQ(predicted.code, 0) << predicted.err;
    const Ran by_run = run(folder, {"predict", "--model", out, "--data", data});
    EXPECT_EQ(by_run.out, predicted.out) << by_run.err;
    // The fused engine, which is what a trained model is predicted with, against the definition in double.
    const Ran exact = run(folder, {"predict", "--model", out + "/model", "--data", data, "--precision", "double"});
    EXPECT_EQ(exact.code, 0) << exact.err;
    EXPECT_LE(largest_difference(predicted.out, exact.out), 1e-5) << predicted.out << exact.out;
    const Ran evaluated = run(folder, {"eval", "--model", out + "/model", "--data", data, "--part", "test"});
    EXPECT_EQ(evaluated.code, 0) << evaluated.err;
    EXPECT_TRUE(contains(evaluated.out, "loss")) << evaluated.out;
  }
}

TEST(TrainCommand, WalkFeaturesTravelWithTheModel) {
  const TemporaryFolder folder;
  const std::string data = write_graphs(folder, "regression"), out = folder.file("run");
  auto arguments = train_arguments(data, "regression", out, 2);
  arguments.insert(arguments.end(), {"--set", "spectral.walk_steps=5", "--set", "model.standardise_nodes=true", "--set",
                                     "model.incident_edges=true"});
  const Ran trained = run(folder, arguments);
  ASSERT_EQ(trained.code, 0) << trained.err;
  const Ran predicted = run(folder, {"predict", "--model", out, "--data", data});
  ASSERT_EQ(predicted.code, 0) << predicted.err;
  const Ran exact = run(folder, {"predict", "--model", out, "--data", data, "--precision", "double"});
  EXPECT_LE(largest_difference(predicted.out, exact.out), 1e-5) << exact.err;
  EXPECT_EQ(run(folder, {"eval", "--model", out, "--data", data, "--part", "test"}).code, 0);
  EXPECT_EQ(run(folder, {"embed", "--model", out, "--data", data, "--out", folder.file("e.csv")}).code, 0);

  // What the features are standardised by. No walk returns after one step: that column stays as it is.
  const TensorFile weights = read_safetensors(out + "/model/model.safetensors");
  const Tensor &mean = weights.tensors.at("node_embedding.mean"),
               &deviation = weights.tensors.at("node_embedding.deviation");
  ASSERT_EQ(mean.count(), 5);
  EXPECT_EQ(mean.f32()[0], 0);
  EXPECT_EQ(deviation.f32()[0], 1);
  for (int i : {1, 3}) {
    EXPECT_GT(mean.f32()[i], 0.1);
    EXPECT_GT(deviation.f32()[i], 0);
    EXPECT_LT(deviation.f32()[i], 0.5);
  }
}

TEST(TrainCommand, AverageIsOfTheWeightsThatAreTrainedAndChangesNothingElse) {
  const TemporaryFolder folder;
  const std::string data = write_graphs(folder, "regression");
  const auto first_epochs = [&](const std::string& out, const std::string& average) {
    auto arguments = train_arguments(data, "regression", folder.file(out), 2);
    arguments.insert(arguments.end(), {"--set", "train.average=" + average});
    const Ran ran = run(folder, arguments);
    EXPECT_EQ(ran.code, 0) << ran.err;
    CsvReader rows(folder.file(out) + "/metrics.csv");
    std::vector<std::pair<std::string, std::string>> losses;
    while (rows.next()) losses.emplace_back(rows[rows.column("train_loss")], rows[rows.column("valid_loss")]);
    return losses;
  };
  const auto plain = first_epochs("plain", "0"), averaged = first_epochs("averaged", "0.9"),
             hardly = first_epochs("hardly", "1e-30");
  ASSERT_EQ(plain.size(), 2U);
  ASSERT_EQ(averaged.size(), 2U);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(plain[i].first, averaged[i].first);
    EXPECT_NE(plain[i].second, averaged[i].second);
  }
  EXPECT_EQ(plain, hardly);  // the mean over one step
  const Ran wrong = run(folder, {"train", "--data", data, "--task", "regression", "--out", folder.file("wrong"),
                                 "--set", "train.average=1"});
  EXPECT_EQ(wrong.code, 1);
  EXPECT_TRUE(contains(wrong.err, "train.average")) << wrong.err;
}

TEST(TrainCommand, TheSameSeedGivesTheSameBitsAndAnotherSeedOthers) {
  const TemporaryFolder folder;
  const std::string data = write_graphs(folder, "regression");
  ASSERT_EQ(run(folder, train_arguments(data, "regression", folder.file("a"), 2)).code, 0);
  ASSERT_EQ(run(folder, train_arguments(data, "regression", folder.file("b"), 2)).code, 0);
  auto other = train_arguments(data, "regression", folder.file("c"), 2);
  other.insert(other.end(), {"--seed", "1"});
  ASSERT_EQ(run(folder, other).code, 0);
  const auto weights = [&](const char* name) {
    return read_file(folder.file(name) + "/model/model.safetensors", 1 << 24);
  };
  EXPECT_EQ(weights("a"), weights("b"));
  EXPECT_NE(weights("a"), weights("c"));
}

// Optimiser steps done, as the last checkpoint says; 0 without one.
int64_t steps_kept(const std::string& run) {
  const std::string path = run + "/last/state.safetensors";
  if (!std::filesystem::exists(path)) return 0;
  return nlohmann::json::parse(read_safetensors(path).metadata.at("state")).at("step").get<int64_t>();
}

// Optimiser steps done, as the terminal showed them before the end: "epoch   3/60     2/3 batches ...".
int64_t steps_shown(const std::string& terminal, int batches) {
  static const std::regex pattern(R"(epoch +([0-9]+)/[0-9]+  (?: *([0-9]+)/[0-9]+ batches|loss))");
  int64_t steps = 0;
  for (std::sregex_iterator found(terminal.begin(), terminal.end(), pattern), end; found != end; ++found) {
    const int64_t epoch = std::stoll((*found)[1]);
    steps = (*found)[2].matched ? (epoch - 1) * batches + std::stoll((*found)[2]) : epoch * batches;
  }
  return steps;
}

// metrics.csv without the column of seconds.
std::string metrics_of(const std::string& run) {
  return std::regex_replace(read_file(run + "/metrics.csv", 1 << 24), std::regex(R"(\n([0-9]+),[^,]*,)"), "\n$1,");
}

// SAN_KILLS=200 makes it the long test of a release; the default is for every day.
TEST(TrainCommand, ResumesBitForBitAfterBeingKilledAtAnyMoment) {
  const char* asked = std::getenv("SAN_KILLS");
  const int wanted = asked != nullptr ? std::atoi(asked) : 12;
  constexpr int kBatches = 3;
  const TemporaryFolder folder;
  const std::string data = write_graphs(folder, "binary");
  const auto arguments = [&](const std::string& out) {
    auto all = train_arguments(data, "binary", out, 60);
    all.insert(
        all.end(),
        {"--set", "train.checkpoint_seconds=0", "--set", "model.dropout=0.1",  // a checkpoint at every step
         "--set", "train.average=0.9", "--set", "spectral.walk_steps=4", "--set", "model.standardise_nodes=true"});
    return all;
  };
  const std::string whole = folder.file("whole");
  const auto milliseconds_since = [](std::chrono::steady_clock::time_point start) {
    return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - start).count();
  };
  auto start = std::chrono::steady_clock::now();
  ASSERT_EQ(run(folder, arguments(whole)).code, 0);
  int64_t whole_time =
      milliseconds_since(start);  // the shortest so far: other work on the machine may have slowed the first
  const auto weights = [](const std::string& run) { return read_file(run + "/model/model.safetensors", 1 << 24); };
  Random random(11);
  int kills = 0, runs = 0, in_the_work = 0;
  int64_t most_lost = 0;
  // Runs are killed and resumed until they end; another one begins while there are kills left.
  while (kills < wanted || runs == 0) {
    const std::string out = folder.file("killed-" + std::to_string(runs));
    for (bool ended = false; !ended;) {
      const int64_t kept = steps_kept(out);
      const bool resume = std::filesystem::exists(out + "/last/state.safetensors");
      if (!resume) std::filesystem::remove_all(out);
      testing::RunOptions options;
      options.terminal = true;
      // Kills land before, in and after the work, however slow the machine is.
      const auto latest = static_cast<uint64_t>(std::max<int64_t>(1, whole_time * 3 / 4));
      options.signal_after = kills < wanted ? 50 + static_cast<int>(random.below(latest)) : 0;
      start = std::chrono::steady_clock::now();
      const Ran ran = testing::run_with(
          folder, resume ? std::vector<std::string>{"train", "--resume", out, "--threads", "1"} : arguments(out),
          options);
      ended = ran.code == 0;
      if (ended && !resume) whole_time = std::min(whole_time, milliseconds_since(start));
      if (ended) break;
      ASSERT_TRUE(ran.killed) << ran.err;
      ++kills;
      const int64_t shown = std::max(kept, steps_shown(ran.err, kBatches)), after = steps_kept(out);
      in_the_work += shown > kept;
      // A step is shown before its checkpoint is written: that one step may be lost, no other.
      ASSERT_GE(after, shown - 1) << "kill " << kills << ": " << shown << " steps were done, " << after << " kept";
      most_lost = std::max(most_lost, shown - after);
    }
    ++runs;
    ASSERT_EQ(weights(out), weights(whole)) << "after " << kills << " kills";
    ASSERT_EQ(read_file(out + "/test_predictions.csv", 1 << 24), read_file(whole + "/test_predictions.csv", 1 << 24));
    ASSERT_EQ(metrics_of(out), metrics_of(whole));
    std::filesystem::remove_all(out);
  }
  std::printf("%d kills, %d of them after steps were done, over %d runs of %d steps; at most %d steps lost\n", kills,
              in_the_work, runs, 60 * kBatches, static_cast<int>(most_lost));
  EXPECT_EQ(kills, wanted);
}

TEST(TrainCommand, StopsCleanlyOnASignalAndSaysHowToGoOn) {
  const TemporaryFolder folder;
  const std::string data = write_graphs(folder, "binary"), out = folder.file("run");
  const Ran ran = testing::run_and_kill(folder, train_arguments(data, "binary", out, 100000), 3000, SIGINT);
  EXPECT_EQ(ran.code, 1) << ran.err;
  EXPECT_TRUE(contains(ran.err, "go on with: san train --resume " + out)) << ran.err;
  const Ran resumed = run(folder, {"train", "--resume", out, "--epochs", "1", "--threads", "1"});
  EXPECT_EQ(resumed.code, 0) << resumed.err;
}

TEST(TrainCommand, StopsWhileDataIsPrepared) {
  const TemporaryFolder folder;
  const std::filesystem::path cache = folder.file("cache");
  testing::RunOptions options;
  std::jthread sender;
  options.started = [&](pid_t pid) {
    sender = std::jthread([&, pid] {
      for (int i = 0; i < 6000 && (!std::filesystem::exists(cache) || std::filesystem::is_empty(cache)); ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      }
      ::kill(pid, SIGINT);
    });
  };
  // All 12,000 graphs: more than a second's work on any machine.
  const Ran ran = testing::run_with(
      folder, train_arguments("generate:cluster", "node-classification", folder.file("run"), 1), options);
  EXPECT_EQ(ran.code, 1) << ran.err;
  EXPECT_TRUE(contains(ran.err, "san: stopped before anything was trained")) << ran.err;
  EXPECT_FALSE(std::filesystem::exists(folder.file("run")));
  EXPECT_TRUE(std::filesystem::is_empty(cache));
}

TEST(TrainCommand, DoesNotGoOnWithOtherData) {
  const TemporaryFolder folder;
  const std::string data = write_graphs(folder, "regression"), out = folder.file("run");
  ASSERT_EQ(run(folder, train_arguments(data, "regression", out, 1)).code, 0);
  ASSERT_EQ(run(folder, {"train", "--resume", out, "--epochs", "2", "--threads", "1"}).code, 0);
  std::string text = read_file(data, 1 << 24);
  const size_t label = text.find("\"label\"");
  ASSERT_NE(label, std::string::npos);
  text.insert(text.find_first_of("0123456789", label), 1, '9');
  write_file(data, text);
  const Ran ran = run(folder, {"train", "--resume", out, "--epochs", "3", "--threads", "1"});
  EXPECT_EQ(ran.code, 1) << ran.err;
  EXPECT_TRUE(contains(ran.err, out + ": its data has changed since it began (" + data + ")")) << ran.err;
}

TEST(TrainCommand, DoesNotGoOnWithOtherNodeLabelsOrOptions) {
  const TemporaryFolder folder;
  const std::string data = write_graphs(folder, "node"), out = folder.file("run");
  ASSERT_EQ(run(folder, train_arguments(data, "node-classification", out, 1)).code, 0);
  const std::string config = read_file(out + "/config.toml", 1 << 20);
  for (const char* change : {"train.seed=9", "train.lr=1", "spectral.num_pairs=3", "data.split=random"}) {
    const Ran ran = run(folder, {"train", "--resume", out, "--set", change, "--threads", "1"});
    EXPECT_EQ(ran.code, 1) << change;
    EXPECT_TRUE(contains(ran.err, out + ": was begun with ")) << ran.err;
  }
  EXPECT_EQ(read_file(out + "/config.toml", 1 << 20), config);
  std::string text = read_file(data, 1 << 24);
  const size_t label = text.find_first_of("01", text.find("\"node_label\""));
  text[label] = text[label] == '0' ? '1' : '0';
  write_file(data, text);
  const Ran ran = run(folder, {"train", "--resume", out, "--epochs", "2", "--threads", "1"});
  EXPECT_EQ(ran.code, 1) << ran.err;
  EXPECT_TRUE(contains(ran.err, "its data has changed")) << ran.err;
}

// Graphs with one real-valued feature; those of the validation part have `large`.
std::string write_values(const TemporaryFolder& folder, float large, bool labelled) {
  std::string text;
  for (int i = 0; i < 24; ++i) {
    Graph graph = make_random_graph(5, 0.5, static_cast<uint64_t>(i));
    graph.split = i < 16 ? "train" : i < 20 ? "valid" : "test";
    const bool valid = graph.split == "valid";
    graph.node_features = {0, 1, {}, std::vector<float>(5, valid ? large : static_cast<float>(i % 3))};
    graph.graph_labels = {valid && !labelled ? std::nan("") : i % 3};
    text += format_graph(graph) + "\n";
  }
  const std::string path = folder.file(fmt::format("values{}.jsonl", labelled));
  write_file(path, text);
  return path;
}

TEST(TrainCommand, AScoreThatIsNotANumberIsNeverBetter) {
  const TemporaryFolder folder;
  const Ran ran = run(folder, train_arguments(write_values(folder, 3e38F, true), "regression", folder.file("run"), 3));
  ASSERT_EQ(ran.code, 0) << ran.err;
  EXPECT_TRUE(contains(ran.out, "best epoch 1: mae nan (validation)")) << ran.out;
}

TEST(TrainCommand, ABestModelThatWasNotWrittenComesFromTheCheckpoint) {
  const TemporaryFolder folder;
  const std::string data = write_values(folder, 1.0F, true), out = folder.file("run");
  ASSERT_EQ(run(folder, train_arguments(data, "regression", out, 1)).code, 0);
  const std::string path = out + "/model/model.safetensors", before = read_file(path, 1 << 26);
  std::filesystem::remove(path);  // as if killed after the checkpoint of the best epoch
  const Ran resumed = run(folder, {"train", "--resume", out, "--threads", "1"});
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_EQ(read_file(path, 1 << 26), before);
}

TEST(TrainCommand, EveryPartNeedsLabels) {
  const TemporaryFolder folder;
  const Ran ran = run(folder, train_arguments(write_values(folder, 1, false), "regression", folder.file("run"), 1));
  EXPECT_EQ(ran.code, 1);
  EXPECT_TRUE(contains(ran.err, "the validation part has no labels")) << ran.err;
}

TEST(TrainCommand, SaysWhatIsWrong) {
  const TemporaryFolder folder;
  const std::string data = write_graphs(folder, "regression");
  const auto error = [&](const std::vector<std::string>& more, const std::string& task = "regression", int epochs = 1) {
    auto all = train_arguments(data, task, folder.file("x"), epochs);
    all.insert(all.end(), more.begin(), more.end());
    const Ran ran = run(folder, all);
    EXPECT_NE(ran.code, 0);
    return ran.err;
  };
  EXPECT_TRUE(contains(error({"--set", "model.heads=3"}), "does not divide"));
  EXPECT_TRUE(contains(error({"--set", "model.colour=3"}), "unknown option model.colour"));
  EXPECT_TRUE(contains(error({"--set", "train.lr=fast"}), "train.lr must be a number"));
  EXPECT_TRUE(contains(error({"--set", "nonsense"}), "SECTION.KEY=VALUE"));
  EXPECT_TRUE(contains(error({"--split", "scaffold"}), "scaffold"));
  EXPECT_TRUE(contains(error({}, "binary"), "task binary needs labels 0"));
  EXPECT_TRUE(contains(error({"--config", "/no/such.toml"}), "/no/such.toml"));
  write_file(folder.file("c.toml"), "[train]\nlr = 1e-3\nlrr = 2\n");
  EXPECT_TRUE(contains(error({"--config", folder.file("c.toml")}), "c.toml:3: unknown option train.lrr"));
  EXPECT_FALSE(std::filesystem::exists(folder.file("x") + "/model"));
  EXPECT_TRUE(contains(error({"--smiles-column", "log\xb5M"}), "--smiles-column: its text is not UTF-8"));
  // A loss that blows up stops the run and says where.
  const std::string blown = error({"--set", "train.lr=1e30"}, "regression", 50);
  EXPECT_TRUE(contains(blown, "san: epoch")) << blown;
  EXPECT_TRUE(contains(blown, "not finite") || contains(blown, "the loss is")) << blown;
}

TEST(TrainCommand, ASecondRunStaysOutOfTheFolder) {
  const TemporaryFolder folder;
  const std::string data = write_graphs(folder, "binary"), out = folder.file("run");
  std::thread first(
      [&] { testing::run_and_kill(folder, train_arguments(data, "binary", out, 100000), 4000, SIGTERM); });
  for (int i = 0; i < 100 && !std::filesystem::exists(out + "/last/state.safetensors"); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  const TemporaryFolder other;
  const Ran second = run(other, {"train", "--resume", out, "--threads", "1"});
  first.join();
  EXPECT_EQ(second.code, 1);
  EXPECT_TRUE(contains(second.err, "another run is writing to this folder")) << second.err;
  const Ran third = run(other, train_arguments(data, "binary", out, 1));
  EXPECT_TRUE(contains(third.err, "holds a run already")) << third.err;
}

TEST(TrainCommand, AFullDiskLeavesTheLastGoodCheckpoint) {
  const TemporaryFolder folder;
  const std::string data = write_graphs(folder, "binary"), out = folder.file("run");
  ASSERT_EQ(run(folder, train_arguments(data, "binary", out, 1)).code, 0);
  const std::string before = read_file(out + "/last/state.safetensors", 1 << 24);
  // A limit on file size stands for a full disk: writes fail half-way.
  const Ran full = testing::run_limited(folder, {"train", "--resume", out, "--epochs", "3", "--threads", "1"}, 20000);
  EXPECT_NE(full.code, 0);
  EXPECT_TRUE(contains(full.err, "cannot write")) << full.err;
  EXPECT_EQ(read_file(out + "/last/state.safetensors", 1 << 24), before);
  EXPECT_EQ(run(folder, {"train", "--resume", out, "--epochs", "3", "--threads", "1"}).code, 0);
}

TEST(TrainCommand, AnEnsemblePredictsMeanAndDeviation) {
  const TemporaryFolder folder;
  const std::string data = write_graphs(folder, "regression"), out = folder.file("run");
  auto arguments = train_arguments(data, "regression", out, 1);
  arguments.insert(arguments.end(), {"--ensemble", "2"});
  ASSERT_EQ(run(folder, arguments).code, 0);
  const Ran predicted = run(folder, {"predict", "--model", out + "/model", "--data", data});
  ASSERT_EQ(predicted.code, 0) << predicted.err;
  EXPECT_TRUE(predicted.out.starts_with("id,y0,y1,y0_std,y1_std\n")) << predicted.out.substr(0, 80);
  const Ran evaluated = run(folder, {"eval", "--model", out + "/model", "--data", data});
  EXPECT_TRUE(contains(evaluated.err, "an ensemble; name one of its members")) << evaluated.err;

  // One folder holds the one or the other.
  const Ran plain = run(folder, train_arguments(data, "regression", out, 1));
  EXPECT_EQ(plain.code, 1);
  EXPECT_TRUE(contains(plain.err, "holds an ensemble")) << plain.err;
  arguments[6] = out + "/seed-0";
  const Ran within = run(folder, arguments);
  EXPECT_EQ(within.code, 1);
  EXPECT_TRUE(contains(within.err, "holds a run of one network")) << within.err;
  // The same command goes on; with another option it would be another ensemble.
  arguments[6] = out;
  EXPECT_EQ(run(folder, arguments).code, 0);
  arguments.insert(arguments.end(), {"--set", "train.lr=0.01"});
  EXPECT_TRUE(contains(run(folder, arguments).err, "was begun with train.lr"));
}

}  // namespace
}  // namespace san
