// Charts as inline SVG, for the report. Colours and fonts come from the page's style sheet (report.cc) through classes;
// everything works without a script: details of a point appear by :hover. Texts are escaped here: pass them raw.
// Values that cannot be drawn (NaN, infinite, beyond 1e100) are gaps.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace san::charts {

// Text for HTML content and quoted attributes. Control characters become U+FFFD.
std::string escape(std::string_view text);
// The first `limit` code points, with an ellipsis when there were more.
std::string shorten(std::string_view text, size_t limit);
// About `digits` significant digits; "n/a" for NaN.
std::string number(double value, int digits = 4);
// 1234567 -> "1,234,567".
std::string grouped(int64_t value);
bool drawable(double value);

struct Series {
  std::string name;
  std::string css;        // class of the line
  std::vector<double> y;  // one per epoch
};

struct EpochChart {
  std::string id;
  std::string title;  // for screen readers
  std::vector<double> epochs;
  std::vector<Series> series;
  double marked = -1;      // best epoch; negative = none
  std::string mark_label;  // "best"
  bool steps = false;      // values hold until the next epoch
};
// Curves over epochs. Logarithmic when all values are positive and span a factor of more than 20 (and `may_be_log`). Otherwise,
// where the first twentieth of the epochs would press the rest flat (into less than half of the height), curves come in from
// beyond the edge. More than 240 epochs are drawn as the extremes of 240 stretches, so that no spike is lost.
std::string epoch_chart(const EpochChart& chart, bool may_be_log);

struct Curve {
  std::string name;
  std::string css;
  std::vector<double> x, y;  // in [0, 1]
};
enum class Guide { kNone, kDiagonal, kLevel };
// ROC or precision-recall curves in the unit square.
std::string unit_chart(std::string_view id, std::string_view title, std::string_view x_label, std::string_view y_label,
                       const std::vector<Curve>& curves, Guide guide, double level = 0);

// Predicted against true with the diagonal; both axes have one range.
std::string scatter_chart(std::string_view id, std::string_view title, std::span<const double> truth,
                          std::span<const double> predicted);
// Counts of residuals, 0 marked; `tall`: as high as a scatter chart. Values far outside (4 interquartile ranges) are in the outermost bars.
std::string histogram_chart(std::string_view id, std::string_view title, std::string_view x_label,
                            std::span<const double> values, bool tall);

// counts: [classes, classes], rows = labels. Counts and row percentages in the cells as far as there is room.
std::string confusion_chart(std::string_view id, std::string_view title, std::span<const int64_t> counts,
                            const std::vector<std::string>& classes);

// Values of things that have names: seeds by gamma, or by network.
struct Category {
  std::string name;  // below the axis; a line end begins a second line
  std::string css;
  std::vector<double> values;
};
struct Level {
  std::string name;
  double value = 0;
};
// kBoxes: quartiles and extremes as a box from 4 values on, the median alone below that. kBars: the mean, with the sample standard
// deviation as error bars; the axis begins at 0 unless all means are near each other. Every value is a dot in both. Levels are
// dashed lines across.
enum class CategoryStyle { kBoxes, kBars };
std::string category_chart(std::string_view id, std::string_view title, std::string_view x_label,
                           std::string_view y_label, const std::vector<Category>& categories, CategoryStyle style,
                           const std::vector<Level>& levels);

}  // namespace san::charts
