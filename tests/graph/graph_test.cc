#include "san/graph/graph.h"

#include <functional>
#include <limits>

#include "tests/testing.h"

namespace san {
namespace {

using testing::error_of;

// Two nodes, one edge each way, everything that a graph may have.
Graph sound() {
  Graph graph;
  graph.num_nodes = 2;
  graph.edges = {{0, 1}, {1, 0}};
  graph.node_features = {2, 1, {0, 1, 2, 3}, {0.5f, -1.0f}};
  graph.edge_features = {1, 0, {1, 1}, {}};
  graph.graph_labels = {std::numeric_limits<double>::quiet_NaN(), 1.0};
  graph.eigenpairs = Eigenpairs{1, {0.0f}, {0.7f, 0.7f}};
  return graph;
}

TEST(ValidateGraph, AcceptsASoundGraph) {
  EXPECT_NO_THROW(validate(sound()));
  Graph least;
  least.num_nodes = 1;
  EXPECT_NO_THROW(validate(least));
  Graph awkward = sound();
  awkward.edges = {{0, 0}, {0, 0}};  // a self loop, twice
  EXPECT_NO_THROW(validate(awkward));
}

TEST(ValidateGraph, NamesEveryBrokenRule) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInf = std::numeric_limits<float>::infinity();
  struct Case {
    std::function<void(Graph&)> damage;
    std::string message;
  };
  const std::vector<Case> cases{
      {[](Graph& g) { g.num_nodes = 0; }, "at least one node"},
      {[](Graph& g) { g.num_nodes = -5; }, "at least one node"},
      {[](Graph& g) { g.num_nodes = static_cast<int32_t>(kMaxNodes) + 1; }, "16777217 nodes are more than"},
      {[](Graph& g) {
         g.edges[1] = {1, 2};
       },
       "edge 1 names node 2, but the graph has nodes 0..1"},
      {[](Graph& g) {
         g.edges[0] = {-1, 0};
       },
       "edge 0 names node -1"},
      {[](Graph& g) { g.node_features.category_columns = -1; }, "node features have -1 + 1 columns"},
      {[](Graph& g) { g.node_features.value_columns = kMaxFeatureColumns + 1; }, "node features have 2 + 4097"},
      {[](Graph& g) { g.node_features.categories.pop_back(); }, "one row for each of the 2 nodes"},
      {[](Graph& g) { g.node_features.values.push_back(0); }, "one row for each of the 2 nodes"},
      {[](Graph& g) { g.edge_features.categories.push_back(0); }, "one row for each of the 2 edges"},
      {[](Graph& g) { g.edges.pop_back(); }, "one row for each of the 1 edges"},
      {[](Graph& g) { g.node_features.categories[3] = -7; }, "node 1 has the negative category -7"},
      {[](Graph& g) { g.edge_features.categories[1] = -1; }, "edge 1 has the negative category -1"},
      {[](Graph& g) { g.node_features.values[1] = kNan; }, "node 1 has a feature that is not a finite number"},
      {[](Graph& g) { g.node_features.values[0] = kInf; }, "node 0 has a feature that is not a finite number"},
      {[](Graph& g) {
         g.node_labels = {0, 1};
       },
       "either graph labels or node labels"},
      {[](Graph& g) { g.graph_labels.clear(), g.node_labels = {0}; }, "1 node labels for 2 nodes"},
      {[](Graph& g) { g.graph_labels[1] = -kInf; }, "a label is infinite"},
      {[](Graph& g) {
         g.graph_labels.clear(), g.node_labels = {0, kInf};
       },
       "a label is infinite"},
      {[](Graph& g) { g.eigenpairs->count = -1; }, "1 eigenvalues for -1 pairs"},
      {[](Graph& g) { g.eigenpairs->values.push_back(1); }, "2 eigenvalues for 1 pairs"},
      {[](Graph& g) { g.eigenpairs->vectors.pop_back(); }, "eigenvectors need 2 rows (nodes) of 1 columns"},
      {[](Graph& g) { g.eigenpairs->values[0] = kNan; }, "not finite"},
      {[](Graph& g) { g.eigenpairs->vectors[1] = kInf; }, "not finite"},
  };
  for (const Case& c : cases) {
    Graph graph = sound();
    c.damage(graph);
    const std::string message = error_of([&] { validate(graph, "f:3"); });
    EXPECT_TRUE(message.starts_with("f:3: ")) << message;
    EXPECT_NE(message.find(c.message), std::string::npos) << message << "\n  expected: " << c.message;
    EXPECT_EQ(error_of([&] { validate(graph); }), message.substr(5));
  }
}

TEST(Graph, MissingLabelsAreEqualAndEverythingElseTells) {
  EXPECT_EQ(sound(), sound());
  const std::vector<std::function<void(Graph&)>> changes{
      [](Graph& g) { g.id += 'x'; },
      [](Graph& g) { g.split += 'x'; },
      [](Graph& g) { ++g.num_nodes; },
      [](Graph& g) { std::swap(g.edges[0], g.edges[1]); },
      [](Graph& g) { g.node_features.values[0] = 9; },
      [](Graph& g) { g.edge_features.categories[0] = 9; },
      [](Graph& g) { g.graph_labels[0] = 0; },
      [](Graph& g) { g.graph_labels.pop_back(); },
      [](Graph& g) { g.node_labels = {1}; },
      [](Graph& g) { g.eigenpairs->vectors[0] = 9; },
      [](Graph& g) { g.eigenpairs.reset(); },
  };
  for (size_t i = 0; i < changes.size(); ++i) {
    Graph graph = sound();
    changes[i](graph);
    EXPECT_FALSE(graph == sound()) << i;
  }
}

}  // namespace
}  // namespace san
