#include "san/graph/generators.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numeric>
#include <set>
#include <sstream>

#include "san/base/file.h"
#include "tests/testing.h"

namespace san {
namespace {

using testing::error_of;

// What the header promises of every generated graph.
void expect_simple_sorted_and_symmetric(const Graph& graph) {
  validate(graph);
  const auto before = [](Edge a, Edge b) { return std::pair(a.source, a.target) < std::pair(b.source, b.target); };
  for (size_t i = 0; i < graph.edges.size(); ++i) {
    const Edge e = graph.edges[i];
    ASSERT_NE(e.source, e.target);
    ASSERT_TRUE(i == 0 || before(graph.edges[i - 1], e)) << "sorted and without repetition";
    ASSERT_TRUE(std::binary_search(graph.edges.begin(), graph.edges.end(), Edge{e.target, e.source}, before));
  }
}

std::vector<int> degrees(const Graph& graph) {
  std::vector<int> out(static_cast<size_t>(graph.num_nodes), 0);
  for (const Edge e : graph.edges) ++out[static_cast<size_t>(e.source)];
  return out;
}

// Number of connected components.
int components(const Graph& graph) {
  std::vector<int32_t> parent(static_cast<size_t>(graph.num_nodes));
  std::iota(parent.begin(), parent.end(), 0);
  const auto root = [&](int32_t x) {
    while (parent[static_cast<size_t>(x)] != x) {
      x = parent[static_cast<size_t>(x)] = parent[static_cast<size_t>(parent[static_cast<size_t>(x)])];
    }
    return x;
  };
  int count = graph.num_nodes;
  for (const Edge e : graph.edges) {
    const int32_t a = root(e.source), b = root(e.target);
    if (a != b) parent[static_cast<size_t>(a)] = b, --count;
  }
  return count;
}

// --- SBM

// Five standard deviations of a mean; each below is derived from Var(size) = 74.92 of U(5,35), mean 19.5.
constexpr double kSizeVariance = 74.92;
constexpr int kGraphs = 2000;

struct PatternCase {
  int patterns;
  double nodes_sd, edges_sd, share_sd, feature_sd, inside_pattern_sd;
};

class PatternStatistics : public ::testing::TestWithParam<PatternCase> {};

TEST_P(PatternStatistics, AgreeWithTheProcedure) {
  const PatternCase& expected = GetParam();
  const PatternOptions options{.seed = 11, .patterns = expected.patterns, .train = kGraphs, .valid = 0, .test = 0};
  double nodes = 0, edges = 0, pattern_nodes = 0, block_edges = 0, cross_edges = 0, cross_pairs = 0;
  double inside_edges = 0, inside_pairs = 0, rank_sum = 0;
  std::array<double, 3> features{};
  for (int64_t i = 0; i < pattern_count(options); ++i) {
    const Graph graph = make_pattern(options, i);
    if (i % 100 == 0) expect_simple_sorted_and_symmetric(graph);
    ASSERT_GE(graph.num_nodes, 6 * 5);
    ASSERT_LE(graph.num_nodes, 6 * 34);
    EXPECT_EQ(graph.split, "train");
    EXPECT_EQ(graph.edge_features, (Features{1, 0, std::vector<int32_t>(graph.edges.size(), 1), {}}));
    double in_pattern = 0;
    for (int32_t n = 0; n < graph.num_nodes; ++n) {
      const double label = graph.node_labels[static_cast<size_t>(n)];
      ASSERT_TRUE(label == 0 || label == 1);
      in_pattern += label;
      rank_sum += label * (n + 0.5) / graph.num_nodes;
      ++features.at(static_cast<size_t>(graph.node_features.categories[static_cast<size_t>(n)]));
    }
    nodes += graph.num_nodes;
    edges += static_cast<double>(graph.edges.size()) / 2;
    pattern_nodes += in_pattern;
    cross_pairs += in_pattern * (graph.num_nodes - in_pattern);
    inside_pairs += in_pattern * (in_pattern - 1) / 2;
    for (const Edge e : graph.edges) {
      const double ends =
          graph.node_labels[static_cast<size_t>(e.source)] + graph.node_labels[static_cast<size_t>(e.target)];
      (ends == 0 ? block_edges : ends == 1 ? cross_edges : inside_edges) += 0.5;
    }
  }
  EXPECT_NEAR(nodes / kGraphs, 117.0, 5 * expected.nodes_sd);
  EXPECT_NEAR(edges / kGraphs, 2935, 5 * expected.edges_sd);
  EXPECT_NEAR(pattern_nodes / nodes, 1.0 / 6, 5 * expected.share_sd);
  for (const double count : features) EXPECT_NEAR(count / nodes, 1.0 / 3, 5 * expected.feature_sd);
  // Pattern-to-other pairs are joined independently with probability 0.5: about 2000 * 19.5 * 97.5 = 3.8e6
  // of them.
  EXPECT_NEAR(cross_edges / cross_pairs, 0.5, 5 * 0.5 / std::sqrt(cross_pairs));
  EXPECT_NEAR(inside_edges / inside_pairs, 0.5, 5 * expected.inside_pattern_sd);
  // The block model alone: 5 * 0.5 * E[s(s-1)/2] + 10 * 0.35 * 19.5^2 = 544.6 + 1330.9. One community more
  // node adds 0.5 * 19 + 0.35 * 78 = 36.8 edges, so sd per graph = sqrt(5 * 74.92) * 36.8 = 712, with
  // second-order and binomial terms 718.
  EXPECT_NEAR(block_edges / kGraphs, 1875.5, 5 * 718 / std::sqrt(kGraphs));
  // Ranks of the pattern's nodes are uniform after the permutation: sd 0.2887 each, 39,000 of them (drawing
  // without replacement only makes it less).
  EXPECT_NEAR(rank_sum / pattern_nodes, 0.5, 5 * 0.2887 / std::sqrt(pattern_nodes));
}

// With f patterns a mean over 2,000 graphs averages 2,000 block models but only f patterns.
//   nodes: sqrt(5 * 74.92 / 2000 + 74.92 / f)
//   edges: a node more in a community adds 0.5 * 19 + 0.35 * 78 + 0.5 * 19.5 = 46.6 edges, in the pattern
//     0.5 * 19 + 0.5 * 97.5 = 58.3: sqrt((5 * 74.92 * 46.6^2 + 2e4) / 2000 + 74.92 * 58.3^2 / f), 2e4 being
//     the second-order and binomial variance
//   share of class 1 = n0 / n, first order: sqrt(25/36 * 74.92 / f + 5/36 * 74.92 / 2000) / 117
//   a feature's share: sqrt(2/9 * ((1/6)^2 / (19.5 f) + (5/6)^2 / (97.5 * 2000)))
//   pairs inside patterns: f patterns of n0 (n0 - 1) / 2 pairs, 217.8 on average; larger patterns weigh more:
//     sd 0.5 / sqrt(217.8 f) times at most the root of E[x^2] / E[x]^2 = 1.3 or so; 2 to be safe. Where
//     graphs repeat a pattern nothing is gained.
PatternCase pattern_case(double f) {
  return {static_cast<int>(f),
          std::sqrt(5 * kSizeVariance / kGraphs + kSizeVariance / f),
          std::sqrt((5 * kSizeVariance * 46.6 * 46.6 + 2e4) / kGraphs + kSizeVariance * 58.3 * 58.3 / f),
          std::sqrt(25.0 / 36 * kSizeVariance / f + 5.0 / 36 * kSizeVariance / kGraphs) / 117,
          std::sqrt(2.0 / 9 * (1.0 / 36 / (19.5 * f) + 25.0 / 36 / (97.5 * kGraphs))),
          2 * 0.5 / std::sqrt(217.8 * f)};
}

INSTANTIATE_TEST_SUITE_P(Patterns, PatternStatistics, ::testing::Values(pattern_case(100), pattern_case(2000)),
                         [](const auto& info) { return std::to_string(info.param.patterns); });

// What a relabelling leaves of a pattern: its edges, and feature and inner degree of its nodes.
std::pair<size_t, std::multiset<std::pair<int32_t, int>>> pattern_of(const Graph& graph) {
  size_t edges = 0;
  std::vector<int> inner(static_cast<size_t>(graph.num_nodes), 0);
  for (const Edge e : graph.edges) {
    if (graph.node_labels[static_cast<size_t>(e.source)] == 1 &&
        graph.node_labels[static_cast<size_t>(e.target)] == 1) {
      ++edges;
      ++inner[static_cast<size_t>(e.source)];
    }
  }
  std::multiset<std::pair<int32_t, int>> nodes;
  for (size_t i = 0; i < inner.size(); ++i) {
    if (graph.node_labels[i] == 1) nodes.insert({graph.node_features.categories[i], inner[i]});
  }
  return {edges, nodes};
}

TEST(Pattern, SplitsShareThePatternsInOrder) {
  const PatternOptions options{.seed = 3, .patterns = 4, .train = 8, .valid = 4, .test = 4};
  ASSERT_EQ(pattern_count(options), 16);
  std::set<decltype(pattern_of(Graph{}))> distinct;
  for (int64_t pattern = 0; pattern < 4; ++pattern) {
    const Graph first = make_pattern(options, 2 * pattern);
    distinct.insert(pattern_of(first));
    EXPECT_EQ(first.split, "train");
    EXPECT_EQ(first.id, "pattern-" + std::to_string(2 * pattern));
    for (const int64_t other : {2 * pattern + 1, 8 + pattern, 12 + pattern}) {
      const Graph graph = make_pattern(options, other);
      EXPECT_EQ(pattern_of(graph), pattern_of(first));
      EXPECT_NE(graph.edges, first.edges);
      EXPECT_EQ(graph.split, other < 8 ? "train" : other < 12 ? "valid" : "test");
    }
  }
  EXPECT_EQ(distinct.size(), 4u);
}

TEST(Pattern, IsAPureFunctionOfOptionsAndIndex) {
  PatternOptions options;
  const Graph graph = make_pattern(options, 1234);
  EXPECT_EQ(make_pattern(options, 1234), graph);
  options.seed = 1;
  EXPECT_NE(make_pattern(options, 1234).edges, graph.edges);
}

TEST(Cluster, StatisticsAgreeWithTheProcedure) {
  const ClusterOptions options{.seed = 5, .train = kGraphs, .valid = 0, .test = 0};
  double nodes = 0, edges = 0, inside_pairs = 0, inside_edges = 0, between_pairs = 0, between_edges = 0, ranks = 0;
  std::array<double, 6> classes{};
  for (int64_t i = 0; i < kGraphs; ++i) {
    const Graph graph = make_cluster(options, i);
    if (i % 100 == 0) expect_simple_sorted_and_symmetric(graph);
    EXPECT_EQ(graph.edge_features, (Features{1, 0, std::vector<int32_t>(graph.edges.size(), 1), {}}));
    std::array<double, 6> sizes{};
    std::array<int, 6> revealed{};
    for (int32_t n = 0; n < graph.num_nodes; ++n) {
      const auto label = static_cast<size_t>(graph.node_labels[static_cast<size_t>(n)]);
      ++sizes.at(label);
      if (label == 5) ranks += (n + 0.5) / graph.num_nodes;
      const int32_t feature = graph.node_features.categories[static_cast<size_t>(n)];
      if (feature != 0) {
        ASSERT_EQ(static_cast<size_t>(feature), label + 1);
        ++revealed.at(label);
      }
    }
    EXPECT_EQ(revealed, (std::array{1, 1, 1, 1, 1, 1}));
    double inside = 0;
    for (size_t c = 0; c < 6; ++c) {
      ASSERT_GE(sizes[c], 5);
      ASSERT_LE(sizes[c], 34);
      classes[c] += sizes[c];
      inside += sizes[c] * (sizes[c] - 1) / 2;
    }
    nodes += graph.num_nodes;
    edges += static_cast<double>(graph.edges.size()) / 2;
    inside_pairs += inside;
    between_pairs += graph.num_nodes * (graph.num_nodes - 1.0) / 2 - inside;
    for (const Edge e : graph.edges) {
      (graph.node_labels[static_cast<size_t>(e.source)] == graph.node_labels[static_cast<size_t>(e.target)]
           ? inside_edges
           : between_edges) += 0.5;
    }
  }
  EXPECT_NEAR(nodes / kGraphs, 117.0, 5 * std::sqrt(6 * kSizeVariance / kGraphs));
  // A node more adds 0.55 * 19 + 0.25 * 97.5 = 34.8 edges: sd per graph sqrt(6 * 74.92) * 34.8 = 738; 745
  // with second-order and binomial terms.
  EXPECT_NEAR(edges / kGraphs, 2145, 5 * 745 / std::sqrt(kGraphs));
  // Given the communities every pair is an independent coin.
  EXPECT_NEAR(inside_edges / inside_pairs, 0.55, 5 * std::sqrt(0.55 * 0.45 / inside_pairs));
  EXPECT_NEAR(between_edges / between_pairs, 0.25, 5 * std::sqrt(0.25 * 0.75 / between_pairs));
  // First order: Var(s_c - n / 6) = (25/36 + 5/36) * 74.92 per graph.
  for (const double count : classes) {
    EXPECT_NEAR(count / nodes, 1.0 / 6, 5 * std::sqrt(30.0 / 36 * kSizeVariance / kGraphs) / 117);
  }
  EXPECT_NEAR(ranks / classes[5], 0.5, 5 * 0.2887 / std::sqrt(classes[5]));  // shuffled, as in PATTERN
}

TEST(Cluster, SplitsFollowEachOther) {
  const ClusterOptions options{.seed = 0, .train = 2, .valid = 1, .test = 1};
  ASSERT_EQ(cluster_count(options), 4);
  const std::vector<std::string> splits{"train", "train", "valid", "test"};
  for (int64_t i = 0; i < 4; ++i) EXPECT_EQ(make_cluster(options, i).split, splits[static_cast<size_t>(i)]);
  EXPECT_EQ(make_cluster(options, 3), make_cluster(options, 3));
  EXPECT_EQ(make_cluster(options, 3).id, "cluster-3");
}

TEST(Sbm, RefusesSizesThatCannotBe) {
  EXPECT_NE(error_of([] { pattern_count({.patterns = 0}); }).find("at least one pattern"), std::string::npos);
  EXPECT_NE(error_of([] { pattern_count({.patterns = 3, .train = 10}); }).find("divide evenly"), std::string::npos);
  EXPECT_NE(error_of([] { cluster_count({.valid = -1}); }).find("negative"), std::string::npos);
  EXPECT_NE(error_of([] { make_pattern({}, 14000); }).find("graph 14000 of a data set of 14000"), std::string::npos);
  EXPECT_NE(error_of([] { make_cluster({}, -1); }).find("graph -1"), std::string::npos);
  EXPECT_NE(error_of([] { make_csl(0, 150); }).find("graph 150"), std::string::npos);
}

// --- CSL

// Of each node how many nodes lie at distance 0, 1, 2, ...; sorted over the nodes.
std::multiset<std::vector<int>> distance_profiles(const Graph& graph) {
  std::multiset<std::vector<int>> profiles;
  for (int32_t start = 0; start < graph.num_nodes; ++start) {
    std::vector<int> distance(static_cast<size_t>(graph.num_nodes), -1);
    distance[static_cast<size_t>(start)] = 0;
    std::vector<int> profile{1};
    for (bool grew = true; grew;) {
      grew = false;
      const int step = static_cast<int>(profile.size());
      int reached = 0;
      for (const Edge e : graph.edges) {
        if (distance[static_cast<size_t>(e.source)] == step - 1 && distance[static_cast<size_t>(e.target)] < 0) {
          distance[static_cast<size_t>(e.target)] = step;
          ++reached;
        }
      }
      if (reached > 0) profile.push_back(reached), grew = true;
    }
    profiles.insert(profile);
  }
  return profiles;
}

// Closed walks of length 1..41, modulo 2^64. Equal numbers mean (but for an accident of the modulus) equal
// spectra of the adjacency matrix, and circulant graphs on a prime number of nodes with equal spectra are
// isomorphic.
std::vector<uint64_t> closed_walks(const Graph& graph) {
  const auto n = static_cast<size_t>(graph.num_nodes);
  std::vector<uint64_t> out;
  std::vector<uint64_t> walks(n * n, 0);
  for (size_t i = 0; i < n; ++i) walks[i * n + i] = 1;
  for (size_t length = 1; length <= n; ++length) {
    std::vector<uint64_t> longer(n * n, 0);
    for (const Edge e : graph.edges) {
      for (size_t i = 0; i < n; ++i) {
        longer[i * n + static_cast<size_t>(e.target)] += walks[i * n + static_cast<size_t>(e.source)];
      }
    }
    walks = std::move(longer);
    uint64_t trace = 0;
    for (size_t i = 0; i < n; ++i) trace += walks[i * n + i];
    out.push_back(trace);
  }
  return out;
}

TEST(Csl, EveryClassIsTheOneOfThePublishedSet) {
  SAN_NEED_SHARED(path, "data/csl/csl.csv.gz");
  LineReader reader(path.string());
  std::string_view line;
  ASSERT_TRUE(reader.next(line));
  std::map<int, std::set<std::multiset<std::vector<int>>>> profiles;
  std::map<int, std::set<std::vector<uint64_t>>> walks;
  int published = 0;
  for (; reader.next(line); ++published) {
    std::istringstream row{std::string(line)};
    int index = 0, label = 0;
    char comma = 0, dash = 0;
    Graph graph;
    row >> index >> comma >> label >> comma >> graph.num_nodes >> comma;
    for (Edge e; row >> e.source >> dash >> e.target;) {
      graph.edges.push_back(e);
      graph.edges.push_back({e.target, e.source});
    }
    ASSERT_EQ(graph.edges.size(), 164u);
    profiles[label].insert(distance_profiles(graph));
    walks[label].insert(closed_walks(graph));
  }
  ASSERT_EQ(published, kCslGraphs);
  std::set<std::vector<uint64_t>> classes;
  for (int i = 0; i < kCslGraphs; ++i) {
    const Graph graph = make_csl(7, i);
    expect_simple_sorted_and_symmetric(graph);
    EXPECT_EQ(graph.num_nodes, 41);
    EXPECT_EQ(degrees(graph), std::vector<int>(41, 4));
    EXPECT_TRUE(graph.node_features.empty() && graph.edge_features.empty());
    ASSERT_EQ(graph.graph_labels, std::vector<double>{static_cast<double>(i / 15)});
    EXPECT_EQ(profiles[i / 15], std::set{distance_profiles(graph)});
    EXPECT_EQ(walks[i / 15], std::set{closed_walks(graph)});
    classes.insert(closed_walks(graph));
  }
  EXPECT_EQ(classes.size(), 10u);  // so the comparison above tells the classes apart
}

TEST(Csl, CopiesOfAClassAreDifferentRelabellings) {
  std::set<std::vector<std::pair<int, int>>> seen;
  for (int i = 0; i < kCslGraphs; ++i) {
    std::vector<std::pair<int, int>> edges;
    for (const Edge e : make_csl(0, i).edges) edges.emplace_back(e.source, e.target);
    seen.insert(edges);
  }
  EXPECT_EQ(seen.size(), static_cast<size_t>(kCslGraphs));
  EXPECT_EQ(make_csl(0, 3), make_csl(0, 3));
  EXPECT_NE(make_csl(0, 3).edges, make_csl(1, 3).edges);
}

// --- small graphs

TEST(SmallGraphs, HaveTheirDegrees) {
  EXPECT_EQ(degrees(make_path(4)), (std::vector<int>{1, 2, 2, 1}));
  EXPECT_EQ(degrees(make_path(1)), (std::vector<int>{0}));
  EXPECT_EQ(degrees(make_cycle(3)), (std::vector<int>{2, 2, 2}));
  EXPECT_EQ(degrees(make_star(4)), (std::vector<int>{3, 1, 1, 1}));
  EXPECT_EQ(degrees(make_complete(4)), (std::vector<int>{3, 3, 3, 3}));
  EXPECT_EQ(degrees(make_grid(2, 3)), (std::vector<int>{2, 3, 2, 2, 3, 2}));
  EXPECT_EQ(degrees(make_hypercube(3)), std::vector<int>(8, 3));
  EXPECT_EQ(make_hypercube(0).num_nodes, 1);
  for (const Graph& graph : {make_path(5), make_cycle(5), make_star(5), make_complete(5), make_grid(3, 4),
                             make_grid(1, 1), make_hypercube(4), make_star(1)}) {
    expect_simple_sorted_and_symmetric(graph);
    EXPECT_EQ(components(graph), 1);
    EXPECT_TRUE(graph.node_features.empty() && graph.edge_features.empty());
  }
  // The distances tell these from other graphs with the same degrees.
  EXPECT_EQ(distance_profiles(make_cycle(6)),
            (std::multiset<std::vector<int>>{
                {1, 2, 2, 1}, {1, 2, 2, 1}, {1, 2, 2, 1}, {1, 2, 2, 1}, {1, 2, 2, 1}, {1, 2, 2, 1}}));
  EXPECT_EQ(*distance_profiles(make_hypercube(4)).begin(), (std::vector<int>{1, 4, 6, 4, 1}));
  EXPECT_EQ(distance_profiles(make_grid(2, 2)), distance_profiles(make_cycle(4)));
}

TEST(SmallGraphs, UniteSideBySide) {
  const Graph two = disjoint_union({make_cycle(3), make_cycle(3)});
  expect_simple_sorted_and_symmetric(two);
  EXPECT_EQ(two.num_nodes, 6);
  EXPECT_EQ(components(two), 2);
  EXPECT_EQ(degrees(two), std::vector<int>(6, 2));
  const Graph a = make_cluster({}, 0), b = make_cluster({}, 1);
  const Graph both = disjoint_union({a, b});
  expect_simple_sorted_and_symmetric(both);
  EXPECT_EQ(both.node_labels.back(), b.node_labels.back());
  EXPECT_EQ(both.node_features.categories.back(), b.node_features.categories.back());
  EXPECT_NE(error_of([&] { disjoint_union({a, make_path(2)}); }).find("feature columns"), std::string::npos);
  EXPECT_NE(error_of([&] { disjoint_union({}); }).find("0 nodes"), std::string::npos);
}

TEST(SmallGraphs, RefuseSizesThatCannotBe) {
  EXPECT_NE(error_of([] { make_path(0); }).find("0 nodes"), std::string::npos);
  EXPECT_NE(error_of([] { make_cycle(2); }).find("2 nodes"), std::string::npos);
  EXPECT_NE(error_of([] { make_star(-1); }).find("-1 nodes"), std::string::npos);
  EXPECT_NE(error_of([] { make_complete(1 << 20); }).find("edges"), std::string::npos);
  EXPECT_NE(error_of([] { make_grid(1 << 30, 1 << 30); }).find("nodes"), std::string::npos);
  EXPECT_NE(error_of([] { make_grid(-2, -2); }).find("-2 rows"), std::string::npos);
  EXPECT_NE(error_of([] { make_hypercube(25); }).find("nodes"), std::string::npos);
  EXPECT_NE(error_of([] { make_hypercube(-1); }).find("-1 dimensions"), std::string::npos);
  EXPECT_NE(error_of([] { make_random_graph(10, 1.5, 0); }).find("probability"), std::string::npos);
  EXPECT_NE(error_of([] { make_random_graph(1 << 20, 0.5, 0); }).find("edges"), std::string::npos);
  EXPECT_NE(error_of([] { make_random_regular(5, 3, 0); }).find("no simple graph of 5 nodes is 3-regular"),
            std::string::npos);
  EXPECT_NE(error_of([] { make_random_regular(4, 4, 0); }).find("4-regular"), std::string::npos);
}

TEST(RandomGraph, EveryPairIsJoinedWithTheSameProbability) {
  constexpr int kDraws = 20000;
  for (const double p : {0.02, 0.3, 0.9}) {
    std::map<std::pair<int, int>, int> counts;
    for (int seed = 0; seed < kDraws; ++seed) {
      for (const Edge e : make_random_graph(5, p, static_cast<uint64_t>(seed)).edges) {
        if (e.source < e.target) ++counts[{e.source, e.target}];
      }
    }
    EXPECT_EQ(counts.size(), 10u);
    for (const auto& [pair, count] : counts) {
      EXPECT_NEAR(count, kDraws * p, 5 * std::sqrt(kDraws * p * (1 - p))) << pair.first << "-" << pair.second;
    }
  }
}

TEST(RandomGraph, HasTheExpectedEdgesAtEverySize) {
  EXPECT_TRUE(make_random_graph(50, 0.0, 1).edges.empty());
  EXPECT_EQ(make_random_graph(50, 1.0, 1).edges, make_complete(50).edges);
  EXPECT_TRUE(make_random_graph(1, 0.5, 1).edges.empty());
  for (const auto& [nodes, p] : {std::pair{100000, 1e-5}, {1000, 0.01}, {300, 0.5}}) {
    const Graph graph = make_random_graph(nodes, p, 2);
    expect_simple_sorted_and_symmetric(graph);
    const double pairs = 0.5 * nodes * (nodes - 1.0);
    EXPECT_NEAR(static_cast<double>(graph.edges.size()) / 2, pairs * p, 5 * std::sqrt(pairs * p * (1 - p)));
  }
}

TEST(RandomTree, IsATree) {
  for (const int nodes : {1, 2, 3, 10, 1000, 100000}) {
    const Graph tree = make_random_tree(nodes, 3);
    expect_simple_sorted_and_symmetric(tree);
    EXPECT_EQ(tree.edges.size(), 2 * static_cast<size_t>(nodes - 1));
    EXPECT_EQ(components(tree), 1);
  }
}

TEST(RandomTree, EveryLabelledTreeIsEquallyLikely) {
  std::map<std::vector<std::pair<int, int>>, int> counts;
  constexpr int kDraws = 16000;
  for (int seed = 0; seed < kDraws; ++seed) {
    std::vector<std::pair<int, int>> key;
    for (const Edge e : make_random_tree(4, static_cast<uint64_t>(seed)).edges) key.emplace_back(e.source, e.target);
    ++counts[key];
  }
  EXPECT_EQ(counts.size(), 16u);  // Cayley: 4^2
  // Binomial(16000, 1/16): sd 30.6; five of them.
  for (const auto& [tree, count] : counts) EXPECT_NEAR(count, kDraws / 16, 153);
}

TEST(RandomRegular, IsSimpleAndRegularAtEverySize) {
  for (int nodes = 1; nodes <= 14; ++nodes) {
    for (int degree = 0; degree < nodes; ++degree) {
      if (nodes * degree % 2 != 0) continue;
      for (uint64_t seed = 0; seed < 20; ++seed) {
        const Graph graph = make_random_regular(nodes, degree, seed);
        expect_simple_sorted_and_symmetric(graph);
        ASSERT_EQ(degrees(graph), std::vector<int>(static_cast<size_t>(nodes), degree)) << nodes << " " << seed;
      }
    }
  }
  for (const auto& [nodes, degree] : {std::pair{100000, 3}, {100000, 8}, {301, 150}, {300, 200}}) {
    const Graph graph = make_random_regular(nodes, degree, 1);
    expect_simple_sorted_and_symmetric(graph);
    EXPECT_EQ(degrees(graph), std::vector<int>(static_cast<size_t>(nodes), degree));
  }
  EXPECT_NE(make_random_regular(100, 3, 1).edges, make_random_regular(100, 3, 2).edges);
}

}  // namespace
}  // namespace san
