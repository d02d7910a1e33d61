// Memory of a long training: after the first epochs it stays what it is. SAN_SOAK_MINUTES=60 is the long test of a release; the
// default is for every day.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <sstream>

#include "tests/cli/run.h"

namespace san {
namespace {

using testing::Ran;
using testing::TemporaryFolder;

// Megabytes; 0 when the process is gone.
double resident_megabytes(pid_t pid) {
  try {
    std::istringstream lines(read_file("/proc/" + std::to_string(pid) + "/status", 1 << 16));
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with("VmRSS:")) return std::stod(line.substr(6)) / 1024;
    }
  } catch (const Error&) {
  }
  return 0;
}

struct Sample {
  double seconds, megabytes;
};

double most(const std::vector<Sample>& samples, double from, double to) {
  double largest = 0;
  for (const Sample& sample : samples) {
    if (sample.seconds >= from && sample.seconds < to) largest = std::max(largest, sample.megabytes);
  }
  return largest;
}

TEST(Soak, MemoryDoesNotGrowAfterTheFirstEpochs) {
  const char* asked = std::getenv("SAN_SOAK_MINUTES");
  const double minutes = asked != nullptr ? std::atof(asked) : 0.75;
  ASSERT_GT(minutes, 0);
  const TemporaryFolder folder;
  const std::string out = folder.file("run");
  std::vector<std::string> arguments = {
      "train",   "--data",    "generate:pattern?train=40&valid=20&test=20&patterns=20",
      "--out",   out,         "--epochs",
      "1000000", "--threads", "1"};
  for (const std::string& setting :
       {std::string("model.hidden_dim=16"), std::string("model.heads=2"), std::string("model.layers=2"),
        std::string("model.lpe.dim=4"), std::string("model.lpe.heads=2"), std::string("model.lpe.ff_dim=16"),
        std::string("spectral.num_pairs=4"), std::string("train.batch_size=8"), std::string("train.schedule=constant"),
        std::string("train.checkpoint_seconds=1"), std::string("data.task=node-classification"),
        "train.time_limit=" + std::to_string(minutes / 60)}) {
    arguments.insert(arguments.end(), {"--set", setting});
  }
  std::vector<Sample> samples;
  std::jthread sampler;
  testing::RunOptions options;
  options.started = [&](pid_t pid) {
    sampler = std::jthread([&samples, pid](const std::stop_token& stop) {
      const auto start = std::chrono::steady_clock::now();
      while (!stop.stop_requested()) {
        const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
        if (const double now = resident_megabytes(pid); now > 0) samples.push_back({seconds, now});
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
      }
    });
  };
  const Ran ran = testing::run_with(folder, arguments, options);
  sampler.request_stop();
  sampler.join();
  ASSERT_EQ(ran.code, 0) << ran.err;
  const std::string metrics = read_file(out + "/metrics.csv", 1 << 26);
  const auto epochs = std::count(metrics.begin(), metrics.end(), '\n') - 1;
  EXPECT_GE(epochs, 5) << "too few epochs to say anything: give it more minutes";
  // Peaks, not values: memory goes up and down within a step. The first fifth holds start, preparing and first epochs; the
  // last second the test part and the report.
  const double end = minutes * 60;
  const double early = most(samples, end / 5, end * 3 / 5), late = most(samples, end * 3 / 5, end - 1);
  std::printf("%.1f minutes, %d epochs, %zu samples; largest resident size in MB, by tenths of the time:", minutes,
              static_cast<int>(epochs), samples.size());
  for (int tenth = 0; tenth < 10; ++tenth)
    std::printf(" %.1f", most(samples, end * tenth / 10, end * (tenth + 1) / 10));
  std::printf("\n");
  // malloc settles in the first few hundred batches (by 10 MB of 390 in a run of 10 minutes, flat after half of it), which a
  // short run does not reach the end of: it finds only what leaks at every step.
  const double allowed = minutes >= 5 ? 0.01 : 0.05;
  EXPECT_LT(late, early * (1 + allowed)) << "it grew from " << early << " to " << late << " MB";
}

}  // namespace
}  // namespace san
