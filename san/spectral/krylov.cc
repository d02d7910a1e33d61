#include "san/spectral/krylov.h"

#include <Eigen/Eigenvalues>
#include <Eigen/OrderingMethods>
#include <Eigen/SparseCholesky>
#include <algorithm>
#include <cfloat>
#include <cmath>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "san/base/random.h"

namespace san::spectral {
namespace {

using Eigen::Index;
using Eigen::MatrixXd;
using Eigen::VectorXd;
using Operator = std::function<void(const double*, double*)>;

VectorXd random_vector(Index n, uint64_t stream) {
  VectorXd x(n);
  for (Index i = 0; i < n; ++i) x[i] = static_cast<double>(random_bits(0x6b72, stream, i) >> 11) * 0x1.0p-52 - 1;
  return x;
}

// x less its part in the space of `basis`, twice over: once leaves the rounding of a large part behind.
template <typename Basis>
void make_orthogonal(const Basis& basis, VectorXd& x) {
  for (int pass = 0; pass < 2; ++pass) {
    const VectorXd overlap = basis.transpose() * x;
    x.noalias() -= basis * overlap;
  }
}

// --- Thick-restart Lanczos --------------------------------------------------------------------------------

struct LanczosRun {
  bool converged = false;
  VectorXd values;       // [keep] largest first
  MatrixXd vectors;      // [n, keep]
  double smallest = 0;   // lowest Ritz value
  double remainder = 0;  // norm of the residual vector all Ritz pairs share
};

// The `wanted` largest pairs of the symmetric operator among vectors orthogonal to `found`; `keep` >= wanted
// Ritz pairs come back, converged or not. Converged: |B x - theta x| <= tolerance |theta| for the wanted.
LanczosRun lanczos(const Operator& apply, const MatrixXd& found, VectorXd start, int wanted, int keep, int space,
                   double tolerance, int restarts, uint64_t stream) {
  const Index n = start.size();
  MatrixXd basis(n, space + 1);
  MatrixXd projected = MatrixXd::Zero(space, space);
  VectorXd w(n);

  // A fresh direction orthogonal to everything, for the start and when the space closes on itself.
  const auto set_direction = [&](Index column, VectorXd candidate) {
    for (uint64_t attempt = 0;; ++attempt) {
      const double before = candidate.norm();
      make_orthogonal(found, candidate);
      if (column > 0) make_orthogonal(basis.leftCols(column), candidate);
      const double after = candidate.norm();
      if (after > 1e-10 * before) {
        basis.col(column) = candidate / after;
        return;
      }
      if (attempt == 8) {  // nothing is left: the callers keep `space` well below n, so this is a zero vector
        basis.col(column).setZero();
        return;
      }
      candidate = random_vector(n, stream * 64 + attempt + 32);
    }
  };

  set_direction(0, std::move(start));
  LanczosRun run;
  Index filled = 0;
  for (int restart = 0;; ++restart) {
    double beta = 0;
    for (Index j = filled; j < space; ++j) {
      apply(basis.col(j).data(), w.data());
      const double size = w.norm();
      VectorXd column = VectorXd::Zero(j + 1);
      for (int pass = 0; pass < 2; ++pass) {
        const VectorXd outside = found.transpose() * w;
        w.noalias() -= found * outside;
        const VectorXd inside = basis.leftCols(j + 1).transpose() * w;
        w.noalias() -= basis.leftCols(j + 1) * inside;
        column += inside;
      }
      projected.col(j).head(j + 1) = column;
      projected.row(j).head(j + 1) = column.transpose();
      beta = w.norm();
      if (beta <= 1e-14 * size || size == 0) {
        beta = 0;  // an invariant subspace: complete, go on in a new direction
        set_direction(j + 1, random_vector(n, stream * 64 + j % 32));
      } else {
        basis.col(j + 1) = w / beta;
      }
    }
    const Eigen::SelfAdjointEigenSolver<MatrixXd> small(projected);
    const VectorXd theta = small.eigenvalues().reverse();
    const MatrixXd turn = small.eigenvectors().rowwise().reverse();
    bool converged = true;
    for (int i = 0; i < wanted; ++i) {
      converged = converged && beta * std::abs(turn(space - 1, i)) <= tolerance * std::abs(theta[i]);
    }
    if (converged || restart >= restarts) {
      run.converged = converged;
      run.values = theta.head(keep);
      run.smallest = theta[space - 1];
      run.remainder = beta;
      run.vectors = basis.leftCols(space) * turn.leftCols(keep);
      return run;
    }
    const Index kept = std::max<Index>(keep, wanted + (space - wanted) / 2);
    // In blocks of rows: the product in place costs no second basis.
    constexpr Index kRows = 4096;
    MatrixXd block;
    for (Index row = 0; row < n; row += kRows) {
      const Index rows = std::min(kRows, n - row);
      block.noalias() = basis.block(row, 0, rows, space) * turn.leftCols(kept);
      basis.block(row, 0, rows, kept) = block;
    }
    basis.col(kept) = basis.col(space).eval();
    projected.setZero();
    projected.topLeftCorner(kept, kept) = theta.head(kept).asDiagonal();
    filled = kept;
  }
}

// --- The operators ----------------------------------------------------------------------------------------

// L D L^T of K + s W under a fill-reducing order, or nothing when it would not fit.
class ShiftInvert {
 public:
  using Sparse = Eigen::SparseMatrix<double, Eigen::ColMajor, int>;
  using Permutation = Eigen::PermutationMatrix<Eigen::Dynamic, Eigen::Dynamic, int>;

  // Decides from the pattern alone, before any number is stored.
  static std::unique_ptr<ShiftInvert> plan(const ComponentLaplacian& laplacian, const KrylovOptions& options) {
    constexpr size_t kEntryBytes = sizeof(double) + sizeof(int);
    const auto entries = static_cast<double>(laplacian.neighbours.size());
    // Leaves room for K itself and its permuted copy.
    if (entries * kEntryBytes * 2 > static_cast<double>(options.factor_bytes)) return nullptr;
    auto self = std::unique_ptr<ShiftInvert>(new ShiftInvert(laplacian));
    const auto budget = static_cast<int64_t>(options.factor_bytes / kEntryBytes);
    return self->fits(budget) && self->work_ <= options.factor_flops ? std::move(self) : nullptr;
  }

  double work() const { return work_; }  // operations of one factorisation, about

  bool factorise(double shift) {
    Sparse shifted = matrix_;
    // By hand: the columns are in no order, so coeffRef(i, i) would insert a second diagonal.
    for (int i = 0; i < n_; ++i) {
      for (Sparse::InnerIterator it(shifted, i); it; ++it) {
        if (it.row() == i) it.valueRef() += shift * mass_[i];
      }
    }
    if (!analysed_) factor_.analyzePattern(shifted);
    analysed_ = true;
    factor_.factorize(shifted);
    return factor_.info() == Eigen::Success && factor_.vectorD().minCoeff() > 0;
  }

  // y = W^1/2 (K + s W)^-1 W^1/2 x
  void apply(const double* x, double* y) const {
    VectorXd inner(n_);
    for (int i = 0; i < n_; ++i) inner[order_[i]] = root_[order_[i]] * x[i];
    const VectorXd solved = factor_.solve(inner);
    for (int i = 0; i < n_; ++i) y[i] = root_[order_[i]] * solved[order_[i]];
  }

 private:
  explicit ShiftInvert(const ComponentLaplacian& laplacian) : n_(laplacian.size) {
    // Written straight into the compressed arrays: insert() is quadratic here.
    Sparse original(n_, n_);
    original.resizeNonZeros(static_cast<Index>(laplacian.neighbours.size()) + n_);
    int at = 0;
    const auto put = [&](int row, double value) {
      original.innerIndexPtr()[at] = row;
      original.valuePtr()[at++] = value;
    };
    for (int i = 0; i < n_; ++i) {
      original.outerIndexPtr()[i] = at;
      const auto begin = laplacian.offsets[i], end = laplacian.offsets[i + 1];
      int64_t k = begin;
      for (; k < end && laplacian.neighbours[k] < i; ++k) put(laplacian.neighbours[k], -1);
      put(i, static_cast<double>(end - begin));
      for (; k < end; ++k) put(laplacian.neighbours[k], -1);
    }
    original.outerIndexPtr()[n_] = at;
    Permutation inverse;
    Eigen::AMDOrdering<int>()(original, inverse);
    const Permutation forward = inverse.inverse();
    order_.assign(forward.indices().data(), forward.indices().data() + n_);
    matrix_.resize(n_, n_);
    matrix_.selfadjointView<Eigen::Lower>() = original.selfadjointView<Eigen::Lower>().twistedBy(forward);
    mass_.resize(n_);
    root_.resize(n_);
    for (int i = 0; i < n_; ++i) {
      mass_[order_[i]] = laplacian.mass[i];
      root_[order_[i]] = std::sqrt(laplacian.mass[i]);
    }
  }

  // Counts the factor's entries by walking the elimination tree, and gives up as soon as there are too many.
  bool fits(int64_t most_entries) {
    Sparse rows = matrix_.transpose();  // column i of `rows`: the entries of row i left of the diagonal
    std::vector<int> parent(n_, -1), seen(n_, -1), count(n_, 0);
    int64_t entries = 0;
    for (int i = 0; i < n_; ++i) {
      seen[i] = i;
      for (Sparse::InnerIterator it(rows, i); it; ++it) {
        for (int j = static_cast<int>(it.row()); j < i && seen[j] != i; j = parent[j]) {
          if (parent[j] < 0) parent[j] = i;
          ++count[j];
          ++entries;
          seen[j] = i;
        }
      }
      if (entries > most_entries) return false;
    }
    for (const int c : count) work_ += static_cast<double>(c) * c;
    return true;
  }

  int n_;
  double work_ = 0;
  bool analysed_ = false;
  Sparse matrix_;           // lower triangle of K in the new order
  std::vector<int> order_;  // new number of each node
  VectorXd mass_, root_;    // in the new order
  Eigen::SimplicialLDLT<Sparse, Eigen::Lower, Eigen::NaturalOrdering<int>> factor_;
};

// Chebyshev polynomial of L, between -1 and 1 on [cut, high] and growing steeply below `cut`.
class Filter {
 public:
  // `lowest`: about the lowest eigenvalue that is wanted.
  Filter(const ComponentLaplacian& laplacian, double lowest, double cut, double high)
      : laplacian_(laplacian), centre_((cut + high) / 2), half_((high - cut) / 2) {
    // Below the cut the polynomial is cosh(degree * reach). e^4 / 2 = 27 at the lowest pair separates enough
    // and keeps the rounding of the others; at 0, whose vector is projected out, it may grow until that
    // rounds.
    const auto reach = [&](double x) { return std::acosh(std::max((centre_ - x) / half_, 1 + 1e-12)); };
    degree_ = static_cast<int>(std::clamp(std::min(4 / reach(lowest), 20 / reach(0)), 2.0, 2000.0));
  }

  int degree() const { return degree_; }

  void apply(const double* x, double* y) const {
    const Index n = laplacian_.size;
    const Eigen::Map<const VectorXd> input(x, n);
    VectorXd before = input, now(n), product(n);
    const auto step = [&](const VectorXd& v) { laplacian_.apply(v.data(), product.data()); };
    step(before);
    now = (centre_ * before - product) / half_;
    for (int i = 1; i < degree_; ++i) {
      step(now);
      before = (2 / half_) * (centre_ * now - product) - before;
      before.swap(now);
    }
    Eigen::Map<VectorXd>(y, n) = now;
  }

 private:
  const ComponentLaplacian& laplacian_;
  double centre_, half_;
  int degree_;
};

// --- The solver -------------------------------------------------------------------------------------------

class Solver {
 public:
  Solver(const ComponentLaplacian& laplacian, int k, const KrylovOptions& options)
      : laplacian_(laplacian),
        options_(options),
        n_(laplacian.size),
        k_(k),
        high_(laplacian.upper_bound() * (1 + 1e-12)),
        guard_(std::max(4, k / 4)),
        space_(static_cast<int>(std::min<Index>(std::max(2 * (k + guard_) + 10, 40), n_ / 2))),
        null_(laplacian.null_vector()) {}

  KrylovPairs solve() {
    inverse_ = ShiftInvert::plan(laplacian_, options_);
    // Graphs that fill in are expanders, near enough, and there the filter needs few products: it comes first
    // when a factorisation costs more than this many of them, and is then not tried for ever.
    constexpr double kProducts = 1500;
    const auto product = static_cast<double>(laplacian_.neighbours.size() + laplacian_.mass.size());
    // A matrix that is dense to begin with gains nothing from a sparse factorisation.
    const bool full = product > static_cast<double>(n_) * static_cast<double>(n_) / 16;
    KrylovPairs pairs;
    if (!inverse_ || full || inverse_->work() > kProducts * product) {
      std::unique_ptr<ShiftInvert> later = std::move(inverse_);
      pairs = attempt(later ? 20'000 : 400'000);
      if (pairs.converged || !later) return pairs;
      inverse_ = std::move(later);
    }
    if (!choose_shift()) return pairs;
    pairs = attempt(0);
    pairs.factorised = true;
    return pairs;
  }

 private:
  // By the factorisation if there is one, otherwise by filters of at most `products` products with L.
  KrylovPairs attempt(int64_t products) {
    KrylovPairs pairs;
    if (!(inverse_ ? first_by_inverse() : first_by_filter(products))) return pairs;
    if (!find_the_missed()) return pairs;
    pairs.values = values_.head(k_);
    pairs.vectors = vectors_.leftCols(k_);
    pairs.converged = residual(pairs.values, pairs.vectors) <= options_.residual;
    return pairs;
  }

  double residual(const VectorXd& values, const MatrixXd& vectors) const {
    double worst = 0;
    VectorXd product(n_);
    for (Index j = 0; j < vectors.cols(); ++j) {
      laplacian_.apply(vectors.col(j).data(), product.data());
      worst = std::max(worst, (product - values[j] * vectors.col(j)).norm());
    }
    return worst;
  }

  MatrixXd null_and(const MatrixXd& others) const {
    MatrixXd all(n_, 1 + others.cols());
    all << null_, others;
    return all;
  }

  // The best pairs within the space of `x`'s columns, into values_ and vectors_. False when they are
  // dependent.
  bool rayleigh_ritz(MatrixXd x) {
    for (Index j = 0; j < x.cols(); ++j) {
      VectorXd column = x.col(j);
      make_orthogonal(null_, column);
      x.col(j) = column / column.norm();
    }
    const MatrixXd gram = x.transpose() * x;
    const Eigen::GeneralizedSelfAdjointEigenSolver<MatrixXd> small(laplacian_.energy(x), gram);
    if (small.info() != Eigen::Success || !small.eigenvectors().allFinite()) return false;
    values_ = small.eigenvalues().cwiseAbs();
    vectors_.noalias() = x * small.eigenvectors();
    return true;
  }

  // A shift well below the lowest eigenvalue still separates the pairs; one far above it lumps them together.
  bool choose_shift() {
    const double mean = static_cast<double>(laplacian_.neighbours.size()) /
                        Eigen::Map<const VectorXd>(laplacian_.mass.data(), n_).sum();
    double shift = 1e-6 * mean;
    for (int attempt = 0; attempt < 8; ++attempt) {
      if (!inverse_->factorise(shift)) {
        shift *= 100;
        return inverse_->factorise(shift);
      }
      VectorXd x = random_vector(n_, 1), y(n_);
      for (int step = 0; step < 4; ++step) {
        make_orthogonal(null_, x);
        x /= x.norm();
        if (step < 3) {
          inverse_->apply(x.data(), y.data());
          x.swap(y);
        }
      }
      const double quotient = laplacian_.energy(x)(0, 0);  // above the lowest eigenvalue, and not far
      if (quotient >= shift) return true;
      shift = std::max(quotient / 10, 1e-14 * mean);
    }
    return inverse_->factorise(shift);
  }

  bool first_by_inverse() {
    operator_ = [this](const double* x, double* y) { inverse_->apply(x, y); };
    const LanczosRun run = lanczos(operator_, null_, random_vector(n_, 2), k_, k_, space_, 1e-12, 300, 2);
    return run.converged && rayleigh_ritz(run.vectors) && polish();
  }

  // One more application of the operator takes the last of the high frequencies out.
  bool polish() {
    MatrixXd better(n_, vectors_.cols());
    for (Index j = 0; j < vectors_.cols(); ++j) operator_(vectors_.col(j).data(), better.col(j).data());
    return rayleigh_ritz(std::move(better));
  }

  bool first_by_filter(int64_t products) {
    const int keep = k_ + guard_;
    double high = high_;
    {
      // Ritz values of L itself: the k-th is an upper bound of the k-th eigenvalue, however rough.
      const Operator turned = [this](const double* x, double* y) {
        laplacian_.apply(x, y);
        Eigen::Map<VectorXd>(y, n_) = high_ * Eigen::Map<const VectorXd>(x, n_) - Eigen::Map<VectorXd>(y, n_);
      };
      const LanczosRun rough = lanczos(turned, null_, random_vector(n_, 2), keep, keep, space_, 1e-12, 0, 2);
      if (!rayleigh_ritz(rough.vectors)) return false;
      // The largest Ritz value plus that norm lies above the spectrum in all but contrived cases; were it not
      // so the filter would bring up the wrong end and convergence, checked against L, would fail.
      high = std::min(high_, high_ - rough.smallest + rough.remainder);
    }
    // Every stage cuts closer with what the last one learnt. Few restarts per stage while the cut is rough.
    for (int stage = 0; products > 0; ++stage) {
      const double cut = std::min(values_[keep - 1], 0.9 * high);
      filter_ = std::make_unique<Filter>(laplacian_, values_[0], cut, high);
      operator_ = [this](const double* x, double* y) { filter_->apply(x, y); };
      const int restarts = stage < 2 ? 1 : 8;
      products -= static_cast<int64_t>(filter_->degree()) * space_ * (restarts + 1) / 2;
      const VectorXd start = vectors_.rowwise().sum();
      const LanczosRun run = lanczos(operator_, null_, start, k_, keep, space_, 1e-11, restarts, 3 + stage);
      if (!rayleigh_ritz(run.vectors)) return false;
      if (run.converged) {
        values_ = values_.head(k_).eval();
        vectors_ = vectors_.leftCols(k_).eval();
        return true;
      }
    }
    return false;
  }

  // Looks outside the found space for anything below the k-th value until there is nothing.
  bool find_the_missed() {
    int wanted = 1;
    for (int round = 0; round < 2 * k_ + 8; ++round) {
      // The operator's value at the k-th pair: what a missed one must exceed.
      const uint64_t stream = 1000 + round;
      const LanczosRun run = lanczos(operator_, null_and(vectors_), random_vector(n_, stream), wanted, wanted, space_,
                                     inverse_ ? 1e-9 : 1e-11, 300, stream);
      if (!run.converged) return false;
      const double highest = values_[k_ - 1];
      const double margin = 1e-9 * highest;
      bool missed = false;
      for (int j = 0; j < wanted; ++j) {
        const VectorXd x = run.vectors.col(j);
        missed = missed || laplacian_.energy(x)(0, 0) < highest - margin;
      }
      if (!missed) return true;
      MatrixXd all(n_, vectors_.cols() + wanted);
      all << vectors_, run.vectors;
      if (!rayleigh_ritz(std::move(all))) return false;
      values_ = values_.head(k_).eval();
      vectors_ = vectors_.leftCols(k_).eval();
      if (inverse_ && !polish()) return false;
      wanted = std::min(4, k_);
    }
    return false;
  }

  const ComponentLaplacian& laplacian_;
  const KrylovOptions options_;
  const Index n_;
  const int k_;
  const double high_;
  const int guard_, space_;
  const VectorXd null_;
  std::unique_ptr<ShiftInvert> inverse_;
  std::unique_ptr<Filter> filter_;
  Operator operator_;
  VectorXd values_;
  MatrixXd vectors_;
};

}  // namespace

bool krylov_suits(int size, int k) {
  // The basis of 2 (k + guard) + 10 vectors must be a small part of the space.
  return size >= 100 && static_cast<int64_t>(k) * 8 <= size;
}

KrylovPairs lowest_krylov(const ComponentLaplacian& laplacian, int k, const KrylovOptions& options) {
  return Solver(laplacian, k, options).solve();
}

}  // namespace san::spectral
