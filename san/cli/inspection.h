// What `san data inspect` counts, one graph at a time, in memory that does not grow with the data.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "san/graph/graph.h"

namespace san::cli {

// Smallest, mean and largest of a stream of numbers.
struct Range {
  int64_t count = 0;
  double low = 0, high = 0, mean = 0, m2 = 0;  // m2: sum of squared distances from the mean (Welford)
  void add(double value);
  double deviation() const;  // of the sample; 0 for fewer than two
};

// Labels of one column.
struct LabelColumn {
  Range range;
  int64_t missing = 0;
  bool whole = true;                  // only whole numbers so far
  std::map<double, int64_t> classes;  // how often each value came, while there are few
  bool many = false;                  // more values than are worth counting
  std::vector<double> sample;         // a uniform sample, for the histogram
  void add(double value);
};

// Values of one categorical column.
struct CategoryColumn {
  std::map<int32_t, int64_t> counts;
  int64_t others = 0;  // beyond the number of categories that are told apart
};

class Inspection {
 public:
  Inspection(std::vector<std::string> targets, int num_pairs);

  void add(const Graph& graph);
  void add_bad(const std::string& message);
  // Some lines of text. `zinc_atoms`: node categories are those of the zinc featuriser and can be named.
  std::string report(bool zinc_atoms) const;

 private:
  void add_spectrum(const Graph& graph);

  std::vector<std::string> targets_;
  int num_pairs_;
  int64_t graphs_ = 0, unlabelled_ = 0, self_loops_ = 0, one_way_ = 0;
  Range nodes_, edges_;
  std::vector<LabelColumn> labels_;
  LabelColumn node_labels_;
  std::map<std::string, int64_t> splits_;
  std::vector<CategoryColumn> node_categories_, edge_categories_;
  std::vector<Range> node_values_, edge_values_;

  int64_t with_pairs_ = 0, few_nodes_ = 0, repeated_ = 0, disconnected_ = 0, isolated_ = 0;
  Range gap_, highest_;
  std::vector<std::string> bad_;
  int64_t bad_count_ = 0;
};

}  // namespace san::cli
