#include "san/graph/jsonl.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "san/base/file.h"

namespace san {
namespace {

enum Field : int {
  kId,
  kNumNodes,
  kEdges,
  kUndirected,
  kNodeFeat,
  kEdgeFeat,
  kNodeAttr,
  kEdgeAttr,
  kLabel,
  kNodeLabel,
  kSplit,
  kEigvals,
  kEigvecs,
  kFieldCount
};

struct FieldRule {
  std::string_view name;
  // Depths at which its numbers may stand: 1 = in the object itself, 2 = in a list, 3 = in a list of lists.
  // 0 = no numbers.
  int min_depth, max_depth;
  std::string_view expected;
};

constexpr std::array<FieldRule, kFieldCount> kRules{{
    {"id", 1, 1, "a string or an integer"},
    {"num_nodes", 1, 1, "an integer"},
    {"edges", 3, 3, "a list of pairs [source, target] of node numbers"},
    {"undirected", 0, 0, "true or false"},
    {"node_feat", 2, 3, "a list of numbers or of rows of numbers"},
    {"edge_feat", 2, 3, "a list of numbers or of rows of numbers"},
    {"node_attr", 2, 3, "a list of numbers or of rows of numbers"},
    {"edge_attr", 2, 3, "a list of numbers or of rows of numbers"},
    {"label", 1, 2, "a number, null, or a list of them"},
    {"node_label", 2, 2, "a list of numbers (or null), one per node"},
    {"split", 0, 0, "a string"},
    {"eigvals", 2, 2, "a list of numbers"},
    {"eigvecs", 3, 3, "a list of rows of numbers, one per node"},
}};

struct Number {
  bool is_integer;          // written without point and exponent
  bool fits;                // is_integer and `integer` holds it
  int64_t integer;          // if fits
  double real;              // nearest double
  const std::string* text;  // as written, or null
};

// Nearest float of the text as written; false when it is too large. Rounding the double again gives just that
// except on the exact middle between two floats (the double may only have been rounded to it) and among
// subnormals; there, and near overflow, the text decides.
bool to_float(const Number& number, float& out) {
  constexpr double kLeast = std::numeric_limits<float>::min(), kMost = std::numeric_limits<float>::max();
  if (number.fits) {
    out = static_cast<float>(number.integer);
    return true;
  }
  const double size = std::abs(number.real);
  const bool middle = (std::bit_cast<uint64_t>(number.real) & 0x1fffffff) == 0x10000000;
  if (number.text != nullptr && (middle || size < kLeast || size > kMost) && size != 0) {
    const char* end = number.text->data() + number.text->size();
    if (std::from_chars(number.text->data(), end, out).ec == std::errc()) return true;
    // Refused: overflow, or underflow, which is not an error here.
  }
  if (size > kMost) return false;
  out = static_cast<float>(number.real);
  return true;
}

// Rows of numbers being read. Integers are categories until a number shows that the whole list is real.
struct Matrix {
  int64_t rows = 0;
  int64_t columns = -1;  // -1: not known yet
  bool nested = false;
  bool real = false;             // values hold the numbers, otherwise categories do
  bool has_real_number = false;  // some number has a point or an exponent
  std::string not_a_category;    // first integer that only a list of real values may hold
  std::vector<int32_t> categories;
  std::vector<float> values;

  void become_real() {
    if (real) return;
    real = true;
    values.assign(categories.begin(), categories.end());
    categories = {};
  }
};

// Receives the parser's events and puts them straight into a Graph. Throws RecordError from any of them.
class GraphBuilder {
 public:
  explicit GraphBuilder(const std::string& where) : where_(where) {}

  // --- nlohmann's SAX interface

  bool null() {
    if (depth_ == 1 && field_ == kLabel) {
      graph_.graph_labels.push_back(kMissing);
    } else if (depth_ == 2 && field_ == kLabel) {
      graph_.graph_labels.push_back(kMissing);
    } else if (depth_ == 2 && field_ == kNodeLabel) {
      graph_.node_labels.push_back(kMissing);
    } else {
      wrong_type("null");
    }
    return true;
  }

  bool boolean(bool value) {
    if (depth_ != 1 || field_ != kUndirected) wrong_type(value ? "true" : "false");
    undirected_ = value;
    return true;
  }

  bool number_integer(int64_t value) { return number({true, true, value, static_cast<double>(value), nullptr}); }

  bool number_unsigned(uint64_t value) {
    const bool fits = value <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
    return number({true, fits, fits ? static_cast<int64_t>(value) : 0, static_cast<double>(value), nullptr});
  }

  bool number_float(double value, const std::string& text) {
    // The lexer falls back to a double for integers of more than 64 bits.
    const bool is_integer = std::abs(value) > 0x1p62 && text.find_first_of(".eE") == std::string::npos;
    return number({is_integer, false, 0, value, &text});
  }

  bool string(std::string& value) {
    if (depth_ == 1 && field_ == kId) {
      graph_.id = std::move(value);
    } else if (depth_ == 1 && field_ == kSplit) {
      graph_.split = std::move(value);
    } else {
      wrong_type("a string");
    }
    return true;
  }

  bool binary(nlohmann::json::binary_t&) { bad("not JSON"); }

  bool start_object(size_t) {
    if (depth_ != 0) wrong_type("an object");
    depth_ = 1;
    return true;
  }

  bool end_object() {
    depth_ = 0;
    return true;
  }

  bool key(std::string& name) {
    const auto rule = std::find_if(kRules.begin(), kRules.end(), [&](const FieldRule& r) { return r.name == name; });
    if (rule == kRules.end()) bad("unknown key '{}'", printable(name));
    field_ = static_cast<Field>(rule - kRules.begin());
    if (has(field_)) bad("the key '{}' is there twice", rule->name);
    seen_ |= 1u << field_;
    matrix_ = matrix_of(field_);
    return true;
  }

  bool start_array(size_t) {
    if (depth_ == 0 || depth_ >= kRules[field_].max_depth) {
      wrong_type(depth_ <= 1 ? "a list" : "lists nested too deeply");
    }
    ++depth_;
    if (depth_ == 3) {
      row_length_ = 0;
      if (matrix_ != nullptr) {
        if (matrix_->rows > 0 && !matrix_->nested) bad("{} mixes numbers and rows", name());
        matrix_->nested = true;
      }
    }
    return true;
  }

  bool end_array() {
    if (depth_ == 3) {
      if (field_ == kEdges) {
        end_edge();
      } else {
        end_row();
      }
    } else if (field_ == kLabel && graph_.graph_labels.empty()) {
      bad("label is an empty list; leave the key out, or write null for a missing label");
    } else if (matrix_ != nullptr && matrix_->real && !matrix_->has_real_number &&
               (field_ == kNodeFeat || field_ == kEdgeFeat)) {
      bad("{} has the category {}; categories are 0..{} (write a point for real values)", name(),
          printable(matrix_->not_a_category, 24), std::numeric_limits<int32_t>::max());
    }
    --depth_;
    return true;
  }

  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception& error) {
    // "[json.exception.parse_error.101] parse error at line 1, column 7: what": we have our own place.
    std::string_view what = error.what();
    if (const size_t cut = what.find("] "); cut != std::string_view::npos) what.remove_prefix(cut + 2);
    if (const size_t cut = what.find(": "); what.starts_with("parse error") && cut != std::string_view::npos) {
      what.remove_prefix(cut + 2);
    }
    bad("not valid JSON at byte {}: {}", position, printable(what, 160));
  }

  // --- after the last event

  Graph finish(int64_t index) {
    for (const Field field : {kNumNodes, kEdges}) {
      if (!has(field)) bad("the key '{}' is missing", kRules[field].name);
    }
    if (!has(kId)) graph_.id = std::to_string(index);
    const auto nodes = static_cast<int64_t>(graph_.num_nodes);
    const auto edges = static_cast<int64_t>(graph_.edges.size());
    for (int64_t i = 0; i < edges; ++i) {
      const Edge edge = graph_.edges[static_cast<size_t>(i)];
      for (const int32_t node : {edge.source, edge.target}) {
        if (node >= nodes) bad("edge {} names node {}, but the graph has nodes 0..{}", i, node, nodes - 1);
      }
    }
    for (const auto& [field, rows] : {std::pair{kNodeFeat, nodes}, std::pair{kNodeAttr, nodes},
                                      std::pair{kEdgeFeat, edges}, std::pair{kEdgeAttr, edges}}) {
      const Matrix& matrix = *matrix_of(field);
      if (has(field) && matrix.rows != rows) {
        bad("{} has {} rows for {} {}", kRules[field].name, matrix.rows, rows,
            rows == nodes && (field == kNodeFeat || field == kNodeAttr) ? "nodes" : "edges");
      }
    }
    graph_.node_features = features(kNodeFeat, kNodeAttr);
    graph_.edge_features = features(kEdgeFeat, kEdgeAttr);
    if (has(kLabel) && has(kNodeLabel)) bad("a graph has either 'label' or 'node_label', not both");
    if (has(kNodeLabel) && static_cast<int64_t>(graph_.node_labels.size()) != nodes) {
      bad("node_label has {} numbers for {} nodes", graph_.node_labels.size(), nodes);
    }
    finish_eigenpairs();
    if (undirected_) list_both_directions();
    try {
      validate(graph_, where_);
    } catch (const Error& error) {
      throw RecordError(error.what());
    }
    return std::move(graph_);
  }

 private:
  static constexpr double kMissing = std::numeric_limits<double>::quiet_NaN();

  template <typename... Args>
  [[noreturn, gnu::noinline, gnu::cold]] void bad(fmt::format_string<Args...> format, Args&&... args) const {
    const std::string what = fmt::format(format, std::forward<Args>(args)...);
    throw RecordError(where_.empty() ? what : where_ + ": " + what);
  }

  [[noreturn, gnu::noinline, gnu::cold]] void wrong_type(std::string_view got) const {
    if (depth_ == 0) bad("a line must hold one JSON object, not {}", got);
    bad("{} must be {}, not {}{}", name(), kRules[field_].expected, depth_ > 1 ? "hold " : "", got);
  }

  std::string_view name() const { return kRules[field_].name; }
  bool has(Field field) const { return (seen_ >> field & 1u) != 0; }

  Matrix* matrix_of(Field field) {
    switch (field) {
      case kNodeFeat:
        return &matrices_[0];
      case kEdgeFeat:
        return &matrices_[1];
      case kNodeAttr:
        return &matrices_[2];
      case kEdgeAttr:
        return &matrices_[3];
      case kEigvecs:
        return &matrices_[4];
      default:
        return nullptr;
    }
  }

  bool number(const Number& x) {
    if (depth_ == 0 || depth_ < kRules[field_].min_depth || depth_ > kRules[field_].max_depth) {
      wrong_type(x.is_integer ? "an integer" : "a number");
    }
    switch (field_) {
      case kEdges:
        if (!x.is_integer) wrong_type("a number with a point or exponent");
        if (!x.fits || x.integer < 0 || x.integer > std::numeric_limits<int32_t>::max()) {
          bad("edge {} names a node that cannot be: {}", graph_.edges.size(), shown(x));
        }
        if (row_length_ < 2) pair_[row_length_] = static_cast<int32_t>(x.integer);
        ++row_length_;
        break;
      case kNodeFeat:
      case kEdgeFeat:
        add_feature(x);
        break;
      case kNodeAttr:
      case kEdgeAttr:
      case kEigvecs:
        matrix_->real = true;
        matrix_->values.push_back(real_number(x));
        count_in_matrix();
        break;
      case kEigvals:
        eigvals_.push_back(real_number(x));
        break;
      case kLabel:
        graph_.graph_labels.push_back(x.real);
        break;
      case kNodeLabel:
        graph_.node_labels.push_back(x.real);
        break;
      case kNumNodes:
        if (!x.is_integer) wrong_type("a number with a point or exponent");
        if (!x.fits || x.integer < 1 || x.integer > kMaxNodes) {
          bad("num_nodes is {}; it must be 1..{}", shown(x), kMaxNodes);
        }
        graph_.num_nodes = static_cast<int32_t>(x.integer);
        break;
      case kId:
        if (!x.is_integer) wrong_type("a number with a point or exponent");
        if (!x.fits) bad("id is an integer of more than 64 bits; write it as a string");
        graph_.id = std::to_string(x.integer);
        break;
      default:
        wrong_type("a number");
    }
    return true;
  }

  static std::string shown(const Number& x) {
    if (x.fits) return std::to_string(x.integer);
    return x.text != nullptr ? printable(*x.text, 24) : fmt::format("{}", x.real);
  }

  float real_number(const Number& x) const {
    float out = 0;
    if (!to_float(x, out)) bad("{} has a number too large for a float: {}", name(), shown(x));
    return out;
  }

  void add_feature(const Number& x) {
    Matrix& matrix = *matrix_;
    if (!matrix.real && x.fits && x.integer >= 0 && x.integer <= std::numeric_limits<int32_t>::max()) {
      matrix.categories.push_back(static_cast<int32_t>(x.integer));
    } else {
      matrix.become_real();
      if (!x.is_integer) {
        matrix.has_real_number = true;
      } else if (!matrix.has_real_number && matrix.not_a_category.empty() &&
                 (!x.fits || x.integer < 0 || x.integer > std::numeric_limits<int32_t>::max())) {
        matrix.not_a_category = shown(x);
      }
      matrix.values.push_back(real_number(x));
    }
    count_in_matrix();
  }

  void count_in_matrix() {
    if (depth_ == 2) {
      if (matrix_->nested) bad("{} mixes rows and numbers", name());
      matrix_->columns = 1;
      ++matrix_->rows;
    } else if (++row_length_ > kMaxFeatureColumns && field_ != kEigvecs) {
      bad("{} has rows of more than the {} columns allowed", name(), kMaxFeatureColumns);
    }
  }

  void end_row() {
    Matrix& matrix = *matrix_;
    if (matrix.columns < 0) {
      if (row_length_ == 0 && field_ != kEigvecs) bad("{} has an empty row", name());
      matrix.columns = row_length_;
    }
    if (row_length_ != matrix.columns) {
      bad("row {} of {} has {} numbers, those before it have {}", matrix.rows, name(), row_length_, matrix.columns);
    }
    ++matrix.rows;
  }

  void end_edge() {
    if (row_length_ != 2) {
      bad("edge {} has {} numbers; an edge is a pair [source, target]", graph_.edges.size(), row_length_);
    }
    if (static_cast<int64_t>(graph_.edges.size()) >= kMaxEdges) {
      bad("more than the {} edges allowed", kMaxEdges);
    }
    graph_.edges.push_back({pair_[0], pair_[1]});
  }

  Features features(Field feat, Field attr) {
    Features out;
    Matrix& first = *matrix_of(feat);
    Matrix& second = *matrix_of(attr);
    // A list without rows (a graph without edges) says nothing about columns.
    if (has(feat) && first.rows > 0) {
      if (first.real) {
        if (has(attr)) {
          bad("{} holds real values; put them all into {}", kRules[feat].name, kRules[attr].name);
        }
        out.value_columns = static_cast<int>(first.columns);
        out.values = std::move(first.values);
      } else {
        out.category_columns = static_cast<int>(first.columns);
        out.categories = std::move(first.categories);
      }
    }
    if (has(attr) && second.rows > 0) {
      out.value_columns = static_cast<int>(second.columns);
      out.values = std::move(second.values);
    }
    return out;
  }

  void finish_eigenpairs() {
    if (has(kEigvals) != has(kEigvecs)) bad("eigvals and eigvecs come together or not at all");
    if (!has(kEigvals)) return;
    Matrix& vectors = *matrix_of(kEigvecs);
    if (vectors.rows != graph_.num_nodes) {
      bad("eigvecs has {} rows for {} nodes", vectors.rows, graph_.num_nodes);
    }
    if (vectors.columns != static_cast<int64_t>(eigvals_.size())) {
      bad("eigvecs has {} columns for {} eigvals", vectors.columns, eigvals_.size());
    }
    Eigenpairs& pairs = graph_.eigenpairs.emplace();
    pairs.count = static_cast<int>(eigvals_.size());
    pairs.values = std::move(eigvals_);
    pairs.vectors = std::move(vectors.values);
  }

  void list_both_directions() {
    const std::vector<Edge> listed = std::move(graph_.edges);
    check_listed_once(listed);
    if (2 * static_cast<int64_t>(listed.size()) > kMaxEdges) bad("more than the {} edges allowed", kMaxEdges);
    const Features features = std::move(graph_.edge_features);
    Features& both = graph_.edge_features;
    both = {features.category_columns, features.value_columns, {}, {}};
    graph_.edges = {};
    graph_.edges.reserve(2 * listed.size());
    both.categories.reserve(2 * features.categories.size());
    both.values.reserve(2 * features.values.size());
    for (size_t i = 0; i < listed.size(); ++i) {
      const Edge edge = listed[i];
      for (int direction = 0; direction < (edge.source == edge.target ? 1 : 2); ++direction) {
        graph_.edges.push_back(direction == 0 ? edge : Edge{edge.target, edge.source});
        const auto categories = features.categories.begin() + static_cast<int64_t>(i) * features.category_columns;
        const auto values = features.values.begin() + static_cast<int64_t>(i) * features.value_columns;
        both.categories.insert(both.categories.end(), categories, categories + features.category_columns);
        both.values.insert(both.values.end(), values, values + features.value_columns);
      }
    }
  }

  void check_listed_once(const std::vector<Edge>& edges) const {
    const auto key_of = [](Edge e) {
      return static_cast<uint64_t>(std::min(e.source, e.target)) << 32 |
             static_cast<uint64_t>(std::max(e.source, e.target));
    };
    std::vector<uint64_t> keys(edges.size());
    std::transform(edges.begin(), edges.end(), keys.begin(), key_of);
    std::sort(keys.begin(), keys.end());
    const auto twice = std::adjacent_find(keys.begin(), keys.end());
    if (twice == keys.end()) return;
    const auto is_it = [&](Edge e) { return key_of(e) == *twice; };
    const auto first = std::find_if(edges.begin(), edges.end(), is_it);
    const auto second = std::find_if(first + 1, edges.end(), is_it);
    bad("edges {} and {} are the same undirected edge [{}, {}]; with \"undirected\": true list each once",
        first - edges.begin(), second - edges.begin(), first->source, first->target);
  }

  const std::string& where_;
  Graph graph_;
  uint32_t seen_ = 0;
  Field field_ = kId;
  int depth_ = 0;
  Matrix* matrix_ = nullptr;  // of field_, if it is made of rows
  std::array<Matrix, 5> matrices_;
  int64_t row_length_ = 0;
  std::array<int32_t, 2> pair_{};
  std::vector<float> eigvals_;
  bool undirected_ = false;
};

bool is_blank(std::string_view line) {
  return line.find_first_not_of(" \t\r") == std::string_view::npos;
}

}  // namespace

Graph parse_graph(std::string_view json, const std::string& where, int64_t index) {
  const auto bad = [&](const char* what) {
    throw RecordError(where.empty() ? what : fmt::format("{}: {}", where, what));
  };
  if (is_blank(json)) bad("no graph: the line is empty");
  // Two things that the lexer of nlohmann lets pass: a NUL ends its input, and a byte order mark is skipped.
  if (std::memchr(json.data(), 0, json.size()) != nullptr) bad("not valid JSON: a zero byte");
  if (json.starts_with("\xEF\xBB\xBF")) bad("not valid JSON: a byte order mark inside the file");
  GraphBuilder builder(where);
  nlohmann::json::sax_parse(json.data(), json.data() + json.size(), &builder);
  return builder.finish(index);
}

struct GraphReader::Impl {
  explicit Impl(const std::string& path) : lines(path) {}
  LineReader lines;
  int64_t records = 0;  // lines with something on them, good or bad
  bool any = false;
};

GraphReader::GraphReader(const std::string& path) : impl_(std::make_unique<Impl>(path)) {}
GraphReader::~GraphReader() = default;
GraphReader::GraphReader(GraphReader&&) noexcept = default;

bool GraphReader::next(Graph& graph) {
  std::string_view line;
  do {
    if (!impl_->lines.next(line)) {
      SAN_CHECK(impl_->any, "{}: there is no graph in this file", impl_->lines.name());
      return false;
    }
  } while (is_blank(line));
  graph = parse_graph(line, impl_->lines.where(), impl_->records++);
  impl_->any = true;
  return true;
}

std::string GraphReader::where() const {
  return impl_->lines.where();
}
int64_t GraphReader::bytes_read() const {
  return impl_->lines.bytes_read();
}
int64_t GraphReader::bytes_total() const {
  return impl_->lines.bytes_total();
}

// --- writing

namespace {

class GraphFormatter {
 public:
  std::string format(const Graph& graph) {
    out_ += "{\"id\":";
    quoted(graph.id);
    fmt::format_to(std::back_inserter(out_), ",\"num_nodes\":{},\"edges\":[", graph.num_nodes);
    for (size_t i = 0; i < graph.edges.size(); ++i) {
      out_ += i == 0 ? "[" : ",[";
      integer(graph.edges[i].source);
      out_ += ',';
      integer(graph.edges[i].target);
      out_ += ']';
    }
    out_ += ']';
    features(graph.node_features, graph.num_nodes, "node");
    features(graph.edge_features, static_cast<int64_t>(graph.edges.size()), "edge");
    if (!graph.graph_labels.empty()) {
      out_ += ",\"label\":";
      if (graph.graph_labels.size() == 1) {
        label(graph.graph_labels[0]);
      } else {
        labels(graph.graph_labels);
      }
    }
    if (!graph.node_labels.empty()) {
      out_ += ",\"node_label\":";
      labels(graph.node_labels);
    }
    if (!graph.split.empty()) {
      out_ += ",\"split\":";
      quoted(graph.split);
    }
    if (graph.eigenpairs) {
      out_ += ",\"eigvals\":";
      row(graph.eigenpairs->values.data(), graph.eigenpairs->count);
      out_ += ",\"eigvecs\":";
      rows(graph.eigenpairs->vectors.data(), graph.num_nodes, graph.eigenpairs->count);
    }
    out_ += '}';
    return std::move(out_);
  }

 private:
  void quoted(const std::string& text) {
    try {
      out_ += nlohmann::json(text).dump();
    } catch (const nlohmann::json::exception&) {
      fail("'{}' is not UTF-8 and cannot be written as JSON", printable(text));
    }
  }

  void integer(int32_t value) { number(fmt::format_int(value)); }
  void number(const fmt::format_int& text) { out_.append(text.data(), text.size()); }

  // Always with a point or an exponent, so that it is read back as real.
  void real(float value) {
    char text[32];
    const auto end = fmt::format_to_n(text, sizeof text, "{}", value).out;
    out_.append(text, end);
    if (std::none_of(text, end, [](char c) { return c == '.' || c == 'e'; })) out_ += ".0";
  }

  void label(double value) {
    if (std::isnan(value)) {
      out_ += "null";
    } else if (value == 0 && std::signbit(value)) {
      out_ += "-0.0";  // "-0" is an integer, which has no sign at zero
    } else {
      fmt::format_to(std::back_inserter(out_), "{}", value);
    }
  }

  void labels(const std::vector<double>& values) {
    for (size_t i = 0; i < values.size(); ++i) {
      out_ += i == 0 ? '[' : ',';
      label(values[i]);
    }
    out_ += ']';
  }

  void put(int32_t value) { integer(value); }
  void put(float value) { real(value); }

  template <typename T>
  void row(const T* values, int64_t columns) {
    out_ += '[';
    for (int64_t i = 0; i < columns; ++i) {
      if (i > 0) out_ += ',';
      put(values[i]);
    }
    out_ += ']';
  }

  template <typename T>
  void rows(const T* values, int64_t rows, int64_t columns) {
    out_ += '[';
    for (int64_t i = 0; i < rows; ++i) {
      if (i > 0) out_ += ',';
      row(values + i * columns, columns);
    }
    out_ += ']';
  }

  void features(const Features& features, int64_t count, const char* what) {
    if (features.category_columns > 0) {
      fmt::format_to(std::back_inserter(out_), ",\"{}_feat\":", what);
      rows(features.categories.data(), count, features.category_columns);
    }
    if (features.value_columns > 0) {
      fmt::format_to(std::back_inserter(out_), ",\"{}_{}\":", what, features.category_columns > 0 ? "attr" : "feat");
      rows(features.values.data(), count, features.value_columns);
    }
  }

  std::string out_;
};

}  // namespace

std::string format_graph(const Graph& graph) {
  validate(graph, graph.id.empty() ? "" : printable(graph.id));
  return GraphFormatter().format(graph);
}

}  // namespace san
