// report.html: one self-contained page about a run. No network, no scripts from elsewhere.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "san/model/config.h"

namespace san {

// One line of metrics.csv.
struct EpochRecord {
  int64_t epoch = 0;
  double seconds = 0;  // since the run's start, summed over resumes
  double learning_rate = 0;
  double train_loss = 0;
  double valid_loss = 0;
  std::vector<std::pair<std::string, double>> train_metrics, valid_metrics, test_metrics;  // may be empty
};

struct ReportInput {
  std::string title;
  std::string command;                                     // the exact command line
  std::vector<std::pair<std::string, std::string>> model;  // facts, in order: "parameters" -> "454,753"
  std::vector<std::pair<std::string, std::string>> data;
  std::vector<std::pair<std::string, std::string>> environment;
  std::vector<EpochRecord> epochs;
  int64_t best_epoch = -1;
  ModelDescription description;
  // The test part: labels [rows, columns] and predictions [rows, outputs] as people read them.
  std::vector<double> test_labels, test_predictions;
  int label_columns = 0;
  std::vector<std::pair<std::string, double>> test_metrics;
  std::string config_toml;
};

// The whole page.
std::string render_report(const ReportInput& input);

}  // namespace san
