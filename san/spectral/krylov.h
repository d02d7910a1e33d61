// The lowest eigenpairs of a large sparse Laplacian. Internal to spectral/.
#pragma once

#include <Eigen/Core>
#include <cstddef>
#include <cstdint>

#include "san/spectral/laplacian.h"

namespace san::spectral {

struct KrylovOptions {
  // A factorisation larger than this, or of more work than this, is never attempted; one that is merely
  // expensive is the second choice. The alternative is a filter: polynomials in L, which need nothing but L.
  size_t factor_bytes = size_t{500} << 20;
  double factor_flops = 1e11;
  double residual = 1e-7;  // largest |L v - lambda v| that is accepted
};

struct KrylovPairs {
  bool converged = false;
  bool factorised = false;  // shift-invert, not filtered
  Eigen::VectorXd values;   // [k] ascending
  Eigen::MatrixXd vectors;  // [size, k] orthonormal, orthogonal to the null vector
};

// The k lowest pairs after the null pair, which is known. REQUIRES: connected, krylov_suits(size, k).
// Single-threaded, deterministic.
//
// Thick-restart Lanczos on an operator whose largest eigenvalues belong to L's lowest, with complete
// reorthogonalisation against the null vector and everything already found:
//   (K + s W)^-1, by sparse LDL^T, s a small positive shift matched to the spectrum (a path of 100,000 nodes
//   has eigenvalues of 1e-9), or
//   a Chebyshev polynomial of L that is large on the wanted end only, where the factors would not fit.
// A Krylov space holds one copy of each repeated eigenvalue, so further runs, orthogonal to what was found,
// look for anything left below the k-th value until one finds nothing. Values are Rayleigh quotients summed
// over edges: their relative accuracy does not suffer from small size.
//
// Why not Spectra: the runs need deflation against found vectors, unconverged Ritz vectors to go on with, and
// a restart after an invariant subspace that respects the deflation; it offers none of them.
KrylovPairs lowest_krylov(const ComponentLaplacian& laplacian, int k, const KrylovOptions& options = {});

// Whether lowest_krylov may be asked for k pairs of `size` nodes.
bool krylov_suits(int size, int k);

}  // namespace san::spectral
