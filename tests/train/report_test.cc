#include "san/train/report.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>

#include "san/base/random.h"
#include "san/train/charts.h"
#include "san/train/metrics.h"
#include "tests/testing.h"

namespace san {
namespace {

using testing::error_of;

constexpr double kMissing = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

size_t count(std::string_view text, std::string_view piece) {
  size_t found = 0;
  for (size_t at = text.find(piece); at != std::string_view::npos; at = text.find(piece, at + piece.size())) ++found;
  return found;
}

bool has(std::string_view text, std::string_view piece) {
  return text.find(piece) != std::string_view::npos;
}

bool has_id(std::string_view page, const std::string& id) {
  return has(page, " id=\"" + id + "\"");
}

// The element with that id up to `end`.
std::string element(std::string_view page, const std::string& id, std::string_view end = "</svg>") {
  const size_t at = page.find(" id=\"" + id + "\"");
  if (at == std::string_view::npos) {
    ADD_FAILURE() << "no element " << id;
    return {};
  }
  return std::string(page.substr(at, page.find(end, at) - at));
}

// Every tag that is opened is closed, in order, and no text holds a stray "<": what a browser does not tell.
::testing::AssertionResult well_formed(std::string_view page) {
  static constexpr std::string_view kVoid[] = {"!DOCTYPE", "meta", "link", "br"};
  std::vector<std::string> open;
  for (size_t at = page.find('<'); at != std::string_view::npos; at = page.find('<', at + 1)) {
    const size_t end = page.find('>', at);
    if (end == std::string_view::npos) return ::testing::AssertionFailure() << "a tag without end";
    const std::string_view tag = page.substr(at + 1, end - at - 1);
    const std::string name(tag.substr(0, tag.find_first_of(" \n/", 1)));
    if (tag.ends_with('/') || std::find(std::begin(kVoid), std::end(kVoid), name) != std::end(kVoid)) continue;
    if (!tag.starts_with('/')) {
      open.push_back(name);
    } else if (open.empty() || "/" + open.back() != tag) {
      return ::testing::AssertionFailure() << "<" << tag << "> closes " << (open.empty() ? "nothing" : open.back());
    } else {
      open.pop_back();
    }
  }
  if (!open.empty()) return ::testing::AssertionFailure() << open.back() << " stays open";
  return ::testing::AssertionSuccess();
}

std::string render(const ReportInput& input) {
  const std::string page = render_report(input);
  EXPECT_TRUE(well_formed(page));
  // No number may reach a drawing unformatted.
  EXPECT_FALSE(has(page, "\"nan") || has(page, "nan\"") || has(page, "inf\"") || has(page, " nan") || has(page, "NaN"));
  return page;
}

void add_epochs(ReportInput& input, int64_t epochs, const std::string& metric) {
  for (int64_t epoch = 1; epoch <= epochs; ++epoch) {
    EpochRecord record;
    record.epoch = epoch;
    record.seconds = static_cast<double>(epoch) * 2;
    record.learning_rate = 1e-3;
    record.train_loss = 1.0 / static_cast<double>(epoch);
    record.valid_loss = 1.1 / static_cast<double>(epoch);
    record.train_metrics = record.valid_metrics = {{metric, 0.5}};
    input.epochs.push_back(record);
  }
  input.best_epoch = epochs;
}

ReportInput regression(int rows, int outputs = 1) {
  ReportInput input;
  input.title = "A run";
  input.command = "san train --data a.csv";
  input.description.task.kind = TaskKind::kRegression;
  input.description.model.outputs = input.label_columns = outputs;
  Random random(1);
  for (int i = 0; i < rows * outputs; ++i) {
    input.test_labels.push_back(random.normal());
    input.test_predictions.push_back(input.test_labels.back() + 0.1 * random.normal());
  }
  input.test_metrics = task_metrics(input.description.task, input.test_labels, input.test_predictions, outputs);
  add_epochs(input, 10, "mae");
  return input;
}

ReportInput binary(int rows, int outputs) {
  ReportInput input = regression(rows, outputs);
  input.description.task.kind = TaskKind::kBinary;
  for (size_t i = 0; i < input.test_labels.size(); ++i) {
    input.test_labels[i] = input.test_labels[i] > 0 ? 1 : 0;
    input.test_predictions[i] = 1 / (1 + std::exp(-input.test_predictions[i]));
  }
  input.test_metrics = task_metrics(input.description.task, input.test_labels, input.test_predictions, outputs);
  return input;
}

ReportInput classes(int outputs) {
  ReportInput input = regression(0);
  input.description.task.kind = TaskKind::kNodeClassification;
  input.description.model.outputs = outputs;
  for (int label = 0; label < outputs; ++label) {
    input.test_labels.push_back(label);
    for (int c = 0; c < outputs; ++c) input.test_predictions.push_back(c == label / 2 ? 1 : 0);
  }
  return input;
}

TEST(Report, HasScoreCommandCurvesFactsAndConfiguration) {
  ReportInput input = regression(20);
  input.model = {{"parameters", "454,753"}};
  input.data = {{"rows", "20"}};
  input.environment = {{"threads", "2"}};
  input.config_toml = "[model]\nlayers = 10\n";
  input.test_metrics = {{"mae", 0.123456}, {"rmse", 0.2}};
  const std::string page = render(input);
  EXPECT_TRUE(page.starts_with("<!DOCTYPE html>"));
  EXPECT_TRUE(has(page, "<title>A run</title>"));
  EXPECT_TRUE(has(element(page, "test-score", "</div>"), "Test MAE</span><b>0.1235</b><span>lower is better"));
  EXPECT_TRUE(has(element(page, "command", "</code>"), "san train --data a.csv"));
  for (const char* id : {"curve-loss", "curve-metric", "curve-learning-rate", "metrics", "facts-model", "facts-data",
                         "facts-environment", "config", "scatter-0", "residuals-0"}) {
    EXPECT_TRUE(has_id(page, id)) << id;
  }
  EXPECT_EQ(count(element(page, "curve-loss"), "class=\"line "), 2u);
  EXPECT_EQ(count(element(page, "curve-metric"), "class=\"line "), 2u);  // no test metrics by epoch: no third line
  EXPECT_TRUE(has(element(page, "config", "</details>"), "layers = 10"));
}

TEST(Report, LoadsNothing) {
  const std::string page = render(regression(20));
  EXPECT_FALSE(has(page, "src="));
  EXPECT_FALSE(has(page, "url("));
  EXPECT_EQ(count(page, "href="), 1u);                                                       // the empty icon
  EXPECT_EQ(count(page, "http"), 1u + count(page, "xmlns=\"http://www.w3.org/2000/svg\""));  // http-equiv
  EXPECT_TRUE(has(page, "default-src 'none'"));
}

TEST(Report, IsTheSameForTheSameRun) {
  EXPECT_EQ(render(regression(6000)), render(regression(6000)));
}

TEST(Report, MarksTheBestEpochInEveryCurve) {
  ReportInput input = regression(20);
  input.best_epoch = 4;
  const std::string page = render(input);
  EXPECT_EQ(count(page, "best: 4<"), 3u);
  EXPECT_TRUE(has(page, "4 of 10"));
  EXPECT_EQ(count(element(page, "curve-loss"), "class=\"ring "), 2u);
  input.best_epoch = -1;
  EXPECT_FALSE(has(render(input), "class=\"best\""));
  input.best_epoch = 99;  // not among the epochs: nothing to mark
  EXPECT_FALSE(has(render(input), "class=\"best\""));
}

TEST(Report, EscapesEveryStringFromOutside) {
  const std::string bad = "<script>alert('x')</script>\"'&\x01";
  ReportInput input = regression(3);
  input.title = input.command = input.config_toml = bad;
  input.model = input.data = input.environment = {{bad, bad}};
  input.description.task.targets = {bad};
  input.description.task.classes = {bad, bad};
  input.test_ids = {bad, bad, bad};
  for (EpochRecord& epoch : input.epochs) epoch.train_metrics = epoch.valid_metrics = epoch.test_metrics = {{bad, 1}};
  input.test_metrics = {{bad, 1}, {bad + "2", 2}};
  const auto check = [](const ReportInput& report) {
    const std::string page = render(report);
    EXPECT_EQ(count(page, "<script"), 1u);
    EXPECT_FALSE(has(page, "alert('x')"));
    EXPECT_FALSE(has(page, "\x01"));
    EXPECT_TRUE(has(page, "&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;&quot;&#39;&amp;\xEF\xBF\xBD"));
  };
  check(input);
  ReportInput tasks = binary(20, 2), single = binary(20, 1), nodes = classes(2);
  for (ReportInput* other : {&tasks, &single, &nodes}) {
    other->title = bad;
    other->description.task.targets = {bad, bad};
    other->description.task.classes = {bad, bad};
    check(*other);
  }
}

TEST(Report, StandsZeroEpochsAndNoTestPart) {
  const std::string page = render(ReportInput{});
  EXPECT_TRUE(has(page, "No epoch was finished."));
  EXPECT_TRUE(has(page, "No labelled test rows."));
  EXPECT_FALSE(has(page, "<svg"));
}

TEST(Report, DrawsOneEpochAsDots) {
  ReportInput input = regression(5);
  input.epochs.resize(1);
  input.best_epoch = 1;
  const std::string loss = element(render(input), "curve-loss");
  EXPECT_EQ(count(loss, "h0\"/>"), 2u);
}

TEST(Report, WithoutTestScoreShowsTheValidationScore) {
  ReportInput input = regression(0);
  input.test_metrics.clear();
  EXPECT_TRUE(has(element(render(input), "test-score", "</div>"), "Validation MAE</span><b>0.5000</b>"));
}

TEST(Report, StandsNanAndInfiniteValues) {
  ReportInput input = regression(10);
  input.epochs[3].train_loss = kMissing;
  input.epochs[4].valid_loss = kInfinity;
  input.epochs[5].learning_rate = -kInfinity;
  input.test_predictions[0] = kInfinity;
  input.test_predictions[1] = kMissing;
  input.test_predictions[2] = 1e300;
  input.test_labels[3] = kMissing;
  input.test_metrics = {{"mae", kMissing}, {"rmse", kInfinity}};
  const std::string page = render(input);
  EXPECT_TRUE(has(element(page, "test-score", "</div>"), "<b>n/a</b>"));
  EXPECT_TRUE(has(page, "2 missing or infinite values are left out."));
  EXPECT_TRUE(has(page, "9 labelled test rows; 3 predictions are not finite"));
  EXPECT_EQ(count(element(page, "scatter-0"), "h0"), 6u);
  // The gap breaks the line in two.
  const std::string loss = element(page, "curve-loss");
  const size_t train = loss.find("line train");
  EXPECT_EQ(count(loss.substr(train, loss.find("/>", train) - train), "M"), 2u);

  for (EpochRecord& epoch : input.epochs) {
    epoch.train_loss = epoch.valid_loss = kMissing;
    epoch.train_metrics = epoch.valid_metrics = {{"mae", kMissing}};
  }
  for (double& value : input.test_predictions) value = kMissing;
  const std::string nothing = render(input);
  EXPECT_TRUE(has(nothing, "No number to draw."));
  EXPECT_TRUE(has(nothing, "None of the 9 predictions is finite."));
}

TEST(Report, UsesALogarithmicScaleOnlyForLargeSpansOfPositiveValues) {
  ReportInput input = regression(5);
  EXPECT_FALSE(has(render(input), "class=\"chart epochs log\""));  // losses span a factor of 11
  input.epochs[0].train_loss = 1000;
  EXPECT_TRUE(has(element(render(input), "curve-loss"), "class=\"chart epochs log\""));
  input.epochs[1].train_loss = 0;
  EXPECT_FALSE(has(render(input), "class=\"chart epochs log\""));
}

TEST(Report, ThinsLongRunsButKeepsTheirSpikes) {
  ReportInput input = regression(5);
  input.epochs.clear();
  add_epochs(input, 100000, "mae");
  for (EpochRecord& epoch : input.epochs) epoch.train_loss = epoch.valid_loss = 1;
  const std::string flat = element(render(input), "curve-loss");
  input.epochs[54321].train_loss = 3;
  const std::string page = render(input);
  const std::string spiked = element(page, "curve-loss");
  EXPECT_LT(page.size(), 500000u);
  EXPECT_EQ(count(spiked, "<rect"), 240u);
  EXPECT_NE(flat, spiked);
  // The axis reaches the spike.
  EXPECT_TRUE(has(spiked, ">3.0</text>"));
  EXPECT_FALSE(has(flat, ">3.0</text>"));
}

TEST(Report, FirstEpochsDoNotPressALongRunFlat) {
  ReportInput input = regression(5);
  input.epochs.clear();
  add_epochs(input, 100, "mae");
  for (EpochRecord& epoch : input.epochs) epoch.train_loss = epoch.valid_loss = 1 + 0.001 * (epoch.epoch % 7);
  input.epochs[0].train_loss = 9;
  const std::string early = element(render(input), "curve-loss");
  EXPECT_TRUE(has(early, ">1.002</text>"));
  EXPECT_FALSE(has(early, ">8</text>"));
  EXPECT_TRUE(has(early, "train 9.000"));  // what the pointer shows stays the value
  EXPECT_TRUE(has(early, "clip-path=\"url(#curve-loss-inside)\""));
  // The best epoch is never outside, nor is a value as far off that comes later.
  input.best_epoch = 1;
  EXPECT_TRUE(has(element(render(input), "curve-loss"), ">8</text>"));
  input.best_epoch = 50;
  std::swap(input.epochs[0].train_loss, input.epochs[5].train_loss);
  EXPECT_TRUE(has(element(render(input), "curve-loss"), ">8</text>"));
}

TEST(Report, RegressionDrawsAtMostSixTargetsAndFiveThousandPoints) {
  const std::string page = render(regression(6000, 8));
  EXPECT_TRUE(has_id(page, "scatter-5"));
  EXPECT_TRUE(has_id(page, "residuals-5"));
  EXPECT_FALSE(has_id(page, "scatter-6"));
  EXPECT_EQ(count(element(page, "scatter-0"), "h0"), 5000u);
  EXPECT_TRUE(has(page, "6,000 labelled test rows, 5,000 of them drawn"));
  EXPECT_TRUE(has(page, "The first 6 of 8 targets are drawn."));
  EXPECT_EQ(count(element(page, "targets", "</table>"), "<tr>"), 9u);
}

TEST(Report, RegressionHistogramCountsEveryResidual) {
  ReportInput input = regression(300);
  input.test_predictions[0] = 1e6;  // in the outermost bar, not a scale of its own
  const std::string histogram = element(render(input), "residuals-0");
  int64_t total = 0;
  for (size_t at = histogram.find(": "); at != std::string::npos; at = histogram.find(": ", at + 1)) {
    total += std::stoll(histogram.substr(at + 2));
  }
  EXPECT_EQ(total, 300);
  EXPECT_GE(count(histogram, "class=\"bar\""), 8u);
}

TEST(Report, RegressionListsTheRowsWithTheLargestErrors) {
  ReportInput input = regression(30);
  for (int i = 0; i < 30; ++i) input.test_ids.push_back("row-" + std::to_string(i));
  input.test_predictions[17] += 50;
  input.test_predictions[3] -= 20;
  const std::string worst = element(render(input), "worst", "</table>");
  EXPECT_LT(worst.find("row-17"), worst.find("row-3<"));
  EXPECT_EQ(count(worst, "<tr>"), 11u);
}

TEST(Report, RegressionStandsEqualLabelsAndTargetsWithoutLabels) {
  ReportInput input = regression(4, 2);
  for (size_t row = 0; row < 4; ++row) {
    input.test_labels[2 * row] = input.test_predictions[2 * row] = 7;
    input.test_labels[2 * row + 1] = kMissing;
  }
  const std::string page = render(input);
  EXPECT_TRUE(has(page, "MAE 0, RMSE 0, R\u00b2 n/a"));
  EXPECT_FALSE(has_id(page, "scatter-1"));
}

TEST(Report, BinaryDrawsBothCurvesWithTheirScores) {
  const ReportInput input = binary(200, 1);
  const std::string page = render(input);
  EXPECT_EQ(count(element(page, "roc"), "class=\"line c0\""), 1u);
  EXPECT_EQ(count(element(page, "precision-recall"), "class=\"line c0\""), 1u);
  EXPECT_TRUE(
      has(element(page, "tasks", "</table>"), charts::number(roc_auc(input.test_labels, input.test_predictions))));
  EXPECT_TRUE(has_id(page, "confusion"));
}

TEST(Report, BinaryDrawsAtMostTwelveTasksAndListsThemAll) {
  ReportInput input = binary(100, 20);
  for (size_t row = 0; row < 100; ++row) {
    input.test_labels[row * 20 + 2] = 0;         // one class
    input.test_labels[row * 20 + 4] = kMissing;  // none
  }
  const std::string page = render(input);
  EXPECT_EQ(count(element(page, "roc"), "class=\"line "), 12u);
  EXPECT_FALSE(has(element(page, "roc"), "<title>y2<"));
  EXPECT_TRUE(has(element(page, "roc"), "<title>y13<"));
  EXPECT_EQ(count(element(page, "tasks", "</table>"), "<tr>"), 21u);
  EXPECT_EQ(count(element(page, "tasks", "</table>"), "n/a"), 4u);
  EXPECT_TRUE(has(page, "The first 12 of 18 tasks that have both classes are drawn."));
}

TEST(Report, BinaryWithoutBothClassesSaysSo) {
  ReportInput input = binary(10, 1);
  for (double& label : input.test_labels) label = 1;
  const std::string page = render(input);
  EXPECT_FALSE(has_id(page, "roc"));
  EXPECT_TRUE(has(page, "No task has both classes"));
}

TEST(Report, BinaryCurvesOfManyThresholdsStaySmall) {
  EXPECT_LT(element(render(binary(200000, 1)), "roc").size(), 30000u);
}

TEST(Report, ClassesShowCountsAndRowPercentages) {
  ReportInput input = classes(2);
  input.description.task.classes = {"inside", "outside"};
  // Labels 0 0 0 1, predictions 0 0 1 1.
  input.test_labels = {0, 0, 0, 1, kMissing};
  input.test_predictions = {.9, .1, .8, .2, .3, .7, .4, .6, 1, 0};
  const std::string matrix = element(render(input), "confusion");
  EXPECT_TRUE(has(matrix, "true inside, predicted inside: 2 (66.7 %)"));
  EXPECT_TRUE(has(matrix, "true inside, predicted outside: 1 (33.3 %)"));
  EXPECT_TRUE(has(matrix, "true outside, predicted inside: 0 (0.0 %)"));
  EXPECT_TRUE(has(matrix, "true outside, predicted outside: 1 (100.0 %)"));
  EXPECT_TRUE(has(matrix, ">66.7%</text>"));
}

TEST(Report, ClassesWithoutLabelsHaveNoRecall) {
  ReportInput input = classes(3);
  input.test_labels = {0, 0, 0};
  const std::string rows = element(render(input), "classes", "</table>");
  EXPECT_TRUE(has(rows, "<th scope=\"row\">2</th><td>0</td><td>n/a</td><td>n/a</td><td>n/a</td>")) << rows;
}

TEST(Report, ManyClassesStayReadable) {
  for (const int number : {1, 12, 13, 21, 41, 100}) {
    EXPECT_EQ(count(element(render(classes(number)), "confusion"), "class=\"cell"),
              static_cast<size_t>(number) * static_cast<size_t>(number));
  }
  const std::string page = render(classes(150));
  EXPECT_TRUE(has(page, "The first 100 of 150 classes are drawn."));
  EXPECT_EQ(count(element(page, "classes", "</table>"), "<tr>"), 151u);
}

TEST(Report, RefusesArraysThatDoNotFit) {
  ReportInput input = regression(4, 2);
  input.test_predictions.pop_back();
  EXPECT_EQ(error_of([&] { render_report(input); }), "report: 7 test predictions for 4 rows of 2 outputs");
  input = regression(4, 2);
  input.label_columns = 3;
  EXPECT_EQ(error_of([&] { render_report(input); }), "report: 8 test labels are not rows of 3 columns");
  input = regression(4);
  input.description.task.kind = TaskKind::kMulticlass;
  input.description.model.outputs = 2;
  input.test_predictions.resize(8);
  input.test_labels = {0, 1, 2, 0};
  EXPECT_EQ(error_of([&] { render_report(input); }), "label 2 is not a class of 0 .. 1");
  input = regression(4);
  input.test_ids = {"a"};
  EXPECT_EQ(error_of([&] { render_report(input); }), "report: 1 ids for 4 test rows");
}

TEST(Charts, NumbersAreShortAndReadable) {
  EXPECT_EQ(charts::number(0.123456), "0.1235");
  EXPECT_EQ(charts::number(12.3456), "12.35");
  EXPECT_EQ(charts::number(123456), "123456");
  EXPECT_EQ(charts::number(-0.00123456), "-0.001235");
  EXPECT_EQ(charts::number(1.5e-7), "1.50e-7");
  EXPECT_EQ(charts::number(1e12), "1.00e12");
  EXPECT_EQ(charts::number(0), "0");
  EXPECT_EQ(charts::number(kMissing), "n/a");
  EXPECT_EQ(charts::grouped(1234567), "1,234,567");
  EXPECT_EQ(charts::grouped(-123), "-123");
  EXPECT_EQ(charts::grouped(-1234), "-1,234");
  EXPECT_EQ(charts::grouped(0), "0");
}

TEST(Charts, ShorteningKeepsWholeCharacters) {
  EXPECT_EQ(charts::shorten("\xc3\xa9\xc3\xa9\xc3\xa9", 2), "\xc3\xa9\xc3\xa9\u2026");
  EXPECT_EQ(charts::shorten("abc", 3), "abc");
  EXPECT_EQ(charts::shorten("", 0), "");
}

TEST(Charts, AxesStandExtremeRanges) {
  const double tiny = std::numeric_limits<double>::denorm_min();
  const std::vector<std::vector<double>> cases = {{0, 0}, {tiny, 2 * tiny}, {-9e99, 9e99},    {1e-300, 9e99},
                                                  {5, 5}, {1, 1 + 1e-15},   {1e15, 1e15 + 1}, {-1e-300, 0}};
  for (const auto& values : cases) {
    ReportInput input = regression(2);
    input.epochs.resize(2);
    for (size_t i = 0; i < 2; ++i) input.epochs[i].train_loss = input.epochs[i].valid_loss = values[i];
    input.test_labels = input.test_predictions = values;
    const std::string page = render(input);
    EXPECT_LT(count(element(page, "curve-loss"), "class=\"tick\""), 60u);
    EXPECT_GE(count(element(page, "curve-loss"), "class=\"tick\""), 2u);
  }
}

}  // namespace
}  // namespace san
