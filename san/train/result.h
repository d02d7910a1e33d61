// What came out of a training run, and the file that keeps it: result.json in the run folder, written when the run has ended.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace san {

struct TrainResult {
  bool interrupted = false;  // not in the file: an interrupted run has none
  std::string stopped;       // why it ended: rule (schedule or early stopping), epochs or time
  int64_t epochs = 0;
  int64_t best_epoch = 0;  // counted from 1; 0 = none
  double seconds = 0;      // summed over resumes
  std::string metric;      // the one that chose the best model; empty when no epoch was run
  double best_valid = std::numeric_limits<double>::quiet_NaN();
  bool validated = true;  // not in the file; false: there is no validation part, best_valid is of the training part
  std::vector<std::pair<std::string, double>> test_metrics;       // of the best weights; empty without a test part
  std::vector<std::pair<std::string, double>> published_metrics;  // means of batch means, when asked for
  int64_t train_graphs = 0;
  int64_t parameters = 0;
  // Training graphs per second of the whole run, validation included; NaN when no epoch was run.
  double graphs_per_second = std::numeric_limits<double>::quiet_NaN();
  std::string machine;  // "Intel(R) Xeon(R) ..., 2 threads" of the last piece
  std::string command;  // likewise
};

void write_result(const std::filesystem::path& path, const TrainResult& result);
// Throws Error for a file that is not one.
TrainResult read_result(const std::filesystem::path& path);

}  // namespace san
