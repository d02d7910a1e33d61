#include "san/spectral/spectrum.h"

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>
#include <numbers>
#include <set>
#include <thread>

#include "tests/spectral/builders.h"
#include "tests/testing.h"

namespace san {
namespace {

using testing::complete;
using testing::cycle;
using testing::disjoint;
using testing::error_of;
using testing::grid;
using testing::hypercube;
using testing::isolated;
using testing::path;
using testing::random_graph;
using testing::random_regular;
using testing::random_tree;
using testing::relabelled;
using testing::star;

using RowMajor = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

constexpr double kPi = std::numbers::pi;
constexpr Laplacian kLaplacians[] = {Laplacian::kSymmetric, Laplacian::kCombinatorial, Laplacian::kRandomWalk};

// Entries of these matrices are at most 2 (degree, for the combinatorial one): backward-stable solvers err by
// a modest multiple of 1e-16 times that.
constexpr double kExact = 1e-12;

// The definition, written a second time: adjacency of set entries, degrees with loops, clipped.
Eigen::MatrixXd laplacian_matrix(const Graph& graph, Laplacian kind) {
  const int n = graph.num_nodes;
  Eigen::MatrixXd a = Eigen::MatrixXd::Zero(n, n);
  for (const Edge& edge : graph.edges) a(edge.source, edge.target) = a(edge.target, edge.source) = 1;
  Eigen::VectorXd d = a.rowwise().sum();
  if (kind == Laplacian::kCombinatorial) return Eigen::MatrixXd(d.asDiagonal()) - a;
  d = d.cwiseMax(1.0);
  if (kind == Laplacian::kRandomWalk) return Eigen::MatrixXd::Identity(n, n) - d.cwiseInverse().asDiagonal() * a;
  const Eigen::VectorXd s = d.cwiseSqrt().cwiseInverse();
  return Eigen::MatrixXd::Identity(n, n) - s.asDiagonal() * a * s.asDiagonal();
}

Eigen::MatrixXd vectors_of(const Spectrum& spectrum) {
  return Eigen::Map<const RowMajor>(spectrum.vectors.data(), spectrum.num_nodes, spectrum.count);
}

Spectrum all_pairs(const Graph& graph, Laplacian laplacian, EigenSolver solver = EigenSolver::kAuto) {
  return compute_spectrum(graph, {.num_pairs = graph.num_nodes, .laplacian = laplacian, .solver = solver});
}

void expect_values(const Spectrum& spectrum, std::vector<double> expected, double tolerance = kExact) {
  std::sort(expected.begin(), expected.end());
  ASSERT_LE(spectrum.values.size(), expected.size());
  for (size_t i = 0; i < spectrum.values.size(); ++i) EXPECT_NEAR(spectrum.values[i], expected[i], tolerance) << i;
}

// Pairs of the matrix, of unit vectors, orthogonal where the Laplacian is symmetric, signs by the rule.
void expect_eigenpairs(const Graph& graph, const SpectrumOptions& options, const Spectrum& spectrum, double tolerance) {
  const Eigen::MatrixXd matrix = laplacian_matrix(graph, options.laplacian);
  const Eigen::MatrixXd vectors = vectors_of(spectrum);
  ASSERT_EQ(spectrum.count, std::min(options.num_pairs, static_cast<int>(graph.num_nodes)));
  ASSERT_EQ(vectors.cols(), spectrum.count);
  double worst = 0;
  for (int j = 0; j < spectrum.count; ++j) {
    const Eigen::VectorXd v = vectors.col(j);
    worst = std::max(worst, (matrix * v - spectrum.values[j] * v).norm());
    EXPECT_NEAR(v.norm(), 1, 1e-13);
    EXPECT_GE(spectrum.values[j], 0);
    if (j > 0) {
      EXPECT_GE(spectrum.values[j], spectrum.values[j - 1]);
    }
    int largest = 0;
    while (std::abs(v[largest]) < (1 - 1e-6) * v.cwiseAbs().maxCoeff()) ++largest;
    EXPECT_GT(v[largest], 0) << "sign of vector " << j;
  }
  EXPECT_LE(worst, tolerance);
  EXPECT_NEAR(spectrum.residual, worst, tolerance);
  if (options.laplacian != Laplacian::kRandomWalk) {
    const Eigen::MatrixXd gram = vectors.transpose() * vectors;
    EXPECT_LE((gram - Eigen::MatrixXd::Identity(gram.rows(), gram.cols())).cwiseAbs().maxCoeff(), tolerance);
  }
}

TEST(Spectrum, PathHasItsClosedForm) {
  for (const int n : {2, 3, 4, 7, 50, 117}) {
    std::vector<double> symmetric, combinatorial;
    for (int k = 0; k < n; ++k) {
      symmetric.push_back(1 - std::cos(kPi * k / (n - 1)));
      combinatorial.push_back(2 - 2 * std::cos(kPi * k / n));
    }
    for (const int pairs : {n, std::min(n, 10)}) {
      const Graph graph = path(n);
      expect_values(compute_spectrum(graph, {.num_pairs = pairs}), symmetric);
      expect_values(compute_spectrum(graph, {.num_pairs = pairs, .laplacian = Laplacian::kRandomWalk}), symmetric);
      expect_values(compute_spectrum(graph, {.num_pairs = pairs, .laplacian = Laplacian::kCombinatorial}),
                    combinatorial);
    }
  }
}

TEST(Spectrum, CycleStarCompleteAndHypercubeHaveTheirClosedForms) {
  for (const int n : {3, 6, 41, 120}) {
    std::vector<double> ring, whole{0}, rays{0, 2}, whole_combinatorial{0}, rays_combinatorial{0, 1.0 * n};
    for (int k = 0; k < n; ++k) ring.push_back(1 - std::cos(2 * kPi * k / n));
    for (int k = 1; k < n; ++k) whole.push_back(n / (n - 1.0));
    for (int k = 1; k < n; ++k) whole_combinatorial.push_back(n);
    for (int k = 2; k < n; ++k) rays.push_back(1);
    for (int k = 2; k < n; ++k) rays_combinatorial.push_back(1);
    for (const int pairs : {n, std::min(n, 10)}) {
      const SpectrumOptions symmetric{.num_pairs = pairs};
      const SpectrumOptions combinatorial{.num_pairs = pairs, .laplacian = Laplacian::kCombinatorial};
      expect_values(compute_spectrum(cycle(n), symmetric), ring);
      expect_values(compute_spectrum(complete(n), symmetric), whole);
      expect_values(compute_spectrum(star(n), symmetric), rays);
      // Norms of n: the tolerance grows with them.
      expect_values(compute_spectrum(complete(n), combinatorial), whole_combinatorial, kExact * n);
      expect_values(compute_spectrum(star(n), combinatorial), rays_combinatorial, kExact * n);
    }
  }
  for (const int dimensions : {1, 3, 7}) {
    std::vector<double> cube, cube_combinatorial;
    for (int i = 0; i < (1 << dimensions); ++i) {
      cube.push_back(2.0 * __builtin_popcount(i) / dimensions);
      cube_combinatorial.push_back(2.0 * __builtin_popcount(i));
    }
    for (const int pairs : {1 << dimensions, 10}) {
      expect_values(compute_spectrum(hypercube(dimensions), {.num_pairs = pairs}), cube);
      expect_values(
          compute_spectrum(hypercube(dimensions), {.num_pairs = pairs, .laplacian = Laplacian::kCombinatorial}),
          cube_combinatorial);
    }
  }
}

TEST(Spectrum, DisconnectedGraphHasOneExactZeroPerComponentThatHasAnEdge) {
  const Graph graph = disjoint({cycle(5), path(2), isolated(2), star(4)});
  const Spectrum symmetric = all_pairs(graph, Laplacian::kSymmetric);
  EXPECT_EQ(std::count(symmetric.values.begin(), symmetric.values.end(), 0.0), 3);
  // Isolated nodes have eigenvalue 1, as published; star(4) has two more.
  EXPECT_EQ(std::count_if(symmetric.values.begin(), symmetric.values.end(),
                          [](double x) { return std::abs(x - 1) < kExact; }),
            4);
  const Spectrum combinatorial = all_pairs(graph, Laplacian::kCombinatorial);
  EXPECT_EQ(std::count(combinatorial.values.begin(), combinatorial.values.end(), 0.0), 5);
  // Fewer pairs than components: all zero, and nothing was solved.
  const Spectrum few = compute_spectrum(graph, {.num_pairs = 2});
  EXPECT_EQ(few.values, (std::vector<double>{0, 0}));
  EXPECT_LE(few.residual, 1e-15);
}

TEST(Spectrum, EveryLaplacianGivesItsOwnEigenpairs) {
  std::vector<Graph> graphs{
      path(1),      path(2),    path(9),    cycle(6), complete(12),       star(30),
      hypercube(5), grid(6, 6), grid(5, 8), path(60), random_tree(40, 1), disjoint({cycle(4), cycle(4), path(1)}),
      complete(90), isolated(3)};
  for (int seed = 0; seed < 30; ++seed) graphs.push_back(random_graph(2 + 4 * seed, 0.02 + 0.02 * seed, seed));
  for (const Graph& graph : graphs) {
    for (const Laplacian laplacian : kLaplacians) {
      for (const int pairs : {1, 3, 10, 200}) {
        SCOPED_TRACE(fmt::format("{} nodes, {} edges, {}, {} pairs", graph.num_nodes, graph.edges.size(),
                                 enum_name(laplacian), pairs));
        const SpectrumOptions options{.num_pairs = pairs, .laplacian = laplacian};
        // Combinatorial matrices have norms up to 2 N.
        expect_eigenpairs(graph, options, compute_spectrum(graph, options), 1e-11);
        std::vector<double> expected;
        const Eigen::VectorXd values =
            Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd>(
                laplacian_matrix(graph, laplacian == Laplacian::kRandomWalk ? Laplacian::kSymmetric : laplacian))
                .eigenvalues();
        expected.assign(values.begin(), values.end());
        expect_values(compute_spectrum(graph, options), expected, 1e-11);
      }
    }
  }
}

TEST(Spectrum, SelfLoopsRepeatedEdgesAndDirectionFollowTheDefinition) {
  // Edge 0-1 listed three times, 1-2 in one direction only, a loop on 2 (twice) and on the lonely node 3.
  Graph graph = isolated(5);
  graph.edges = {{0, 1}, {0, 1}, {1, 0}, {2, 1}, {2, 2}, {2, 2}, {3, 3}};
  Graph simple = isolated(5);
  simple.edges = {{0, 1}, {1, 0}, {1, 2}, {2, 1}, {2, 2}, {3, 3}};
  for (const Laplacian laplacian : kLaplacians) {
    const Spectrum spectrum = all_pairs(graph, laplacian);
    expect_eigenpairs(graph, {.num_pairs = 5, .laplacian = laplacian}, spectrum, 1e-14);
    EXPECT_EQ(spectrum.vectors, all_pairs(simple, laplacian).vectors);
  }
  // By hand: node 3 has degree 1 from its loop and 1 - 1/1 = 0; node 4 is isolated: 1.
  const Spectrum spectrum = all_pairs(graph, Laplacian::kSymmetric);
  EXPECT_EQ(std::count(spectrum.values.begin(), spectrum.values.end(), 0.0), 2);
  EXPECT_EQ(std::count(spectrum.values.begin(), spectrum.values.end(), 1.0), 1);
}

TEST(Spectrum, SingleNodeHasOnePair) {
  Graph lone = isolated(1);
  const Spectrum bare = compute_spectrum(lone, {});
  EXPECT_EQ(bare.count, 1);
  EXPECT_EQ(bare.values, std::vector<double>{1});
  EXPECT_EQ(bare.vectors, std::vector<double>{1});
  EXPECT_EQ(compute_spectrum(lone, {.laplacian = Laplacian::kCombinatorial}).values, std::vector<double>{0});
  lone.edges = {{0, 0}};
  EXPECT_EQ(compute_spectrum(lone, {}).values, std::vector<double>{0});
}

TEST(Spectrum, FewerNodesThanPairsGivesOnePairPerNode) {
  const Spectrum spectrum = compute_spectrum(cycle(4), {.num_pairs = 10});
  EXPECT_EQ(spectrum.count, 4);
  EXPECT_EQ(spectrum.values.size(), 4u);
  EXPECT_EQ(spectrum.vectors.size(), 16u);
}

TEST(Spectrum, NodeNormalisationGivesUnitRowsAndLeavesEmptyRowsEmpty) {
  const Graph graph = disjoint({path(2), path(2), path(2), cycle(5)});
  const Spectrum plain = compute_spectrum(graph, {.num_pairs = 3});
  const Spectrum node = compute_spectrum(graph, {.num_pairs = 3, .norm = EigenvectorNorm::kNode});
  EXPECT_EQ(plain.values, node.values);
  const Eigen::MatrixXd a = vectors_of(plain), b = vectors_of(node);
  for (int i = 0; i < 6; ++i) {
    EXPECT_NEAR(b.row(i).norm(), 1, 1e-15);
    EXPECT_LE((a.row(i) / a.row(i).norm() - b.row(i)).norm(), 1e-15);
  }
  // The three lowest pairs live on the first three components: the cycle's rows hold nothing to scale.
  for (int i = 6; i < 11; ++i) EXPECT_EQ(b.row(i).norm(), 0);
}

TEST(Spectrum, TheFirstOfTiedLargestEntriesIsPositiveWhicheverWayItRounds) {
  // The second vector of a path is a cosine whose two ends tie in magnitude and differ in sign.
  for (const int n : {2, 5, 50, 117, 1000}) {
    Graph reversed = path(n);
    for (Edge& edge : reversed.edges) edge = {n - 1 - edge.source, n - 1 - edge.target};
    std::reverse(reversed.edges.begin(), reversed.edges.end());
    for (const Graph& graph : {path(n), reversed}) {
      for (const auto solver : {EigenSolver::kDense, EigenSolver::kKrylov}) {
        for (const int pairs : {2, n}) {
          if (pairs > 500) continue;
          const Spectrum spectrum =
              compute_spectrum(graph, {.num_pairs = pairs, .laplacian = Laplacian::kCombinatorial, .solver = solver});
          const Eigen::VectorXd v = vectors_of(spectrum).col(1);
          EXPECT_GT(v[0], 0) << n;
          // Within what a solver's vector may err: rounding over the gap, 3e-5 for 1000 nodes.
          EXPECT_NEAR(v[0], -v[n - 1], 1e-9) << n;
        }
      }
    }
  }
}

// |difference of the projectors on the pairs up to the last gap|: repeated eigenvalues leave the basis open.
double eigenspace_difference(const Spectrum& a, const Spectrum& b, double& gap) {
  int count = a.count;
  gap = 0;
  // The last value may belong to a cluster that goes on beyond the kept pairs: cut at the widest late gap.
  for (int j = std::max(1, a.count / 2); j < a.count; ++j) {
    if (a.values[j] - a.values[j - 1] > gap) {
      gap = a.values[j] - a.values[j - 1];
      count = j;
    }
  }
  const Eigen::MatrixXd x = vectors_of(a).leftCols(count), y = vectors_of(b).leftCols(count);
  return (x - y * (y.transpose() * x)).norm();
}

TEST(Spectrum, KrylovAgreesWithDense) {
  std::vector<Graph> graphs{grid(12, 12),
                            grid(20, 31),
                            relabelled(grid(18, 18), 3),
                            cycle(200),
                            star(150),
                            complete(120),
                            hypercube(8),
                            path(400),
                            random_tree(1000, 1),
                            random_regular(600, 4, 2),
                            random_regular(300, 10, 3),
                            disjoint({cycle(150), cycle(150), path(3), isolated(2)}),
                            disjoint({grid(11, 11), grid(11, 11), random_graph(130, 0.05, 9)})};
  for (const int n : {2, 10, 60, 110, 300, 700})
    for (const double degree : {1.5, 3.0, 12.0}) graphs.push_back(random_graph(n, std::min(1.0, degree / n), n));
  graphs.push_back(random_graph(500, 0.3, 5));
  graphs.push_back(random_graph(2000, 0.002, 6));
  for (const Graph& graph : graphs) {
    for (const Laplacian laplacian : kLaplacians) {
      SCOPED_TRACE(fmt::format("{} nodes, {} edges, {}", graph.num_nodes, graph.edges.size(), enum_name(laplacian)));
      const SpectrumOptions dense{.num_pairs = 12, .laplacian = laplacian, .solver = EigenSolver::kDense};
      SpectrumOptions krylov = dense;
      krylov.solver = EigenSolver::kKrylov;
      const Spectrum a = compute_spectrum(graph, dense), b = compute_spectrum(graph, krylov);
      ASSERT_EQ(a.count, b.count);
      for (int j = 0; j < a.count; ++j) EXPECT_NEAR(a.values[j], b.values[j], 1e-8) << j;
      EXPECT_LE(b.residual, 1e-9);
      if (laplacian == Laplacian::kRandomWalk) continue;  // the same vectors, scaled: not orthogonal
      const Eigen::MatrixXd gram = vectors_of(b).transpose() * vectors_of(b);
      EXPECT_LE((gram - Eigen::MatrixXd::Identity(b.count, b.count)).cwiseAbs().maxCoeff(), 1e-12);
      double gap = 0;
      const double difference = eigenspace_difference(a, b, gap);
      // Davis and Kahan: the spaces differ by at most (sum of residuals) / gap.
      if (gap > 1e-6) {
        EXPECT_LE(difference, 1e-8 / gap);
      }
    }
  }
}

TEST(Spectrum, KrylovAnswersWhereItShould) {
  EXPECT_EQ(compute_spectrum(grid(30, 30), {}).solver, EigenSolver::kKrylov);
  EXPECT_EQ(compute_spectrum(grid(10, 10), {}).solver, EigenSolver::kDense);
  EXPECT_EQ(compute_spectrum(grid(12, 12), {.solver = EigenSolver::kKrylov}).solver, EigenSolver::kKrylov);
  EXPECT_EQ(compute_spectrum(grid(30, 30), {.num_pairs = 500}).solver, EigenSolver::kDense);
}

TEST(Spectrum, KrylovFindsEveryCopyOfRepeatedEigenvalues) {
  // Multiplicities 1, 10, 45: a Krylov space of one vector holds one copy each.
  const Spectrum cube = compute_spectrum(hypercube(10), {.num_pairs = 40, .solver = EigenSolver::kKrylov});
  ASSERT_EQ(cube.solver, EigenSolver::kKrylov);
  for (int j = 0; j < 40; ++j) EXPECT_NEAR(cube.values[j], j == 0 ? 0 : j <= 10 ? 0.2 : 0.4, 1e-10) << j;
  // A square grid: (i, j) and (j, i) have the same combinatorial eigenvalue.
  constexpr int kSide = 40;
  std::vector<double> expected;
  for (int i = 0; i < kSide; ++i)
    for (int j = 0; j < kSide; ++j)
      expected.push_back(4 - 2 * std::cos(kPi * i / kSide) - 2 * std::cos(kPi * j / kSide));
  const Spectrum square = compute_spectrum(
      grid(kSide, kSide), {.num_pairs = 30, .laplacian = Laplacian::kCombinatorial, .solver = EigenSolver::kKrylov});
  expect_values(square, expected, 1e-11);
}

TEST(Spectrum, LongPathKeepsTheRelativeAccuracyOfTinyEigenvalues) {
  // The lowest is 4.9e-8 / 2: an absolute error of one rounding of the matrix would already be 4e-9 of it.
  constexpr int kNodes = 10000;
  for (const Laplacian laplacian : {Laplacian::kSymmetric, Laplacian::kCombinatorial}) {
    const Spectrum spectrum = compute_spectrum(path(kNodes), {.num_pairs = 16, .laplacian = laplacian});
    for (int k = 0; k < 16; ++k) {
      // 1 - cos x = 2 sin^2(x/2), without cancellation.
      const double half = laplacian == Laplacian::kSymmetric ? kPi * k / (kNodes - 1) / 2 : kPi * k / kNodes / 2;
      const double exact = (laplacian == Laplacian::kSymmetric ? 2 : 4) * std::sin(half) * std::sin(half);
      EXPECT_NEAR(spectrum.values[k], exact, 1e-9 * exact) << k;
    }
  }
}

TEST(Spectrum, TheSameBitsComeOutTwiceAndFromManyThreads) {
  const std::vector<Graph> graphs{random_graph(23, 0.1, 1), random_graph(117, 0.3, 2), hypercube(6), grid(25, 25),
                                  random_regular(500, 4, 1)};
  for (const Graph& graph : graphs) {
    const Spectrum first = compute_spectrum(graph, {});
    std::vector<Spectrum> others(4);
    std::vector<std::thread> threads;
    for (Spectrum& other : others) threads.emplace_back([&] { other = compute_spectrum(graph, {}); });
    for (std::thread& thread : threads) thread.join();
    for (const Spectrum& other : others) {
      EXPECT_EQ(first.values, other.values);
      EXPECT_EQ(first.vectors, other.vectors);
    }
  }
}

TEST(Spectrum, RoundsToWhatTheNetworkReads) {
  const Spectrum spectrum = compute_spectrum(path(5), {.num_pairs = 3});
  const Eigenpairs pairs = to_eigenpairs(spectrum);
  EXPECT_EQ(pairs.count, 3);
  ASSERT_EQ(pairs.values.size(), 3u);
  ASSERT_EQ(pairs.vectors.size(), 15u);
  for (int i = 0; i < 15; ++i) EXPECT_EQ(pairs.vectors[i], static_cast<float>(spectrum.vectors[i]));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(pairs.values[i], static_cast<float>(spectrum.values[i]));
}

TEST(Spectrum, BadRequestsAreErrors) {
  EXPECT_NE(error_of([] { compute_spectrum(path(3), {.num_pairs = 0}); }).find("0 eigenpairs"), std::string::npos);
  EXPECT_NE(error_of([] { compute_spectrum(Graph{}, {}); }).find("at least one node"), std::string::npos);
  Graph wild = isolated(2);
  wild.edges = {{0, 2}};
  EXPECT_NE(error_of([&] { compute_spectrum(wild, {}); }).find("nodes 0 and 2"), std::string::npos);
  EXPECT_NE(error_of([] {
              compute_spectrum(path(kMaxDenseNodes + 1), {.solver = EigenSolver::kDense});
            }).find("or another solver"),
            std::string::npos);
}

TEST(Spectrum, NamesReadBack) {
  EXPECT_EQ(parse_enum<Laplacian>("random-walk", "x"), Laplacian::kRandomWalk);
  EXPECT_EQ(parse_enum<EigenvectorNorm>("node", "x"), EigenvectorNorm::kNode);
  EXPECT_EQ(parse_enum<EigenSolver>("krylov", "x"), EigenSolver::kKrylov);
  for (const Laplacian kind : kLaplacians) EXPECT_EQ(parse_enum<Laplacian>(enum_name(kind), "x"), kind);
  EXPECT_NE(error_of([] { parse_enum<Laplacian>("signless", "x"); }).find("signless"), std::string::npos);
}

}  // namespace
}  // namespace san
