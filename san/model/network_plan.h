// What the network has to know about a batch besides its numbers: which pairs attention runs over, which edges are alike,
// how the work is cut into pieces. Internal to model/network.
#pragma once

#include <cstdint>
#include <vector>

#include "san/data/batch.h"
#include "san/model/config.h"

namespace san {

// Neighbours of each node: entries begin[i] .. begin[i + 1].
struct Adjacency {
  std::vector<int64_t> begin;  // [N + 1]
  std::vector<int32_t> other;  // node numbers in the batch
  std::vector<int32_t> type;   // edge types
  std::vector<int64_t> code;   // edge LPE: code * 2 + direction; else empty
};

// Up to 16 nodes of one graph.
struct Tile {
  int32_t first, lanes;
  int32_t begin, end;  // the graph's nodes
  int32_t graph;
  int32_t dense_type;  // real edges are worked on densely, all of this type; -1: one by one
};

// All pairs of some graphs, for some heads.
struct DenseTask {
  int32_t graph_begin, graph_end;
  int32_t head_begin, head_end;
};

struct NetworkPlan {
  NetworkPlan(const Batch& batch, const ModelConfig& config);

  // Edges with the same features have the same embedding: one row per type.
  int32_t types = 0;                // of real edges
  bool own_rows = false;            // too many different ones: every edge has a type of its own
  std::vector<int32_t> type_edge;   // an edge of this type
  std::vector<int64_t> type_count;  // edges of this type
  int64_t added_pairs = 0;

  Adjacency in, out;  // by target: sources; by source: targets

  // Nodes in tiles, grouped in chunks of about equal cost: a chunk is one task, whatever the thread count. Here edges are
  // worked on one by one.
  std::vector<Tile> tiles;
  std::vector<int64_t> chunk_begin;  // [chunks + 1], tiles

  std::vector<int32_t> dense_type;  // [B], see Tile
  std::vector<DenseTask> dense;     // attention over added pairs that share their edge vector; else empty

  // LPE sequences: nodes (node LPE), with both_signs all of them once more, then unordered pairs (edge LPE).
  int64_t sequences = 0, node_sequences = 0;
  std::vector<int32_t> sequence_graph;
  std::vector<int32_t> sequence_first, sequence_second;  // a node has no second
  std::vector<int32_t> graph_of;                         // [N]
  std::vector<int64_t> pair_base;                        // [B] edge LPE, full: first code of the graph
  std::vector<int64_t> loop_code;                        // [N] edge LPE, full: code of the node's self loop, or -1
  int32_t dense_type_of(int32_t begin, int32_t end, std::vector<int32_t>& seen_by) const;
  int64_t code_of(int32_t graph, const Batch& batch, int32_t a, int32_t b) const;
};

}  // namespace san
