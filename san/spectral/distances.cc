#include "san/spectral/distances.h"

#include <Eigen/Core>
#include <cmath>

#include "san/spectral/laplacian.h"
#include "san/spectral/spectrum.h"

namespace san {
namespace {

constexpr double kZero = 1e-9;

using RowMajor = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

// Every eigenpair that is not a trivial one.
struct WholeSpectrum {
  Eigen::VectorXd values;
  RowMajor vectors;  // [N, values]
};

WholeSpectrum whole_spectrum(const Graph& graph, Laplacian laplacian) {
  SAN_CHECK(graph.num_nodes <= kMaxDistanceNodes,
            "distances between all pairs of {} nodes: at most {} nodes are allowed", graph.num_nodes,
            kMaxDistanceNodes);
  const Spectrum spectrum =
      compute_spectrum(graph, {.num_pairs = graph.num_nodes, .laplacian = laplacian, .solver = EigenSolver::kDense});
  Eigen::Index trivial = 0;
  while (trivial < spectrum.count && spectrum.values[trivial] < kZero) ++trivial;
  const Eigen::Index kept = spectrum.count - trivial;
  return {Eigen::Map<const Eigen::VectorXd>(spectrum.values.data() + trivial, kept),
          Eigen::Map<const RowMajor>(spectrum.vectors.data(), spectrum.num_nodes, spectrum.count).rightCols(kept)};
}

// The published clipping: a node without edges counts as one of degree 1.
Eigen::VectorXd clipped_degrees(const Graph& graph) {
  Eigen::VectorXd degrees(graph.num_nodes);
  for (const auto& part : spectral::connected_components(graph, Laplacian::kSymmetric)) {
    for (int i = 0; i < part.size; ++i) degrees[part.nodes[i]] = part.mass[i];
  }
  return degrees;
}

std::vector<double> green(const Graph& graph, bool squared) {
  WholeSpectrum spectrum = whole_spectrum(graph, Laplacian::kSymmetric);
  if (squared) spectrum.vectors = spectrum.vectors.cwiseAbs2().eval();
  const Eigen::VectorXd root = clipped_degrees(graph).cwiseSqrt();
  const RowMajor scaled = spectrum.vectors * spectrum.values.cwiseInverse().asDiagonal();
  std::vector<double> out(static_cast<size_t>(graph.num_nodes) * graph.num_nodes);
  Eigen::Map<RowMajor>(out.data(), graph.num_nodes, graph.num_nodes) =
      root.asDiagonal() * (scaled * spectrum.vectors.transpose()) * root.cwiseInverse().asDiagonal();
  return out;
}

// Euclidean distances between rows of phi * weights. Summed as differences: through inner products, half the
// digits of small distances would be lost.
std::vector<double> row_distances(const WholeSpectrum& spectrum, const Eigen::VectorXd& weights) {
  const RowMajor rows = spectrum.vectors * weights.asDiagonal();
  const Eigen::Index n = rows.rows();
  std::vector<double> out(static_cast<size_t>(n) * n, 0.0);
  for (Eigen::Index a = 0; a < n; ++a) {
    for (Eigen::Index b = a + 1; b < n; ++b) {
      out[a * n + b] = out[b * n + a] = (rows.row(a) - rows.row(b)).norm();
    }
  }
  return out;
}

}  // namespace

std::vector<double> green_function_squared(const Graph& graph) {
  return green(graph, true);
}

std::vector<double> green_function(const Graph& graph) {
  return green(graph, false);
}

std::vector<double> diffusion_distance(const Graph& graph, double time) {
  SAN_CHECK(std::isfinite(time) && time >= 0, "a diffusion time must be a number >= 0, not {}", time);
  const WholeSpectrum spectrum = whole_spectrum(graph, Laplacian::kCombinatorial);
  return row_distances(spectrum, (-time * spectrum.values).array().exp().matrix());
}

std::vector<double> biharmonic_distance(const Graph& graph) {
  const WholeSpectrum spectrum = whole_spectrum(graph, Laplacian::kCombinatorial);
  return row_distances(spectrum, spectrum.values.cwiseInverse());
}

}  // namespace san
