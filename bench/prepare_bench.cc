// Graphs per second of preparing real and synthetic data (read, featurise, m = 10 spectra, write the cache) with 1 and 2 threads,
// and the time to open what was written.
// Usage: prepare_bench FOLDER_OF_ZINC [repetitions]     (the folder with zinc12k_{train,val,test}.csv.gz)
// Prints the best repetition. CPU-second rates are what one core does whatever else runs on the machine; wall rates are what a
// user sees. The authors' preprocessing, for comparison, is in the data's own README.
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "san/base/error.h"
#include "san/base/file.h"
#include "san/data/dataset.h"
#include "san/graph/generators.h"
#include "san/graph/jsonl.h"

namespace {

using Clock = std::chrono::steady_clock;

double since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double cpu_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

void measure(const char* name, const std::string& spec, const san::SourceOptions& source_options,
             const std::string& folder, int repetitions) {
  double wall[3] = {}, cpu[3] = {};
  for (const int threads : {1, 2}) {
    wall[threads] = cpu[threads] = 1e30;
    san::PrepareOptions options;
    options.cache_folder = folder + "/cache";
    options.threads = threads;
    int64_t graphs = 0;
    double opening = 1e30;
    uintmax_t bytes = 0;
    for (int i = 0; i < repetitions; ++i) {
      std::filesystem::remove_all(options.cache_folder);
      const auto start = Clock::now();
      const double cpu_start = cpu_seconds();
      graphs = san::Dataset::prepare(*san::open_source(spec, source_options), options).size();
      wall[threads] = std::min(wall[threads], since(start));
      cpu[threads] = std::min(cpu[threads], cpu_seconds() - cpu_start);
      const auto opened = Clock::now();
      const san::Dataset data = san::Dataset::prepare(*san::open_source(spec, source_options), options);
      opening = std::min(opening, since(opened));
      bytes = std::filesystem::file_size(data.path());
    }
    const auto n = static_cast<double>(graphs);
    std::printf("%-24s %d thread%s %7.0f graphs/s wall %7.0f graphs/s per CPU second; %5.1f MB, opened in %.1f ms\n",
                name, threads, threads == 1 ? " " : "s", n / wall[threads], n / cpu[threads],
                static_cast<double>(bytes) / 1e6, 1000 * opening);
    std::fflush(stdout);
  }
  std::printf("%-24s 2 threads are %.2f times as fast as 1\n", "", wall[1] / wall[2]);
}

void run(const std::string& zinc, int repetitions) {
  std::string folder = (std::filesystem::temp_directory_path() / "san_prepare_bench_XXXXXX").string();
  SAN_CHECK(::mkdtemp(folder.data()) != nullptr, "{}: cannot make a folder", folder);
  san::SourceOptions molecules;
  molecules.featuriser = "zinc";
  molecules.target_columns = {"label"};
  measure("ZINC-12k",
          fmt::format("train={0}/zinc12k_train.csv.gz,valid={0}/zinc12k_val.csv.gz,test={0}/zinc12k_test.csv.gz", zinc),
          molecules, folder, repetitions);

  const std::string cluster = folder + "/cluster.jsonl";
  san::FileWriter writer(cluster);
  const san::ClusterOptions options{0, 2000, 0, 0};
  for (int64_t i = 0; i < 2000; ++i) writer.write(san::format_graph(san::make_cluster(options, i)) + '\n');
  writer.commit();
  measure("2,000 CLUSTER, JSONL", cluster, {}, folder, repetitions);
  measure("2,000 CLUSTER, generated", "generate:cluster?train=2000&valid=0&test=0", {}, folder, repetitions);
  std::filesystem::remove_all(folder);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return std::fprintf(stderr, "usage: prepare_bench FOLDER_OF_ZINC [repetitions]\n"), 2;
  try {
    run(argv[1], argc > 2 ? std::max(1, std::atoi(argv[2])) : 3);
  } catch (const san::Error& error) {
    return std::fprintf(stderr, "prepare_bench: %s\n", error.what()), 1;
  }
  return 0;
}
