#include "san/model/network_plan.h"

#include <algorithm>
#include <unordered_map>

namespace san {
namespace {

constexpr double kHeadByHead = 256;              // graphs of more nodes: each head is a task of its own
constexpr int32_t kMaxSharedTypes = 128;         // gradients of shared rows are kept once per chunk
constexpr int64_t kChunks = 16;                  // about so many tasks of edges one by one
constexpr int64_t kDenseTasks = 32;              // at most so many, and one per large graph, of all pairs
constexpr int64_t kMaxCodes = int64_t{1} << 26;  // edge LPE codes of one batch

uint64_t hash_row(const Features& f, int64_t edge) {
  uint64_t hash = 0xcbf29ce484222325ULL;
  const auto mix = [&](uint32_t bits) { hash = (hash ^ bits) * 0x100000001b3ULL; };
  for (int c = 0; c < f.category_columns; ++c) {
    mix(static_cast<uint32_t>(f.categories[static_cast<size_t>(edge * f.category_columns + c)]));
  }
  for (int c = 0; c < f.value_columns; ++c) {
    const float value = f.values[static_cast<size_t>(edge * f.value_columns + c)];
    uint32_t bits = 0;
    std::copy_n(reinterpret_cast<const char*>(&value), sizeof bits, reinterpret_cast<char*>(&bits));
    mix(bits);
  }
  return hash;
}

bool same_row(const Features& f, int64_t a, int64_t b) {
  const auto same = [&](const auto& values, int columns) {
    return std::equal(values.begin() + a * columns, values.begin() + (a + 1) * columns, values.begin() + b * columns);
  };
  return same(f.categories, f.category_columns) && same(f.values, f.value_columns);
}

// Categories must have a row in their tables.
void check_categories(const Features& f, const std::vector<int>& tables, int values, const char* what, int64_t rows) {
  if (rows == 0) return;
  SAN_CHECK(static_cast<size_t>(f.category_columns) == tables.size() && f.value_columns == values,
            "{} have {} categorical and {} real-valued feature columns, the model wants {} and {}", what,
            f.category_columns, f.value_columns, tables.size(), values);
  for (size_t i = 0; i < f.categories.size(); ++i) {
    const int table = tables[i % tables.size()];
    SAN_CHECK(f.categories[i] >= 0 && f.categories[i] < table, "{}: category {} in column {}, the model knows 0 .. {}",
              what, f.categories[i], i % tables.size(), table - 1);
  }
}

void fill(Adjacency& a, const std::vector<int32_t>& key, const std::vector<int32_t>& other,
          const std::vector<int32_t>& type, const std::vector<int64_t>& code, int64_t nodes) {
  a.begin.assign(static_cast<size_t>(nodes) + 1, 0);
  for (const int32_t node : key) ++a.begin[static_cast<size_t>(node) + 1];
  for (size_t i = 1; i < a.begin.size(); ++i) a.begin[i] += a.begin[i - 1];
  a.other.resize(key.size());
  a.type.resize(key.size());
  a.code.resize(code.size());
  std::vector<int64_t> at(a.begin.begin(), a.begin.end() - 1);
  for (size_t e = 0; e < key.size(); ++e) {
    const auto slot = static_cast<size_t>(at[static_cast<size_t>(key[e])]++);
    a.other[slot] = other[e];
    a.type[slot] = type[e];
    if (!code.empty()) a.code[slot] = code[e];
  }
}

}  // namespace

int64_t NetworkPlan::code_of(int32_t graph, const Batch& batch, int32_t a, int32_t b) const {
  const int64_t first = batch.node_offsets[static_cast<size_t>(graph)];
  const int64_t n = batch.node_offsets[static_cast<size_t>(graph) + 1] - first;
  const int64_t low = std::min(a, b) - first, high = std::max(a, b) - first;
  return pair_base[static_cast<size_t>(graph)] + low * (2 * n - low - 1) / 2 + (high - low - 1);
}

// The type of a graph's real edges if they are all alike, none is repeated, and at least one pair in eight has one; else -1.
// seen_by: per node, the last one that has it as a neighbour.
int32_t NetworkPlan::dense_type_of(int32_t begin, int32_t end, std::vector<int32_t>& seen_by) const {
  const int64_t first = in.begin[static_cast<size_t>(begin)], last = in.begin[static_cast<size_t>(end)];
  if (own_rows || (last - first) * 8 < int64_t{end - begin} * (end - begin)) return -1;
  const int32_t type = in.type[static_cast<size_t>(first)];
  for (int64_t p = first; p < last; ++p) {
    if (in.type[static_cast<size_t>(p)] != type) return -1;
  }
  for (int32_t node = begin; node < end; ++node) {
    for (int64_t p = in.begin[static_cast<size_t>(node)]; p < in.begin[static_cast<size_t>(node) + 1]; ++p) {
      int32_t& seen = seen_by[static_cast<size_t>(in.other[static_cast<size_t>(p)])];
      if (seen == node) return -1;
      seen = node;
    }
  }
  return type;
}

NetworkPlan::NetworkPlan(const Batch& batch, const ModelConfig& config) {
  const int64_t nodes = batch.num_nodes, edges = batch.num_edges;
  check_categories(batch.node_features, config.node_tables, config.node_values, "nodes", nodes);
  check_categories(batch.edge_features, config.edge_tables, config.edge_values, "edges", edges);
  if (config.lpe.kind != LpeKind::kNone) {
    for (int32_t g = 0; g < batch.num_graphs; ++g) {
      SAN_CHECK(batch.num_pairs[static_cast<size_t>(g)] > 0,
                "graph {} of the batch has no eigenpairs, but the model reads them", g);
    }
  }

  graph_of.resize(static_cast<size_t>(nodes));
  for (int32_t g = 0; g < batch.num_graphs; ++g) {
    std::fill(graph_of.begin() + batch.node_offsets[static_cast<size_t>(g)],
              graph_of.begin() + batch.node_offsets[static_cast<size_t>(g) + 1], g);
  }

  std::vector<int32_t> edge_type(static_cast<size_t>(edges));
  std::unordered_multimap<uint64_t, int32_t> known;
  for (int64_t e = 0; e < edges && !own_rows; ++e) {
    int32_t type = -1;
    // Often an edge is like the one before.
    if (e > 0 && same_row(batch.edge_features, e, e - 1)) type = edge_type[static_cast<size_t>(e) - 1];
    const uint64_t hash = type < 0 ? hash_row(batch.edge_features, e) : 0;
    if (type < 0) {
      const auto [begin, end] = known.equal_range(hash);
      for (auto it = begin; it != end && type < 0; ++it) {
        if (same_row(batch.edge_features, e, type_edge[static_cast<size_t>(it->second)])) type = it->second;
      }
    }
    if (type < 0) {
      type = static_cast<int32_t>(type_edge.size());
      own_rows = type >= kMaxSharedTypes;
      type_edge.push_back(static_cast<int32_t>(e));
      type_count.push_back(0);
      known.emplace(hash, type);
    }
    edge_type[static_cast<size_t>(e)] = type;
    ++type_count[static_cast<size_t>(type)];
  }
  if (own_rows) {
    type_edge.resize(static_cast<size_t>(edges));
    for (int64_t e = 0; e < edges; ++e)
      edge_type[static_cast<size_t>(e)] = type_edge[static_cast<size_t>(e)] = static_cast<int32_t>(e);
    type_count.assign(static_cast<size_t>(edges), 1);
  }
  types = static_cast<int32_t>(type_edge.size());

  // Codes of pairs.
  std::vector<int64_t> code;
  const bool edge_lpe = config.lpe.pairs();
  const auto add_sequence = [&](int32_t a, int32_t b, int32_t g) {
    sequence_first.push_back(a);
    sequence_second.push_back(b);
    sequence_graph.push_back(g);
    return sequences++;
  };
  for (int i = 0; i < config.lpe.sequences_per_node(); ++i) {
    for (int32_t node = 0; node < nodes; ++node) add_sequence(node, -1, graph_of[static_cast<size_t>(node)]);
  }
  node_sequences = sequences;
  if (edge_lpe) {
    if (config.full()) {
      int64_t pairs = 0;
      for (int32_t g = 0; g < batch.num_graphs; ++g) {
        const int64_t n = batch.node_offsets[static_cast<size_t>(g) + 1] - batch.node_offsets[static_cast<size_t>(g)];
        pairs += n * (n - 1) / 2;
      }
      SAN_CHECK(pairs <= kMaxCodes,
                "edge LPE with full attention over this batch has {} pairs, more than the {} allowed; "
                "take smaller batches or sparse attention",
                pairs, kMaxCodes);
      loop_code.assign(static_cast<size_t>(nodes), -1);
      for (int32_t g = 0; g < batch.num_graphs; ++g) {
        pair_base.push_back(sequences);
        for (int32_t a = batch.node_offsets[static_cast<size_t>(g)]; a < batch.node_offsets[static_cast<size_t>(g) + 1];
             ++a) {
          for (int32_t b = a + 1; b < batch.node_offsets[static_cast<size_t>(g) + 1]; ++b) add_sequence(a, b, g);
        }
      }
      for (int64_t e = 0; e < edges; ++e) {
        const int32_t a = batch.edge_sources[static_cast<size_t>(e)], b = batch.edge_targets[static_cast<size_t>(e)];
        const int32_t g = graph_of[static_cast<size_t>(a)];
        int64_t index;
        if (a == b) {
          int64_t& loop = loop_code[static_cast<size_t>(a)];
          if (loop < 0) loop = add_sequence(a, a, g);
          index = loop;
        } else {
          index = code_of(g, batch, a, b);
        }
        code.push_back(2 * index + (b > a ? 1 : 0));
      }
    } else {
      std::unordered_map<uint64_t, int64_t> found;
      for (int64_t e = 0; e < edges; ++e) {
        const int32_t a = batch.edge_sources[static_cast<size_t>(e)], b = batch.edge_targets[static_cast<size_t>(e)];
        const uint64_t key = static_cast<uint64_t>(std::min(a, b)) << 32 | static_cast<uint32_t>(std::max(a, b));
        const auto [it, fresh] = found.emplace(key, sequences);
        if (fresh) add_sequence(std::min(a, b), std::max(a, b), graph_of[static_cast<size_t>(a)]);
        code.push_back(2 * it->second + (b > a ? 1 : 0));
      }
    }
  }

  fill(in, batch.edge_targets, batch.edge_sources, edge_type, code, nodes);
  fill(out, batch.edge_sources, batch.edge_targets, edge_type, code, nodes);

  if (config.full()) {
    // Repeated edges are one pair, self loops none of the complete graph's.
    std::vector<int32_t> seen_by(static_cast<size_t>(nodes), -1);
    for (int64_t i = 0; i < nodes; ++i) {
      seen_by[static_cast<size_t>(i)] = static_cast<int32_t>(i);
      int64_t distinct = 1;
      for (int64_t p = in.begin[static_cast<size_t>(i)]; p < in.begin[static_cast<size_t>(i) + 1]; ++p) {
        int32_t& seen = seen_by[static_cast<size_t>(in.other[static_cast<size_t>(p)])];
        distinct += seen != i ? 1 : 0;
        seen = static_cast<int32_t>(i);
      }
      const auto g = static_cast<size_t>(graph_of[static_cast<size_t>(i)]);
      added_pairs += batch.node_offsets[g + 1] - batch.node_offsets[g] - distinct;
    }
  }

  std::vector<double> cost;
  double total = 0;
  std::vector<int32_t> seen_by(static_cast<size_t>(nodes), -1);
  // Only where own_rows can never be: whether a graph's edges are worked on densely decides the order of sums, and may not
  // depend on the rest of its batch.
  int64_t possible_types = config.edge_values > 0 ? kMaxSharedTypes + 1 : 1;
  for (const int rows : config.edge_tables) {
    possible_types = std::min<int64_t>(possible_types * rows, kMaxSharedTypes + 1);
  }
  const bool dense_types = possible_types <= kMaxSharedTypes && config.full() && config.gamma > 0 && !edge_lpe &&
                           config.attention_norm == AttentionNorm::kJoint;
  for (int32_t g = 0; g < batch.num_graphs; ++g) {
    const int32_t begin = batch.node_offsets[static_cast<size_t>(g)],
                  end = batch.node_offsets[static_cast<size_t>(g) + 1];
    const int32_t dense_type = dense_types ? dense_type_of(begin, end, seen_by) : -1;
    this->dense_type.push_back(dense_type);
    for (int32_t first = begin; first < end; first += 16) {
      const int32_t lanes = std::min(16, end - first);
      tiles.push_back({first, lanes, begin, end, g, dense_type});
      const auto real =
          static_cast<double>(in.begin[static_cast<size_t>(first + lanes)] - in.begin[static_cast<size_t>(first)]);
      cost.push_back((dense_type < 0 ? 3 * real : 0.0) + (config.full() && edge_lpe ? 48.0 * (end - begin) : 0.0) + 16);
      total += cost.back();
    }
  }
  chunk_begin = {0};
  double sum = 0;
  for (size_t i = 0; i < tiles.size(); ++i) {
    sum += cost[i];
    if (sum * kChunks >= total * static_cast<double>(chunk_begin.size()) || i + 1 == tiles.size()) {
      chunk_begin.push_back(static_cast<int64_t>(i) + 1);
    }
  }

  if (!config.full() || config.gamma <= 0 || edge_lpe) return;
  const auto nodes_of = [&](int32_t g) {
    return static_cast<double>(batch.node_offsets[static_cast<size_t>(g) + 1] -
                               batch.node_offsets[static_cast<size_t>(g)]);
  };
  double pairs = 0, task = 0;
  for (int32_t g = 0; g < batch.num_graphs; ++g) pairs += nodes_of(g) * nodes_of(g);
  for (int32_t g = 0, first = 0; g < batch.num_graphs; ++g) {
    if (nodes_of(g) > kHeadByHead) {
      if (first < g) dense.push_back({first, g, 0, config.heads});
      for (int h = 0; h < config.heads; ++h) dense.push_back({g, g + 1, h, h + 1});
      first = g + 1;
      task = 0;
      continue;
    }
    task += nodes_of(g) * nodes_of(g);
    if (task * kDenseTasks >= pairs || g + 1 == batch.num_graphs) {
      dense.push_back({first, g + 1, 0, config.heads});
      first = g + 1;
      task = 0;
    }
  }
  // Large tasks first: the last one is what other threads wait for.
  const auto cost_of = [&](const DenseTask& t) {
    double cost = 0;
    for (int32_t g = t.graph_begin; g < t.graph_end; ++g) cost += nodes_of(g) * nodes_of(g);
    return cost * (t.head_end - t.head_begin);
  };
  std::stable_sort(dense.begin(), dense.end(),
                   [&](const DenseTask& a, const DenseTask& b) { return cost_of(a) > cost_of(b); });
}

}  // namespace san
