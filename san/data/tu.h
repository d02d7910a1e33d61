// The TU text format (graph kernel benchmark sets: MUTAG, PROTEINS, ...): a folder of
//   NAME_A.txt                  one edge "source, target" per line, nodes numbered from 1 over the whole set
//   NAME_graph_indicator.txt    line i: the graph (from 1) of node i
// and, each optional,
//   NAME_graph_labels.txt       classes, one row per graph (several columns: several tasks)
//   NAME_graph_attributes.txt   regression targets, one row per graph; "nan" or nothing = missing
//   NAME_node_labels.txt        categories, one row per node, one or more columns
//   NAME_node_attributes.txt    real values, one row per node
//   NAME_edge_labels.txt, NAME_edge_attributes.txt   the same, one row per line of NAME_A.txt
// Numbers stand between commas, with or without blanks; blank lines are passed over; every file may be
// gzipped
// (.txt.gz). NAME need not be the folder's name: it is taken from the only *_A.txt.
//
// Labels and categories may be any integers; each column's distinct values, in ascending order, become 0, 1,
// 2,
// ... (edge categories 1, 2, 3, ...: 0 is left to added pairs, as in Graph). TuDataset says which is which.
// Edges: TU graphs are undirected. Most files list both directions, some list each edge once: an edge whose
// reverse is nowhere in the file gets it, right after itself, with the same features. Self loops stay single.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "san/graph/graph.h"

namespace san {

enum class TuTarget {
  kAuto,        // graph_labels when there are any, else graph_attributes
  kLabels,      // classes
  kAttributes,  // regression
};

struct TuOptions {
  TuTarget target = TuTarget::kAuto;
  bool undirected = true;  // false: edges exactly as listed
};

struct TuDataset {
  std::string name;
  std::vector<Graph> graphs;  // id = the graph's number in the set, from 1
  bool classes = false;       // graph_labels are classes 0..C-1 (else real numbers, or none)
  // The original value of each class and category, per column: class_values[task][class].
  std::vector<std::vector<int64_t>> class_values;
  std::vector<std::vector<int64_t>> node_category_values;  // [column][category]
  std::vector<std::vector<int64_t>> edge_category_values;  // [column][category - 1]
};

// Throws Error naming file:line for whatever does not fit: an edge between two graphs, a node or graph that
// does not exist, a graph without nodes, a file with too few or too many rows, something that is not a
// number.
TuDataset read_tu(const std::string& folder, const TuOptions& options = {});

}  // namespace san
