// Synthetic data sets of the paper's experiments, by the published procedures. The same seed gives the same
// graphs on every machine; any graph can be made alone, in any order and from any thread: all are pure
// functions of (options, index). Every graph is undirected and simple, lists both directions of each edge,
// and lists them sorted by source, then target. Throws Error for sizes that cannot be.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "san/graph/graph.h"

namespace san {

// SBM PATTERN: find the nodes of a planted pattern. Features: node category 0..2, edge category 1;
// node_labels 0 / 1.
struct PatternOptions {
  uint64_t seed = 0;
  int patterns = 100;                            // distinct planted patterns, shared by all splits
  int train = 10000, valid = 2000, test = 2000;  // graphs; each a multiple of `patterns`, grouped by pattern
};

// SBM CLUSTER: label the communities, one revealed node each. Features: node category 0..6, edge category 1;
// node_labels 0..5.
struct ClusterOptions {
  uint64_t seed = 0;
  int train = 10000, valid = 1000, test = 1000;
};

// Number of graphs in the whole data set: train, then valid, then test.
int64_t pattern_count(const PatternOptions& options);
int64_t cluster_count(const ClusterOptions& options);

// Graph `index` of the data set (0 <= index < count), with id ("pattern-17") and split set.
Graph make_pattern(const PatternOptions& options, int64_t index);
Graph make_cluster(const ClusterOptions& options, int64_t index);

// Circular skip links: 10 classes x 15 random relabellings of 41 nodes with skips 2,3,4,5,6,9,11,12,13,16.
// No features, so that all nodes are of category 0 and all edges of category 1 (the published set says
// category 0 for both, but here 0 is what pairs added by full attention have). Graph label = class 0..9; no
// split (the published folds are given by graph number). index 0..149, grouped by class.
inline constexpr int kCslGraphs = 150;
Graph make_csl(uint64_t seed, int index);

// Small graphs with known spectra, for tests and examples: undirected, no features.
Graph make_path(int nodes);
Graph make_cycle(int nodes);  // nodes >= 3
Graph make_star(int nodes);   // node 0 is the centre
Graph make_complete(int nodes);
Graph make_grid(int rows, int columns);
Graph make_hypercube(int dimensions);
// The graphs side by side, nodes renumbered in order. Keeps features (all must have the same columns) and
// node labels (when all have them); id, split, graph labels and eigenpairs are left empty.
Graph disjoint_union(const std::vector<Graph>& graphs);
// Each unordered pair joined with probability p, independently. Time grows with nodes + edges.
Graph make_random_graph(int nodes, double p, uint64_t seed);
// Uniform random tree (random Pruefer sequence), and random regular graph: configuration model whose loops
// and repeated edges are exchanged against random edges, so close to uniform but not exactly. Linear time for
// small degrees.
Graph make_random_tree(int nodes, uint64_t seed);
Graph make_random_regular(int nodes, int degree, uint64_t seed);

}  // namespace san
