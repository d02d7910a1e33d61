#include "san/spectral/random_walk.h"

#include <Eigen/Core>

#include "san/base/error.h"
#include "san/base/random.h"
#include "san/graph/generators.h"
#include "tests/testing.h"

namespace san {
namespace {

// The diagonal of (D^-1 A)^k by the definition, all dense.
std::vector<Eigen::VectorXd> by_definition(const Graph& graph, int steps) {
  Eigen::MatrixXd a = Eigen::MatrixXd::Zero(graph.num_nodes, graph.num_nodes);
  for (const Edge& e : graph.edges) a(e.source, e.target) = a(e.target, e.source) = 1;
  Eigen::MatrixXd p = a;
  for (int i = 0; i < graph.num_nodes; ++i) {
    if (a.row(i).sum() > 0) p.row(i) /= a.row(i).sum();
  }
  std::vector<Eigen::VectorXd> out;
  Eigen::MatrixXd power = p;
  for (int k = 0; k < steps; ++k, power = power * p) out.push_back(power.diagonal());
  return out;
}

TEST(RandomWalk, EqualsPowersOfTheWalkMatrix) {
  Random random(7);
  for (const int nodes : {1, 2, 9, 30, 32, 33, 100}) {
    for (const int steps : {1, 2, 7, 16}) {
      Graph graph;
      graph.num_nodes = nodes;
      graph.node_features.value_columns = 1;
      for (int i = 0; i < nodes; ++i) graph.node_features.values.push_back(static_cast<float>(i));
      for (int e = 0; e < 2 * nodes; ++e) {  // loops, repeats and one direction only, as files have them
        graph.edges.push_back({static_cast<int32_t>(random.below(static_cast<uint64_t>(nodes))),
                               static_cast<int32_t>(random.below(static_cast<uint64_t>(nodes)))});
      }
      const std::vector<Eigen::VectorXd> expected = by_definition(graph, steps);
      add_walk_features(graph, steps);
      ASSERT_EQ(graph.node_features.value_columns, 1 + steps);
      for (int i = 0; i < nodes; ++i) {
        const float* row = graph.node_features.values.data() + static_cast<std::ptrdiff_t>(i) * (1 + steps);
        EXPECT_EQ(row[0], static_cast<float>(i));
        for (int k = 0; k < steps; ++k)
          EXPECT_NEAR(row[1 + k], expected[static_cast<size_t>(k)](i), 1e-6) << nodes << " " << k;
      }
    }
  }
}

TEST(RandomWalk, ANodeWithoutEdgesGetsZeros) {
  Graph graph;
  graph.num_nodes = 3;
  graph.edges = {{0, 1}, {1, 0}};
  add_walk_features(graph, 4);
  EXPECT_EQ(graph.node_features.values, (std::vector<float>{0, 1, 0, 1, 0, 1, 0, 1, 0, 0, 0, 0}));
}

TEST(RandomWalk, RefusesTooManySteps) {
  Graph graph;
  graph.num_nodes = 1;
  EXPECT_THROW(add_walk_features(graph, kMaxWalkSteps + 1), Error);
  EXPECT_THROW(add_walk_features(graph, -1), Error);
}

}  // namespace
}  // namespace san
