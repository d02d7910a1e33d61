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

namespace san {
namespace {

using charts::escape;
using charts::grouped;
using charts::number;
using charts::shorten;
using Metrics = std::vector<std::pair<std::string, double>>;
using Facts = std::vector<std::pair<std::string, std::string>>;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr size_t kScatterPoints = 5000;
constexpr size_t kScatterPanels = 6;
constexpr size_t kRankedTasks = 12;
constexpr size_t kTableRows = 200;
constexpr size_t kConfusionClasses = 100;
constexpr size_t kWorstRows = 10;

// Text in both schemes has a contrast of at least 4.5 against its ground, lines at least 3.
constexpr std::string_view kStyle = R"css(
:root{color-scheme:light dark;--page:#f5f6f8;--card:#fff;--edge:#dfe3e8;--text:#1b2430;--soft:#566273;--grid:#e8ebef;--base:#98a3b0;
--accent:#2457d6;--accent-soft:#e9effd;--heat:#1d4fd0;--train:#2563eb;--valid:#c2410c;--test:#0f766e;--rate:#6d4bc9;--code:#f0f2f5;
--c0:#2563eb;--c1:#c2410c;--c2:#0f766e;--c3:#7c3aed;--c4:#be185d;--c5:#4d7c0f;--c6:#a16207;--c7:#475569;--c8:#0e7490;--c9:#15803d;--c10:#92400e;--c11:#1e3a8a}
@media(prefers-color-scheme:dark){:root{--page:#0e1217;--card:#161b22;--edge:#2a323d;--text:#e6eaf0;--soft:#9aa7b6;--grid:#252d37;--base:#5b6878;
--accent:#7aa5ff;--accent-soft:#1a2740;--heat:#6c97f2;--train:#6aa6ff;--valid:#ff9b5c;--test:#3ed0b8;--rate:#b59cff;--code:#0f141a;
--c0:#6aa6ff;--c1:#ff9b5c;--c2:#3ed0b8;--c3:#b59cff;--c4:#f582b8;--c5:#a9d94f;--c6:#e9c14a;--c7:#b8c4d2;--c8:#4fd2ea;--c9:#5fd98a;--c10:#dba67c;--c11:#a9bfff}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--text);font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue","Liberation Sans",Arial,sans-serif;
font-variant-numeric:tabular-nums;-webkit-text-size-adjust:100%}
main,header,footer{max-width:1140px;margin:0 auto;padding:0 20px}
header{padding-top:36px}
h1{font-size:28px;line-height:1.2;margin:2px 0 0;letter-spacing:-.01em;overflow-wrap:anywhere}
h2{font-size:19px;margin:38px 0 12px;letter-spacing:-.005em}
h3{font-size:15px;margin:0;font-weight:600;overflow-wrap:anywhere}
.kicker{margin:0;color:var(--soft);font-size:14px}
.note{color:var(--soft);font-size:14px;margin:4px 0 0}
.card{background:var(--card);border:1px solid var(--edge);border-radius:12px;padding:16px 18px;min-width:0}
.empty{color:var(--soft)}
.tiles{display:flex;flex-wrap:wrap;gap:12px;margin:20px 0 14px}
.tile{background:var(--card);border:1px solid var(--edge);border-radius:12px;padding:12px 18px;min-width:128px}
.tile b{display:block;font-size:24px;line-height:1.25;font-weight:600}
.tile span{display:block;color:var(--soft);font-size:13px}
.tile.hero{background:var(--accent-soft);border-color:var(--accent);padding-right:30px}
.tile.hero b{font-size:38px;line-height:1.15;color:var(--accent)}
.tile:not(.hero){display:flex;flex-direction:column;justify-content:center}
.command{display:flex;gap:10px;align-items:flex-start;background:var(--code);border:1px solid var(--edge);border-radius:10px;padding:10px 12px 10px 16px}
.command code{flex:1;user-select:all;padding:3px 0}
code,pre{font:13px/1.55 ui-monospace,SFMono-Regular,Menlo,Consolas,"Liberation Mono",monospace}
code,pre{white-space:pre-wrap;overflow-wrap:anywhere}
button{font:inherit;font-size:13px;color:var(--text);background:var(--card);border:1px solid var(--edge);border-radius:7px;padding:3px 12px;cursor:pointer}
button:hover,button:focus-visible{border-color:var(--accent);color:var(--accent)}
.grid{display:grid;gap:16px;grid-template-columns:repeat(auto-fit,minmax(min(100%,440px),1fr))}
.grid.below{margin-top:16px}
.grid.three{grid-template-columns:repeat(auto-fit,minmax(min(100%,300px),1fr))}
.head{display:flex;flex-wrap:wrap;gap:2px 18px;align-items:baseline;justify-content:space-between;margin-bottom:8px}
.legend{display:flex;flex-wrap:wrap;gap:2px 14px;font-size:13px;color:var(--soft)}
.key::before{content:"";display:inline-block;width:16px;height:3px;border-radius:2px;margin-right:6px;vertical-align:middle;background:var(--line)}
.key.dashed::before{background:repeating-linear-gradient(90deg,var(--line) 0 5px,transparent 5px 8px)}
.wide{grid-column:1/-1}
.scroll{overflow:auto;max-height:620px}
.figure{overflow-x:auto}
svg.chart{display:block;width:100%;height:auto;min-width:400px;margin:0 auto}
svg.scatter,svg.histogram{max-width:500px;min-width:320px}
svg.confusion{width:auto;max-width:100%;min-width:0}
svg text{font-size:12px;fill:var(--text);font-family:inherit}
svg .tick,svg .label{fill:var(--soft)}
svg path{fill:none}
.axes .grid{stroke:var(--grid)}.axes .base{stroke:var(--base)}
.line{stroke:var(--line);stroke-width:2;stroke-linejoin:round;stroke-linecap:round}
.line.dashed{stroke-dasharray:6 4}
.unit:hover .line{stroke-opacity:.25}.unit .line:hover{stroke-opacity:1;stroke-width:3}
.guide{stroke:var(--base);stroke-dasharray:5 4;stroke-width:1.25}
.best path{stroke:var(--base);stroke-dasharray:2 3;stroke-width:1.25}.best text{fill:var(--soft)}.epochs:hover .best text{opacity:0}
.ring{fill:var(--card);stroke:var(--line);stroke-width:2}
.columns>g{opacity:0}.columns>g:hover{opacity:1}
.columns rect{fill:transparent}.columns path{stroke:var(--base)}.columns circle{fill:var(--line);stroke:var(--card)}
.columns tspan{fill:var(--line)}.columns text{paint-order:stroke;stroke:var(--card);stroke-width:4px}
.points{stroke:var(--c0);stroke-linecap:round}
.bar{fill:var(--c0);fill-opacity:.75}.bar:hover{fill-opacity:1}
.cell .ground{fill:var(--grid);fill-opacity:.5}.cell .heat{fill:var(--heat)}.cell text{text-anchor:middle;pointer-events:none}
.cell .count{font-size:13px;font-weight:600}.cell .share{font-size:11.5px}
.cell:hover .ground{stroke:var(--text)}
.train{--line:var(--train)}.valid{--line:var(--valid)}.test{--line:var(--test)}.rate{--line:var(--rate)}
.c0{--line:var(--c0)}.c1{--line:var(--c1)}.c2{--line:var(--c2)}.c3{--line:var(--c3)}.c4{--line:var(--c4)}.c5{--line:var(--c5)}
.c6{--line:var(--c6)}.c7{--line:var(--c7)}.c8{--line:var(--c8)}.c9{--line:var(--c9)}.c10{--line:var(--c10)}.c11{--line:var(--c11)}
table{border-collapse:collapse;width:100%;font-size:14px}
th,td{text-align:right;padding:6px 0 6px 16px;border-bottom:1px solid var(--grid);vertical-align:top}
th:first-child,td:first-child{text-align:left;padding-left:0;overflow-wrap:anywhere}
thead th{color:var(--soft);font-weight:500;font-size:13px;white-space:nowrap;position:sticky;top:0;background:var(--card)}
tbody th{font-weight:400}tbody tr:last-child>*{border-bottom:0}
.facts td{overflow-wrap:anywhere}.facts th{color:var(--soft);min-width:9em}
td.strong{font-weight:600}
details summary{cursor:pointer;font-weight:600}details pre{margin:12px 0 0}
footer{color:var(--soft);font-size:13px;padding-top:26px;padding-bottom:40px}
@media print{body{background:#fff}.card,.tile{break-inside:avoid}button{display:none}.scroll{max-height:none}}
)css";

// The content policy allows exactly this text: its SHA-256 below must change with it (the browser test notices).
constexpr std::string_view kScript =
    "(function(){var "
    "b=document.getElementById('copy'),c=document.getElementById('command');if(!b||!c)return;b.hidden=false;"
    "b.onclick=function(){var s=getSelection(),r=document.createRange();r.selectNodeContents(c);s.removeAllRanges();"
    "s.addRange(r);document.execCommand('copy');b.textContent='Copied';"
    "setTimeout(function(){b.textContent='Copy'},1500)}})();";
constexpr std::string_view kScriptHash = "w7yZSZ0fU7TQow4mflzOIATStmrDP7cfDC3vvfFDVW0=";

template <typename... Args>
void add(std::string& out, fmt::format_string<Args...> format, Args&&... args) {
  fmt::format_to(std::back_inserter(out), format, std::forward<Args>(args)...);
}

// What people call a metric.
std::string title_of(const std::string& metric) {
  static constexpr std::pair<std::string_view, std::string_view> kTitles[] = {
      {"mae", "MAE"},
      {"rmse", "RMSE"},
      {"mse", "MSE"},
      {"r2", "R\u00b2"},
      {"roc_auc", "ROC-AUC"},
      {"average_precision", "average precision"},
      {"accuracy", "accuracy"},
      {"mean_class_recall", "mean class recall (%)"},
      {"published_sbm_accuracy", "published SBM accuracy (%)"},
      {"loss", "loss"},
  };
  for (const auto& [name, title] : kTitles) {
    if (name == metric) return std::string(title);
  }
  return metric;
}

// The same at the start of a heading; names that are not ours stay as they are.
std::string heading_of(const std::string& metric) {
  std::string title = title_of(metric);
  const bool ours = title != metric || metric == "accuracy" || metric == "loss";
  if (ours && title[0] >= 'a' && title[0] <= 'z') title[0] = static_cast<char>(title[0] - 'a' + 'A');
  return title;
}

double value_of(const Metrics& metrics, const std::string& name) {
  for (const auto& [key, value] : metrics) {
    if (key == name) return value;
  }
  return kNan;
}

std::string duration(double seconds) {
  if (!(seconds >= 0) || seconds > 1e10) return "n/a";
  const auto total = static_cast<int64_t>(std::llround(seconds));
  if (total < 1) return fmt::format("{:.2f} s", seconds);
  if (total < 60) return fmt::format("{} s", total);
  if (total < 3600) return fmt::format("{} min {} s", total / 60, total % 60);
  return fmt::format("{} h {} min", grouped(total / 3600), total % 3600 / 60);
}

// The chart's card: title, legend (class or none, text), drawing, remark.
std::string figure(std::string_view title, const std::vector<std::pair<std::string, std::string>>& legend,
                   std::string_view drawing, std::string_view note = {}, bool wide = false) {
  std::string out =
      fmt::format("<section class=\"card{}\"><div class=\"head\"><h3>{}</h3>", wide ? " wide" : "", escape(title));
  if (!legend.empty()) {
    out += "<div class=\"legend\">";
    for (const auto& [css, name] : legend) {
      add(out, "<span{}>{}</span>", css.empty() ? "" : fmt::format(" class=\"key {}\"", css), escape(name));
    }
    out += "</div>";
  }
  add(out, "</div>\n<div class=\"figure\">{}</div>", drawing);
  if (!note.empty()) add(out, "<p class=\"note\">{}</p>", escape(note));
  return out + "</section>\n";
}

// A table of raw texts, the first column being the rows' names.
std::string table(std::string_view id, const std::vector<std::string>& head,
                  const std::vector<std::vector<std::string>>& rows) {
  std::string out = fmt::format("<div class=\"scroll\"><table id=\"{}\"><thead><tr>", id);
  for (const std::string& cell : head) add(out, "<th scope=\"col\">{}</th>", escape(cell));
  out += "</tr></thead><tbody>\n";
  for (const auto& row : rows) {
    out += "<tr>";
    for (size_t i = 0; i < row.size(); ++i) {
      add(out, "{}{}{}", i == 0 ? "<th scope=\"row\">" : "<td>", escape(row[i]), i == 0 ? "</th>" : "</td>");
    }
    out += "</tr>\n";
  }
  return out + "</tbody></table></div>";
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
    std::string out = fmt::format(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
        "img-src data:; script-src 'sha256-{}'\">\n"
        "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
        "<meta name=\"color-scheme\" content=\"light dark\">\n<link rel=\"icon\" href=\"data:,\">\n"
        "<title>{}</title>\n<style>{}</style>\n</head>\n<body>\n",
        kScriptHash, escape(title()), kStyle);
    out += header() + "<main>\n" + curves() + test_part() + facts() + config() + "</main>\n";
    out += "<footer>Written by san. This page is one file: it loads nothing and sends nothing.</footer>\n";
    add(out, "<script>{}</script>\n</body>\n</html>\n", kScript);
    return out;
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
      tile(out, "Test " + title_of(in_.test_metrics[i].first), number(in_.test_metrics[i].second));
    }
    if (in_.best_epoch >= 0) {
      tile(out, "Best epoch",
           fmt::format("{} of {}", in_.best_epoch, in_.epochs.empty() ? 0 : in_.epochs.back().epoch));
    }
    if (!in_.epochs.empty()) tile(out, "Training time", duration(in_.epochs.back().seconds));
    out += "</div>\n";
    if (!in_.command.empty()) {
      add(out,
          "<div class=\"command\"><code id=\"command\">{}</code><button id=\"copy\" type=\"button\" "
          "hidden>Copy</button></div>\n",
          escape(in_.command));
    }
    return out + "</header>\n";
  }

  static void tile(std::string& out, std::string_view name, std::string_view value) {
    add(out, "<div class=\"tile\"><b>{}</b><span>{}</span></div>\n", escape(value), escape(name));
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
