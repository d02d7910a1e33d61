// Graphs of 100,000 nodes: residuals, closed forms and peak memory. Each case runs in a process of its own,
// so that its peak memory is its own.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <numbers>

#include "san/spectral/spectrum.h"
#include "tests/spectral/builders.h"
#include "tests/testing.h"

namespace san {
namespace {

constexpr int kPairs = 16;
constexpr double kPi = std::numbers::pi;

struct Outcome {
  bool solved = false;
  EigenSolver solver = EigenSolver::kAuto;
  double values[kPairs] = {};
  double residual = 0, seconds = 0, megabytes = 0;
};

Outcome measure(const std::function<Graph()>& make, Laplacian laplacian) {
  int ends[2];
  if (::pipe(ends) != 0) return {};
  const pid_t child = ::fork();
  if (child == 0) {
    Outcome outcome;
    try {
      const Graph graph = make();
      const auto start = std::chrono::steady_clock::now();
      const Spectrum spectrum = compute_spectrum(graph, {.num_pairs = kPairs, .laplacian = laplacian});
      outcome.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      std::copy(spectrum.values.begin(), spectrum.values.end(), outcome.values);
      outcome.residual = spectrum.residual;
      outcome.solver = spectrum.solver;
      outcome.solved = spectrum.count == kPairs;
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
    }
    struct rusage usage {};
    ::getrusage(RUSAGE_SELF, &usage);  // ru_maxrss is VmHWM
    outcome.megabytes = static_cast<double>(usage.ru_maxrss) / 1024;
    const bool written = ::write(ends[1], &outcome, sizeof outcome) == sizeof outcome;
    ::_exit(written ? 0 : 1);
  }
  ::close(ends[1]);
  Outcome outcome;
  if (::read(ends[0], &outcome, sizeof outcome) != sizeof outcome) outcome.solved = false;
  ::close(ends[0]);
  ::waitpid(child, nullptr, 0);
  return outcome;
}

void expect_solved(const char* name, const Outcome& outcome) {
  std::printf("%-28s %6.2f s  %5.0f MB  residual %.1e  %.6e .. %.6e\n", name, outcome.seconds, outcome.megabytes,
              outcome.residual, outcome.values[1], outcome.values[kPairs - 1]);
  ASSERT_TRUE(outcome.solved);
  EXPECT_EQ(outcome.solver, EigenSolver::kKrylov);
  EXPECT_LE(outcome.residual, 1e-7);
  EXPECT_LT(outcome.megabytes, 2048);
  EXPECT_EQ(outcome.values[0], 0);
  EXPECT_GT(outcome.values[1], 0);
}

// Combinatorial grid: sums of the two paths' eigenvalues 4 sin^2(pi k / 2n).
void expect_grid(const Outcome& outcome, int rows, int columns) {
  const auto path_value = [](int k, int n) { return 4 * std::pow(std::sin(kPi * k / n / 2), 2); };
  std::vector<double> exact;
  for (int i = 0; i < 2 * kPairs; ++i)
    for (int j = 0; j < 2 * kPairs; ++j) exact.push_back(path_value(i, rows) + path_value(j, columns));
  std::sort(exact.begin(), exact.end());
  for (int k = 0; k < kPairs; ++k) EXPECT_NEAR(outcome.values[k], exact[k], 1e-9 * exact[k]) << k;
}

TEST(LargeSpectrum, Grid) {
  const auto make = [] { return testing::grid(250, 400); };
  expect_solved("grid 250x400 symmetric", measure(make, Laplacian::kSymmetric));
  const Outcome outcome = measure(make, Laplacian::kCombinatorial);
  expect_solved("grid 250x400 combinatorial", outcome);
  expect_grid(outcome, 250, 400);
}

TEST(LargeSpectrum, SquareGridHasEveryEigenvalueTwice) {
  const auto make = [] { return testing::grid(316, 316); };
  expect_solved("grid 316x316 symmetric", measure(make, Laplacian::kSymmetric));
  const Outcome outcome = measure(make, Laplacian::kCombinatorial);
  expect_solved("grid 316x316 combinatorial", outcome);
  expect_grid(outcome, 316, 316);
}

TEST(LargeSpectrum, RandomRegularGraph) {
  const Outcome outcome = measure([] { return testing::random_regular(100'000, 4, 1); }, Laplacian::kSymmetric);
  expect_solved("random 4-regular", outcome);
  // Friedman: the second eigenvalue of a random 4-regular graph is near 1 - 2 sqrt(3) / 4.
  EXPECT_NEAR(outcome.values[1], 1 - std::sqrt(3.0) / 2, 0.01);
}

TEST(LargeSpectrum, RandomTree) {
  expect_solved("random tree", measure([] { return testing::random_tree(100'000, 1); }, Laplacian::kSymmetric));
}

TEST(LargeSpectrum, LongPathHasItsClosedForm) {
  const Outcome outcome = measure([] { return testing::path(100'000); }, Laplacian::kSymmetric);
  expect_solved("path", outcome);
  for (int k = 1; k < kPairs; ++k) {
    const double exact = 2 * std::pow(std::sin(kPi * k / 99'999 / 2), 2);
    // Factors of a matrix with entries of 1 perturb the lowest vectors by 1e-16 / 1.5e-9 (their gap); the
    // quotient's relative error is the square of that: the tolerance leaves room for the sums' rounding.
    EXPECT_NEAR(outcome.values[k], exact, 1e-9 * exact) << k;
  }
}

}  // namespace
}  // namespace san
