#include "san/train/charts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>

namespace san::charts {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr size_t kStretches = 240;      // columns of an epoch chart
constexpr double kLogFactor = 20;       // span from which curves are logarithmic
constexpr size_t kBeginning = 20;       // of so many epochs one belongs to the beginning
constexpr double kPixelsBetween = 0.7;  // points of a curve that are nearer than this are one

template <typename... Args>
void add(std::string& out, fmt::format_string<Args...> format, Args&&... args) {
  fmt::format_to(std::back_inserter(out), format, std::forward<Args>(args)...);
}

// A tenth of a pixel is all a screen shows; "12" instead of "12.0" makes large pages smaller.
std::string px(double value) {
  std::string text = fmt::format("{:.1f}", value);
  if (text.ends_with(".0")) text.resize(text.size() - 2);
  return text == "-0" ? "0" : text;
}

struct Range {
  double low = std::numeric_limits<double>::infinity(), high = -std::numeric_limits<double>::infinity();

  void include(double value) {
    if (!drawable(value)) return;
    low = std::min(low, value);
    high = std::max(high, value);
  }
  bool empty() const { return low > high; }
};

struct Tick {
  double value;
  std::string label;
};

// The exponent without padding: 1.5e-04 -> 1.5e-4.
std::string scientific(double value, int decimals) {
  std::string text = fmt::format("{:.{}e}", value, decimals);
  const size_t e = text.find('e');
  return fmt::format("{}e{}", text.substr(0, e), std::stoi(text.substr(e + 1)));
}

// One linear or logarithmic axis: data range, ticks, and where on the page it lies.
class Axis {
 public:
  // `integers`: ticks only there. `pad`: share of the range that is added on both sides.
  static Axis linear(Range range, double pad, int wanted_ticks, bool integers = false) {
    if (range.empty()) range = {0, 1};
    double span = range.high - range.low;
    const double size = std::max(std::abs(range.low), std::abs(range.high));
    // Too near to each other for ticks (or for arithmetic): as if equal.
    if (span <= size * 1e-9 || size < 1e-200) {
      const double half = integers || size < 1e-200 ? 1 : size * 0.1;
      range = {range.low - half, range.high + half};
    } else {
      range = {range.low - span * pad, range.high + span * pad};
    }
    span = range.high - range.low;
    Axis axis;
    axis.low_ = range.low;
    axis.high_ = range.high;
    double step = std::pow(10, std::floor(std::log10(span / wanted_ticks)));
    for (const double factor : {2.0, 2.5, 2.0}) {  // 1, 2, 5, 10
      if (span / step <= wanted_ticks) break;
      step *= factor;
    }
    if (integers) step = std::max(1.0, std::round(step));
    const int decimals = std::clamp(-static_cast<int>(std::floor(std::log10(step) + 1e-9)), 0, 12);
    const double largest = std::max(std::abs(range.low), std::abs(range.high));
    const bool exponents = !integers && (largest >= 1e5 || largest < 1e-2);
    const int digits =
        std::clamp(static_cast<int>(std::floor(std::log10(largest)) - std::floor(std::log10(step) + 1e-9)), 0, 12);
    const double first = std::ceil(range.low / step - 1e-9);
    for (int i = 0; i < 20; ++i) {
      double value = (first + i) * step;
      if (value > range.high + step * 1e-9) break;
      if (std::abs(value) < step * 1e-6) value = 0;
      axis.ticks_.push_back({value, value == 0  ? "0"
                                    : exponents ? scientific(value, digits)
                                                : fmt::format("{:.{}f}", value, decimals)});
    }
    return axis;
  }

  // REQUIRES: range.low > 0.
  static Axis logarithmic(Range range) {
    Axis axis;
    axis.log_ = true;
    const double low = std::log10(range.low), high = std::log10(range.high);
    const double pad = (high - low) * 0.05;
    axis.low_ = low - pad;
    axis.high_ = high + pad;
    const int first = static_cast<int>(std::floor(axis.low_)), last = static_cast<int>(std::ceil(axis.high_));
    const int every = std::max(1, (last - first) / 6);
    for (int decade = first; decade <= last; decade += every) {
      for (const double factor : {1.0, 2.0, 5.0}) {
        if (factor > 1 && last - first > 3) continue;
        const double value = factor * std::pow(10, decade);
        const double at = std::log10(value);
        if (at < axis.low_ || at > axis.high_) continue;
        axis.ticks_.push_back({value, value >= 1e4 || value < 1e-3 ? scientific(value, 0) : number(value, 1)});
      }
    }
    return axis;
  }

  // Places 0, 1, 2, ... with names.
  static Axis named(const std::vector<std::string>& names) {
    Axis axis;
    axis.low_ = -0.5;
    axis.high_ = static_cast<double>(std::max<size_t>(1, names.size())) - 0.5;
    for (size_t i = 0; i < names.size(); ++i) axis.ticks_.push_back({static_cast<double>(i), names[i]});
    return axis;
  }

  void place(double from, double to) {
    from_ = from;
    to_ = to;
  }
  double operator()(double value) const {
    const double at = log_ ? std::log10(value) : value;
    return from_ + (at - low_) / (high_ - low_) * (to_ - from_);
  }
  const std::vector<Tick>& ticks() const { return ticks_; }
  double from() const { return from_; }
  double to() const { return to_; }
  bool log() const { return log_; }

 private:
  double low_ = 0, high_ = 1, from_ = 0, to_ = 1;
  bool log_ = false;
  std::vector<Tick> ticks_;
};

struct Point {
  double x, y;  // pixels
};

// A path through the points; NaN breaks it, and a point alone becomes a dot (round caps make one of a line of no length).
std::string path_through(const std::vector<Point>& points, bool steps = false) {
  std::string out;
  bool pen_down = false;
  for (size_t i = 0; i < points.size(); ++i) {
    const Point& point = points[i];
    if (std::isnan(point.x) || std::isnan(point.y)) {
      pen_down = false;
      continue;
    }
    if (steps && pen_down) {
      add(out, "H{}V{}", px(point.x), px(point.y));
    } else {
      add(out, "{}{} {}", pen_down ? "L" : "M", px(point.x), px(point.y));
    }
    const bool alone = !pen_down && (i + 1 == points.size() || std::isnan(points[i + 1].y));
    if (alone) out += "h0";
    pen_down = true;
  }
  return out;
}

// Without the points that nobody could tell from their neighbours.
std::vector<Point> thinned(const std::vector<Point>& points) {
  std::vector<Point> kept;
  for (size_t i = 0; i < points.size(); ++i) {
    if (!kept.empty() && i + 1 < points.size() &&
        std::hypot(points[i].x - kept.back().x, points[i].y - kept.back().y) < kPixelsBetween) {
      continue;
    }
    kept.push_back(points[i]);
  }
  return kept;
}

// The frame that all charts but the matrix share: size, axes, grid, labels.
class Plot {
 public:
  struct Margins {
    double left = 62, right = 14, top = 24, bottom = 42;
  };

  Plot(double width, double height, Axis x, Axis y, Margins margins)
      : x_(std::move(x)), y_(std::move(y)), width_(width), height_(height) {
    x_.place(margins.left, width - margins.right);
    y_.place(height - margins.bottom, margins.top);
  }

  double x(double value) const { return x_(value); }
  double y(double value) const { return y_(value); }
  const Axis& x_axis() const { return x_; }
  const Axis& y_axis() const { return y_; }

  std::string open(std::string_view id, std::string_view kind, std::string_view title) const {
    return fmt::format(
        "<svg id=\"{}\" class=\"chart {}\" viewBox=\"0 0 {} {}\" width=\"{}\" height=\"{}\" role=\"img\" "
        "aria-label=\"{}\" xmlns=\"http://www.w3.org/2000/svg\">\n",
        escape(id), kind, px(width_), px(height_), px(width_), px(height_), escape(title));
  }

  std::string axes(std::string_view x_label, std::string_view y_label, bool x_grid) const {
    std::string out = "<g class=\"axes\">";
    std::string grid;
    for (const Tick& tick : y_.ticks()) {
      const double at = y_(tick.value);
      add(grid, "M{} {}H{}", px(x_.from()), px(at), px(x_.to()));
      add(out, "<text class=\"tick\" x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>", px(x_.from() - 8), px(at + 4),
          escape(tick.label));
    }
    for (const Tick& tick : x_.ticks()) {
      const double at = x_(tick.value);
      if (x_grid) add(grid, "M{} {}V{}", px(at), px(y_.from()), px(y_.to()));
      add(out, "<text class=\"tick\" x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>", px(at), px(y_.from() + 17),
          escape(tick.label));
    }
    add(out, "<path class=\"grid\" d=\"{}\"/>", grid);
    add(out, "<path class=\"base\" d=\"M{} {}H{}\"/>", px(x_.from()), px(y_.from()), px(x_.to()));
    add(out, "<text class=\"label\" x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>", px((x_.from() + x_.to()) / 2),
        px(height_ - 6), escape(x_label));
    if (!y_label.empty()) {
      const double middle = (y_.from() + y_.to()) / 2;
      add(out,
          "<text class=\"label\" x=\"13\" y=\"{}\" text-anchor=\"middle\" transform=\"rotate(-90 13 {})\">{}</text>",
          px(middle), px(middle), escape(y_label));
    }
    return out + "</g>\n";
  }

 private:
  Axis x_, y_;
  double width_, height_;
};

// First row of each of at most kStretches stretches of `count` epochs, and `count` at the end.
std::vector<size_t> stretches(size_t count) {
  const size_t pieces = std::min(count, kStretches);
  std::vector<size_t> starts;
  for (size_t i = 0; i <= pieces; ++i) starts.push_back(pieces == 0 ? 0 : i * count / pieces);
  return starts;
}

// Other bytes than UTF-8 become U+FFFD.
std::string utf8(std::string_view text) {
  if (std::none_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) >= 0x80; })) {
    return std::string(text);
  }
  using Json = nlohmann::json;
  return Json::parse(Json(text).dump(-1, ' ', false, Json::error_handler_t::replace)).get<std::string>();
}

double quantile(const std::vector<double>& sorted, double q) {
  const double at = q * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(at);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (sorted[above] - sorted[below]) * (at - static_cast<double>(below));
}

}  // namespace

std::string escape(std::string_view given) {
  // Names come from files in any encoding; a page is UTF-8.
  const std::string text = utf8(given);
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      case '\n':
      case '\t':
        out += c;
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
          out += "\xEF\xBF\xBD";
        } else {
          out += c;
        }
    }
  }
  return out;
}

std::string shorten(std::string_view text, size_t limit) {
  size_t points = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if ((static_cast<unsigned char>(text[i]) & 0xC0) == 0x80) continue;  // inside a code point
    if (points++ == limit) return std::string(text.substr(0, i)) + "\u2026";
  }
  return std::string(text);
}

std::string number(double value, int digits) {
  if (std::isnan(value)) return "n/a";
  if (std::isinf(value)) return value > 0 ? "\u221e" : "-\u221e";
  if (value == 0) return "0";
  const double size = std::abs(value);
  if (size < 1e-4 || size >= 1e6) return scientific(value, std::max(0, digits - 2));
  const int before = static_cast<int>(std::floor(std::log10(size))) + 1;
  return fmt::format("{:.{}f}", value, std::clamp(digits - before, 0, digits + 3));
}

std::string grouped(int64_t value) {
  std::string text = std::to_string(value);
  for (auto i = static_cast<ptrdiff_t>(text.size()) - 3; i > (value < 0 ? 1 : 0); i -= 3) {
    text.insert(static_cast<size_t>(i), 1, ',');
  }
  return text;
}

bool drawable(double value) {
  return std::abs(value) < 1e100;
}

std::string epoch_chart(const EpochChart& chart, bool may_be_log) {
  Range x_range, y_range, later;
  for (const double epoch : chart.epochs) x_range.include(epoch);
  for (const Series& series : chart.series) {
    for (size_t i = 0; i < series.y.size(); ++i) {
      y_range.include(series.y[i]);
      // A best epoch that comes early is what the chart is about.
      if (i >= chart.epochs.size() / kBeginning || chart.epochs[i] == chart.marked) later.include(series.y[i]);
    }
  }
  const bool log = may_be_log && !y_range.empty() && y_range.low > 0 && y_range.high / y_range.low > kLogFactor;
  const bool cut =
      !log && !chart.steps && later.high > later.low && y_range.high - y_range.low > 2 * (later.high - later.low);
  if (cut) y_range = later;
  const Plot plot(520, 280, Axis::linear(x_range, 0, 8, true),
                  log ? Axis::logarithmic(y_range) : Axis::linear(y_range, 0.06, 6), {});
  std::string out = plot.open(chart.id, log ? "epochs log" : "epochs", chart.title);
  out += plot.axes("epoch", log ? "log scale" : "", false);

  const auto drawn = [&](double value) { return drawable(value) && (!log || value > 0); };
  // Of values beyond the plot: `margin` of its height, so that dots stay at its edge and lines leave it steeply.
  const auto height = [&](double value, double margin = 0) {
    const double beyond = margin * (y_range.high - y_range.low);
    return plot.y(std::clamp(value, y_range.low - beyond, y_range.high + beyond));
  };
  const bool marked =
      chart.marked >= 0 && !chart.epochs.empty() && chart.marked >= x_range.low && chart.marked <= x_range.high;
  if (marked) {
    const double at = plot.x(chart.marked);
    // Beside the edges the label would leave the plot.
    const std::string_view anchor = at < plot.x_axis().from() + 40 ? "start"
                                    : at > plot.x_axis().to() - 40 ? "end"
                                                                   : "middle";
    add(out, "<g class=\"best\"><path d=\"M{} {}V{}\"/><text x=\"{}\" y=\"{}\" text-anchor=\"{}\">{}</text></g>\n",
        px(at), px(plot.y_axis().from()), px(plot.y_axis().to()), px(at), px(plot.y_axis().to() - 6), anchor,
        escape(chart.mark_label));
  }
  const std::vector<size_t> starts = stretches(chart.epochs.size());
  if (cut) {
    add(out,
        "<clipPath id=\"{}-inside\"><path d=\"M{} {}H{}V{}H{}Z\"/></clipPath>\n<g clip-path=\"url(#{}-inside)\">\n",
        escape(chart.id), px(plot.x_axis().from()), px(plot.y_axis().from()), px(plot.x_axis().to()),
        px(plot.y_axis().to()), px(plot.x_axis().from()), escape(chart.id));
  }
  for (const Series& series : chart.series) {
    std::vector<Point> points;
    for (size_t piece = 0; piece + 1 < starts.size(); ++piece) {
      size_t low = starts[piece], high = low;
      bool any = false;
      for (size_t i = starts[piece]; i < starts[piece + 1]; ++i) {
        if (!drawn(series.y[i])) continue;
        if (!any) low = high = i;
        any = true;
        if (series.y[i] < series.y[low]) low = i;
        if (series.y[i] > series.y[high]) high = i;
      }
      if (!any) {
        points.push_back({kNan, kNan});
        continue;
      }
      for (const size_t i : {std::min(low, high), std::max(low, high)}) {
        points.push_back({plot.x(chart.epochs[i]), height(series.y[i], cut ? 4 : 0)});
        if (low == high) break;
      }
    }
    add(out, "<path class=\"line {}\" d=\"{}\"/>\n", series.css, path_through(points, chart.steps));
    if (!marked) continue;
    const auto best = std::find(chart.epochs.begin(), chart.epochs.end(), chart.marked);
    if (best == chart.epochs.end()) continue;
    const double value = series.y[static_cast<size_t>(best - chart.epochs.begin())];
    if (drawn(value)) {
      add(out, "<circle class=\"ring {}\" cx=\"{}\" cy=\"{}\" r=\"4\"/>\n", series.css, px(plot.x(*best)),
          px(height(value)));
    }
  }

  if (cut) out += "</g>\n";

  // One invisible column per stretch, which under the pointer shows a line, dots and the values above the plot.
  out += "<g class=\"columns\">\n";
  for (size_t piece = 0; piece + 1 < starts.size(); ++piece) {
    const size_t row = starts[piece];
    const double at = plot.x(chart.epochs[row]);
    const double left = piece == 0 ? plot.x_axis().from() : (at + plot.x(chart.epochs[starts[piece - 1]])) / 2;
    const bool last = piece + 2 == starts.size();
    const double right = last ? plot.x_axis().to() : (at + plot.x(chart.epochs[starts[piece + 1]])) / 2;
    add(out, "<g><rect x=\"{}\" y=\"0\" width=\"{}\" height=\"{}\"/><path d=\"M{} {}V{}\"/>", px(left),
        px(std::max(0.0, right - left)), px(plot.y_axis().from()), px(at), px(plot.y_axis().from()),
        px(plot.y_axis().to()));
    std::string readout = fmt::format("epoch {}", grouped(static_cast<int64_t>(chart.epochs[row])));
    for (const Series& series : chart.series) {
      add(readout, " <tspan class=\"{}\" dx=\"8\">{} {}</tspan>", series.css, escape(shorten(series.name, 16)),
          number(series.y[row]));
      if (!drawn(series.y[row])) continue;
      add(out, "<circle class=\"{}\" cx=\"{}\" cy=\"{}\" r=\"3\"/>", series.css, px(at), px(height(series.y[row])));
    }
    add(out, "<text x=\"{}\" y=\"14\">{}</text></g>\n", px(plot.x_axis().from()), readout);
  }
  return out + "</g>\n</svg>\n";
}

std::string unit_chart(std::string_view id, std::string_view title, std::string_view x_label, std::string_view y_label,
                       const std::vector<Curve>& curves, Guide guide, double level) {
  const Plot plot(520, 420, Axis::linear({0, 1}, 0, 5), Axis::linear({0, 1}, 0, 5), {.top = 12});
  std::string out = plot.open(id, "unit", title);
  out += plot.axes(x_label, y_label, true);
  if (guide != Guide::kNone) {
    const double from = guide == Guide::kDiagonal ? 0 : level, to = guide == Guide::kDiagonal ? 1 : level;
    add(out, "<path class=\"guide\" d=\"M{} {}L{} {}\"/>\n", px(plot.x(0)), px(plot.y(from)), px(plot.x(1)),
        px(plot.y(to)));
  }
  for (const Curve& curve : curves) {
    std::vector<Point> points;
    for (size_t i = 0; i < curve.x.size(); ++i) points.push_back({plot.x(curve.x[i]), plot.y(curve.y[i])});
    add(out, "<path class=\"line {}\" d=\"{}\"><title>{}</title></path>\n", curve.css, path_through(thinned(points)),
        escape(curve.name));
  }
  return out + "</svg>\n";
}

std::string scatter_chart(std::string_view id, std::string_view title, std::span<const double> truth,
                          std::span<const double> predicted) {
  Range range;
  for (size_t i = 0; i < truth.size(); ++i) {
    if (!drawable(truth[i]) || !drawable(predicted[i])) continue;
    range.include(truth[i]);
    range.include(predicted[i]);
  }
  const Plot plot(440, 420, Axis::linear(range, 0.04, 8), Axis::linear(range, 0.04, 8), {.top = 12});
  std::string out = plot.open(id, "scatter", title);
  out += plot.axes("true", "predicted", true);
  add(out, "<path class=\"guide\" d=\"M{} {}L{} {}\"/>\n", px(plot.x_axis().from()), px(plot.y_axis().from()),
      px(plot.x_axis().to()), px(plot.y_axis().to()));
  // The more points, the fainter: where they lie on each other the crowd shows.
  add(out, "<g class=\"points\" stroke-opacity=\"{}\" stroke-width=\"{}\">",
      truth.size() > 1500  ? "0.3"
      : truth.size() > 300 ? "0.45"
                           : "0.65",
      truth.size() > 1500  ? "3.5"
      : truth.size() > 300 ? "5"
                           : "6.5");
  for (size_t i = 0; i < truth.size(); ++i) {
    if (!drawable(truth[i]) || !drawable(predicted[i])) continue;
    add(out, "<path d=\"M{} {}h0\"/>", px(plot.x(truth[i])), px(plot.y(predicted[i])));
  }
  return out + "</g>\n</svg>\n";
}

std::string histogram_chart(std::string_view id, std::string_view title, std::string_view x_label,
                            std::span<const double> values, bool tall) {
  std::vector<double> sorted;
  for (const double value : values) {
    if (drawable(value)) sorted.push_back(value);
  }
  std::sort(sorted.begin(), sorted.end());
  Range range{-1, 1};
  size_t bins = 1;
  if (!sorted.empty()) {
    const double q1 = quantile(sorted, 0.25), q3 = quantile(sorted, 0.75);
    const double iqr = q3 - q1;
    range = {sorted.front(), sorted.back()};
    if (iqr > 0) range = {std::max(range.low, q1 - 4 * iqr), std::min(range.high, q3 + 4 * iqr)};
    range.include(0);
    if (range.high - range.low <= 0) range = {-1, 1};
    // Freedman and Diaconis' width, within what the eye can use.
    const double width = 2 * iqr / std::cbrt(static_cast<double>(sorted.size()));
    bins = width > 0 ? static_cast<size_t>(std::clamp((range.high - range.low) / width, 8.0, 48.0)) : 16;
  }
  std::vector<double> counts(bins, 0);
  for (const double value : sorted) {
    const double at = (value - range.low) / (range.high - range.low) * static_cast<double>(bins);
    counts[static_cast<size_t>(std::clamp(at, 0.0, static_cast<double>(bins - 1)))] += 1;
  }
  const Range heights{0, std::max(1.0, *std::max_element(counts.begin(), counts.end()) * 1.05)};
  const Plot plot(440, tall ? 420 : 230, Axis::linear(range, 0.02, 8), Axis::linear(heights, 0, tall ? 8 : 4, true),
                  {.top = 12});
  std::string out = plot.open(id, "histogram", title);
  out += plot.axes(x_label, "count", false);
  const double width = (range.high - range.low) / static_cast<double>(bins);
  for (size_t i = 0; i < bins; ++i) {
    if (counts[i] == 0) continue;
    const double left = range.low + width * static_cast<double>(i);
    const double from = plot.x(left) + 0.5, to = plot.x(left + width) - 0.5;
    add(out, "<rect class=\"bar\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"><title>{} to {}: {}</title></rect>",
        px(from), px(plot.y(counts[i])), px(std::max(0.5, to - from)), px(plot.y_axis().from() - plot.y(counts[i])),
        number(left, 3), number(left + width, 3), grouped(static_cast<int64_t>(counts[i])));
  }
  add(out, "<path class=\"guide\" d=\"M{} {}V{}\"/>\n", px(plot.x(0)), px(plot.y_axis().from()),
      px(plot.y_axis().to()));
  return out + "</svg>\n";
}

std::string confusion_chart(std::string_view id, std::string_view title, std::span<const int64_t> counts,
                            const std::vector<std::string>& classes) {
  const size_t n = classes.size();
  const double cell = n <= 4    ? 88
                      : n <= 7  ? 70
                      : n <= 12 ? 52
                      : n <= 20 ? 36
                                : std::max(7.0, 720.0 / static_cast<double>(n));
  const bool with_counts = n <= 12, with_percent = n <= 20, with_names = n <= 40;
  size_t longest = 1;
  for (const std::string& name : classes) longest = std::max(longest, std::min<size_t>(name.size(), 19));
  const bool slanted = static_cast<double>(longest) * 7.5 > cell - 8;
  const double gutter = with_names ? 30 + static_cast<double>(longest) * 7.2 : 30;
  const double top = with_names ? (slanted ? 34 + static_cast<double>(longest) * 5.2 : 48) : 30;
  const double side = cell * static_cast<double>(n);
  const double width = gutter + side + (slanted ? static_cast<double>(longest) * 5.2 : 6), height = top + side + 6;
  std::string out = fmt::format(
      "<svg id=\"{}\" class=\"chart confusion\" viewBox=\"0 0 {} {}\" width=\"{}\" height=\"{}\" role=\"img\" "
      "aria-label=\"{}\" xmlns=\"http://www.w3.org/2000/svg\">\n",
      escape(id), px(width), px(height), px(width), px(height), escape(title));
  add(out, "<text class=\"label\" x=\"{}\" y=\"14\" text-anchor=\"middle\">predicted</text>", px(gutter + side / 2));
  add(out,
      "<text class=\"label\" x=\"13\" y=\"{}\" text-anchor=\"middle\" transform=\"rotate(-90 13 {})\">true</text>\n",
      px(top + side / 2), px(top + side / 2));
  for (size_t label = 0; label < n; ++label) {
    const auto row = counts.subspan(label * n, n);
    const int64_t total = std::accumulate(row.begin(), row.end(), int64_t{0});
    const double y = top + cell * static_cast<double>(label);
    if (with_names) {
      const std::string name = escape(shorten(classes[label], 18));
      const double across = gutter + cell * (static_cast<double>(label) + 0.5);
      add(out, "<text class=\"name\" x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>", px(gutter - 8),
          px(y + cell / 2 + 4), name);
      if (slanted) {
        add(out, "<text class=\"name\" x=\"{}\" y=\"{}\" transform=\"rotate(-40 {} {})\">{}</text>\n", px(across),
            px(top - 8), px(across), px(top - 8), name);
      } else {
        add(out, "<text class=\"name\" x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n", px(across), px(top - 10),
            name);
      }
    }
    for (size_t guess = 0; guess < n; ++guess) {
      const double share = total == 0 ? 0 : static_cast<double>(row[guess]) / static_cast<double>(total);
      const double x = gutter + cell * static_cast<double>(guess);
      const double gap = n <= 20 ? 1 : 0.25;
      add(out,
          "<g class=\"cell{}\"><title>true {}, predicted {}: {} ({:.1f} %)</title><rect class=\"ground\" x=\"{}\" "
          "y=\"{}\" width=\"{}\" height=\"{}\"/>",
          guess == label ? " hit" : "", escape(shorten(classes[label], 40)), escape(shorten(classes[guess], 40)),
          grouped(row[guess]), 100 * share, px(x + gap), px(y + gap), px(cell - 2 * gap), px(cell - 2 * gap));
      if (row[guess] > 0) {
        add(out, "<rect class=\"heat\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill-opacity=\"{:.3f}\"/>",
            px(x + gap), px(y + gap), px(cell - 2 * gap), px(cell - 2 * gap), 0.04 + 0.56 * share);
      }
      const double middle = x + cell / 2;
      if (with_counts) {
        add(out, "<text class=\"count\" x=\"{}\" y=\"{}\">{}</text>", px(middle), px(y + cell / 2 - 1),
            grouped(row[guess]));
        if (total > 0) {
          add(out, "<text class=\"share\" x=\"{}\" y=\"{}\">{:.1f}%</text>", px(middle), px(y + cell / 2 + 14),
              100 * share);
        }
      } else if (with_percent && row[guess] > 0) {
        add(out, "<text class=\"share\" x=\"{}\" y=\"{}\">{:.0f}</text>", px(middle), px(y + cell / 2 + 4),
            100 * share);
      }
      out += "</g>\n";
    }
  }
  return out + "</svg>\n";
}

std::string category_chart(std::string_view id, std::string_view title, std::string_view x_label,
                           std::string_view y_label, const std::vector<Category>& categories, CategoryStyle style,
                           const std::vector<Level>& levels) {
  struct Drawn {
    std::vector<double> values;  // sorted
    double mean = kNan, deviation = 0;
  };
  const bool bars = style == CategoryStyle::kBars;
  std::vector<Drawn> all;
  std::vector<std::string> names, second_lines;
  Range range, means;
  for (const Category& category : categories) {
    Drawn drawn;
    std::copy_if(category.values.begin(), category.values.end(), std::back_inserter(drawn.values), drawable);
    std::sort(drawn.values.begin(), drawn.values.end());
    const auto count = static_cast<double>(drawn.values.size());
    if (count > 0) drawn.mean = std::accumulate(drawn.values.begin(), drawn.values.end(), 0.0) / count;
    double squares = 0;
    for (const double value : drawn.values) {
      range.include(value);
      squares += (value - drawn.mean) * (value - drawn.mean);
    }
    if (count > 1) drawn.deviation = std::sqrt(squares / (count - 1));
    means.include(drawn.mean);
    if (bars) range.include(drawn.mean - drawn.deviation);
    if (bars) range.include(drawn.mean + drawn.deviation);
    all.push_back(std::move(drawn));
    const size_t line = category.name.find('\n');
    names.push_back(category.name.substr(0, line));
    second_lines.push_back(line == std::string::npos ? "" : category.name.substr(line + 1));
  }
  for (const Level& level : levels) range.include(level.value);
  const bool two_lines =
      std::any_of(second_lines.begin(), second_lines.end(), [](const auto& line) { return !line.empty(); });
  // Bars from 0 show proportions; but 76 against 78 would look alike.
  const bool from_zero = bars && !means.empty() && means.low >= 0 && means.low < 0.7 * means.high;
  if (from_zero) range.low = 0;
  Axis y = Axis::linear(from_zero ? Range{0, range.high * 1.12} : range, from_zero ? 0 : 0.16, 6);
  const Plot plot(520, 300, Axis::named(names), std::move(y), {.bottom = two_lines ? 56.0 : 42.0});
  std::string out = plot.open(id, bars ? "categories bars" : "categories boxes", title);
  out += plot.axes(x_label, y_label, false);
  const double floor = plot.y_axis().from();
  for (const Level& level : levels) {
    if (!drawable(level.value)) continue;
    const double at = plot.y(level.value);
    add(out,
        "<path class=\"guide\" d=\"M{} {}H{}\"/><text class=\"tick\" x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>\n",
        px(plot.x_axis().from()), px(at), px(plot.x_axis().to()), px(plot.x_axis().to()), px(at - 5),
        escape(level.name));
  }
  const double slot = plot.x(1) - plot.x(0), half = std::min(26.0, slot * 0.3);
  for (size_t i = 0; i < all.size(); ++i) {
    const Drawn& drawn = all[i];
    const double x = plot.x(static_cast<double>(i));
    add(out, "<g class=\"{}\"><text class=\"tick\" x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
        categories[i].css, px(x), px(floor + 31), escape(second_lines[i]));
    if (drawn.values.empty()) {
      add(out, "<text class=\"tick\" x=\"{}\" y=\"{}\" text-anchor=\"middle\">no run</text></g>\n", px(x),
          px(floor - 8));
      continue;
    }
    add(out, "<title>{}: mean {}{}, {} values</title>", escape(categories[i].name), number(drawn.mean),
        drawn.values.size() > 1 ? " \u00b1 " + number(drawn.deviation, 2) : "", drawn.values.size());
    const auto whisker = [&](double low, double high) {
      add(out, "<path class=\"whisker\" d=\"M{} {}h{}M{} {}h{}M{} {}V{}\"/>", px(x - 5), px(plot.y(low)), 10, px(x - 5),
          px(plot.y(high)), 10, px(x), px(plot.y(low)), px(plot.y(high)));
    };
    double top = plot.y(drawn.values.back());
    if (bars) {
      const double at = plot.y(drawn.mean);
      add(out, "<rect class=\"pillar\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"/>", px(x - half), px(at),
          px(2 * half), px(floor - at));
      if (drawn.deviation > 0) whisker(drawn.mean - drawn.deviation, drawn.mean + drawn.deviation);
      top = std::min(top, plot.y(drawn.mean + drawn.deviation));
    } else if (drawn.values.size() >= 4) {
      const double q1 = plot.y(quantile(drawn.values, 0.25)), q3 = plot.y(quantile(drawn.values, 0.75));
      whisker(drawn.values.front(), drawn.values.back());
      add(out, "<rect class=\"box\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"/>", px(x - half), px(q3), px(2 * half),
          px(std::max(0.5, q1 - q3)));
    }
    if (!bars) {
      add(out, "<path class=\"median\" d=\"M{} {}h{}\"/>", px(x - half), px(plot.y(quantile(drawn.values, 0.5))),
          px(2 * half));
    }
    for (size_t k = 0; k < drawn.values.size(); ++k) {
      // Beside each other, so that equal values show.
      const double shift = (static_cast<double>(k) - static_cast<double>(drawn.values.size() - 1) / 2) *
                           std::min(7.0, 1.4 * half / static_cast<double>(drawn.values.size()));
      add(out, "<circle class=\"dot\" cx=\"{}\" cy=\"{}\" r=\"3\"/>", px(x + shift), px(plot.y(drawn.values[k])));
    }
    add(out, "<text class=\"value\" x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text></g>\n", px(x), px(top - 9),
        number(bars ? drawn.mean : quantile(drawn.values, 0.5)));
  }
  return out + "</svg>\n";
}

}  // namespace san::charts
