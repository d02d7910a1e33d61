#include "san/graph/graph.h"

#include <algorithm>
#include <cmath>

namespace san {
namespace {

bool same_labels(const std::vector<double>& a, const std::vector<double>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](double x, double y) { return x == y || (std::isnan(x) && std::isnan(y)); });
}

void validate_features(const Features& features, int64_t rows, const char* what, const std::string& prefix) {
  SAN_CHECK(features.category_columns >= 0 && features.category_columns <= kMaxFeatureColumns &&
                features.value_columns >= 0 && features.value_columns <= kMaxFeatureColumns,
            "{}{} features have {} + {} columns; at most {} are allowed", prefix, what, features.category_columns,
            features.value_columns, kMaxFeatureColumns);
  SAN_CHECK(static_cast<int64_t>(features.categories.size()) == rows * features.category_columns &&
                static_cast<int64_t>(features.values.size()) == rows * features.value_columns,
            "{}{} features do not have one row for each of the {} {}s", prefix, what, rows, what);
  const auto bad =
      std::find_if(features.categories.begin(), features.categories.end(), [](int32_t c) { return c < 0; });
  if (bad != features.categories.end()) {
    fail("{}{} {} has the negative category {}", prefix, what,
         (bad - features.categories.begin()) / features.category_columns, *bad);
  }
  const auto nan =
      std::find_if(features.values.begin(), features.values.end(), [](float v) { return !std::isfinite(v); });
  if (nan != features.values.end()) {
    fail("{}{} {} has a feature that is not a finite number", prefix, what,
         (nan - features.values.begin()) / features.value_columns);
  }
}

}  // namespace

bool Graph::operator==(const Graph& other) const {
  return id == other.id && split == other.split && num_nodes == other.num_nodes && edges == other.edges &&
         node_features == other.node_features && edge_features == other.edge_features &&
         same_labels(graph_labels, other.graph_labels) && same_labels(node_labels, other.node_labels) &&
         eigenpairs == other.eigenpairs;
}

void validate(const Graph& graph, const std::string& where) {
  const std::string prefix = where.empty() ? "" : where + ": ";
  SAN_CHECK(graph.num_nodes >= 1, "{}a graph needs at least one node", prefix);
  SAN_CHECK(graph.num_nodes <= kMaxNodes, "{}{} nodes are more than the {} allowed", prefix, graph.num_nodes,
            kMaxNodes);
  SAN_CHECK(static_cast<int64_t>(graph.edges.size()) <= kMaxEdges, "{}{} edges are more than the {} allowed", prefix,
            graph.edges.size(), kMaxEdges);
  for (size_t i = 0; i < graph.edges.size(); ++i) {
    for (const int32_t node : {graph.edges[i].source, graph.edges[i].target}) {
      SAN_CHECK(node >= 0 && node < graph.num_nodes, "{}edge {} names node {}, but the graph has nodes 0..{}", prefix,
                i, node, graph.num_nodes - 1);
    }
  }
  validate_features(graph.node_features, graph.num_nodes, "node", prefix);
  validate_features(graph.edge_features, static_cast<int64_t>(graph.edges.size()), "edge", prefix);
  SAN_CHECK(graph.graph_labels.empty() || graph.node_labels.empty(),
            "{}a graph has either graph labels or node labels, not both", prefix);
  SAN_CHECK(graph.node_labels.empty() || graph.node_labels.size() == static_cast<size_t>(graph.num_nodes),
            "{}{} node labels for {} nodes", prefix, graph.node_labels.size(), graph.num_nodes);
  for (const auto* labels : {&graph.graph_labels, &graph.node_labels}) {
    for (const double label : *labels) SAN_CHECK(!std::isinf(label), "{}a label is infinite", prefix);
  }
  if (graph.eigenpairs) {
    const Eigenpairs& pairs = *graph.eigenpairs;
    SAN_CHECK(pairs.count >= 0 && pairs.values.size() == static_cast<size_t>(pairs.count),
              "{}{} eigenvalues for {} pairs", prefix, pairs.values.size(), pairs.count);
    SAN_CHECK(pairs.vectors.size() == static_cast<size_t>(pairs.count) * graph.num_nodes,
              "{}eigenvectors need {} rows (nodes) of {} columns (pairs)", prefix, graph.num_nodes, pairs.count);
    for (const auto* numbers : {&pairs.values, &pairs.vectors}) {
      for (const float x : *numbers)
        SAN_CHECK(std::isfinite(x), "{}an eigenpair has a number that is not finite", prefix);
    }
  }
}

}  // namespace san
