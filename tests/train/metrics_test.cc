// Expected values are scikit-learn 1.2.1's (Debian's python3-sklearn), printed with repr() on the arrays below:
// roc_auc_score, average_precision_score, mean_absolute_error, mean_squared_error(squared=False), r2_score, accuracy_score,
// 100 * balanced_accuracy_score, 100 * recall_score(average="macro", zero_division=0); with missing labels, on the rows
// that have one; over tasks, numpy's mean of the tasks with both classes.
#include "san/train/metrics.h"

#include <cmath>
#include <limits>

#include "tests/testing.h"

namespace san {
namespace {

using testing::error_of;
using Values = std::vector<double>;

constexpr double kMissing = std::numeric_limits<double>::quiet_NaN();
// Sums of at most 5,000 terms of order 1, each side rounding in its own order: 5,000 * 2^-53 = 6e-13.
constexpr double kTolerance = 1e-12;

const Values kLabels = {0, 0, 1, 1, 0, 1, 0, 1, 1, 0};

// Four tasks of eight rows: both classes, one class, one class with gaps, both with gaps.
const Values kTaskLabels = {
    0,        1,        kMissing, 1,         //
    1,        1,        0,        kMissing,  //
    0,        1,        kMissing, 0,         //
    1,        kMissing, 0,        0,         //
    kMissing, 1,        0,        1,         //
    0,        1,        0,        1,         //
    1,        1,        kMissing, 0,         //
    1,        1,        0,        kMissing,
};
const Values kTaskScores = {
    .2, .9, .1, .6,  //
    .7, .3, .2, .5,  //
    .7, .5, .3, .4,  //
    .6, .1, .4, .6,  //
    .9, .2, .5, .3,  //
    .1, .6, .6, .9,  //
    .4, .7, .7, .6,  //
    .8, .8, .8, .1,
};

// Class 2 is predicted but never a label; rows 3, 6, 7 and 8 have equal best scores; row 10 has no label.
const Values kClassLabels = {0, 0, 1, 1, 1, 3, 3, 0, 1, 3, kMissing, 3};
const Values kClassScores = {
    .7,  .1,  .1,  .1,   //
    .2,  .5,  .2,  .1,   //
    .1,  .8,  .05, .05,  //
    .3,  .3,  .2,  .2,   //
    .1,  .2,  .6,  .1,   //
    0,   0,   .1,  .9,   //
    .25, .25, .25, .25,  //
    .4,  .1,  .1,  .4,   //
    .1,  .4,  .4,  .1,   //
    .1,  .1,  .1,  .7,   //
    1,   0,   0,   0,    //
    0,   .2,  .1,  .7,
};

const Values kTrue = {3, -.5, 2, 0, 7, kMissing, kMissing, 1, 4.5, 2.25};
const Values kPredicted = {2.5, 0, 0, .25, 8, 9, 1, .5, 4.5, 2};

TEST(RegressionMetrics, AverageOverLabelledEntriesLikeScikitLearn) {
  EXPECT_NEAR(mean_absolute_error(kTrue, kPredicted), 0.625, kTolerance);
  EXPECT_NEAR(root_mean_squared_error(kTrue, kPredicted), 0.8569568250501305, kTolerance);
}

TEST(RegressionMetrics, RSquaredIsTheMeanOverColumns) {
  // Columns: 0.6299559471365639 and 0.8586572438162544.
  EXPECT_NEAR(r_squared(kTrue, kPredicted, 2), 0.7443065954764092, kTolerance);
  EXPECT_NEAR(r_squared(Values{1, 2, 3}, Values{3, 2, 1}, 1), -3.0, kTolerance);
  EXPECT_NEAR(r_squared(Values{3, 2, 7, 4.5}, Values{2, 2, 2, 2}, 1), -1.2731277533039647, kTolerance);
  EXPECT_EQ(r_squared(Values{1, 2, 3}, Values{1, 2, 3}, 1), 1.0);
}

TEST(RegressionMetrics, RSquaredLeavesOutColumnsThatDoNotVary) {
  // 0.1 + 0.1 + 0.1 over 3 is not 0.1 in binary: equality is judged by the labels, not by their rounded variance.
  EXPECT_TRUE(std::isnan(r_squared(Values{0.1, 0.1, 0.1}, Values{0.1, 0.2, 0.3}, 1)));
  EXPECT_NEAR(r_squared(Values{1, 0.1, 2, 0.1, 3, 0.1}, Values{3, 0, 2, 0, 1, 0}, 2), -3.0, kTolerance);
  EXPECT_TRUE(std::isnan(r_squared(Values{5}, Values{5}, 1)));
}

TEST(RegressionMetrics, SingleRowHasAnErrorAndNoLabelsHaveNone) {
  EXPECT_EQ(mean_absolute_error(Values{2}, Values{-1}), 3.0);
  EXPECT_EQ(root_mean_squared_error(Values{2}, Values{-1}), 3.0);
  EXPECT_TRUE(std::isnan(mean_absolute_error(Values{kMissing}, Values{1})));
  EXPECT_TRUE(std::isnan(root_mean_squared_error({}, {})));
}

TEST(Metrics, NanPredictionsOfLabelledRowsGiveNan) {
  EXPECT_TRUE(std::isnan(mean_absolute_error(Values{1, 2}, Values{1, kMissing})));
  EXPECT_TRUE(std::isnan(r_squared(Values{1, 2, 2, 3}, Values{1, kMissing, 2, 3}, 2)));
  EXPECT_TRUE(std::isnan(roc_auc(Values{0, 1, 1}, Values{.1, kMissing, .3})));
  EXPECT_TRUE(std::isnan(mean_average_precision(Values{0, 0, 1, 1}, Values{.1, kMissing, .3, .2}, 2)));
  EXPECT_TRUE(std::isnan(accuracy(Values{0, 1}, Values{.1, .9, kMissing, .5}, 2)));
  EXPECT_TRUE(std::isnan(mean_class_recall(Values{0, 1}, Values{.1, .9, kMissing, .5}, 2)));
  // Where there is no label, the prediction does not matter.
  EXPECT_EQ(mean_absolute_error(Values{1, kMissing}, Values{1, kMissing}), 0.0);
  EXPECT_EQ(accuracy(Values{0, kMissing}, Values{.9, .1, kMissing, .5}, 2), 1.0);
  EXPECT_EQ(roc_auc(Values{0, 1, kMissing}, Values{.1, .2, kMissing}), 1.0);
}

TEST(RankingMetrics, TiesAreOneThreshold) {
  const Values scores = {.1, .4, .35, .8, .4, .4, .7, .9, .35, .05};
  EXPECT_NEAR(roc_auc(kLabels, scores), 0.68, kTolerance);
  EXPECT_NEAR(average_precision(kLabels, scores), 0.75, kTolerance);
}

TEST(RankingMetrics, ConstantScoresKnowNothing) {
  EXPECT_EQ(roc_auc(kLabels, Values(10, .3)), 0.5);
  EXPECT_EQ(average_precision(kLabels, Values(10, .3)), 0.5);  // the share of positives
}

TEST(RankingMetrics, PerfectAndInvertedRankings) {
  EXPECT_EQ(roc_auc(kLabels, kLabels), 1.0);
  EXPECT_EQ(average_precision(kLabels, kLabels), 1.0);
  const Values inverted = {5, 6, 1, 2, 7, 3, 8, 4, .5, 9};
  EXPECT_EQ(roc_auc(kLabels, inverted), 0.0);
  EXPECT_NEAR(average_precision(kLabels, inverted), 0.3543650793650793, kTolerance);
}

TEST(RankingMetrics, FiveThousandRowsWithThirtyOneLevels) {
  Values labels, scores;
  for (int i = 0; i < 5000; ++i) {
    const int label = (static_cast<int64_t>(i) * i + 3 * i) % 7 < 3 ? 1 : 0;
    labels.push_back(label);
    scores.push_back(i * 37 % 101 / 4 + 5 * label * (i % 5 / 3));
  }
  EXPECT_NEAR(roc_auc(labels, scores), 0.5709461902398196, kTolerance);
  EXPECT_NEAR(average_precision(labels, scores), 0.3892934546045298, kTolerance);
}

TEST(RankingMetrics, ScoresMayBeInfiniteAndSignedZerosAreEqual) {
  const double inf = std::numeric_limits<double>::infinity();
  EXPECT_EQ(roc_auc(Values{0, 1, 0, 1}, Values{-inf, inf, 0, 5}), 1.0);
  EXPECT_EQ(roc_auc(Values{0, 1}, Values{-0.0, 0.0}), 0.5);
}

TEST(RankingMetrics, OneClassOrOneRowOrNoLabelHasNone) {
  EXPECT_TRUE(std::isnan(roc_auc(Values{1, 1}, Values{.1, .2})));
  EXPECT_TRUE(std::isnan(average_precision(Values{0, 0}, Values{.1, .2})));
  EXPECT_TRUE(std::isnan(average_precision(Values{1, 1}, Values{.1, .2})));
  EXPECT_TRUE(std::isnan(roc_auc(Values{1}, Values{.1})));
  EXPECT_TRUE(std::isnan(roc_auc(Values{kMissing, 0}, Values{.1, .2})));
  EXPECT_TRUE(std::isnan(mean_roc_auc({}, {}, 3)));
}

TEST(RankingMetrics, TasksWithBothClassesAreAveraged) {
  // Tasks 0 and 3: AUC 0.7916666666666667 and 0.5555555555555556, AP 0.8041666666666667 and 0.6666666666666667.
  EXPECT_NEAR(mean_roc_auc(kTaskLabels, kTaskScores, 4), 0.6736111111111112, kTolerance);
  EXPECT_NEAR(mean_average_precision(kTaskLabels, kTaskScores, 4), 0.7354166666666667, kTolerance);
}

TEST(RankingMetrics, RefuseLabelsThatAreNotBinary) {
  EXPECT_EQ(error_of([] { roc_auc(Values{0, 2}, Values{.1, .2}); }), "labels of a binary task are 0 or 1, not 2");
  EXPECT_EQ(error_of([] { roc_auc(Values{0, 1}, Values{.1}); }), "2 labels for 1 predictions");
  EXPECT_EQ(error_of([] {
              mean_roc_auc(Values{0, 1, 1}, Values{.1, .2, .3}, 2);
            }),
            "3 labels are not rows of 2 columns");
}

TEST(ClassMetrics, AccuracyTakesTheFirstOfEqualScores) {
  EXPECT_NEAR(accuracy(kClassLabels, kClassScores, 4), 0.6363636363636364, kTolerance);
}

TEST(ClassMetrics, RecallIsAveragedOverTheClassesAmongTheLabels) {
  EXPECT_NEAR(mean_class_recall(kClassLabels, kClassScores, 4), 63.888888888888886, 100 * kTolerance);
}

TEST(ClassMetrics, PublishedAccuracyCountsPredictedClassesWithoutLabelsAsZero) {
  // Macro recall over the union of labels and predictions.
  EXPECT_NEAR(published_sbm_accuracy(kClassLabels, kClassScores, 4), 47.916666666666664, 100 * kTolerance);
  // Class 2 neither predicted nor a label: left out, so both forms agree.
  const Values labels = {0, 1, 1}, scores = {.9, .1, 0, .2, .8, 0, .7, .3, 0};
  EXPECT_EQ(published_sbm_accuracy(labels, scores, 3), 75.0);
  EXPECT_EQ(mean_class_recall(labels, scores, 3), 75.0);
}

TEST(ClassMetrics, ConfusionMatrixHasLabelsInRows) {
  EXPECT_EQ(confusion_matrix(kClassLabels, kClassScores, 4),
            (std::vector<int64_t>{2, 1, 0, 0, 1, 2, 1, 0, 0, 0, 0, 0, 1, 0, 0, 3}));
}

TEST(ClassMetrics, NoLabelsHaveNoAccuracy) {
  EXPECT_TRUE(std::isnan(accuracy(Values{kMissing}, Values{.5, .5}, 2)));
  EXPECT_TRUE(std::isnan(mean_class_recall({}, {}, 2)));
  EXPECT_TRUE(std::isnan(published_sbm_accuracy({}, {}, 2)));
}

TEST(ClassMetrics, RefuseLabelsThatAreNotClasses) {
  EXPECT_EQ(error_of([] { accuracy(Values{2}, Values{.5, .5}, 2); }), "label 2 is not a class of 0 .. 1");
  EXPECT_EQ(error_of([] { accuracy(Values{-1}, Values{.5, .5}, 2); }), "label -1 is not a class of 0 .. 1");
  EXPECT_EQ(error_of([] { accuracy(Values{.5}, Values{.5, .5}, 2); }), "label 0.5 is not a class of 0 .. 1");
  EXPECT_EQ(error_of([] { accuracy(Values{0, 1}, Values{.5, .5}, 2); }), "2 labels for 2 scores of 2 classes");
  error_of([] { accuracy({}, {}, 0); });
}

TEST(TaskMetrics, TheOneThatChoosesTheModelComesFirst) {
  const auto names = [](TaskKind kind, Loss loss, const Values& labels, const Values& predictions, int outputs) {
    TaskConfig task;
    task.kind = kind;
    task.loss = loss;
    std::string text;
    for (const auto& [name, value] : task_metrics(task, labels, predictions, outputs)) text += name + ' ';
    return text;
  };
  EXPECT_EQ(names(TaskKind::kRegression, Loss::kL1, kTrue, kPredicted, 2), "mae rmse r2 ");
  EXPECT_EQ(names(TaskKind::kRegression, Loss::kMse, kTrue, kPredicted, 2), "rmse mae r2 ");
  EXPECT_EQ(names(TaskKind::kBinary, Loss::kCrossEntropy, kTaskLabels, kTaskScores, 4),
            "roc_auc average_precision accuracy ");
  EXPECT_EQ(names(TaskKind::kMulticlass, Loss::kCrossEntropy, kClassLabels, kClassScores, 4),
            "accuracy mean_class_recall ");
  EXPECT_EQ(names(TaskKind::kNodeClassification, Loss::kCrossEntropy, kClassLabels, kClassScores, 4),
            "mean_class_recall accuracy ");
}

TEST(TaskMetrics, HaveTheValuesOfTheirFunctions) {
  TaskConfig task;
  task.kind = TaskKind::kBinary;
  const auto binary = task_metrics(task, kTaskLabels, kTaskScores, 4);
  EXPECT_NEAR(binary[0].second, 0.6736111111111112, kTolerance);
  EXPECT_NEAR(binary[1].second, 0.7354166666666667, kTolerance);
  EXPECT_NEAR(binary[2].second, 0.6, kTolerance);  // accuracy_score(labels, scores > 0.5); two scores are 0.5 exactly
  task.kind = TaskKind::kRegression;
  task.loss = Loss::kMse;
  const auto regression = task_metrics(task, kTrue, kPredicted, 2);
  EXPECT_NEAR(regression[0].second, 0.8569568250501305, kTolerance);
  EXPECT_NEAR(regression[1].second, 0.625, kTolerance);
  EXPECT_NEAR(regression[2].second, 0.7443065954764092, kTolerance);
  task.kind = TaskKind::kNodeClassification;
  const auto nodes = task_metrics(task, kClassLabels, kClassScores, 4);
  EXPECT_NEAR(nodes[0].second, 63.888888888888886, 100 * kTolerance);
  EXPECT_NEAR(nodes[1].second, 0.6363636363636364, kTolerance);
}

TEST(TaskMetrics, KnowWhichWayIsBetter) {
  for (const char* name : {"mae", "rmse", "mse", "loss", "valid_loss"}) EXPECT_FALSE(larger_is_better(name)) << name;
  for (const char* name : {"r2", "roc_auc", "average_precision", "accuracy", "mean_class_recall"}) {
    EXPECT_TRUE(larger_is_better(name)) << name;
  }
}

}  // namespace
}  // namespace san
