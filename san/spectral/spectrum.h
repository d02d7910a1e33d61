// Laplacians and their lowest eigenpairs, in double precision.
#pragma once

#include <string_view>
#include <vector>

#include "san/base/enum_names.h"
#include "san/graph/graph.h"

namespace san {

enum class Laplacian {
  kSymmetric,      // I - D^-1/2 A D^-1/2, degrees clipped to at least 1: an isolated node gets eigenvalue 1, as
                   // published
  kCombinatorial,  // D - A
  kRandomWalk,     // I - D^-1 A: eigenvalues of kSymmetric, right eigenvectors D^-1/2 u
};

enum class EigenvectorNorm {
  kEigenvector,  // each vector has unit L2 norm (the paper)
  kNode,         // each node's row over the kept vectors has unit L2 norm (the published program)
};

// Each connected component is solved by itself, so that eigenvalue 0 is exact and its vectors live on one
// component each; these choose how.
enum class EigenSolver {
  kAuto,    // dense below kAutoKrylovNodes nodes or for over a twentieth of the pairs, otherwise Krylov; below
            // kMaxDenseNodes nodes this is a matter of speed only
  kDense,   // O(n^3) time, O(n^2) memory; up to kMaxDenseNodes
  kKrylov,  // wherever it suits: components of under 100 nodes, or asked for over an eighth of their pairs,
            // are solved densely all the same, and so are those of up to kMaxDenseNodes where it did not
            // converge
};

inline constexpr int kAutoKrylovNodes = 400;
inline constexpr int kMaxDenseNodes = 10000;  // 800 MB per matrix

struct SpectrumOptions {
  int num_pairs = 10;  // how many of the lowest pairs to keep; fewer come back for a graph with fewer nodes
  Laplacian laplacian = Laplacian::kSymmetric;
  EigenvectorNorm norm = EigenvectorNorm::kEigenvector;
  EigenSolver solver = EigenSolver::kAuto;
  int walk_steps = 0;  // beside the spectrum, for models that read it: see random_walk.h
  bool operator==(const SpectrumOptions&) const = default;
};

// The min(num_pairs, num_nodes) lowest eigenpairs.
struct Spectrum {
  int num_nodes = 0;
  int count = 0;
  std::vector<double> values;   // [count] ascending, absolute values
  std::vector<double> vectors;  // [num_nodes, count] row-major: row j holds node j's entry of every eigenvector
  double residual = 0;          // largest |L v - lambda v| over the kept pairs (unit vectors)
  EigenSolver solver = EigenSolver::kDense;  // which one answered; kKrylov if it did for any component
};

// Names as in config files: "symmetric", "combinatorial", "random-walk"; "eigenvector", "node"; "auto", "dense", "krylov".
EnumNames<Laplacian> enum_names(Laplacian);
EnumNames<EigenvectorNorm> enum_names(EigenvectorNorm);
EnumNames<EigenSolver> enum_names(EigenSolver);

// The adjacency is the simple undirected one: a_ij = 1 if (i,j) or (j,i) is listed, however often; a self
// loop counts 1 on the diagonal and in the degree.
//
// Deterministic: the same graph and options give the same bits, whatever the thread count. Signs: the entry
// of largest magnitude is positive, ties (within rounding) decided by the lowest index. Works for N = 1,
// disconnected graphs, isolated nodes, self loops, repeated eigenvalues. Safe to call from many threads at
// once. Throws Error when num_pairs < 1, or for a large graph whose solver did not converge and that is too
// big to solve densely.
Spectrum compute_spectrum(const Graph& graph, const SpectrumOptions& options);

// Rounded to what the network reads.
Eigenpairs to_eigenpairs(const Spectrum& spectrum);

}  // namespace san
