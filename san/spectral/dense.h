// The lowest eigenpairs of a dense symmetric matrix. Internal to spectral/.
#pragma once

#include <Eigen/Core>

namespace san::spectral {

struct DensePairs {
  Eigen::VectorXd values;   // [k] ascending
  Eigen::MatrixXd vectors;  // [n, k] orthonormal columns
};

// The k lowest pairs of the symmetric `matrix` (its lower triangle is read). 1 <= k <= n. Single-threaded,
// deterministic, safe from many threads at once; no BLAS, no LAPACK.
//
// Few of many pairs: Householder tridiagonalisation, bisection by Sturm counts (which cannot miss or repeat
// an eigenvalue, however clustered), inverse iteration with reorthogonalisation. The outcome is then checked,
// residual and orthogonality both: together they prove the pairs (Kahan), since the values are already known
// to be the k lowest. If the check fails, and for many of the pairs, QR iteration on the whole matrix.
DensePairs lowest_dense(const Eigen::MatrixXd& matrix, int k);

}  // namespace san::spectral
