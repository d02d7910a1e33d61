// How good predictions are (section 5 of the specification). Pure functions of plain arrays; NaN labels are missing and
// ignored; a metric that does not exist for the data (no labels, one class only) is NaN.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "san/model/config.h"

namespace san {

// labels, predictions: [rows, columns] row-major; averages over all labelled entries.
double mean_absolute_error(std::span<const double> labels, std::span<const double> predictions);
double root_mean_squared_error(std::span<const double> labels, std::span<const double> predictions);
// Mean over columns of each column's coefficient of determination.
double r_squared(std::span<const double> labels, std::span<const double> predictions, int columns);

// One task: labels 0 / 1, any scores (higher = more likely 1), ties handled as scikit-learn does.
double roc_auc(std::span<const double> labels, std::span<const double> scores);
double average_precision(std::span<const double> labels, std::span<const double> scores);
// OGB's definition: the mean over the columns that have both classes among their labelled rows.
double mean_roc_auc(std::span<const double> labels, std::span<const double> scores, int columns);
double mean_average_precision(std::span<const double> labels, std::span<const double> scores, int columns);

// labels: class per row; scores: [rows, classes], the largest (first of equals) is the prediction.
double accuracy(std::span<const double> labels, std::span<const double> scores, int classes);
// Mean over the classes that occur in the labels of that class's recall, x 100 (SBM accuracy).
double mean_class_recall(std::span<const double> labels, std::span<const double> scores, int classes);
// As the published program has it for one batch: classes absent from both predictions and labels are left out, a class that is
// predicted but not among the labels counts as 0; x 100.
double published_sbm_accuracy(std::span<const double> labels, std::span<const double> scores, int classes);
// [classes, classes] row-major: rows are labels, columns predictions.
std::vector<int64_t> confusion_matrix(std::span<const double> labels, std::span<const double> scores, int classes);

// The metrics of a task by name, the one that chooses the best model first.
//   regression: mae (or rmse first when the loss is mse), rmse, r2     binary: roc_auc, average_precision, accuracy (at 0.5)
//   multiclass: accuracy, mean_class_recall     node-classification: mean_class_recall, accuracy
// predictions: as people read them (label units, probabilities), [rows, outputs].
std::vector<std::pair<std::string, double>> task_metrics(const TaskConfig& task, std::span<const double> labels,
                                                         std::span<const double> predictions, int outputs);
// Whether a larger value of that metric is better.
bool larger_is_better(std::string_view metric);

}  // namespace san
