// How good predictions are (section 5 of the specification). Pure functions of plain arrays, safe from any thread.
// NaN labels are missing and ignored; a metric that does not exist for the data (no labels, one class only) is NaN, and so
// is one over a labelled prediction that is NaN: a model that diverged must not look like one that is merely bad.
// Arrays whose sizes do not fit, labels that are not 0 / 1 or not a class are Errors. Ranking costs O(n log n).
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
// Mean over columns of each column's coefficient of determination; columns whose labels are all equal (or fewer than two)
// have none and are left out.
double r_squared(std::span<const double> labels, std::span<const double> predictions, int columns);

// One task: labels 0 / 1, any scores (higher = more likely 1), ties handled as scikit-learn does: equal scores are one
// threshold. Counts are integers: the result does not depend on the order of the rows.
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
// predicted but not among the labels counts as 0; x 100. (The program indexes its shrunken matrix by class number when a class
// other than the last is absent from both; that slip is not copied.)
double published_sbm_accuracy(std::span<const double> labels, std::span<const double> scores, int classes);
// [classes, classes] row-major: rows are labels, columns predictions. Rows with a NaN score are in no cell.
std::vector<int64_t> confusion_matrix(std::span<const double> labels, std::span<const double> scores, int classes);

// The metrics of a task by name, the one that chooses the best model first.
//   regression: mae (or rmse first when the loss is mse), rmse, r2     binary: roc_auc, average_precision, accuracy (at 0.5)
//   multiclass: accuracy, mean_class_recall     node-classification: mean_class_recall, accuracy
// predictions: as people read them (label units, probabilities), [rows, outputs]. A probability of exactly 0.5 predicts 0.
std::vector<std::pair<std::string, double>> task_metrics(const TaskConfig& task, std::span<const double> labels,
                                                         std::span<const double> predictions, int outputs);
// The published program's way of averaging: the metric of each batch, then the mean over batches. mae for regression,
// sbm_accuracy for nodes, nothing for other tasks. For one thread.
class BatchMeans {
 public:
  // One batch; predictions as for task_metrics.
  void add(const TaskConfig& task, std::span<const double> labels, std::span<const double> predictions, int outputs);
  std::vector<std::pair<std::string, double>> means() const;

 private:
  std::string name_;
  double sum_ = 0;
  int64_t batches_ = 0;
};

// Whether a larger value of that metric is better: false for mae, rmse, mse, loss and names that end in "_loss".
bool larger_is_better(std::string_view metric);

}  // namespace san
