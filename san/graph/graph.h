// A graph with features and labels: what every file format, generator and featuriser produces.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "san/base/error.h"

namespace san {

// Limits that a graph from outside must keep, checked before memory is taken.
inline constexpr int64_t kMaxNodes = int64_t{1} << 24;
inline constexpr int64_t kMaxEdges = int64_t{1} << 28;
inline constexpr int kMaxFeatureColumns = 4096;

// A directed edge; attention flows from source to target. Undirected graphs list both directions.
struct Edge {
  int32_t source = 0;
  int32_t target = 0;
  bool operator==(const Edge&) const = default;
};

// Features of nodes or of edges, one row each: categorical columns (each will have an embedding table),
// real-valued columns (one linear map for all), or both. Row-major.
struct Features {
  int category_columns = 0;
  int value_columns = 0;
  std::vector<int32_t> categories;  // [rows, category_columns], each >= 0
  std::vector<float> values;        // [rows, value_columns], finite

  bool empty() const { return category_columns == 0 && value_columns == 0; }
  bool operator==(const Features&) const = default;
};

// The lowest eigenpairs of a graph's Laplacian as the network reads them. float: the network's precision, and
// that of the published program, which solves in double and then rounds.
struct Eigenpairs {
  int count = 0;
  std::vector<float> values;   // [count], ascending
  std::vector<float> vectors;  // [num_nodes, count] row-major: row j holds node j's entry of every eigenvector

  bool operator==(const Eigenpairs&) const = default;
};

// A plain value; copy and share freely. A Graph that came out of a reader or generator of this library has
// passed validate().
struct Graph {
  std::string id;      // what predictions are labelled with; may be empty
  std::string split;   // "train", "valid", "test", ... or empty
  std::string smiles;  // what a molecule was made of (scaffold splits and drawings need it); empty for other graphs
  int32_t num_nodes = 0;
  std::vector<Edge> edges;  // repeated edges and self loops are allowed; each counts as a real edge of its own
  Features node_features;   // rows = num_nodes; empty: every node is of category 0
  Features edge_features;   // rows = edges.size(); empty: every edge is of category 1 (0 is left to added pairs)

  // Labels: either graph_labels (one per task) or node_labels (one per node), or neither. NaN = missing.
  std::vector<double> graph_labels;
  std::vector<double> node_labels;

  std::optional<Eigenpairs> eigenpairs;  // given with the graph: used as they are instead of computing them

  // NaN labels are equal to each other. `smiles` is not compared: it is where the graph came from, and no graph
  // format carries it.
  bool operator==(const Graph&) const;
};

// Throws Error when the graph breaks a rule above (sizes, index ranges, finite values). `where` ("file:line")
// starts the message; may be empty.
void validate(const Graph& graph, const std::string& where = {});

}  // namespace san
