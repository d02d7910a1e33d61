#include "san/data/batch.h"

#include <algorithm>

namespace san {
namespace {

// Columns of a graph's features, with the meaning that absent features have (see Graph).
struct Columns {
  int categories = 0;
  int values = 0;
  bool operator==(const Columns&) const = default;
};

Columns columns_of(const Features& features) {
  if (features.empty()) return {1, 0};
  return {features.category_columns, features.value_columns};
}

void append(Features& all, const Features& features, size_t rows, int32_t absent_category) {
  if (features.empty()) {
    all.categories.insert(all.categories.end(), rows, absent_category);
  } else {
    all.categories.insert(all.categories.end(), features.categories.begin(), features.categories.end());
    all.values.insert(all.values.end(), features.values.begin(), features.values.end());
  }
}

void check_columns(const char* what, const Columns& first, const Columns& here, const Graph& graph) {
  SAN_CHECK(first == here, "graph '{}' has {} categorical and {} real-valued {} feature columns, others have {} and {}",
            printable(graph.id), here.categories, here.values, what, first.categories, first.values);
}

}  // namespace

Batch make_batch(std::span<const Graph* const> graphs, int max_pairs) {
  SAN_CHECK(!graphs.empty(), "a batch needs at least one graph");
  Batch batch;
  batch.num_graphs = static_cast<int32_t>(graphs.size());
  batch.node_offsets = {0};
  batch.edge_offsets = {0};
  int64_t nodes = 0;
  const Graph* with_edges = nullptr;  // a graph without edges has no say in the edge columns
  bool labelled = true;
  for (const Graph* graph : graphs) {
    nodes += graph->num_nodes;
    SAN_CHECK(nodes <= INT32_MAX, "a batch of more than {} nodes", INT32_MAX);
    batch.num_edges += static_cast<int64_t>(graph->edges.size());
    batch.node_offsets.push_back(static_cast<int32_t>(nodes));
    batch.edge_offsets.push_back(batch.num_edges);
    if (with_edges == nullptr && !graph->edges.empty()) with_edges = graph;
    if (graph->eigenpairs) batch.max_pairs = std::max(batch.max_pairs, std::min(graph->eigenpairs->count, max_pairs));
    labelled = labelled && (!graph->graph_labels.empty() || !graph->node_labels.empty());
  }
  batch.num_nodes = static_cast<int32_t>(nodes);

  const Columns node_columns = columns_of(graphs[0]->node_features);
  const Columns edge_columns = columns_of((with_edges != nullptr ? with_edges : graphs[0])->edge_features);
  batch.node_features.category_columns = node_columns.categories;
  batch.node_features.value_columns = node_columns.values;
  batch.edge_features.category_columns = edge_columns.categories;
  batch.edge_features.value_columns = edge_columns.values;
  batch.edge_sources.reserve(static_cast<size_t>(batch.num_edges));
  batch.edge_targets.reserve(static_cast<size_t>(batch.num_edges));
  batch.num_pairs.reserve(graphs.size());
  const auto pairs = static_cast<size_t>(batch.max_pairs);
  batch.eigenvalues.assign(graphs.size() * pairs, 0.0F);
  batch.eigenvectors.assign(static_cast<size_t>(nodes) * pairs, 0.0F);
  if (labelled) {
    batch.node_labels = !graphs[0]->node_labels.empty();
    batch.label_columns = batch.node_labels ? 1 : static_cast<int32_t>(graphs[0]->graph_labels.size());
  }

  for (size_t g = 0; g < graphs.size(); ++g) {
    const Graph& graph = *graphs[g];
    check_columns("node", node_columns, columns_of(graph.node_features), graph);
    append(batch.node_features, graph.node_features, static_cast<size_t>(graph.num_nodes), 0);
    if (!graph.edges.empty()) {
      check_columns("edge", edge_columns, columns_of(graph.edge_features), graph);
      append(batch.edge_features, graph.edge_features, graph.edges.size(), 1);
    }
    const int32_t first_node = batch.node_offsets[g];
    for (const Edge& edge : graph.edges) {
      batch.edge_sources.push_back(first_node + edge.source);
      batch.edge_targets.push_back(first_node + edge.target);
    }
    int32_t count = 0;
    if (graph.eigenpairs) {
      const Eigenpairs& eigen = *graph.eigenpairs;
      count = std::min(eigen.count, max_pairs);
      std::copy_n(eigen.values.begin(), count, batch.eigenvalues.begin() + static_cast<ptrdiff_t>(g * pairs));
      for (int32_t node = 0; node < graph.num_nodes; ++node) {
        std::copy_n(eigen.vectors.begin() + static_cast<ptrdiff_t>(node) * eigen.count, count,
                    batch.eigenvectors.begin() + static_cast<ptrdiff_t>(first_node + node) * batch.max_pairs);
      }
    }
    batch.num_pairs.push_back(count);
    if (labelled) {
      const auto& labels = batch.node_labels ? graph.node_labels : graph.graph_labels;
      SAN_CHECK(batch.node_labels ? !labels.empty() : labels.size() == static_cast<size_t>(batch.label_columns),
                "graph '{}' has {} labels, others have {}", printable(graph.id), labels.size(), batch.label_columns);
      batch.labels.insert(batch.labels.end(), labels.begin(), labels.end());
    }
  }
  return batch;
}

}  // namespace san
