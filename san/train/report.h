// report.html: one self-contained page about a run: scores, the exact command, curves, what the task's test predictions look
// like, facts, the resolved configuration. No network (a content policy in the page forbids it), light and dark, and complete
// without its one small script (a button that copies the command).
//
// Elements that tests and programs may rely on, present when there is something to show: #test-score, #command, #curve-loss,
// #curve-metric, #curve-learning-rate, #metrics; #scatter-0.. and #residuals-0.., #worst (regression); #roc, #precision-recall,
// #tasks (binary); #confusion, #classes; #facts-model, #facts-data, #facts-environment; #config.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "san/model/config.h"

namespace san {

// One line of metrics.csv.
struct EpochRecord {
  int64_t epoch = 0;   // counted from 1
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
  int64_t best_epoch = -1;  // EpochRecord::epoch of the kept model; negative = none
  ModelDescription description;
  // The test part: labels [rows, columns] and predictions [rows, outputs] as people read them.
  std::vector<double> test_labels, test_predictions;
  int label_columns = 0;
  std::vector<std::string> test_ids;  // one per row, optional: names the rows with the largest errors
  std::vector<std::pair<std::string, double>> test_metrics;
  std::string config_toml;
};

// The whole page. Every string may be hostile: all are escaped. NaN metrics, no or one epoch, missing labels and empty parts
// are shown as what they are; long runs and large test parts are thinned out (deterministically), so that the page stays a
// few MB at most. Throws Error when labels, predictions and description.model.outputs do not fit each other, or when labels
// are not of the task.
std::string render_report(const ReportInput& input);

}  // namespace san
