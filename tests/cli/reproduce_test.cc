// `san reproduce` as people run it, on few small graphs: stopped, resumed, skipped; its tables against the runs' own files.
#include <algorithm>
#include <cmath>
#include <csignal>
#include <map>
#include <regex>

#include "san/base/file.h"
#include "san/data/csv.h"
#include "san/train/reproduction.h"
#include "tests/cli/run.h"

namespace san {
namespace {

using testing::contains;
using testing::Ran;
using testing::run;
using testing::TemporaryFolder;

std::string text_of(const std::filesystem::path& path) {
  return read_file(path, 1 << 26);
}

// CLUSTER with 24 graphs and a network of one layer.
std::vector<std::string> small(const std::string& out, const std::vector<std::string>& more) {
  std::vector<std::string> all = {"reproduce", "cluster", "--data",    "generate:cluster?train=12&valid=6&test=6",
                                  "--out",     out,       "--threads", "1"};
  for (const char* option :
       {"model.layers=1", "model.hidden_dim=16", "model.heads=2", "model.lpe.dim=4", "model.lpe.heads=2",
        "model.lpe.ff_dim=16", "spectral.num_pairs=4", "train.batch_size=4"}) {
    all.insert(all.end(), {"--set", option});
  }
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

size_t count_of(const std::string& text, const std::string& what) {
  size_t count = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++count;
  return count;
}

// Mean over the classes of their recall in percent, from the predictions that the run wrote.
double recall_of(const std::filesystem::path& run) {
  CsvReader reader((run / "test_predictions.csv").string());
  const size_t label_column = reader.column("label");
  std::map<int, std::pair<double, double>> found;  // class -> right, all
  while (reader.next()) {
    size_t best = 2;  // after id and node
    const auto score = [&](size_t column) { return std::stod(std::string(reader[column])); };
    for (size_t column = 2; column < label_column; ++column) best = score(column) > score(best) ? column : best;
    const int label = static_cast<int>(score(label_column));
    found[label].first += static_cast<int>(best) - 2 == label;
    found[label].second += 1;
  }
  double sum = 0;
  for (const auto& [label, counts] : found) sum += 100 * counts.first / counts.second;
  return sum / static_cast<double>(found.size());
}

TEST(ReproduceCommand, StopsAndGoesOnAndLeavesFinishedRunsAlone) {
  const TemporaryFolder folder;
  const std::filesystem::path out = folder.file("runs"), straight = folder.file("straight");
  const Ran first = run(folder, small(out, {"--seeds", "2", "--epochs", "1"}));
  ASSERT_EQ(first.code, 0) << first.err;
  EXPECT_EQ(count_of(first.err, "beginning"), 2U) << first.err;
  EXPECT_TRUE(contains(text_of(out / "results.md"), "stopped by budget (1 epochs)"));

  // A higher limit: both go on, to the same bits as without the pause.
  const Ran more = run(folder, small(out, {"--seeds", "2", "--epochs", "2"}));
  ASSERT_EQ(more.code, 0) << more.err;
  EXPECT_EQ(count_of(more.err, "going on"), 2U) << more.err;
  ASSERT_EQ(run(folder, small(straight, {"--seeds", "1", "--epochs", "2"})).code, 0);
  EXPECT_EQ(text_of(out / "optimised/seed-0/model/model.safetensors"),
            text_of(straight / "optimised/seed-0/model/model.safetensors"));

  const auto written = [&] {
    return std::filesystem::last_write_time(out / "optimised/seed-1/last/state.safetensors");
  };
  const auto before = written();
  const Ran again = run(folder, small(out, {"--seeds", "2", "--epochs", "2"}));
  ASSERT_EQ(again.code, 0) << again.err;
  EXPECT_EQ(count_of(again.err, "done before"), 2U) << again.err;
  EXPECT_EQ(written(), before);

  // A signal: the finished runs are skipped, the third is kept where it stood, the fourth never begun.
  testing::RunOptions options;
  std::jthread sender;
  options.started = [&](pid_t pid) {
    sender = std::jthread([&, pid] {
      const std::filesystem::path begun = out / "optimised/seed-2/last/state.safetensors";
      for (int i = 0; i < 6000 && !std::filesystem::exists(begun); ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      }
      ::kill(pid, SIGINT);
    });
  };
  const Ran stopped = testing::run_with(folder, small(out, {"--seeds", "2-3", "--epochs", "100000"}), options);
  EXPECT_EQ(stopped.code, 1) << stopped.err;
  EXPECT_TRUE(contains(stopped.err, "san: stopped; go on with: san reproduce cluster ")) << stopped.err;
  const std::string page = text_of(out / "results.html"), table = text_of(out / "results.md");
  EXPECT_TRUE(contains(table, "| 2 of 4 |")) << table;
  EXPECT_TRUE(contains(table, "optimised, seed 2: under way")) << table;
  EXPECT_TRUE(contains(table, "optimised, seed 3: not begun")) << table;
  EXPECT_TRUE(contains(page, "id=\"cluster-missing\""));
  const Ran ended = run(folder, small(out, {"--seeds", "4", "--epochs", "2"}));
  ASSERT_EQ(ended.code, 0) << ended.err;
  EXPECT_EQ(count_of(ended.err, "done before"), 2U) << ended.err;
  EXPECT_TRUE(contains(ended.err, "seed-2: going on")) << ended.err;
  EXPECT_TRUE(contains(ended.err, "seed-3: beginning")) << ended.err;
  EXPECT_TRUE(contains(text_of(out / "results.md"), "| 4 of 4 |"));
  EXPECT_FALSE(contains(text_of(out / "results.html"), "id=\"cluster-missing\""));
}

TEST(ReproduceCommand, ItsTablesAndPageSayWhatTheRunsSay) {
  const TemporaryFolder folder;
  const std::filesystem::path out = folder.file("runs"), kept = folder.file("kept");
  const Ran sweep =
      run(folder, small(out, {"--variant", "full-node", "--gamma", "1e-3,1e-1", "--seeds", "2", "--epochs", "2"}));
  ASSERT_EQ(sweep.code, 0) << sweep.err;
  auto sparse =
      small(out, {"--variant", "sparse-none,sparse-node", "--seeds", "2", "--epochs", "2", "--collect", kept.string()});
  ASSERT_EQ(run(folder, sparse).code, 0);

  const std::string table = text_of(out / "results.md");
  for (const char* group : {"full-node", "full-node-gamma-1e-3", "sparse-none"}) {
    const double a = recall_of(out / group / "seed-0"), b = recall_of(out / group / "seed-1");
    const std::regex row(fmt::format(R"(\| {} \(changed\) \| 2 of 2 \| ([0-9.]+) ± ([0-9.]+) \|)", group));
    std::smatch found;
    ASSERT_TRUE(std::regex_search(table, found, row)) << group << "\n" << table;
    EXPECT_NEAR(std::stod(found[1]), (a + b) / 2, 0.006) << group;
    EXPECT_NEAR(std::stod(found[2]), std::abs(a - b) / std::sqrt(2), 0.006) << group;
  }
  {
    const auto difference = [&](const char* seed) {
      return recall_of(out / "full-node" / seed) - recall_of(out / "full-node-gamma-1e-3" / seed);
    };
    const double a = difference("seed-0"), b = difference("seed-1");
    const std::regex row(
        R"(\| full-node \| 1e-3 → 1e-1 \| 2 \| \S+ ± \S+ \| \d of 2 \| ([-+0-9.]+) ± ([0-9.]+) \| (\d) of 2 \|)");
    std::smatch found;
    ASSERT_TRUE(std::regex_search(table, found, row)) << table;
    EXPECT_NEAR(std::stod(found[1]), (a + b) / 2, 0.006);
    EXPECT_NEAR(std::stod(found[2]), std::abs(a - b) / std::sqrt(2), 0.006);
    EXPECT_EQ(std::stoi(found[3]), (a > 0 ? 1 : 0) + (b > 0 ? 1 : 0));
  }
  EXPECT_TRUE(contains(table, "| full-node | sparse → 1e-3 | 2 |")) << table;
  EXPECT_TRUE(contains(table, "full-node-gamma-1e-3: ")) << table;
  EXPECT_TRUE(contains(table, "model.gamma = 0.001 (instead of 0.1)")) << table;
  EXPECT_TRUE(contains(table, "stopped by budget (2 epochs)")) << table;
  EXPECT_TRUE(contains(table, "| the paper's | – | – | – | 76.69")) << table;

  const std::string page = text_of(out / "results.html");
  for (const char* id : {"cluster-results", "cluster-gamma", "cluster-gamma-pairs", "cluster-ablation",
                         "cluster-curve-full-node", "cluster-curve-sparse-none", "cluster-runs"}) {
    EXPECT_TRUE(contains(page, fmt::format("id=\"{}\"", id))) << id;
  }
  EXPECT_EQ(count_of(page, "://"), count_of(page, "http://www.w3.org/2000/svg"));  // names of SVG's, no address

  // What --collect copies is small, and enough to write the same tables again.
  EXPECT_TRUE(std::filesystem::exists(kept / "cluster/full-node/seed-1/config.toml"));
  for (const auto& entry : std::filesystem::recursive_directory_iterator(kept)) {
    EXPECT_NE(entry.path().extension(), ".safetensors") << entry.path();
  }
  ASSERT_EQ(run(folder, {"reproduce", "cluster", "--report-only", "--out", (kept / "cluster").string()}).code, 0);
  EXPECT_EQ(text_of(kept / "cluster/results.md"), table);
  ASSERT_EQ(run(folder, {"reproduce", "all", "--report-only", "--out", kept.string()}).code, 0);
  EXPECT_EQ(text_of(kept / "results.md"), table);

  // A run of another configuration is not gone on with, nor a folder of another data set.
  const Ran other = run(folder, small(out, {"--variant", "sparse-none", "--seeds", "1", "--set", "train.lr=0.5"}));
  EXPECT_EQ(other.code, 1);
  EXPECT_TRUE(contains(other.err, "was trained with train.lr = 0.0005, now 0.5 is asked for")) << other.err;
  // Nor is another one's result averaged with it: other options, or other generated graphs.
  const Ran mixed = run(folder, small(out, {"--variant", "sparse-none", "--seeds", "2-2", "--set", "train.lr=0.5"}));
  EXPECT_EQ(mixed.code, 1);
  EXPECT_TRUE(contains(mixed.err, "was trained with train.lr = 0.0005, now 0.5 is asked for")) << mixed.err;
  auto other_graphs = small(out, {"--variant", "sparse-none", "--seeds", "3"});
  std::replace(other_graphs.begin(), other_graphs.end(), std::string("generate:cluster?train=12&valid=6&test=6"),
               std::string("generate:cluster?train=20"));
  const Ran graphs = run(folder, other_graphs);
  EXPECT_EQ(graphs.code, 1);
  EXPECT_TRUE(contains(graphs.err, "was trained with data.path")) << graphs.err;
  EXPECT_FALSE(std::filesystem::exists(out / "sparse-none/seed-2"));
  const Ran moved = run(folder, {"reproduce", "csl", "--out", out.string()});
  EXPECT_EQ(moved.code, 1);
  EXPECT_TRUE(contains(moved.err, "holds runs of cluster, not of csl")) << moved.err;
}

TEST(ReproduceCommand, ARunThatFailsLeavesTheOthersAlone) {
  const TemporaryFolder folder;
  const std::filesystem::path out = folder.file("runs");
  // A file where the first run wants its folder.
  std::filesystem::create_directories(out / "optimised");
  write_file(out / "optimised/seed-0", "in the way");
  const Ran ran = run(folder, small(out, {"--seeds", "2", "--epochs", "1"}));
  EXPECT_EQ(ran.code, 1) << ran.err;
  EXPECT_TRUE(contains(ran.err, "san: " + (out / "optimised/seed-0").string() + ": ")) << ran.err;
  EXPECT_TRUE(contains(ran.err, "some runs failed")) << ran.err;
  EXPECT_TRUE(contains(text_of(out / "results.md"), "| 1 of 2 |")) << text_of(out / "results.md");

  // A damaged result, too.
  write_file(out / "optimised/seed-1/result.json", "{");
  std::filesystem::remove(out / "optimised/seed-0");
  const Ran damaged = run(folder, small(out, {"--seeds", "1-2", "--epochs", "1"}));
  EXPECT_EQ(damaged.code, 1) << damaged.err;
  EXPECT_TRUE(contains(damaged.err, "seed-1/result.json: not the result of a run")) << damaged.err;
  EXPECT_TRUE(std::filesystem::exists(out / "optimised/seed-2/result.json")) << damaged.err;

  // And a damaged configuration.
  write_file(out / "optimised/seed-2/config.toml", "garbage[");
  const Ran garbage = run(folder, small(out, {"--seeds", "2-3", "--epochs", "1"}));
  EXPECT_EQ(garbage.code, 1) << garbage.err;
  EXPECT_TRUE(contains(garbage.err, "seed-2/config.toml:1: ")) << garbage.err;
  EXPECT_TRUE(std::filesystem::exists(out / "optimised/seed-3/result.json")) << garbage.err;

  // Collected results are not lost to a run that is not as far.
  const std::filesystem::path kept = folder.file("kept") + std::string("/cluster");
  ASSERT_EQ(run(folder, {"reproduce", "cluster", "--report-only", "--out", out, "--collect", folder.file("kept")}).code,
            0);
  for (const char* name : {"result.json", "metrics.csv"}) std::filesystem::remove(out / "optimised/seed-3" / name);
  ASSERT_EQ(run(folder, {"reproduce", "cluster", "--report-only", "--out", out, "--collect", folder.file("kept")}).code,
            0);
  EXPECT_TRUE(std::filesystem::exists(kept / "optimised/seed-3/result.json"));
  const Ran onto =
      run(folder, {"reproduce", "cluster", "--report-only", "--out", kept, "--collect", folder.file("kept")});
  EXPECT_EQ(onto.code, 1);
  EXPECT_TRUE(contains(onto.err, "the runs are there")) << onto.err;
}

TEST(ReproduceCommand, WithoutAnEpochThereIsNoValidationScore) {
  const TemporaryFolder folder;
  const Ran ran = run(folder, small(folder.file("runs"), {"--seeds", "1", "--epochs", "0"}));
  ASSERT_EQ(ran.code, 0) << ran.err;
  const std::string table = text_of(folder.path() / "runs/results.md");
  EXPECT_TRUE(contains(table, "test mean class recall")) << table;
  EXPECT_TRUE(std::regex_search(table, std::regex(R"(\| optimised, seed 0 \| [0-9.]+ \| [0-9.]+ \| – \| – \| 0 \|)")))
      << table;
}

TEST(ReproduceCommand, ACosineIsNotStretched) {
  const TemporaryFolder folder;
  const std::string out = folder.file("runs");
  ASSERT_EQ(run(folder, small(out, {"--seeds", "1", "--epochs", "1", "--set", "train.schedule=cosine"})).code, 0);
  const Ran more = run(folder, small(out, {"--seeds", "1", "--epochs", "2", "--set", "train.schedule=cosine"}));
  EXPECT_EQ(more.code, 1);
  EXPECT_TRUE(contains(more.err, "was trained with train.epochs = 1, now 2 is asked for")) << more.err;
}

TEST(ReproduceCommand, SaysWhatIsWrongInOneLine) {
  const TemporaryFolder folder;
  const auto error = [&](const std::vector<std::string>& arguments) {
    std::vector<std::string> all = {"reproduce"};
    all.insert(all.end(), arguments.begin(), arguments.end());
    all.insert(all.end(), {"--out", folder.file("x")});
    const Ran ran = run(folder, all);
    EXPECT_NE(ran.code, 0);
    EXPECT_EQ(count_of(ran.err, "\n"), 1U) << ran.err;
    EXPECT_FALSE(std::filesystem::exists(folder.file("x")));
    return ran.err;
  };
  EXPECT_TRUE(contains(error({"qm9"}), "unknown data set 'qm9'"));
  EXPECT_TRUE(contains(error({"zinc"}), "--data is missing"));
  EXPECT_TRUE(contains(error({"zinc", "--data", folder.path().string()}), "ZINC is not here"));
  EXPECT_TRUE(contains(error({"zinc", "--data", folder.file("nothing"), "--quiet"}), "no such file"));
  EXPECT_TRUE(contains(error({"cluster", "--variant", "dense"}), "unknown variant 'dense'"));
  EXPECT_TRUE(contains(error({"cluster", "--variant", "sparse-none", "--gamma", "1e-3"}), "real edges only"));
  EXPECT_TRUE(contains(error({"cluster", "--time-limit", "soon"}), "a time is expected"));
  EXPECT_TRUE(contains(error({"csl", "--seeds", "6"}), "CSL has 5 folds"));
  EXPECT_TRUE(contains(error({"cluster", "--set", "model.colour=1"}), "unknown option model.colour"));
  EXPECT_TRUE(contains(error({"cluster", "--report-only"}), "no runs of `san reproduce` here"));
  EXPECT_TRUE(contains(error({"all"}), "--report-only"));
  EXPECT_TRUE(contains(error({"cluster", "--report-only", "--seeds", "2"}), "--seeds says what to train"));
  EXPECT_TRUE(contains(error({"cluster", "--set", "train.seed=7"}), "--seeds says which are trained"));
  EXPECT_TRUE(contains(error({"qm9", "--report-only"}), "unknown data set 'qm9'"));
  EXPECT_TRUE(contains(error({"cluster", "--set", "model.heads=7"}), "does not divide"));
  EXPECT_TRUE(contains(error({"cluster", "--gamma", "1e-3", "--set", "model.gamma=1"}), "one of the two"));
  EXPECT_TRUE(contains(error({"cluster", "--label", std::string(300, 'x')}), "1 to 100 letters"));
  EXPECT_TRUE(contains(error({"cluster", "--label", std::string(95, 'x'), "--gamma", "1e-3"}), "too long"));
  EXPECT_TRUE(contains(error({"cluster", "--epochs", "1", "--set", "train.epochs=2"}), "one of the two"));
  EXPECT_TRUE(contains(error({"cluster", "--time-limit", "1s", "--set", "train.time_limit=2"}), "one of the two"));
  EXPECT_TRUE(contains(error({"cluster", "--data", "x.jsonl", "--set", "data.path=y.jsonl"}), "one of the two"));
  EXPECT_TRUE(contains(error({"csl", "--set", "data.folds=10"}), "CSL has 5 folds"));
  EXPECT_TRUE(contains(error({"csl", "--set", "data.split=random"}), "CSL has 5 folds"));
  EXPECT_TRUE(contains(error({"cluster", "--label", "results.md"}), "1 to 100 letters"));
  EXPECT_TRUE(
      contains(error({"cluster", "--variant", "sparse-none", "--label", "optimised"}), "another variant's name"));
  write_file(folder.file("file"), "x");
  const Ran file = run(folder, small(folder.file("file"), {}));
  EXPECT_EQ(file.code, 1);
  EXPECT_TRUE(contains(file.err, "file: is not a folder")) << file.err;
}

TEST(ReproduceCommand, FindsTheDataSetsInTheirUsualFolders) {
  SAN_NEED_SHARED(zinc, "data/zinc");
  SAN_NEED_SHARED(csl, "data/csl");
  const TemporaryFolder folder;
  const auto result = [&](const char* name, const std::filesystem::path& data, const char* seeds) {
    const Ran ran = run(folder, {"reproduce", name, "--data", data.string(), "--seeds", seeds, "--epochs", "0", "--out",
                                 folder.file(name)});
    EXPECT_EQ(ran.code, 0) << ran.err;
    return ran.err;
  };
  EXPECT_TRUE(
      contains(result("zinc", zinc, "1"), "12000 graphs (train 10000, valid 1000, test 1000), 454753 parameters"));
  EXPECT_TRUE(contains(result("csl", csl, "1-1"), "150 graphs (train 90, valid 30, test 30)"));
  // Fold 1 of the published folds.
  std::set<std::string> expected;
  CsvReader rows((csl / "csl_folds.csv.gz").string());
  while (rows.next()) {
    if (rows[rows.column("fold")] == "1" && rows[rows.column("split")] == "test") {
      expected.insert(fmt::format("csl-{}", rows[rows.column("graph")]));
    }
  }
  std::set<std::string> tested;
  CsvReader predictions(folder.file("csl/optimised/seed-1/test_predictions.csv"));
  while (predictions.next()) tested.insert(std::string(predictions[0]));
  EXPECT_EQ(tested, expected);
}

}  // namespace
}  // namespace san
