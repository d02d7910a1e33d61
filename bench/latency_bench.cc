// How long one prediction takes inside a program: SMILES -> graph -> eigenpairs -> network, one molecule at a time on one
// core. latency_bench FILE.csv[.gz] [--model FOLDER] [--count 10000] [--write FOLDER]
//
// Without --model: the architecture of configs/zinc.toml with random weights. --write keeps that model (for san predict).
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <string>
#include <vector>

#include "san/data/csv.h"
#include "san/model/predictor.h"
#include "san/train/run_config.h"
#include "tests/model/random_weights.h"

namespace {

using Clock = std::chrono::steady_clock;

double micros(Clock::duration duration) {
  return std::chrono::duration<double, std::micro>(duration).count();
}

// Time that this thread had a core: on a shared machine the wall clock also counts the work of others.
double cpu_micros() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return 1e6 * static_cast<double>(now.tv_sec) + 1e-3 * static_cast<double>(now.tv_nsec);
}

void print(const char* what, std::vector<double> times) {
  std::sort(times.begin(), times.end());
  const auto at = [&](double q) { return times[static_cast<size_t>(q * static_cast<double>(times.size() - 1))]; };
  double sum = 0;
  for (const double t : times) sum += t;
  std::printf("%-28s p50 %7.1f us   p99 %7.1f us   mean %7.1f us   min %7.1f us\n", what, at(0.5), at(0.99),
              sum / static_cast<double>(times.size()), times[0]);
}

san::StoredModel zinc_model() {
  san::RunConfig config;
  san::read_toml(config, SAN_SOURCE_DIR "/configs/zinc.toml");
  san::ModelDescription description;
  description.model = config.model;
  description.input.spectral = config.spectral;
  description.input.featuriser = "zinc";
  return san::testing::random_model(description, 1);
}

}  // namespace

int main(int argc, char** argv) {
  std::string file, model_folder, write;
  size_t count = 10000;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag == "--model" && i + 1 < argc) {
      model_folder = argv[++i];
    } else if (flag == "--write" && i + 1 < argc) {
      write = argv[++i];
    } else if (flag == "--count" && i + 1 < argc) {
      count = std::stoul(argv[++i]);
    } else {
      file = flag;
    }
  }
  try {
    if (!write.empty()) san::write_model(write, zinc_model());
    if (file.empty()) return 0;
    const san::Predictor predictor =
        model_folder.empty() ? san::Predictor(zinc_model()) : san::Predictor::load(model_folder);
    std::vector<std::string> smiles;
    san::CsvReader reader(file);
    const size_t column = reader.column("smiles");
    while (smiles.size() < count && reader.next()) smiles.emplace_back(reader[column]);

    std::vector<double> all, parse, network, cpu, eigen;
    double nodes = 0, sum = 0;
    for (size_t i = 0; i < smiles.size(); ++i) {
      std::string error;
      const double cpu_start = cpu_micros();
      const auto start = Clock::now();
      const auto graph = predictor.graph_of_smiles(smiles[i], error);
      if (!graph) continue;
      const auto parsed = Clock::now();
      sum += predictor.predict(*graph).values[0];
      const auto end = Clock::now();
      if (i < 100) continue;  // warming up
      nodes += graph->num_nodes;
      parse.push_back(micros(parsed - start));
      network.push_back(micros(end - parsed));
      all.push_back(micros(end - start));
      cpu.push_back(cpu_micros() - cpu_start);
      san::Graph bare = *graph;
      bare.eigenpairs.reset();
      const auto again = Clock::now();
      predictor.add_positions(bare);
      eigen.push_back(micros(Clock::now() - again));
    }
    if (all.empty()) {
      std::fprintf(stderr, "too few molecules: the first 100 are for warming up\n");
      return 1;
    }
    std::printf("%zu molecules of %.1f atoms on average, one at a time, one thread (checksum %.6g)\n", all.size(),
                nodes / static_cast<double>(all.size()), sum);
    print("SMILES to prediction", all);
    print("  processor time of it", cpu);
    print("  SMILES, graph, eigenpairs", parse);
    print("    eigenpairs alone", eigen);
    print("  network", network);
  } catch (const san::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
