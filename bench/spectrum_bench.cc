// Graphs per second of processor time of compute_spectrum (one thread), for graphs as large as molecules and SBM graphs, and
// where the dense and the Krylov solver cross. Usage: spectrum_bench [seconds per figure]
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <vector>

#include "san/base/random.h"
#include "san/spectral/spectrum.h"

namespace {

// A tree of chains with a few rings: degrees 1..4, about as many edges as a molecule has.
san::Graph like_a_molecule(int nodes, uint64_t seed) {
  san::Random random(seed);
  san::Graph graph;
  graph.num_nodes = nodes;
  const auto join = [&](int a, int b) { graph.edges.insert(graph.edges.end(), {{a, b}, {b, a}}); };
  for (int i = 1; i < nodes; ++i) join(i, random.chance(0.75) ? i - 1 : static_cast<int>(random.below(i)));
  for (int i = 0; i < nodes / 10; ++i) {
    const int a = random.range(0, nodes - 5);
    join(a, a + 5 - static_cast<int>(random.below(2)));
  }
  return graph;
}

san::Graph random_graph(int nodes, double p, uint64_t seed) {
  san::Random random(seed);
  san::Graph graph;
  graph.num_nodes = nodes;
  for (int a = 0; a < nodes; ++a) {
    for (int b = a + 1; b < nodes; ++b) {
      if (random.chance(p)) graph.edges.insert(graph.edges.end(), {{a, b}, {b, a}});
    }
  }
  return graph;
}

double rate(const std::vector<san::Graph>& graphs, const san::SpectrumOptions& options, double seconds) {
  // Processor time, not the wall's: other programs on the machine should not count. They still slow the caches.
  const auto now = [] { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; };
  double sum = 0;
  const double start = now();
  for (int64_t done = 0;;) {
    for (const auto& graph : graphs) sum += san::compute_spectrum(graph, options).values.back();
    done += static_cast<int64_t>(graphs.size());
    const double passed = now() - start;
    if (passed >= seconds) return sum < 0 ? 0 : static_cast<double>(done) / passed;
  }
}

}  // namespace

int main(int argc, char** argv) {
  const double seconds = argc > 1 ? std::atof(argv[1]) : 2;
  std::vector<san::Graph> molecules, sbm;
  for (uint64_t i = 0; i < 64; ++i) {
    molecules.push_back(like_a_molecule(23, i));
    sbm.push_back(random_graph(117, 0.35, i));
  }
  std::printf("%-44s %10.0f graphs/s\n", "N = 23, m = 10", rate(molecules, {}, seconds));
  std::printf("%-44s %10.0f graphs/s\n", "N = 117, m = 10", rate(sbm, {}, seconds));
  std::printf("\n%6s %4s %14s %14s %14s %14s\n", "N", "m", "sparse dense/s", "sparse krylov/s", "p=.1 dense/s",
              "p=.1 krylov/s");
  for (const int nodes : {100, 200, 400, 800}) {
    for (const int pairs : {10, 30}) {
      const std::vector<san::Graph> thin{like_a_molecule(nodes, 1)}, thick{random_graph(nodes, 0.1, 1)};
      const san::SpectrumOptions dense{.num_pairs = pairs, .solver = san::EigenSolver::kDense};
      const san::SpectrumOptions krylov{.num_pairs = pairs, .solver = san::EigenSolver::kKrylov};
      std::printf("%6d %4d %14.1f %14.1f %14.1f %14.1f\n", nodes, pairs, rate(thin, dense, seconds / 4),
                  rate(thin, krylov, seconds / 4), rate(thick, dense, seconds / 4), rate(thick, krylov, seconds / 4));
    }
  }
}
