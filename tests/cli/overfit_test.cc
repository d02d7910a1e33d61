// A model that cannot learn 32 small graphs by heart is wrong somewhere: every task drives its training loss to zero.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <sstream>

#include "san/base/random.h"
#include "san/graph/generators.h"
#include "san/graph/jsonl.h"
#include "tests/cli/run.h"

namespace san {
namespace {

using testing::Ran;
using testing::run;
using testing::TemporaryFolder;

constexpr int kMaxNodes = 8;

// 32 graphs, all for training, with labels drawn at random: nothing but learning by heart helps. All eigenpairs are given, so
// that any two nodes differ.
std::string write_graphs(const TemporaryFolder& folder, const std::string& kind, uint64_t seed) {
  std::string text;
  Random random(seed, 3);
  for (int i = 0; i < 32; ++i) {
    Graph graph = make_random_graph(random.range(4, kMaxNodes + 1), 0.4, random.bits());
    graph.id = "g" + std::to_string(i);
    graph.split = "train";
    graph.node_features = {1, 0, {}, {}};
    for (int node = 0; node < graph.num_nodes; ++node) {
      graph.node_features.categories.push_back(random.range(0, 4));
      if (kind == "nodes") graph.node_labels.push_back(random.range(0, 3));
    }
    const auto sometimes = [&](double label) { return random.chance(0.3) ? std::nan("") : label; };
    if (kind == "one target") graph.graph_labels = {100 + 7 * random.normal()};
    if (kind == "two targets") graph.graph_labels = {100 + 7 * random.normal(), sometimes(-1e-3 * random.normal())};
    if (kind == "tasks") {
      for (int task = 0; task < 3; ++task) graph.graph_labels.push_back(sometimes(random.range(0, 2)));
    }
    if (kind == "classes") graph.graph_labels = {static_cast<double>(random.range(0, 4))};
    text += format_graph(graph) + "\n";
  }
  const std::string path = folder.file("data.jsonl");
  write_file(path, text);
  return path;
}

// The smallest train_loss of metrics.csv, whose columns begin with epoch,seconds,lr,train_loss. Regression: in units of the
// labels' standard deviation, because train.standardise is on.
double smallest_loss(const std::string& run) {
  std::istringstream lines(read_file(run + "/metrics.csv", 1 << 24));
  std::string line;
  std::getline(lines, line);
  double best = 1e30;
  while (std::getline(lines, line)) {
    std::istringstream fields(line);
    std::string field;
    for (int i = 0; i < 4; ++i) std::getline(fields, field, ',');
    best = std::min(best, std::stod(field));
  }
  return best;
}

// A width of 64, because the head's last layer has a quarter of it. With d = 16 and this learning rate that is four ReLUs: in one
// run out of three so many of them die that graphs are left without any, and the loss stays above 0.04.
void expect_overfit(const std::string& kind, const std::string& task) {
  for (const uint64_t seed : {0, 1, 2}) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const TemporaryFolder folder;
    const std::string out = folder.file("run");
    std::vector<std::string> arguments = {"train",
                                          "--data",
                                          write_graphs(folder, kind, seed),
                                          "--task",
                                          task,
                                          "--out",
                                          out,
                                          "--epochs",
                                          "150",
                                          "--threads",
                                          "1",
                                          "--seed",
                                          std::to_string(seed)};
    for (const std::string setting :
         {"model.hidden_dim=64", "model.heads=4", "model.layers=2", "model.dropout=0", "model.lpe.dim=16",
          "model.lpe.heads=2", "model.lpe.layers=1", "model.lpe.ff_dim=64", "model.lpe.dropout=0",
          "spectral.num_pairs=8", "train.batch_size=32", "train.lr=3e-3", "train.schedule=cosine",
          "train.sign_flip=none"}) {
      arguments.insert(arguments.end(), {"--set", setting});
    }
    if (task != "node-classification") arguments.insert(arguments.end(), {"--set", "model.readout=sum"});
    const Ran trained = run(folder, arguments);
    ASSERT_EQ(trained.code, 0) << trained.err;
    const double loss = smallest_loss(out);
    EXPECT_LT(loss, 0.02);
    std::printf("%s, seed %d: training loss %.2g\n", kind.c_str(), static_cast<int>(seed), loss);
  }
}

TEST(Overfit, RegressionWithOneTarget) {
  expect_overfit("one target", "regression");
}
TEST(Overfit, RegressionWithTwoTargetsOfVeryDifferentSizeOneOftenMissing) {
  expect_overfit("two targets", "regression");
}
TEST(Overfit, ThreeBinaryTasksWithMissingLabels) {
  expect_overfit("tasks", "binary");
}
TEST(Overfit, Multiclass) {
  expect_overfit("classes", "multiclass");
}
TEST(Overfit, NodeClassification) {
  expect_overfit("nodes", "node-classification");
}

}  // namespace
}  // namespace san
