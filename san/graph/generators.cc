#include "san/graph/generators.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <span>
#include <string>
#include <utility>

#include "san/base/random.h"

namespace san {
namespace {

// Streams of random numbers: what is drawn in the upper bits, for which one of them in the lower.
enum Purpose : uint64_t { kPatternPlan = 1, kPatternGraph, kClusterGraph, kCslGraph, kRandomGraph, kTree, kRegular };

Random stream_for(uint64_t seed, Purpose purpose, int64_t index = 0) {
  return Random(seed, (static_cast<uint64_t>(purpose) << 48) + static_cast<uint64_t>(index));
}

std::vector<int32_t> random_order(int count, Random& random) {
  std::vector<int32_t> order(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  random.shuffle(std::span<int32_t>(order));
  return order;
}

// Both directions of the given pairs, sorted by source, then target: two counting sorts, so linear.
Graph undirected(int64_t nodes, const std::vector<Edge>& pairs) {
  Graph graph;
  graph.num_nodes = static_cast<int32_t>(nodes);
  std::vector<size_t> offsets(static_cast<size_t>(nodes) + 1, 0);
  for (const Edge e : pairs) {
    ++offsets[static_cast<size_t>(e.source) + 1];
    ++offsets[static_cast<size_t>(e.target) + 1];
  }
  std::partial_sum(offsets.begin(), offsets.end(), offsets.begin());
  std::vector<Edge> by_target(2 * pairs.size());
  std::vector<size_t> next = offsets;
  for (const Edge e : pairs) {
    by_target[next[static_cast<size_t>(e.target)]++] = e;
    by_target[next[static_cast<size_t>(e.source)]++] = {e.target, e.source};
  }
  graph.edges.resize(by_target.size());
  next = std::move(offsets);
  for (const Edge e : by_target) graph.edges[next[static_cast<size_t>(e.source)]++] = e;
  return graph;
}

void check_nodes(int64_t nodes, int64_t least = 1) {
  SAN_CHECK(nodes >= least && nodes <= kMaxNodes, "asked for a graph of {} nodes; this kind has {}..{}", nodes, least,
            kMaxNodes);
}

void check_pairs(int64_t pairs) {
  SAN_CHECK(2 * pairs <= kMaxEdges, "asked for a graph of {} edges; at most {} are allowed", 2 * pairs, kMaxEdges);
}

// --- stochastic block models

constexpr int kSmallestCommunity = 5, kLargestCommunityPlusOne = 35;

struct Communities {
  std::vector<int32_t> of_node;  // community of each node, ascending
  int nodes() const { return static_cast<int>(of_node.size()); }
};

Communities draw_communities(int count, Random& random) {
  Communities communities;
  for (int c = 0; c < count; ++c) {
    communities.of_node.insert(communities.of_node.end(),
                               static_cast<size_t>(random.range(kSmallestCommunity, kLargestCommunityPlusOne)), c);
  }
  return communities;
}

void add_block_model(const Communities& communities, double inside, double between, Random& random,
                     std::vector<Edge>& pairs) {
  for (int32_t i = 0; i < communities.nodes(); ++i) {
    for (int32_t j = i + 1; j < communities.nodes(); ++j) {
      const bool same = communities.of_node[static_cast<size_t>(i)] == communities.of_node[static_cast<size_t>(j)];
      if (random.chance(same ? inside : between)) pairs.push_back({i, j});
    }
  }
}

// The graph with node i renamed to order[i], its features and labels moved along, and category 1 on its
// edges.
Graph relabelled(const std::vector<Edge>& pairs, const std::vector<int32_t>& order,
                 const std::vector<int32_t>& categories, const std::vector<int32_t>& labels) {
  std::vector<Edge> renamed;
  renamed.reserve(pairs.size());
  for (const Edge e : pairs) {
    renamed.push_back({order[static_cast<size_t>(e.source)], order[static_cast<size_t>(e.target)]});
  }
  Graph graph = undirected(static_cast<int64_t>(order.size()), renamed);
  graph.node_features.category_columns = 1;
  graph.node_features.categories.resize(order.size());
  graph.node_labels.resize(order.size());
  for (size_t i = 0; i < order.size(); ++i) {
    graph.node_features.categories[static_cast<size_t>(order[i])] = categories[i];
    graph.node_labels[static_cast<size_t>(order[i])] = labels[i];
  }
  graph.edge_features.category_columns = 1;
  graph.edge_features.categories.assign(graph.edges.size(), 1);
  return graph;
}

struct Place {
  const char* split;
  int64_t index;  // within the split
  int size;       // of the split
};

Place place_of(int64_t index, int train, int valid, int test) {
  for (const auto& [split, size] : {std::pair{"train", train}, {"valid", valid}, {"test", test}}) {
    if (index < size) return {split, index, size};
    index -= size;
  }
  return {};
}

int64_t checked_count(int train, int valid, int test) {
  SAN_CHECK(train >= 0 && valid >= 0 && test >= 0, "the numbers of graphs {}, {}, {} must not be negative", train,
            valid, test);
  return int64_t{train} + valid + test;
}

void check_index(int64_t index, int64_t count) {
  SAN_CHECK(index >= 0 && index < count, "asked for graph {} of a data set of {}", index, count);
}

}  // namespace

int64_t pattern_count(const PatternOptions& options) {
  const int64_t count = checked_count(options.train, options.valid, options.test);
  SAN_CHECK(options.patterns >= 1, "a PATTERN data set needs at least one pattern, not {}", options.patterns);
  for (const int size : {options.train, options.valid, options.test}) {
    SAN_CHECK(size % options.patterns == 0, "{} graphs do not divide evenly among {} patterns", size, options.patterns);
  }
  return count;
}

int64_t cluster_count(const ClusterOptions& options) {
  return checked_count(options.train, options.valid, options.test);
}

Graph make_pattern(const PatternOptions& options, int64_t index) {
  check_index(index, pattern_count(options));
  const Place place = place_of(index, options.train, options.valid, options.test);
  const int64_t pattern = place.index / (place.size / options.patterns);

  // Drawn from a stream of its own, so that every graph of the pattern finds the same one.
  Random plan = stream_for(options.seed, kPatternPlan, pattern);
  const int pattern_nodes = plan.range(kSmallestCommunity, kLargestCommunityPlusOne);
  std::vector<Edge> pattern_pairs;
  for (int32_t i = 0; i < pattern_nodes; ++i) {
    for (int32_t j = i + 1; j < pattern_nodes; ++j) {
      if (plan.chance(0.5)) pattern_pairs.push_back({i, j});
    }
  }
  std::vector<int32_t> pattern_categories;
  for (int i = 0; i < pattern_nodes; ++i) pattern_categories.push_back(plan.range(0, 3));

  Random random = stream_for(options.seed, kPatternGraph, index);
  const Communities communities = draw_communities(5, random);
  const int32_t others = communities.nodes();
  std::vector<Edge> pairs;
  add_block_model(communities, 0.5, 0.35, random, pairs);
  std::vector<int32_t> categories;
  for (int i = 0; i < others; ++i) categories.push_back(random.range(0, 3));
  categories.insert(categories.end(), pattern_categories.begin(), pattern_categories.end());
  for (const Edge e : pattern_pairs) pairs.push_back({others + e.source, others + e.target});
  for (int32_t i = 0; i < pattern_nodes; ++i) {
    for (int32_t j = 0; j < others; ++j) {
      if (random.chance(0.5)) pairs.push_back({j, others + i});
    }
  }
  std::vector<int32_t> labels(static_cast<size_t>(others), 0);
  labels.resize(categories.size(), 1);
  const std::vector<int32_t> order = random_order(others + pattern_nodes, random);
  Graph graph = relabelled(pairs, order, categories, labels);
  graph.id = fmt::format("pattern-{}", index);
  graph.split = place.split;
  return graph;
}

Graph make_cluster(const ClusterOptions& options, int64_t index) {
  check_index(index, cluster_count(options));
  Random random = stream_for(options.seed, kClusterGraph, index);
  const Communities communities = draw_communities(6, random);
  std::vector<Edge> pairs;
  add_block_model(communities, 0.55, 0.25, random, pairs);
  std::vector<int32_t> categories(communities.of_node.size(), 0);
  for (int c = 0; c < 6; ++c) {
    const auto [first, last] = std::equal_range(communities.of_node.begin(), communities.of_node.end(), c);
    const auto chosen = static_cast<int64_t>(random.below(static_cast<uint64_t>(last - first)));
    categories[static_cast<size_t>(first - communities.of_node.begin() + chosen)] = c + 1;
  }
  const std::vector<int32_t> order = random_order(communities.nodes(), random);
  Graph graph = relabelled(pairs, order, categories, communities.of_node);
  graph.id = fmt::format("cluster-{}", index);
  graph.split = place_of(index, options.train, options.valid, options.test).split;
  return graph;
}

Graph make_csl(uint64_t seed, int index) {
  check_index(index, kCslGraphs);
  constexpr std::array<int32_t, 10> kSkips{2, 3, 4, 5, 6, 9, 11, 12, 13, 16};
  constexpr int32_t kNodes = 41;
  constexpr int kCopies = kCslGraphs / static_cast<int>(kSkips.size());
  const int label = index / kCopies;
  Random random = stream_for(seed, kCslGraph, index);
  const std::vector<int32_t> order = random_order(kNodes, random);
  std::vector<Edge> pairs;
  for (int32_t i = 0; i < kNodes; ++i) {
    for (const int32_t step : {1, kSkips[static_cast<size_t>(label)]}) {
      pairs.push_back({order[static_cast<size_t>(i)], order[static_cast<size_t>((i + step) % kNodes)]});
    }
  }
  Graph graph = undirected(kNodes, pairs);
  graph.id = fmt::format("csl-{}", index);
  graph.graph_labels = {static_cast<double>(label)};
  return graph;
}

// --- small graphs

Graph make_path(int nodes) {
  check_nodes(nodes);
  std::vector<Edge> pairs;
  for (int32_t i = 0; i + 1 < nodes; ++i) pairs.push_back({i, i + 1});
  return undirected(nodes, pairs);
}

Graph make_cycle(int nodes) {
  check_nodes(nodes, 3);
  std::vector<Edge> pairs;
  for (int32_t i = 0; i < nodes; ++i) pairs.push_back({i, (i + 1) % nodes});
  return undirected(nodes, pairs);
}

Graph make_star(int nodes) {
  check_nodes(nodes);
  std::vector<Edge> pairs;
  for (int32_t i = 1; i < nodes; ++i) pairs.push_back({0, i});
  return undirected(nodes, pairs);
}

Graph make_complete(int nodes) {
  check_nodes(nodes);
  check_pairs(int64_t{nodes} * (nodes - 1) / 2);
  std::vector<Edge> pairs;
  for (int32_t i = 0; i < nodes; ++i) {
    for (int32_t j = i + 1; j < nodes; ++j) pairs.push_back({i, j});
  }
  return undirected(nodes, pairs);
}

Graph make_grid(int rows, int columns) {
  SAN_CHECK(rows >= 1 && columns >= 1, "asked for a grid of {} rows and {} columns", rows, columns);
  check_nodes(int64_t{rows} * columns);
  std::vector<Edge> pairs;
  for (int32_t r = 0; r < rows; ++r) {
    for (int32_t c = 0; c < columns; ++c) {
      const int32_t node = r * columns + c;
      if (c + 1 < columns) pairs.push_back({node, node + 1});
      if (r + 1 < rows) pairs.push_back({node, node + columns});
    }
  }
  return undirected(int64_t{rows} * columns, pairs);
}

Graph make_hypercube(int dimensions) {
  SAN_CHECK(dimensions >= 0 && dimensions < 31, "asked for a hypercube of {} dimensions", dimensions);
  const int64_t nodes = int64_t{1} << dimensions;
  check_nodes(nodes);
  check_pairs(nodes * dimensions / 2);
  std::vector<Edge> pairs;
  for (int32_t i = 0; i < nodes; ++i) {
    for (int d = 0; d < dimensions; ++d) {
      if (const int32_t j = i ^ (1 << d); i < j) pairs.push_back({i, j});
    }
  }
  return undirected(nodes, pairs);
}

Graph disjoint_union(const std::vector<Graph>& graphs) {
  Graph all;
  int64_t nodes = 0, edges = 0;
  bool node_labels = true;
  for (const Graph& graph : graphs) {
    nodes += graph.num_nodes;
    edges += static_cast<int64_t>(graph.edges.size());
    node_labels = node_labels && !graph.node_labels.empty();
  }
  check_nodes(nodes);
  SAN_CHECK(edges <= kMaxEdges, "the union has {} edges; at most {} are allowed", edges, kMaxEdges);
  const auto append = [](Features& to, const Features& from) {
    to.categories.insert(to.categories.end(), from.categories.begin(), from.categories.end());
    to.values.insert(to.values.end(), from.values.begin(), from.values.end());
  };
  const auto columns = [](const Graph& g) {
    return std::array{g.node_features.category_columns, g.node_features.value_columns, g.edge_features.category_columns,
                      g.edge_features.value_columns};
  };
  all.edges.reserve(static_cast<size_t>(edges));
  for (const Graph& graph : graphs) {
    SAN_CHECK(columns(graph) == columns(graphs[0]), "graphs with different feature columns cannot be united");
    for (const Edge e : graph.edges) all.edges.push_back({all.num_nodes + e.source, all.num_nodes + e.target});
    append(all.node_features, graph.node_features);
    append(all.edge_features, graph.edge_features);
    if (node_labels) {
      all.node_labels.insert(all.node_labels.end(), graph.node_labels.begin(), graph.node_labels.end());
    }
    all.num_nodes += graph.num_nodes;
  }
  all.node_features.category_columns = graphs[0].node_features.category_columns;
  all.node_features.value_columns = graphs[0].node_features.value_columns;
  all.edge_features.category_columns = graphs[0].edge_features.category_columns;
  all.edge_features.value_columns = graphs[0].edge_features.value_columns;
  return all;
}

// --- random graphs

namespace {

// Number of failures before the first success of independent trials: one uniform number each, found by binary
// search over powers of q = 1 - p. Multiplications only (no logarithm), so the same on every machine.
class GeometricSkips {
 public:
  explicit GeometricSkips(double p) {
    double power = 1.0 - p;
    for (double& q : powers_) {
      q = power;
      power *= power;
    }
  }

  // Results of 2^48 - 1 mean "at least that many", which is more than a graph has pairs.
  int64_t draw(Random& random) const {
    const double u = 1.0 - random.uniform();  // in (0, 1]: the largest k with q^k >= u
    double reached = 1.0;
    int64_t skip = 0;
    for (size_t bit = powers_.size(); bit-- > 0;) {
      if (reached * powers_[bit] >= u) {
        reached *= powers_[bit];
        skip += int64_t{1} << bit;
      }
    }
    return skip;
  }

 private:
  std::array<double, 48> powers_;  // powers_[b] = q^(2^b)
};

}  // namespace

Graph make_random_graph(int nodes, double p, uint64_t seed) {
  check_nodes(nodes);
  SAN_CHECK(p >= 0 && p <= 1, "asked for a random graph with edge probability {}", p);
  // The expected number first: a hopeless request must not fill the memory before it fails.
  check_pairs(static_cast<int64_t>(p * (0.5 * nodes * (nodes - 1.0))));
  Random random = stream_for(seed, kRandomGraph);
  const GeometricSkips skips(p);
  std::vector<Edge> pairs;
  // Pairs (low, high) with low < high, in order of high: only the joined ones are visited.
  int64_t low = -1, high = 1;
  for (;;) {
    low += 1 + skips.draw(random);
    while (high < nodes && low >= high) low -= high++;
    if (high >= nodes) break;
    check_pairs(static_cast<int64_t>(pairs.size()) + 1);
    pairs.push_back({static_cast<int32_t>(low), static_cast<int32_t>(high)});
  }
  return undirected(nodes, pairs);
}

Graph make_random_tree(int nodes, uint64_t seed) {
  check_nodes(nodes);
  if (nodes <= 2) return make_path(nodes);
  Random random = stream_for(seed, kTree);
  std::vector<int32_t> sequence(static_cast<size_t>(nodes) - 2);
  std::vector<int32_t> remaining(static_cast<size_t>(nodes), 1);  // degree still to be given out
  for (int32_t& node : sequence) {
    node = random.range(0, nodes);
    ++remaining[static_cast<size_t>(node)];
  }
  // Joins the lowest leaf to the next node of the sequence, again and again. That node is the next lowest
  // leaf if it became one below the pointer; otherwise the pointer moves on: linear in all.
  std::vector<Edge> pairs;
  const auto next_leaf = [&](int32_t from) {
    while (remaining[static_cast<size_t>(from)] != 1) ++from;
    return from;
  };
  int32_t pointer = next_leaf(0), leaf = pointer;
  for (const int32_t node : sequence) {
    pairs.push_back({leaf, node});
    if (--remaining[static_cast<size_t>(node)] == 1 && node < pointer) {
      leaf = node;
    } else {
      pointer = next_leaf(pointer + 1);
      leaf = pointer;
    }
  }
  pairs.push_back({leaf, nodes - 1});
  return undirected(nodes, pairs);
}

namespace {

// Node u owns the half-edges u * degree .. u * degree + degree - 1; mate[h] is the half-edge that h is joined
// to.
class HalfEdges {
 public:
  HalfEdges(int32_t nodes, int32_t degree)
      : nodes_(nodes), degree_(degree), mates_(static_cast<size_t>(nodes) * static_cast<size_t>(degree)) {}

  // A uniformly random pairing, repaired; false when the repair got stuck (small dense graphs only).
  bool draw(Random& random) {
    std::vector<int32_t> order = random_order(static_cast<int>(mates_.size()), random);
    for (size_t i = 0; i < order.size(); i += 2) join(order[i], order[i + 1]);
    return repair(random);
  }

  int32_t owner(int32_t half) const { return half / degree_; }

  std::vector<Edge> pairs() const {
    std::vector<Edge> out;
    for (int32_t h = 0; h < static_cast<int32_t>(mates_.size()); ++h) {
      const int32_t mate = mates_[static_cast<size_t>(h)];
      if (h < mate) out.push_back({owner(h), owner(mate)});
    }
    return out;
  }

 private:
  void join(int32_t a, int32_t b) {
    mates_[static_cast<size_t>(a)] = b;
    mates_[static_cast<size_t>(b)] = a;
  }

  bool joined(int32_t u, int32_t v) const {
    const auto row = mates_.begin() + int64_t{u} * degree_;
    return std::any_of(row, row + degree_, [&](int32_t mate) { return owner(mate) == v; });
  }

  // Every self loop and every repetition of an edge is exchanged with a random edge, (u,v) (a,b) -> (u,a)
  // (v,b), when that makes two new edges: no exchange makes a bad edge, so one pass leaves a simple graph.
  bool repair(Random& random) {
    std::vector<int32_t> seen_by(static_cast<size_t>(nodes_), -1);
    for (int32_t u = 0; u < nodes_; ++u) {
      for (int32_t h = u * degree_; h < (u + 1) * degree_; ++h) {
        const int32_t v = owner(mates_[static_cast<size_t>(h)]);
        if ((v == u || seen_by[static_cast<size_t>(v)] == u) && !exchange(h, random)) return false;
        seen_by[static_cast<size_t>(owner(mates_[static_cast<size_t>(h)]))] = u;
      }
    }
    return true;
  }

  bool exchange(int32_t half, Random& random) {
    for (int attempt = 0; attempt < 1000; ++attempt) {
      const auto other = static_cast<int32_t>(random.below(mates_.size()));
      const int32_t mate = mates_[static_cast<size_t>(half)], other_mate = mates_[static_cast<size_t>(other)];
      const int32_t u = owner(half), v = owner(mate), a = owner(other), b = owner(other_mate);
      if (u == a || v == b || (u == v && a == b) || joined(u, a) || joined(v, b)) continue;
      join(half, other);
      join(mate, other_mate);
      return true;
    }
    return false;
  }

  int32_t nodes_, degree_;
  std::vector<int32_t> mates_;
};

}  // namespace

Graph make_random_regular(int nodes, int degree, uint64_t seed) {
  check_nodes(nodes);
  SAN_CHECK(degree >= 0 && degree < nodes && int64_t{nodes} * degree % 2 == 0,
            "no simple graph of {} nodes is {}-regular", nodes, degree);
  check_pairs(int64_t{nodes} * degree / 2);
  if (degree == 0) return undirected(nodes, {});
  Random random = stream_for(seed, kRegular);
  // Dense graphs are the complements of sparse ones, whose repair does not get stuck.
  const bool complement = degree > (nodes - 1) / 2;
  const int drawn_degree = complement ? nodes - 1 - degree : degree;
  std::vector<Edge> pairs;
  if (drawn_degree > 0) {
    HalfEdges halves(nodes, drawn_degree);
    while (!halves.draw(random)) {
    }
    pairs = halves.pairs();
  }
  Graph graph = undirected(nodes, pairs);
  if (!complement) return graph;
  pairs.clear();
  size_t at = 0;
  for (int32_t i = 0; i < nodes; ++i) {
    for (int32_t j = 0; j < nodes; ++j) {
      if (at < graph.edges.size() && graph.edges[at] == Edge{i, j}) {
        ++at;
      } else if (i < j) {
        pairs.push_back({i, j});
      }
    }
  }
  return undirected(nodes, pairs);
}

}  // namespace san
