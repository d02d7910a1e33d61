#include "san/spectral/distances.h"

#include <Eigen/Dense>
#include <cmath>
#include <limits>

#include "tests/spectral/builders.h"
#include "tests/testing.h"

namespace san {
namespace {

using testing::error_of;
using RowMajor = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Eigen::MatrixXd;
using Eigen::VectorXd;

// Nothing below is an eigendecomposition: the definitions by pseudo-inverse and by power series.

struct Direct {
  MatrixXd adjacency;
  VectorXd degrees;
  MatrixXd combinatorial, symmetric;

  explicit Direct(const Graph& graph) : adjacency(MatrixXd::Zero(graph.num_nodes, graph.num_nodes)) {
    for (const Edge& edge : graph.edges) adjacency(edge.source, edge.target) = adjacency(edge.target, edge.source) = 1;
    degrees = adjacency.rowwise().sum();
    combinatorial = MatrixXd(degrees.asDiagonal()) - adjacency;
    degrees = degrees.cwiseMax(1.0);
    const VectorXd s = degrees.cwiseSqrt().cwiseInverse();
    symmetric = MatrixXd::Identity(graph.num_nodes, graph.num_nodes) - s.asDiagonal() * adjacency * s.asDiagonal();
  }
};

MatrixXd pseudo_inverse(const MatrixXd& matrix) {
  Eigen::CompleteOrthogonalDecomposition<MatrixXd> decomposition;
  decomposition.setThreshold(1e-10);
  decomposition.compute(matrix);
  return decomposition.pseudoInverse();
}

// Scaling and squaring of the Taylor series.
MatrixXd exponential(const MatrixXd& matrix) {
  const int squarings = std::max(0, static_cast<int>(std::ceil(std::log2(matrix.norm() + 1e-30))) + 2);
  const MatrixXd scaled = matrix / std::pow(2.0, squarings);
  MatrixXd sum = MatrixXd::Identity(matrix.rows(), matrix.cols()), term = sum;
  for (int k = 1; k < 24; ++k) {
    term = term * scaled / k;
    sum += term;
  }
  for (int k = 0; k < squarings; ++k) sum = sum * sum;
  return sum;
}

MatrixXd as_matrix(const std::vector<double>& flat, int n) {
  EXPECT_EQ(flat.size(), static_cast<size_t>(n) * n);
  return Eigen::Map<const RowMajor>(flat.data(), n, n);
}

MatrixXd row_distances(const MatrixXd& rows) {
  MatrixXd out(rows.rows(), rows.rows());
  for (Eigen::Index a = 0; a < rows.rows(); ++a)
    for (Eigen::Index b = 0; b < rows.rows(); ++b) out(a, b) = (rows.row(a) - rows.row(b)).norm();
  return out;
}

std::vector<Graph> samples() {
  Graph loops = testing::path(4);
  loops.edges.push_back({1, 1});
  return {testing::path(1),
          testing::path(2),
          testing::cycle(6),
          testing::star(9),
          testing::complete(8),
          testing::grid(4, 5),
          testing::hypercube(4),
          testing::random_tree(30, 2),
          testing::random_graph(40, 0.1, 3),
          loops,
          testing::random_graph(60, 0.5, 4),
          testing::disjoint({testing::cycle(5), testing::path(3), testing::isolated(2)})};
}

// The lowest non-zero eigenvalue of the samples is above 0.005: pseudo-inverses err by 1e-16 / 0.005^2 at
// most.
constexpr double kTolerance = 1e-9;

TEST(Distances, GreenFunctionIsThePseudoInverseBetweenDegrees) {
  for (const Graph& graph : samples()) {
    const Direct direct(graph);
    const VectorXd root = direct.degrees.cwiseSqrt();
    const MatrixXd expected = root.asDiagonal() * pseudo_inverse(direct.symmetric) * root.cwiseInverse().asDiagonal();
    const MatrixXd got = as_matrix(green_function(graph), graph.num_nodes);
    EXPECT_LE((got - expected).cwiseAbs().maxCoeff(), kTolerance) << graph.num_nodes;
  }
}

TEST(Distances, SquaredGreenFunctionFollowsThePrintedEquationOnAPath) {
  // path(3): eigenvalues 0, 1, 2; vectors of 1: (1, 0, -1)/sqrt 2, of 2: (1, -sqrt 2, 1)/2.
  const MatrixXd got = as_matrix(green_function_squared(testing::path(3)), 3);
  const double q = 0.25 + 1.0 / 32, r = 1.0 / 16;
  MatrixXd expected(3, 3);
  expected << q, r / std::sqrt(2), q, r * std::sqrt(2), 0.125, r * std::sqrt(2), q, r / std::sqrt(2), q;
  EXPECT_LE((got - expected).cwiseAbs().maxCoeff(), 1e-14);
}

TEST(Distances, DiffusionDistanceIsThatOfHeatKernelRows) {
  for (const Graph& graph : samples()) {
    const Direct direct(graph);
    const int n = graph.num_nodes;
    // The trivial pairs are left out of the sum: L pinv(L) is the projector on the others.
    const MatrixXd others = direct.combinatorial * pseudo_inverse(direct.combinatorial);
    for (const double time : {0.0, 0.1, 1.0, 5.0}) {
      const MatrixXd expected = row_distances(exponential(-time * direct.combinatorial) * others);
      EXPECT_LE((as_matrix(diffusion_distance(graph, time), n) - expected).cwiseAbs().maxCoeff(), kTolerance)
          << n << " nodes, time " << time;
    }
  }
}

TEST(Distances, BiharmonicDistanceIsThatOfPseudoInverseRows) {
  for (const Graph& graph : samples()) {
    const MatrixXd expected = row_distances(pseudo_inverse(Direct(graph).combinatorial));
    EXPECT_LE((as_matrix(biharmonic_distance(graph), graph.num_nodes) - expected).cwiseAbs().maxCoeff(), kTolerance)
        << graph.num_nodes;
  }
}

TEST(Distances, RefuseLargeGraphsAndImpossibleTimes) {
  const Graph large = testing::isolated(kMaxDistanceNodes + 1);
  EXPECT_NE(error_of([&] { biharmonic_distance(large); }).find("5001 nodes"), std::string::npos);
  EXPECT_NE(error_of([] { diffusion_distance(testing::path(3), -1); }).find("diffusion time"), std::string::npos);
  EXPECT_NE(error_of([] {
              diffusion_distance(testing::path(3), std::numeric_limits<double>::quiet_NaN());
            }).find("diffusion time"),
            std::string::npos);
}

}  // namespace
}  // namespace san
