#include "san/train/metrics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "san/base/error.h"

namespace san {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

// Calls visit(label, prediction) for every labelled entry of one column (or of all, with columns = 1).
template <typename Visit>
void for_labelled(std::span<const double> labels, std::span<const double> predictions, size_t column, size_t columns,
                  Visit visit) {
  for (size_t i = column; i < labels.size(); i += columns) {
    if (!std::isnan(labels[i])) visit(labels[i], predictions[i]);
  }
}

void check_table(std::span<const double> labels, std::span<const double> predictions, int columns) {
  SAN_CHECK(columns > 0, "metrics need at least one column, not {}", columns);
  SAN_CHECK(labels.size() == predictions.size(), "{} labels for {} predictions", labels.size(), predictions.size());
  SAN_CHECK(labels.size() % static_cast<size_t>(columns) == 0, "{} labels are not rows of {} columns", labels.size(),
            columns);
}

double column_r_squared(std::span<const double> labels, std::span<const double> predictions, size_t column,
                        size_t columns) {
  double sum = 0, low = std::numeric_limits<double>::infinity(), high = -low;
  int64_t count = 0;
  for_labelled(labels, predictions, column, columns, [&](double label, double) {
    sum += label;
    low = std::min(low, label);
    high = std::max(high, label);
    ++count;
  });
  // Not "total == 0": the mean of equal labels may be rounded.
  if (count < 2 || low == high) return kNone;
  const double mean = sum / static_cast<double>(count);
  double residual = 0, total = 0;
  for_labelled(labels, predictions, column, columns, [&](double label, double prediction) {
    residual += (label - prediction) * (label - prediction);
    total += (label - mean) * (label - mean);
  });
  return 1 - residual / total;
}

struct Scored {
  double score;
  bool positive;
};

// The labelled rows of one column, highest score first, with the number of each class. Empty when there is no ranking:
// one class only, or a NaN score.
struct Ranking {
  std::vector<Scored> rows;
  uint64_t positives = 0, negatives = 0;
};

Ranking rank_column(std::span<const double> labels, std::span<const double> scores, size_t column, size_t columns) {
  Ranking ranking;
  bool comparable = true;
  for_labelled(labels, scores, column, columns, [&](double label, double score) {
    SAN_CHECK(label == 0 || label == 1, "labels of a binary task are 0 or 1, not {}", label);
    comparable = comparable && !std::isnan(score);
    (label == 1 ? ranking.positives : ranking.negatives) += 1;
    ranking.rows.push_back({score, label == 1});
  });
  if (!comparable || ranking.positives == 0 || ranking.negatives == 0) return {};
  std::sort(ranking.rows.begin(), ranking.rows.end(),
            [](const Scored& a, const Scored& b) { return a.score > b.score; });
  return ranking;
}

// Calls visit(positives, negatives) for every set of equal scores, highest first.
template <typename Visit>
void for_thresholds(const Ranking& ranking, Visit visit) {
  for (size_t begin = 0; begin < ranking.rows.size();) {
    uint64_t positives = 0, negatives = 0;
    size_t end = begin;
    for (; end < ranking.rows.size() && ranking.rows[end].score == ranking.rows[begin].score; ++end) {
      (ranking.rows[end].positive ? positives : negatives) += 1;
    }
    visit(positives, negatives);
    begin = end;
  }
}

double ranked_auc(const Ranking& ranking) {
  if (ranking.rows.empty()) return kNone;
  // Twice the number of (positive, negative) pairs in the right order, a tie being half right.
  uint64_t right = 0, below = ranking.negatives;
  for_thresholds(ranking, [&](uint64_t positives, uint64_t negatives) {
    below -= negatives;
    right += positives * (2 * below + negatives);
  });
  return static_cast<double>(right) /
         (2.0 * static_cast<double>(ranking.positives) * static_cast<double>(ranking.negatives));
}

double ranked_precision(const Ranking& ranking) {
  if (ranking.rows.empty()) return kNone;
  double sum = 0;
  uint64_t found = 0, taken = 0;
  for_thresholds(ranking, [&](uint64_t positives, uint64_t negatives) {
    found += positives;
    taken += positives + negatives;
    sum += static_cast<double>(positives) * (static_cast<double>(found) / static_cast<double>(taken));
  });
  return sum / static_cast<double>(ranking.positives);
}

// Mean of metric(column) over the columns where it exists.
template <typename Metric>
double mean_over_columns(int columns, Metric metric) {
  double sum = 0;
  int count = 0;
  for (size_t column = 0; column < static_cast<size_t>(columns); ++column) {
    const double value = metric(column);
    if (std::isnan(value)) continue;
    sum += value;
    ++count;
  }
  return count == 0 ? kNone : sum / count;
}

// Whether a labelled prediction is NaN.
bool diverged(std::span<const double> labels, std::span<const double> predictions) {
  const size_t width = labels.empty() ? 1 : predictions.size() / labels.size();
  for (size_t i = 0; i < labels.size(); ++i) {
    if (std::isnan(labels[i])) continue;
    for (size_t c = 0; c < width; ++c) {
      if (std::isnan(predictions[i * width + c])) return true;
    }
  }
  return false;
}

// The confusion matrix with what the class metrics need of it.
struct Classified {
  std::vector<int64_t> matrix;
  int64_t rows = 0, right = 0;
  size_t classes;

  int64_t labelled(size_t c) const {
    return std::accumulate(matrix.begin() + static_cast<ptrdiff_t>(c * classes),
                           matrix.begin() + static_cast<ptrdiff_t>((c + 1) * classes), int64_t{0});
  }
  int64_t predicted(size_t c) const {
    int64_t sum = 0;
    for (size_t label = 0; label < classes; ++label) sum += matrix[label * classes + c];
    return sum;
  }
  int64_t hit(size_t c) const { return matrix[c * classes + c]; }
};

Classified classify(std::span<const double> labels, std::span<const double> scores, int classes) {
  // 2^12 classes are a matrix of 128 MB.
  SAN_CHECK(classes > 0 && classes <= 4096, "{} classes: between 1 and 4096 can be counted", classes);
  const auto width = static_cast<size_t>(classes);
  SAN_CHECK(scores.size() % width == 0 && scores.size() / width == labels.size(),
            "{} labels for {} scores of {} classes", labels.size(), scores.size(), classes);
  Classified out{std::vector<int64_t>(width * width), 0, 0, width};
  for (size_t i = 0; i < labels.size(); ++i) {
    if (std::isnan(labels[i])) continue;
    SAN_CHECK(labels[i] >= 0 && labels[i] < classes && labels[i] == std::floor(labels[i]),
              "label {} is not a class of 0 .. {}", labels[i], classes - 1);
    const auto row = scores.subspan(i * width, width);
    if (std::any_of(row.begin(), row.end(), [](double score) { return std::isnan(score); })) continue;
    const auto label = static_cast<size_t>(labels[i]);
    const auto guess = static_cast<size_t>(std::max_element(row.begin(), row.end()) - row.begin());
    out.matrix[label * width + guess] += 1;
    out.rows += 1;
    out.right += label == guess ? 1 : 0;
  }
  return out;
}

double class_accuracy(const Classified& counts) {
  return counts.rows == 0 ? kNone : static_cast<double>(counts.right) / static_cast<double>(counts.rows);
}

double recall_percent(const Classified& counts, bool predicted_too) {
  double sum = 0;
  int64_t present = 0;
  for (size_t c = 0; c < counts.classes; ++c) {
    const int64_t labelled = counts.labelled(c);
    if (labelled > 0) sum += static_cast<double>(counts.hit(c)) / static_cast<double>(labelled);
    present += labelled > 0 || (predicted_too && counts.predicted(c) > 0) ? 1 : 0;
  }
  return present == 0 ? kNone : 100 * sum / static_cast<double>(present);
}

// Share of labelled entries on the right side of 0.5.
double binary_accuracy(std::span<const double> labels, std::span<const double> probabilities) {
  int64_t count = 0, right = 0;
  for_labelled(labels, probabilities, 0, 1, [&](double label, double probability) {
    ++count;
    right += (probability > 0.5) == (label == 1) ? 1 : 0;
  });
  return count == 0 || diverged(labels, probabilities) ? kNone
                                                       : static_cast<double>(right) / static_cast<double>(count);
}

}  // namespace

double mean_absolute_error(std::span<const double> labels, std::span<const double> predictions) {
  check_table(labels, predictions, 1);
  double sum = 0;
  int64_t count = 0;
  for_labelled(labels, predictions, 0, 1, [&](double label, double prediction) {
    sum += std::abs(label - prediction);
    ++count;
  });
  return count == 0 ? kNone : sum / static_cast<double>(count);
}

double root_mean_squared_error(std::span<const double> labels, std::span<const double> predictions) {
  check_table(labels, predictions, 1);
  double sum = 0;
  int64_t count = 0;
  for_labelled(labels, predictions, 0, 1, [&](double label, double prediction) {
    sum += (label - prediction) * (label - prediction);
    ++count;
  });
  return count == 0 ? kNone : std::sqrt(sum / static_cast<double>(count));
}

double r_squared(std::span<const double> labels, std::span<const double> predictions, int columns) {
  check_table(labels, predictions, columns);
  if (diverged(labels, predictions)) return kNone;
  return mean_over_columns(columns, [&](size_t column) {
    return column_r_squared(labels, predictions, column, static_cast<size_t>(columns));
  });
}

double roc_auc(std::span<const double> labels, std::span<const double> scores) {
  return mean_roc_auc(labels, scores, 1);
}

double average_precision(std::span<const double> labels, std::span<const double> scores) {
  return mean_average_precision(labels, scores, 1);
}

double mean_roc_auc(std::span<const double> labels, std::span<const double> scores, int columns) {
  check_table(labels, scores, columns);
  if (diverged(labels, scores)) return kNone;
  return mean_over_columns(columns, [&](size_t column) {
    return ranked_auc(rank_column(labels, scores, column, static_cast<size_t>(columns)));
  });
}

double mean_average_precision(std::span<const double> labels, std::span<const double> scores, int columns) {
  check_table(labels, scores, columns);
  if (diverged(labels, scores)) return kNone;
  return mean_over_columns(columns, [&](size_t column) {
    return ranked_precision(rank_column(labels, scores, column, static_cast<size_t>(columns)));
  });
}

double accuracy(std::span<const double> labels, std::span<const double> scores, int classes) {
  const Classified counts = classify(labels, scores, classes);
  return diverged(labels, scores) ? kNone : class_accuracy(counts);
}

double mean_class_recall(std::span<const double> labels, std::span<const double> scores, int classes) {
  const Classified counts = classify(labels, scores, classes);
  return diverged(labels, scores) ? kNone : recall_percent(counts, false);
}

double published_sbm_accuracy(std::span<const double> labels, std::span<const double> scores, int classes) {
  const Classified counts = classify(labels, scores, classes);
  return diverged(labels, scores) ? kNone : recall_percent(counts, true);
}

std::vector<int64_t> confusion_matrix(std::span<const double> labels, std::span<const double> scores, int classes) {
  return classify(labels, scores, classes).matrix;
}

std::vector<std::pair<std::string, double>> task_metrics(const TaskConfig& task, std::span<const double> labels,
                                                         std::span<const double> predictions, int outputs) {
  switch (task.kind) {
    case TaskKind::kRegression: {
      std::vector<std::pair<std::string, double>> metrics = {
          {"mae", mean_absolute_error(labels, predictions)},
          {"rmse", root_mean_squared_error(labels, predictions)},
          {"r2", r_squared(labels, predictions, outputs)},
      };
      if (task.loss == Loss::kMse) std::swap(metrics[0], metrics[1]);
      return metrics;
    }
    case TaskKind::kBinary:
      return {{"roc_auc", mean_roc_auc(labels, predictions, outputs)},
              {"average_precision", mean_average_precision(labels, predictions, outputs)},
              {"accuracy", binary_accuracy(labels, predictions)}};
    case TaskKind::kMulticlass:
    case TaskKind::kNodeClassification: {
      const Classified counts = classify(labels, predictions, outputs);
      const bool none = diverged(labels, predictions);
      std::vector<std::pair<std::string, double>> metrics = {
          {"accuracy", none ? kNone : class_accuracy(counts)},
          {"mean_class_recall", none ? kNone : recall_percent(counts, false)}};
      if (task.kind == TaskKind::kNodeClassification) std::swap(metrics[0], metrics[1]);
      return metrics;
    }
  }
  return {};
}

void BatchMeans::add(const TaskConfig& task, std::span<const double> labels, std::span<const double> predictions,
                     int outputs) {
  if (task.kind == TaskKind::kNodeClassification) {
    name_ = "sbm_accuracy";
    sum_ += published_sbm_accuracy(labels, predictions, outputs);
  } else if (task.kind == TaskKind::kRegression) {
    name_ = "mae";
    sum_ += mean_absolute_error(labels, predictions);
  }
  ++batches_;
}

std::vector<std::pair<std::string, double>> BatchMeans::means() const {
  if (name_.empty()) return {};
  return {{name_, sum_ / static_cast<double>(batches_)}};
}

bool larger_is_better(std::string_view metric) {
  return metric != "mae" && metric != "rmse" && metric != "mse" && metric != "loss" && !metric.ends_with("_loss");
}

}  // namespace san
