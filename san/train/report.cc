#include "san/train/report.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <numeric>
#include <tuple>

#include "san/base/error.h"
#include "san/base/random.h"
#include "san/train/charts.h"
#include "san/train/metrics.h"
#include "san/train/page.h"

namespace san {
namespace {

using charts::escape;
using charts::grouped;
using charts::number;
using charts::shorten;
using page::duration;
using page::figure;
using page::heading_of;
using page::table;
using page::tile;
using page::title_of;
using Metrics = std::vector<std::pair<std::string, double>>;
using Facts = std::vector<std::pair<std::string, std::string>>;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr size_t kScatterPoints = 5000;
constexpr size_t kScatterPanels = 6;
constexpr size_t kRankedTasks = 12;
constexpr size_t kTableRows = 200;
constexpr size_t kConfusionClasses = 100;
constexpr size_t kWorstRows = 10;

template <typename... Args>
void add(std::string& out, fmt::format_string<Args...> format, Args&&... args) {
  fmt::format_to(std::back_inserter(out), format, std::forward<Args>(args)...);
}

double value_of(const Metrics& metrics, const std::string& name) {
  for (const auto& [key, value] : metrics) {
    if (key == name) return value;
  }
  return kNan;
}

class Report {
 public:
  explicit Report(const ReportInput& input) : in_(input), task_(input.description.task) {
    const auto columns = static_cast<size_t>(std::max(0, in_.label_columns));
    outputs_ = static_cast<size_t>(std::max(0, in_.description.model.outputs));
    if (in_.test_labels.empty() && in_.test_predictions.empty()) return;
    SAN_CHECK(columns > 0 && in_.test_labels.size() % columns == 0, "report: {} test labels are not rows of {} columns",
              in_.test_labels.size(), in_.label_columns);
    rows_ = in_.test_labels.size() / columns;
    SAN_CHECK(outputs_ > 0 && in_.test_predictions.size() == rows_ * outputs_,
              "report: {} test predictions for {} rows of {} outputs", in_.test_predictions.size(), rows_, outputs_);
    const bool classes = task_.kind == TaskKind::kMulticlass || task_.kind == TaskKind::kNodeClassification;
    SAN_CHECK(columns == (classes ? 1 : outputs_), "report: {} label columns for {} outputs of a {} task", columns,
              outputs_, enum_name(task_.kind));
    SAN_CHECK(in_.test_ids.empty() || in_.test_ids.size() == rows_, "report: {} ids for {} test rows",
              in_.test_ids.size(), rows_);
  }

  std::string render() const {
    return page::document(title(), header() + "<main>\n" + curves() + test_part() + facts() + config() + "</main>\n");
  }

 private:
  std::string title() const { return in_.title.empty() ? "Training run" : in_.title; }

  // The metric that chose the model.
  std::string main_metric() const { return in_.test_metrics.empty() ? epoch_metric() : in_.test_metrics.front().first; }

  std::string epoch_metric() const {
    for (const EpochRecord& epoch : in_.epochs) {
      for (const Metrics* metrics : {&epoch.valid_metrics, &epoch.test_metrics, &epoch.train_metrics}) {
        if (!metrics->empty()) return metrics->front().first;
      }
    }
    return {};
  }

  const EpochRecord* best() const {
    for (const EpochRecord& epoch : in_.epochs) {
      if (epoch.epoch == in_.best_epoch && in_.best_epoch >= 0) return &epoch;
    }
    return nullptr;
  }

  std::string target(size_t column) const {
    return column < task_.targets.size() && !task_.targets[column].empty() ? task_.targets[column]
                                                                           : fmt::format("y{}", column);
  }

  // One column of the labels or of the predictions of a task with as many of both.
  std::vector<double> column_of(const std::vector<double>& values, size_t column) const {
    std::vector<double> out(rows_);
    for (size_t row = 0; row < rows_; ++row) out[row] = values[row * outputs_ + column];
    return out;
  }

  // --- the top

  std::string header() const {
    std::string kicker = fmt::format("{}, loss {}", enum_name(task_.kind), enum_name(task_.loss));
    if (task_.targets.size() == 1) kicker += ", target " + shorten(task_.targets[0], 60);
    if (task_.targets.size() > 1) add(kicker, ", {} targets", task_.targets.size());
    std::string out = fmt::format("<header>\n<p class=\"kicker\">{}</p>\n<h1>{}</h1>\n<div class=\"tiles\">\n",
                                  escape(kicker), escape(title()));
    out += hero();
    for (size_t i = 1; i < std::min<size_t>(in_.test_metrics.size(), 4); ++i) {
      out += tile("Test " + title_of(in_.test_metrics[i].first), number(in_.test_metrics[i].second));
    }
    if (in_.best_epoch >= 0) {
      out +=
          tile("Best epoch", fmt::format("{} of {}", in_.best_epoch, in_.epochs.empty() ? 0 : in_.epochs.back().epoch));
    }
    if (!in_.epochs.empty()) out += tile("Training time", duration(in_.epochs.back().seconds));
    out += "</div>\n";
    if (!in_.command.empty()) {
      add(out,
          "<div class=\"command\"><code id=\"command\">{}</code><button id=\"copy\" type=\"button\" "
          "hidden>Copy</button></div>\n",
          escape(in_.command));
    }
    return out + "</header>\n";
  }

  std::string hero() const {
    const std::string metric = main_metric();
    if (metric.empty()) return {};
    std::string name = "Test " + title_of(metric);
    double value = kNan;
    if (!in_.test_metrics.empty()) {
      value = in_.test_metrics.front().second;
    } else if (const EpochRecord* epoch = best()) {
      name = "Validation " + title_of(metric);
      value = value_of(epoch->valid_metrics, metric);
    }
    return fmt::format(
        "<div class=\"tile hero\" id=\"test-score\"><span>{}</span><b>{}</b><span>{} is better</span></div>\n",
        escape(name), escape(number(value)), larger_is_better(metric) ? "higher" : "lower");
  }

  // --- curves

  std::string curves() const {
    std::string out = "<h2>Training</h2>\n";
    if (in_.epochs.empty()) return out + "<p class=\"card empty\">No epoch was finished.</p>\n";
    out += "<div class=\"grid\">\n";
    charts::EpochChart chart;
    for (const EpochRecord& epoch : in_.epochs) chart.epochs.push_back(static_cast<double>(epoch.epoch));
    if (best() != nullptr) chart.marked = static_cast<double>(in_.best_epoch);
    chart.mark_label = fmt::format("best: {}", in_.best_epoch);

    out += curve_card(chart, "curve-loss", "Loss", true,
                      {{"train", "train", series([](const EpochRecord& e) { return e.train_loss; })},
                       {"valid", "valid", series([](const EpochRecord& e) { return e.valid_loss; })}});
    const std::string metric = epoch_metric();
    if (!metric.empty()) {
      out += curve_card(
          chart, "curve-metric", heading_of(metric), !larger_is_better(metric),
          {{"train", "train", series([&](const EpochRecord& e) { return value_of(e.train_metrics, metric); })},
           {"valid", "valid", series([&](const EpochRecord& e) { return value_of(e.valid_metrics, metric); })},
           {"test", "test", series([&](const EpochRecord& e) { return value_of(e.test_metrics, metric); })}});
    }
    out += curve_card(chart, "curve-learning-rate", "Learning rate", true,
                      {{"rate", "rate", series([](const EpochRecord& e) { return e.learning_rate; })}});
    return out + metrics_card() + "</div>\n";
  }

  template <typename Get>
  std::vector<double> series(Get get) const {
    std::vector<double> values;
    for (const EpochRecord& epoch : in_.epochs) values.push_back(get(epoch));
    return values;
  }

  static std::string curve_card(charts::EpochChart chart, std::string id, const std::string& title, bool may_be_log,
                                std::vector<charts::Series> series) {
    chart.id = std::move(id);
    chart.title = title + " by epoch";
    chart.steps = chart.id == "curve-learning-rate";
    std::vector<std::pair<std::string, std::string>> legend;
    size_t lost = 0;
    for (charts::Series& one : series) {
      const auto drawn = static_cast<size_t>(std::count_if(one.y.begin(), one.y.end(), charts::drawable));
      if (drawn == 0) continue;
      lost += one.y.size() - drawn;
      if (series.size() > 1) legend.emplace_back(one.css, one.name);
      chart.series.push_back(std::move(one));
    }
    if (chart.series.empty()) {
      return fmt::format(
          "<section class=\"card\"><div class=\"head\"><h3>{}</h3></div><p class=\"empty\">No number to "
          "draw.</p></section>\n",
          escape(title));
    }
    return figure(
        title, legend, charts::epoch_chart(chart, may_be_log),
        lost == 0 ? ""
                  : fmt::format("{} missing or infinite values are left out.", grouped(static_cast<int64_t>(lost))));
  }

  // All metrics of the kept model by part.
  std::string metrics_card() const {
    const EpochRecord* epoch = best();
    if (epoch == nullptr) epoch = &in_.epochs.back();
    const Metrics& test = in_.test_metrics.empty() ? epoch->test_metrics : in_.test_metrics;
    std::vector<std::string> names;
    for (const Metrics* metrics : {&test, &epoch->valid_metrics, &epoch->train_metrics}) {
      for (const auto& [name, value] : *metrics) {
        if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
      }
    }
    const auto cell = [](const Metrics& metrics, const std::string& name) {
      const bool there =
          std::any_of(metrics.begin(), metrics.end(), [&](const auto& entry) { return entry.first == name; });
      return there ? number(value_of(metrics, name)) : std::string("\u2013");
    };
    std::vector<std::vector<std::string>> rows = {
        {"Loss", number(epoch->train_loss), number(epoch->valid_loss), "\u2013"}};
    for (const std::string& name : names) {
      rows.push_back(
          {heading_of(name), cell(epoch->train_metrics, name), cell(epoch->valid_metrics, name), cell(test, name)});
    }
    return fmt::format(
        "<section class=\"card\"><div class=\"head\"><h3>Metrics at {} epoch {}</h3></div>{}</section>\n",
        best() != nullptr ? "the best" : "the last", epoch->epoch,
        table("metrics", {"", "train", "valid", "test"}, rows));
  }

  // --- the test part

  std::string test_part() const {
    std::string out = "<h2>Test predictions</h2>\n";
    const bool labelled =
        std::any_of(in_.test_labels.begin(), in_.test_labels.end(), [](double y) { return !std::isnan(y); });
    if (!labelled) return out + "<p class=\"card empty\">No labelled test rows.</p>\n";
    switch (task_.kind) {
      case TaskKind::kRegression:
        return out + regression();
      case TaskKind::kBinary:
        return out + binary();
      case TaskKind::kMulticlass:
      case TaskKind::kNodeClassification:
        return out + classes();
    }
    return out;
  }

  std::string regression() const {
    std::string out;
    const size_t panels = std::min(outputs_, kScatterPanels);
    out += "<div class=\"grid\">\n";
    for (size_t column = 0; column < panels; ++column) out += regression_panel(column);
    out += "</div>\n";
    if (outputs_ > panels) {
      add(out, "<p class=\"note\">The first {} of {} targets are drawn.</p>\n", panels, outputs_);
    }
    std::string tables = outputs_ > 1 ? target_table() : std::string();
    tables += worst_table();
    if (!tables.empty()) add(out, "<div class=\"grid below\">{}</div>\n", tables);
    return out;
  }

  std::string regression_panel(size_t column) const {
    std::vector<double> truth, predicted, residuals;
    for (size_t row = 0; row < rows_; ++row) {
      const double label = in_.test_labels[row * outputs_ + column];
      if (std::isnan(label)) continue;
      truth.push_back(label);
      predicted.push_back(in_.test_predictions[row * outputs_ + column]);
      residuals.push_back(predicted.back() - label);
    }
    if (truth.empty()) {
      return fmt::format("<section class=\"card\"><h3>{}</h3><p class=\"empty\">No labelled test rows.</p></section>\n",
                         escape(target(column)));
    }
    const std::string scores =
        fmt::format("MAE {}, RMSE {}, R\u00b2 {}", number(mean_absolute_error(truth, predicted)),
                    number(root_mean_squared_error(truth, predicted)), number(r_squared(truth, predicted, 1)));
    const auto total = static_cast<int64_t>(truth.size());
    std::string note = grouped(total) + (total == 1 ? " labelled test row" : " labelled test rows");
    if (truth.size() > kScatterPoints) {
      // A fixed random choice, so that the same run gives the same page.
      std::vector<size_t> order(truth.size());
      std::iota(order.begin(), order.end(), size_t{0});
      Random(5, column).shuffle(std::span(order));
      std::vector<double> some_truth, some_predicted;
      for (size_t i = 0; i < kScatterPoints; ++i) {
        some_truth.push_back(truth[order[i]]);
        some_predicted.push_back(predicted[order[i]]);
      }
      truth = std::move(some_truth);
      predicted = std::move(some_predicted);
      note += fmt::format(", {} of them drawn", grouped(static_cast<int64_t>(kScatterPoints)));
    }
    const auto lost = std::count_if(residuals.begin(), residuals.end(), [](double r) { return !charts::drawable(r); });
    if (lost == total) {
      return fmt::format(
          "<section class=\"card\"><h3>{}</h3><p class=\"empty\">None of the {} predictions is finite.</p></section>\n",
          escape(shorten(target(column), 60)), grouped(total));
    }
    if (lost > 0) note += fmt::format("; {} predictions are not finite", grouped(lost));
    const std::string name = target(column);
    const std::string scatter = charts::scatter_chart(fmt::format("scatter-{}", column),
                                                      "Predicted against true values of " + name, truth, predicted);
    const std::string histogram =
        charts::histogram_chart(fmt::format("residuals-{}", column), "Histogram of residuals of " + name,
                                "predicted \u2212 true", residuals, outputs_ == 1);
    const std::string spread = residual_note(residuals);
    if (outputs_ == 1) {
      return figure(fmt::format("{}: predicted against true", shorten(name, 40)), {{"", scores}}, scatter, note + ".") +
             figure("Residuals", {}, histogram, spread);
    }
    return figure(shorten(name, 60), {{"", scores}}, scatter + histogram, note + ". " + spread);
  }

  static std::string residual_note(const std::vector<double>& residuals) {
    double sum = 0, squares = 0;
    int64_t count = 0;
    for (const double residual : residuals) {
      if (!charts::drawable(residual)) continue;
      sum += residual;
      ++count;
    }
    if (count == 0) return "No finite residual.";
    const double mean = sum / static_cast<double>(count);
    for (const double residual : residuals) {
      if (charts::drawable(residual)) squares += (residual - mean) * (residual - mean);
    }
    return fmt::format("Mean {} (bias), standard deviation {}. Outliers are counted in the outermost bars.",
                       number(mean, 3), number(std::sqrt(squares / static_cast<double>(count)), 3));
  }

  std::string target_table() const {
    std::vector<std::vector<std::string>> rows;
    for (size_t column = 0; column < std::min(outputs_, kTableRows); ++column) {
      const auto labels = column_of(in_.test_labels, column), predictions = column_of(in_.test_predictions, column);
      const auto count = std::count_if(labels.begin(), labels.end(), [](double y) { return !std::isnan(y); });
      rows.push_back({target(column), grouped(count), number(mean_absolute_error(labels, predictions)),
                      number(root_mean_squared_error(labels, predictions)), number(r_squared(labels, predictions, 1))});
    }
    return fmt::format("<section class=\"card\"><div class=\"head\"><h3>By target{}</h3></div>{}</section>\n",
                       outputs_ > kTableRows ? fmt::format(" (the first {} of {})", kTableRows, outputs_) : "",
                       table("targets", {"target", "rows", "MAE", "RMSE", "R\u00b2"}, rows));
  }

  // The rows to look at first. Over several targets errors are compared in units of each target's spread.
  std::string worst_table() const {
    if (in_.test_ids.empty()) return {};
    struct Miss {
      double error;
      size_t row, column;
    };
    std::vector<Miss> misses;
    for (size_t column = 0; column < outputs_; ++column) {
      const auto labels = column_of(in_.test_labels, column);
      double sum = 0, squares = 0, count = 0;
      for (const double y : labels) {
        if (!charts::drawable(y)) continue;
        sum += y;
        squares += y * y;
        count += 1;
      }
      const double variance = count == 0 ? 0 : squares / count - sum / count * (sum / count);
      const double unit = outputs_ > 1 && variance > 0 ? std::sqrt(variance) : 1;
      for (size_t row = 0; row < rows_; ++row) {
        const double error = std::abs(in_.test_predictions[row * outputs_ + column] - labels[row]) / unit;
        if (!std::isnan(error)) misses.push_back({error, row, column});
      }
    }
    if (misses.empty()) return {};
    const auto kept = static_cast<ptrdiff_t>(std::min(misses.size(), kWorstRows));
    std::partial_sort(misses.begin(), misses.begin() + kept, misses.end(), [](const Miss& a, const Miss& b) {
      return std::tie(b.error, a.row, a.column) < std::tie(a.error, b.row, b.column);
    });
    misses.resize(static_cast<size_t>(kept));
    std::vector<std::vector<std::string>> rows;
    for (const Miss& miss : misses) {
      const size_t at = miss.row * outputs_ + miss.column;
      std::vector<std::string> row = {shorten(in_.test_ids[miss.row], 120)};
      if (outputs_ > 1) row.push_back(shorten(target(miss.column), 40));
      for (const double value :
           {in_.test_labels[at], in_.test_predictions[at], in_.test_predictions[at] - in_.test_labels[at]}) {
        row.push_back(number(value));
      }
      rows.push_back(std::move(row));
    }
    std::vector<std::string> head = {"row", "true", "predicted", "error"};
    if (outputs_ > 1) head.insert(head.begin() + 1, "target");
    return fmt::format("<section class=\"card\"><div class=\"head\"><h3>Largest errors</h3></div>{}</section>\n",
                       table("worst", head, rows));
  }

  std::string binary() const {
    std::vector<charts::Curve> roc, precision;
    std::string body;
    size_t defined = 0;
    double share = 0;
    for (size_t column = 0; column < outputs_; ++column) {
      const auto labels = column_of(in_.test_labels, column), scores = column_of(in_.test_predictions, column);
      const double auc = roc_auc(labels, scores), ap = average_precision(labels, scores);
      const auto count = std::count_if(labels.begin(), labels.end(), [](double y) { return !std::isnan(y); });
      const auto positives = std::count(labels.begin(), labels.end(), 1.0);
      std::string key;
      if (!std::isnan(auc)) {
        if (defined < kRankedTasks) {
          const std::string css = fmt::format("c{}{}", defined, defined >= 6 ? " dashed" : "");
          key = fmt::format(" class=\"key {}\"", css);
          share = static_cast<double>(positives) / static_cast<double>(count);
          ranked_curves(labels, scores, css, target(column), roc, precision);
        }
        ++defined;
      }
      if (column < kTableRows) {
        add(body, "<tr><th scope=\"row\"><span{}>{}</span></th><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>\n",
            key, escape(shorten(target(column), 80)), number(auc), number(ap), grouped(positives), grouped(count));
      }
    }
    std::string out = "<div class=\"grid\">\n";
    if (defined > 0) {
      const bool single = roc.size() == 1;
      out += figure("ROC", {},
                    charts::unit_chart("roc", "ROC curves", "false positive rate", "true positive rate", roc,
                                       charts::Guide::kDiagonal),
                    "Dashed: chance.");
      out += figure("Precision and recall", {},
                    charts::unit_chart("precision-recall", "Precision-recall curves", "recall", "precision", precision,
                                       single ? charts::Guide::kLevel : charts::Guide::kNone, share),
                    single ? fmt::format("Dashed: the share of positives, {}.", number(share, 3)) : "");
    } else {
      out +=
          "<p class=\"card empty\">No task has both classes among its labelled test rows (with finite scores): there "
          "is no ranking to draw.</p>\n";
    }
    return out + (outputs_ == 1 ? single_task() : task_table(body, defined)) + "</div>\n";
  }

  std::string task_table(const std::string& body, size_t defined) const {
    std::string remark;
    if (defined > kRankedTasks) {
      add(remark, "The first {} of {} tasks that have both classes are drawn. ", kRankedTasks, defined);
    }
    if (outputs_ > kTableRows) add(remark, "The first {} of {} tasks are listed.", kTableRows, outputs_);
    return fmt::format(
        "<section class=\"card wide\"><div class=\"head\"><h3>By task</h3></div><div class=\"scroll\"><table "
        "id=\"tasks\">"
        "<thead><tr><th scope=\"col\">task</th><th scope=\"col\">ROC-AUC</th><th scope=\"col\">average precision</th>"
        "<th scope=\"col\">positive</th><th scope=\"col\">labelled</th></tr></thead><tbody>\n{}</tbody></table></div>"
        "<p class=\"note\">{}</p></section>\n",
        body, remark);
  }

  // Both curves of one task, a point per threshold.
  static void ranked_curves(const std::vector<double>& labels, const std::vector<double>& scores,
                            const std::string& css, const std::string& name, std::vector<charts::Curve>& roc,
                            std::vector<charts::Curve>& precision) {
    std::vector<std::pair<double, bool>> rows;
    for (size_t i = 0; i < labels.size(); ++i) {
      if (!std::isnan(labels[i])) rows.emplace_back(scores[i], labels[i] == 1);
    }
    std::sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
    const auto positives =
        static_cast<double>(std::count_if(rows.begin(), rows.end(), [](const auto& r) { return r.second; }));
    const double negatives = static_cast<double>(rows.size()) - positives;
    charts::Curve ranked{name, css, {0}, {0}}, exact{name, css, {}, {}};
    double found = 0, wrong = 0;
    for (size_t i = 0; i < rows.size(); ++i) {
      (rows[i].second ? found : wrong) += 1;
      if (i + 1 < rows.size() && rows[i + 1].first == rows[i].first) continue;
      ranked.x.push_back(wrong / negatives);
      ranked.y.push_back(found / positives);
      // Steps: a threshold's precision holds back to the recall before it, as average precision sums it; one that finds
      // nothing new has no width.
      const double before = exact.x.empty() ? 0 : exact.x.back(), after = found / positives;
      if (after == before) continue;
      exact.x.insert(exact.x.end(), {before, after});
      exact.y.insert(exact.y.end(), 2, found / (found + wrong));
    }
    roc.push_back(std::move(ranked));
    precision.push_back(std::move(exact));
  }

  // The matrix at 0.5 and what follows from it.
  std::string single_task() const {
    std::vector<double> pairs;
    for (const double probability : in_.test_predictions) {
      pairs.push_back(1 - probability);
      pairs.push_back(probability);
    }
    const std::vector<int64_t> counts = confusion_matrix(in_.test_labels, pairs, 2);
    const std::vector<std::string> names =
        task_.classes.size() == 2 ? task_.classes : std::vector<std::string>{"0", "1"};
    const auto ratio = [](int64_t part, int64_t whole) {
      return number(whole == 0 ? kNan : static_cast<double>(part) / static_cast<double>(whole));
    };
    const int64_t negatives = counts[0] + counts[1], positives = counts[2] + counts[3], guessed = counts[1] + counts[3];
    return figure("Confusion at probability 0.5", {},
                  charts::confusion_chart("confusion", "Confusion matrix at probability 0.5", counts, names),
                  "Counts, and percent of the true class.") +
           fmt::format("<section class=\"card\"><div class=\"head\"><h3>{}</h3></div>{}</section>\n",
                       escape(shorten(target(0), 60)),
                       table("tasks", {"", "test"},
                             {{"ROC-AUC", number(roc_auc(in_.test_labels, in_.test_predictions))},
                              {"Average precision", number(average_precision(in_.test_labels, in_.test_predictions))},
                              {"Precision at 0.5", ratio(counts[3], guessed)},
                              {"Recall at 0.5", ratio(counts[3], positives)},
                              {"Specificity at 0.5", ratio(counts[0], negatives)},
                              {"F1 at 0.5", ratio(2 * counts[3], positives + guessed)},
                              {"Positive rows", grouped(positives)},
                              {"Negative rows", grouped(negatives)}}));
  }

  std::string classes() const {
    const std::vector<int64_t> counts =
        confusion_matrix(in_.test_labels, in_.test_predictions, in_.description.model.outputs);
    std::vector<std::string> names;
    for (size_t c = 0; c < outputs_; ++c) {
      names.push_back(c < task_.classes.size() ? task_.classes[c] : std::to_string(c));
    }
    std::vector<std::vector<std::string>> rows;
    for (size_t c = 0; c < std::min(outputs_, kTableRows); ++c) {
      int64_t labelled = 0, predicted = 0;
      for (size_t other = 0; other < outputs_; ++other) {
        labelled += counts[c * outputs_ + other];
        predicted += counts[other * outputs_ + c];
      }
      const auto hit = static_cast<double>(counts[c * outputs_ + c]);
      const double recall = labelled == 0 ? kNan : hit / static_cast<double>(labelled);
      const double precision = predicted == 0 ? kNan : hit / static_cast<double>(predicted);
      const double f1 = labelled + predicted == 0 ? kNan : 2 * hit / static_cast<double>(labelled + predicted);
      rows.push_back(
          {shorten(names[c], 60), grouped(labelled), number(recall, 3), number(precision, 3), number(f1, 3)});
    }
    const size_t shown = std::min(outputs_, kConfusionClasses);
    std::vector<int64_t> corner;
    for (size_t c = 0; c < shown; ++c) {
      for (size_t other = 0; other < shown; ++other) corner.push_back(counts[c * outputs_ + other]);
    }
    const std::vector<std::string> shown_names(names.begin(), names.begin() + static_cast<ptrdiff_t>(shown));
    const int64_t total = std::accumulate(counts.begin(), counts.end(), int64_t{0});
    std::string note = shown <= 12   ? "Counts, and percent of the true class"
                       : shown <= 20 ? "Percent of the true class"
                                     : "Colour: share of the true class";
    add(note, "; {} labelled test {}.", grouped(total), task_.kind == TaskKind::kNodeClassification ? "nodes" : "rows");
    if (shown < outputs_) add(note, " The first {} of {} classes are drawn.", shown, outputs_);
    return "<div class=\"grid\">\n" +
           figure("Confusion matrix", {}, charts::confusion_chart("confusion", "Confusion matrix", corner, shown_names),
                  note, shown > 8) +
           fmt::format("<section class=\"card{}\"><div class=\"head\"><h3>By class</h3></div>{}</section>\n</div>\n",
                       shown > 8 ? " wide" : "",
                       table("classes", {"class", "labelled", "recall", "precision", "F1"}, rows));
  }

  // --- the rest

  std::string facts() const {
    std::string out;
    const std::tuple<const char*, const char*, const Facts&> kinds[] = {
        {"facts-model", "Model", in_.model},
        {"facts-data", "Data", in_.data},
        {"facts-environment", "Environment", in_.environment}};
    for (const auto& [id, name, facts] : kinds) {
      if (facts.empty()) continue;
      add(out,
          "<section class=\"card\"><div class=\"head\"><h3>{}</h3></div><table class=\"facts\" id=\"{}\"><tbody>\n",
          name, id);
      for (const auto& [key, value] : facts) {
        add(out, "<tr><th scope=\"row\">{}</th><td>{}</td></tr>\n", escape(key), escape(value));
      }
      out += "</tbody></table></section>\n";
    }
    return out.empty() ? out : "<h2>What was trained</h2>\n<div class=\"grid three\">\n" + out + "</div>\n";
  }

  std::string config() const {
    if (in_.config_toml.empty()) return {};
    return fmt::format(
        "<h2>Configuration</h2>\n<details class=\"card\" id=\"config\"><summary>The resolved "
        "config.toml</summary><pre>{}</pre></details>\n",
        escape(in_.config_toml));
  }

  const ReportInput& in_;
  const TaskConfig& task_;
  size_t outputs_ = 0, rows_ = 0;
};

}  // namespace

std::string render_report(const ReportInput& input) {
  return Report(input).render();
}

}  // namespace san
