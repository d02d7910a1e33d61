#include "san/cli/inspection.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "san/base/random.h"
#include "san/cli/progress.h"

#ifdef SAN_WITH_RDKIT
#include "san/chem/molecule.h"
#endif

namespace san::cli {
namespace {

constexpr size_t kMaxClasses = 64, kMaxCategories = 4096, kSample = 20'000, kBadShown = 20;
constexpr size_t kColumnsShown = 16, kCategoriesShown = 12, kBins = 10;
constexpr int kBarWidth = 40;

// Two eigenvalues are the same when they differ by less than this: they are stored as floats of order one, so that
// rounding moves them by 6e-8 each; real gaps of molecules are above 1e-4.
constexpr double kSameEigenvalue = 1e-5;

std::string share(int64_t part, int64_t whole) {
  return fmt::format("{} ({:.1f} %)", with_commas(part),
                     whole > 0 ? 100.0 * static_cast<double>(part) / static_cast<double>(whole) : 0.0);
}

std::string range_text(const Range& range, const char* format) {
  if (range.count == 0) return "none";
  return fmt::format(fmt::runtime(fmt::format("{0}..{0}, mean {{:.4g}}", format)), range.low, range.high, range.mean);
}

std::string bar(int64_t count, int64_t largest) {
  return std::string(static_cast<size_t>(std::lround(static_cast<double>(kBarWidth) * static_cast<double>(count) /
                                                     static_cast<double>(std::max<int64_t>(1, largest)))),
                     '#');
}

void append_label_column(std::string& out, const std::string& name, const LabelColumn& column, bool histogram) {
  const Range& range = column.range;
  out += fmt::format("  {}: {} labels, {} missing", name, with_commas(range.count), with_commas(column.missing));
  if (range.count == 0) {
    out += '\n';
    return;
  }
  const bool classes = column.whole && !column.many && column.classes.size() <= 20;
  if (classes) {
    out += fmt::format(", {} classes\n", column.classes.size());
    int64_t largest = 0;
    for (const auto& [value, count] : column.classes) largest = std::max(largest, count);
    if (!histogram) return;
    for (const auto& [value, count] : column.classes) {
      out += fmt::format("    {:>8} {:>18} {}\n", value, share(count, range.count), bar(count, largest));
    }
    return;
  }
  out += fmt::format(", {:.6g}..{:.6g}, mean {:.6g}, deviation {:.6g}\n", range.low, range.high, range.mean,
                     range.deviation());
  if (!histogram || range.low == range.high) return;
  std::vector<int64_t> bins(kBins, 0);
  const double width = (range.high - range.low) / kBins;
  for (const double value : column.sample) {
    ++bins[std::min(kBins - 1, static_cast<size_t>((value - range.low) / width))];
  }
  const int64_t largest = *std::max_element(bins.begin(), bins.end());
  for (size_t i = 0; i < kBins; ++i) {
    const double low = range.low + static_cast<double>(i) * width;
    // Of the sample, scaled up to all labels.
    const auto count = std::llround(static_cast<double>(bins[i]) * static_cast<double>(range.count) /
                                    static_cast<double>(column.sample.size()));
    out += fmt::format("    {:>10.4g}..{:<10.4g} {:>10} {}\n", low, low + width, with_commas(count),
                       bar(bins[i], largest));
  }
}

std::string category_name(int32_t category, bool zinc_atoms) {
#ifdef SAN_WITH_RDKIT
  const auto& types = zinc_atom_types();
  if (zinc_atoms && static_cast<size_t>(category) < types.size())
    return fmt::format("{} ({})", category, types[static_cast<size_t>(category)]);
#endif
  (void)zinc_atoms;
  return std::to_string(category);
}

void append_categories(std::string& out, const char* what, const std::vector<CategoryColumn>& columns,
                       bool zinc_atoms) {
  for (size_t c = 0; c < columns.size() && c < kColumnsShown; ++c) {
    int64_t total = columns[c].others;
    std::vector<std::pair<int64_t, int32_t>> sorted;
    for (const auto& [category, count] : columns[c].counts) {
      sorted.emplace_back(-count, category);
      total += count;
    }
    std::sort(sorted.begin(), sorted.end());
    out += fmt::format("  {} column {}: {}{} categories, highest {}:", what, c, columns[c].others > 0 ? "over " : "",
                       sorted.size(), columns[c].counts.empty() ? 0 : columns[c].counts.rbegin()->first);
    for (size_t i = 0; i < sorted.size() && i < kCategoriesShown; ++i) {
      const double share = -100.0 * static_cast<double>(sorted[i].first) / static_cast<double>(total);
      out += fmt::format("{} {} {:.{}g} %", i == 0 ? "" : ",", category_name(sorted[i].second, zinc_atoms), share,
                         share < 99.5 ? 2 : 3);
    }
    out += sorted.size() > kCategoriesShown ? ", ...\n" : "\n";
  }
  if (columns.size() > kColumnsShown)
    out += fmt::format("  ... and {} more {} columns\n", columns.size() - kColumnsShown, what);
}

void append_values(std::string& out, const char* what, const std::vector<Range>& columns) {
  for (size_t c = 0; c < columns.size() && c < kColumnsShown; ++c) {
    out += fmt::format("  {} value {}: {}, deviation {:.4g}\n", what, c, range_text(columns[c], "{:.4g}"),
                       columns[c].deviation());
  }
  if (columns.size() > kColumnsShown)
    out += fmt::format("  ... and {} more {} values\n", columns.size() - kColumnsShown, what);
}

void count_features(const Features& features, std::vector<CategoryColumn>& categories, std::vector<Range>& values) {
  const auto category_columns = static_cast<size_t>(features.category_columns);
  const auto value_columns = static_cast<size_t>(features.value_columns);
  if (categories.size() < category_columns) categories.resize(category_columns);
  if (values.size() < value_columns) values.resize(value_columns);
  for (size_t i = 0; i < features.categories.size(); ++i) {
    CategoryColumn& column = categories[i % category_columns];
    const auto found = column.counts.find(features.categories[i]);
    if (found != column.counts.end()) {
      ++found->second;
    } else if (column.counts.size() < kMaxCategories) {
      column.counts.emplace(features.categories[i], 1);
    } else {
      ++column.others;
    }
  }
  for (size_t i = 0; i < features.values.size(); ++i) values[i % value_columns].add(features.values[i]);
}

int count_components(const Graph& graph) {
  std::vector<int32_t> parent(static_cast<size_t>(graph.num_nodes));
  std::iota(parent.begin(), parent.end(), 0);
  const auto root = [&](int32_t node) {
    while (parent[static_cast<size_t>(node)] != node) {
      auto& up = parent[static_cast<size_t>(node)];
      node = up = parent[static_cast<size_t>(up)];
    }
    return node;
  };
  int components = graph.num_nodes;
  for (const Edge& edge : graph.edges) {
    const int32_t a = root(edge.source), b = root(edge.target);
    if (a == b) continue;
    parent[static_cast<size_t>(a)] = b;
    --components;
  }
  return components;
}

}  // namespace

void Range::add(double value) {
  low = count == 0 ? value : std::min(low, value);
  high = count == 0 ? value : std::max(high, value);
  ++count;
  const double distance = value - mean;
  mean += distance / static_cast<double>(count);
  m2 += distance * (value - mean);
}

double Range::deviation() const {
  return count < 2 ? 0 : std::sqrt(m2 / static_cast<double>(count - 1));
}

void LabelColumn::add(double value) {
  if (std::isnan(value)) {
    ++missing;
    return;
  }
  range.add(value);
  whole = whole && value == std::floor(value);
  if (!many) {
    ++classes[value];
    many = classes.size() > kMaxClasses;
    if (many) classes.clear();
  }
  // Reservoir sampling: every label so far is in the sample with the same probability.
  if (sample.size() < kSample) {
    sample.push_back(value);
  } else {
    const uint64_t place = Random(0, static_cast<uint64_t>(range.count)).below(static_cast<uint64_t>(range.count));
    if (place < kSample) sample[place] = value;
  }
}

Inspection::Inspection(std::vector<std::string> targets, int num_pairs)
    : targets_(std::move(targets)), num_pairs_(num_pairs) {}

void Inspection::add_bad(const std::string& message) {
  ++bad_count_;
  if (bad_.size() < kBadShown) bad_.push_back(message);
}

void Inspection::add(const Graph& graph) {
  ++graphs_;
  nodes_.add(graph.num_nodes);
  edges_.add(static_cast<double>(graph.edges.size()));
  if (splits_.size() < 100 || splits_.contains(graph.split)) ++splits_[graph.split];
  if (graph.graph_labels.empty() && graph.node_labels.empty()) ++unlabelled_;
  if (labels_.size() < graph.graph_labels.size()) labels_.resize(graph.graph_labels.size());
  for (size_t i = 0; i < graph.graph_labels.size(); ++i) labels_[i].add(graph.graph_labels[i]);
  for (const double label : graph.node_labels) node_labels_.add(label);
  count_features(graph.node_features, node_categories_, node_values_);
  count_features(graph.edge_features, edge_categories_, edge_values_);

  std::vector<bool> touched(static_cast<size_t>(graph.num_nodes), false);
  std::vector<std::pair<int32_t, int32_t>> there;
  bool loops = false;
  for (const Edge& edge : graph.edges) {
    touched[static_cast<size_t>(edge.source)] = touched[static_cast<size_t>(edge.target)] = true;
    loops = loops || edge.source == edge.target;
    there.emplace_back(edge.source, edge.target);
  }
  self_loops_ += loops ? 1 : 0;
  std::sort(there.begin(), there.end());
  one_way_ += std::any_of(graph.edges.begin(), graph.edges.end(), [&](const Edge& edge) {
    return !std::binary_search(there.begin(), there.end(), std::pair(edge.target, edge.source));
  });
  isolated_ += std::find(touched.begin(), touched.end(), false) != touched.end() && graph.num_nodes > 1 ? 1 : 0;
  disconnected_ += count_components(graph) > 1 ? 1 : 0;
  if (graph.eigenpairs) add_spectrum(graph);
}

void Inspection::add_spectrum(const Graph& graph) {
  const auto& values = graph.eigenpairs->values;
  ++with_pairs_;
  few_nodes_ += graph.num_nodes < num_pairs_ ? 1 : 0;
  if (values.empty()) return;
  highest_.add(values.back());
  bool repeated = false;
  double first = -1;  // the lowest that is not 0
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i] < kSameEigenvalue) continue;
    if (first < 0) first = values[i];
    repeated = repeated || (i > 0 && values[i] - values[i - 1] < kSameEigenvalue);
  }
  repeated_ += repeated ? 1 : 0;
  if (first >= 0) gap_.add(first);
}

std::string Inspection::report(bool zinc_atoms) const {
  std::string out = fmt::format("graphs: {}\n", with_commas(graphs_));
  if (graphs_ > 0) {
    out += fmt::format("  nodes {}; edges {} (directed)\n", range_text(nodes_, "{:.0f}"), range_text(edges_, "{:.0f}"));
    out += fmt::format("  disconnected: {}; with isolated nodes: {}; with self loops: {}; with one-way edges: {}\n",
                       share(disconnected_, graphs_), with_commas(isolated_), with_commas(self_loops_),
                       with_commas(one_way_));
    out += "splits:";
    for (const auto& [word, count] : splits_)
      out += fmt::format(" {} {}", word.empty() ? "none" : printable(word, 20), with_commas(count));
    out += "\nlabels:\n";
    for (size_t i = 0; i < labels_.size() && i < kColumnsShown; ++i) {
      append_label_column(out, i < targets_.size() ? printable(targets_[i], 60) : fmt::format("label {}", i),
                          labels_[i], true);
    }
    if (labels_.size() > kColumnsShown)
      out += fmt::format("  ... and {} more label columns\n", labels_.size() - kColumnsShown);
    if (node_labels_.range.count + node_labels_.missing > 0) append_label_column(out, "nodes", node_labels_, true);
    if (unlabelled_ > 0) out += fmt::format("  graphs without labels: {}\n", share(unlabelled_, graphs_));
    out += "features:\n";
    append_categories(out, "node", node_categories_, zinc_atoms);
    append_values(out, "node", node_values_);
    append_categories(out, "edge", edge_categories_, false);
    append_values(out, "edge", edge_values_);
    if (node_categories_.empty() && node_values_.empty()) out += "  nodes have none\n";
    if (edge_categories_.empty() && edge_values_.empty()) out += "  edges have none\n";
    if (with_pairs_ > 0) {
      out += fmt::format("spectra: {} lowest eigenpairs\n", num_pairs_);
      out += fmt::format("  lowest eigenvalue above 0: {}; highest kept: {}\n", range_text(gap_, "{:.4g}"),
                         range_text(highest_, "{:.4g}"));
      out += fmt::format("  graphs with fewer nodes than pairs: {}; with repeated eigenvalues (not 0): {}\n",
                         share(few_nodes_, with_pairs_), share(repeated_, with_pairs_));
    }
  }
  out += fmt::format("bad records: {}\n", with_commas(bad_count_));
  for (const auto& message : bad_) out += fmt::format("  {}\n", message);
  if (static_cast<int64_t>(bad_.size()) < bad_count_)
    out += fmt::format("  ... and {} more\n", with_commas(bad_count_ - static_cast<int64_t>(bad_.size())));
  return out;
}

}  // namespace san::cli
