#include "san/model/task.h"

#include <algorithm>
#include <cmath>

namespace san {
namespace {

double sigmoid(double x) {
  return 1 / (1 + std::exp(-x));
}

double cross_entropy(std::span<const double> outputs, size_t classes, std::span<const double> labels,
                     size_t label_columns, bool weighted) {
  const size_t rows = outputs.size() / classes;
  std::vector<double> counts(classes, 0);
  double known = 0;
  for (size_t r = 0; r < rows; ++r) {
    const double label = labels[r * label_columns];
    if (std::isnan(label)) continue;
    SAN_CHECK(std::trunc(label) >= 0 && std::trunc(label) < static_cast<double>(classes),
              "a class label is outside 0..{}, the model's classes", classes - 1);
    ++counts[static_cast<size_t>(label)];
    ++known;
  }
  double sum = 0, weights = 0;
  for (size_t r = 0; r < rows; ++r) {
    const double label = labels[r * label_columns];
    if (std::isnan(label)) continue;
    const auto row = outputs.subspan(r * classes, classes);
    const double largest = *std::max_element(row.begin(), row.end());
    double total = 0;
    for (const double x : row) total += std::exp(x - largest);
    const auto target = static_cast<size_t>(label);
    const double weight = weighted ? (known - counts[target]) / known : 1;
    sum += weight * (largest + std::log(total) - row[target]);
    weights += weight;
  }
  return weights == 0 ? 0 : sum / weights;
}

}  // namespace

void make_readable(const TaskConfig& task, std::span<double> outputs, int columns) {
  const auto width = static_cast<size_t>(columns);
  switch (task.kind) {
    case TaskKind::kBinary:
      for (double& x : outputs) x = sigmoid(x);
      return;
    case TaskKind::kMulticlass:
    case TaskKind::kNodeClassification:
      for (size_t begin = 0; begin < outputs.size(); begin += width) {
        const auto row = outputs.subspan(begin, width);
        const double largest = *std::max_element(row.begin(), row.end());
        double total = 0;
        for (double& x : row) total += x = std::exp(x - largest);
        for (double& x : row) x /= total;
      }
      return;
    case TaskKind::kRegression:
      if (task.scale.empty()) return;
      for (size_t i = 0; i < outputs.size(); ++i) {
        outputs[i] = outputs[i] * task.scale[i % width] + task.shift[i % width];
      }
  }
}

double output_loss(const TaskConfig& task, std::span<const double> outputs, int columns,
                   std::span<const double> labels) {
  const auto width = static_cast<size_t>(columns);
  const size_t rows = outputs.size() / width;
  SAN_CHECK(rows > 0 && !labels.empty() && labels.size() % rows == 0, "{} labels for {} rows of outputs", labels.size(),
            rows);
  const size_t label_columns = labels.size() / rows;
  if (task.kind == TaskKind::kMulticlass || task.kind == TaskKind::kNodeClassification) {
    return cross_entropy(outputs, width, labels, label_columns, task.loss == Loss::kWeightedCrossEntropy);
  }
  SAN_CHECK(label_columns == width, "{} labels for {} outputs", label_columns, width);
  double sum = 0, known = 0;
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (std::isnan(labels[i])) continue;
    ++known;
    const double x = outputs[i];
    if (task.loss == Loss::kSigmoidBce) {
      const double p = sigmoid(x);
      sum -= labels[i] * std::max(std::log(p), -100.0) + (1 - labels[i]) * std::max(std::log(1 - p), -100.0);
    } else if (task.kind == TaskKind::kBinary) {
      sum += std::max(x, 0.0) - x * labels[i] + std::log1p(std::exp(-std::abs(x)));
    } else {
      const double target =
          task.scale.empty() ? labels[i] : (labels[i] - task.shift[i % width]) / task.scale[i % width];
      sum += task.loss == Loss::kL1 ? std::abs(x - target) : (x - target) * (x - target);
    }
  }
  return sum / std::max(known, 1.0);
}

}  // namespace san
