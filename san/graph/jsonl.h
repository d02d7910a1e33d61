// Graph JSONL: one graph per line as a JSON object, the format for anyone's graphs. Plain or gzip.
//
//   {"id": "g1", "num_nodes": 3, "edges": [[0,1],[1,0],[1,2],[2,1]], "node_feat": [[5],[0],[7]],
//    "edge_feat": [[1],[1],[2],[2]], "label": 0.25, "split": "train", "eigvals": [...], "eigvecs": [[...],
//    ...]}
//
// Keys. Required: num_nodes, edges (pairs [source, target]). Optional:
//   id                      string or integer; absent: the graph's number in the file, from 0
//   undirected              true: each edge is listed once and stands for both directions (a self loop for
//   one).
//                           The reverse follows right after its edge, with the same features
//   node_feat, edge_feat    one row per node / per listed edge: integers (categories >= 0) or, when any
//   number is
//                           written with a point or exponent, real values. A flat list means one column
//   node_attr, edge_attr    real values to stand beside integer node_feat / edge_feat
//   label                   number, list of numbers (several tasks), or null; null = missing
//   node_label              one number (or null) per node, instead of label
//   split                   "train", "valid", "test", ...
//   eigvals, eigvecs        eigenpairs to use as they are: M values; num_nodes rows of M
// Anything else is an error, so that a misspelt key cannot pass silently. So are duplicate keys.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "san/base/error.h"
#include "san/graph/graph.h"

namespace san {

// One graph from one line's text. `where` ("file:line") starts every message; `index` names a graph without
// id. Throws RecordError.
Graph parse_graph(std::string_view json, const std::string& where, int64_t index);

// Streams graphs from a file ("-" = stdin) in constant memory; blank lines are passed over. Not for sharing
// between threads.
class GraphReader {
 public:
  explicit GraphReader(const std::string& path);
  ~GraphReader();
  GraphReader(GraphReader&&) noexcept;

  // The next graph, validated; false at the end. Throws RecordError for a bad line (call again to go on) and
  // Error when the file itself is damaged. A file without a single graph is an Error.
  bool next(Graph& graph);

  std::string where() const;  // "file:line" of the graph that next() gave last
  int64_t bytes_read() const;
  int64_t bytes_total() const;  // 0 when unknown

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// The graph as one line of JSON without the newline. Numbers are written so that they read back to the same
// bits.
std::string format_graph(const Graph& graph);

}  // namespace san
