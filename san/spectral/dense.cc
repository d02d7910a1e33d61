#include "san/spectral/dense.h"

#include <Eigen/Eigenvalues>
#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <vector>

#include "san/base/random.h"

namespace san::spectral {
namespace {

using Eigen::MatrixXd;
using Eigen::VectorXd;

// QR iteration on everything takes over from this share of the pairs on. Measured for 11 pairs only: as quick at
// N = 23 (33 against 35 us), four times slower at N = 117; in between and beyond this is a guess.
constexpr double kFullShare = 0.5;

DensePairs whole(const MatrixXd& matrix, int k) {
  const Eigen::SelfAdjointEigenSolver<MatrixXd> solver(matrix);
  return {solver.eigenvalues().head(k), solver.eigenvectors().leftCols(k)};
}

// A symmetric tridiagonal matrix.
struct Tridiagonal {
  VectorXd diagonal;  // [n]
  VectorXd beside;    // [n - 1]
  double norm = 0;    // bound on every |eigenvalue|
  double low = 0, high = 0;

  Tridiagonal(VectorXd d, VectorXd e) : diagonal(std::move(d)), beside(std::move(e)) {
    const auto n = diagonal.size();
    low = DBL_MAX;
    high = -DBL_MAX;
    for (Eigen::Index i = 0; i < n; ++i) {
      const double radius = (i > 0 ? std::abs(beside[i - 1]) : 0) + (i + 1 < n ? std::abs(beside[i]) : 0);
      low = std::min(low, diagonal[i] - radius);
      high = std::max(high, diagonal[i] + radius);
    }
    norm = std::max({std::abs(low), std::abs(high), DBL_MIN});
    const double margin = 4 * DBL_EPSILON * norm * static_cast<double>(n);
    low -= margin;
    high += margin;
  }
};

// Twelve bisections at a time: the division chain of one Sturm count is all latency, and twelve hide it. Medians of 8
// interleaved runs on a busy machine, N = 23: 17.8, 20.3 and 18.8 thousand graphs/s with 8, 12 and 16; N = 117: alike.
constexpr int kPairs = 6, kLanes = 2 * kPairs;
using Pair [[gnu::vector_size(16)]] = double;
using PairMask [[gnu::vector_size(16)]] = int64_t;

// The k lowest eigenvalues. The Sturm count at x, the number of negative pivots of T - xI, is the number of
// eigenvalues below x of a matrix within rounding of T, and rounded to nearest it is monotone in x (Demmel,
// Dhillon and Ren), so bisection cannot be misled. A pivot of zero gives infinity next, then counts right.
VectorXd bisect(const Tridiagonal& t, int k) {
  const auto n = t.diagonal.size();
  // Never 0: 0 / 0 is the one quotient without a meaning here.
  const VectorXd squares = t.beside.cwiseAbs2().cwiseMax(DBL_MIN);
  const double width = DBL_EPSILON * t.norm;
  // Each round halves every interval: as many rounds as the first one needs.
  const int rounds = static_cast<int>(std::ceil(std::log2((t.high - t.low) / width))) + 1;
  VectorXd values(k);
  for (int first = 0; first < k; first += kLanes) {
    double low[kLanes], high[kLanes];
    std::fill(low, low + kLanes, t.low);
    std::fill(high, high + kLanes, t.high);
    for (int round = 0; round < rounds; ++round) {
      Pair middle[kPairs], pivot[kPairs];
      PairMask count[kPairs];
      for (int p = 0; p < kPairs; ++p) {
        for (int side = 0; side < 2; ++side) {
          const int lane = 2 * p + side;
          middle[p][side] = low[lane] + 0.5 * (high[lane] - low[lane]);
        }
        pivot[p] = t.diagonal[0] - middle[p];
        count[p] = pivot[p] < 0;  // -1 for true
      }
      for (Eigen::Index i = 1; i < n; ++i) {
        const double diagonal = t.diagonal[i], square = squares[i - 1];
        for (int p = 0; p < kPairs; ++p) {
          pivot[p] = (diagonal - middle[p]) - square / pivot[p];
          count[p] += pivot[p] < 0;
        }
      }
      for (int lane = 0; lane < kLanes; ++lane) {
        const bool enough = -count[lane / 2][lane % 2] > first + lane;
        (enough ? high : low)[lane] = middle[lane / 2][lane % 2];
      }
    }
    for (int lane = 0; lane < std::min(kLanes, k - first); ++lane) {
      values[first + lane] = low[lane] + 0.5 * (high[lane] - low[lane]);
    }
  }
  // Each is within `width` of the truth; equal ones may come out a rounding apart.
  std::sort(values.data(), values.data() + k);
  return values;
}

// T - shift I = P L U by elimination with row exchanges.
class ShiftedFactor {
 public:
  ShiftedFactor(const Tridiagonal& t, double shift)
      : n_(t.diagonal.size()), pivot_(n_), above_(n_), second_(n_), multiplier_(n_), exchanged_(n_) {
    // A pivot of zero means the shift is an eigenvalue to the last bit: any tiny number serves.
    const double tiny = DBL_EPSILON * t.norm;
    double diagonal = t.diagonal[0] - shift;
    double above = n_ > 1 ? t.beside[0] : 0;
    for (Eigen::Index i = 0; i + 1 < n_; ++i) {
      const double below = t.beside[i], next = t.diagonal[i + 1] - shift;
      const double beyond = i + 2 < n_ ? t.beside[i + 1] : 0;
      if (std::abs(diagonal) >= std::abs(below)) {
        if (std::abs(diagonal) < tiny) diagonal = diagonal < 0 ? -tiny : tiny;
        pivot_[i] = 1 / diagonal;
        above_[i] = above;
        second_[i] = 0;
        multiplier_[i] = below * pivot_[i];
        exchanged_[i] = 0;
        diagonal = next - multiplier_[i] * above;
        above = beyond;
      } else {
        pivot_[i] = 1 / below;
        above_[i] = next;
        second_[i] = beyond;
        multiplier_[i] = diagonal * pivot_[i];
        exchanged_[i] = 1;
        diagonal = above - multiplier_[i] * next;
        above = -multiplier_[i] * beyond;
      }
    }
    if (std::abs(diagonal) < tiny) diagonal = diagonal < 0 ? -tiny : tiny;
    pivot_[n_ - 1] = 1 / diagonal;
    above_[n_ - 1] = second_[n_ - 1] = 0;
  }

  void solve(double* x) const {
    for (Eigen::Index i = 0; i + 1 < n_; ++i) {
      if (exchanged_[i]) std::swap(x[i], x[i + 1]);
      x[i + 1] -= multiplier_[i] * x[i];
    }
    double next = 0, after = 0;
    for (Eigen::Index i = n_ - 1; i >= 0; --i) {
      const double value = (x[i] - above_[i] * next - second_[i] * after) * pivot_[i];
      x[i] = value;
      after = next;
      next = value;
    }
  }

 private:
  Eigen::Index n_;
  VectorXd pivot_, above_, second_, multiplier_;
  std::vector<char> exchanged_;
};

// Unit vectors for `values`, orthogonal to each other.
MatrixXd inverse_iteration(const Tridiagonal& t, const VectorXd& values) {
  constexpr int kMostSteps = 6;
  const auto n = t.diagonal.size();
  const auto k = values.size();
  const double small = 2 * DBL_EPSILON * t.norm * std::sqrt(static_cast<double>(n));
  MatrixXd vectors(n, k);
  for (Eigen::Index j = 0; j < k; ++j) {
    const ShiftedFactor factor(t, values[j]);
    auto x = vectors.col(j);
    for (Eigen::Index i = 0; i < n; ++i) {
      x[i] = static_cast<double>(random_bits(0x5a4e, j, i) >> 11) * 0x1.0p-52 - 1;
    }
    x /= x.norm();
    for (int step = 1; step <= kMostSteps; ++step) {
      factor.solve(x.data());
      const double growth = x.norm();
      x /= growth;
      for (int pass = 0; pass < 2 && j > 0; ++pass) {
        const VectorXd overlap = vectors.leftCols(j).transpose() * x;
        x.noalias() -= vectors.leftCols(j) * overlap;
        x /= x.norm();
      }
      // |(T - value) x| was 1 / growth before orthogonalising; one step more settles what that changed.
      if (step >= 2 && growth * small >= 1) break;
    }
  }
  return vectors;
}

bool proven(const Tridiagonal& t, const VectorXd& values, const MatrixXd& vectors) {
  // Both are of order epsilon when all is well; what fails fails by orders of magnitude. Written so that NaN
  // fails.
  constexpr double kTolerance = 1e-13;
  const auto n = t.diagonal.size();
  const auto k = values.size();
  const MatrixXd gram = vectors.transpose() * vectors;
  if (!((gram - MatrixXd::Identity(k, k)).cwiseAbs().maxCoeff() <= kTolerance)) return false;
  for (Eigen::Index j = 0; j < k; ++j) {
    const auto x = vectors.col(j);
    double sum = 0;
    for (Eigen::Index i = 0; i < n; ++i) {
      double r = (t.diagonal[i] - values[j]) * x[i];
      if (i > 0) r += t.beside[i - 1] * x[i - 1];
      if (i + 1 < n) r += t.beside[i] * x[i + 1];
      sum += r * r;
    }
    if (!(std::sqrt(sum) <= kTolerance * t.norm)) return false;
  }
  return true;
}

}  // namespace

DensePairs lowest_dense(const MatrixXd& matrix, int k) {
  const auto n = matrix.rows();
  if (n < 4 || k > kFullShare * static_cast<double>(n)) return whole(matrix, k);
  const Eigen::Tridiagonalization<MatrixXd> reduction(matrix);
  const Tridiagonal t(reduction.diagonal(), reduction.subDiagonal());
  DensePairs pairs;
  pairs.values = bisect(t, k);
  const MatrixXd vectors = inverse_iteration(t, pairs.values);
  if (!proven(t, pairs.values, vectors)) return whole(matrix, k);
  pairs.vectors = reduction.matrixQ() * vectors;
  return pairs;
}

}  // namespace san::spectral
