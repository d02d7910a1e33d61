#include "san/data/ogb.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <optional>

#include "san/data/csv.h"
#include "san/data/number_rows.h"

namespace san {
namespace {

using number_rows::find_file;
using number_rows::RowReader;

constexpr std::array<const char*, 3> kParts = {"train", "valid", "test"};

// A feature file: categories or real values, decided by its first row.
class FeatureFile {
 public:
  explicit FeatureFile(const std::string& path) : reader_(path) {
    // The first graph may have no edges: its features must have the columns of the others all the same.
    RowReader probe(path);
    if (probe.next(fields_)) {
      columns_ = static_cast<int>(fields_.size());
      integers_ = std::all_of(fields_.begin(), fields_.end(), number_rows::is_integer);
    }
  }

  // Appends the next row, `copies` times over; false when the file has ended.
  bool append(Features& features, int copies) {
    if (!reader_.next_regular(fields_)) return false;
    if (integers_) {
      const size_t begin = features.categories.size();
      for (const auto field : fields_) {
        const int64_t value = reader_.integer(field);
        SAN_CHECK(value >= 0 && value <= INT32_MAX, "{}: {} is not a category (0..{})", reader_.where(), value,
                  INT32_MAX);
        features.categories.push_back(static_cast<int32_t>(value));
      }
      repeat(features.categories, begin, copies);
    } else {
      const size_t begin = features.values.size();
      for (const auto field : fields_) {
        const double value = reader_.real(field);
        SAN_CHECK(std::abs(value) < 3e38, "{}: '{}' is too large for a feature", reader_.where(), printable(field, 40));
        features.values.push_back(static_cast<float>(value));
      }
      repeat(features.values, begin, copies);
    }
    return true;
  }

  void describe(Features& features) const {
    (integers_ ? features.category_columns : features.value_columns) = columns_;
  }

  bool ended() { return !reader_.next(fields_); }
  const RowReader& reader() const { return reader_; }

 private:
  template <typename T>
  static void repeat(std::vector<T>& rows, size_t begin, int copies) {
    const size_t size = rows.size() - begin;
    for (int copy = 1; copy < copies; ++copy)
      for (size_t i = 0; i < size; ++i) rows.push_back(rows[begin + i]);
  }

  RowReader reader_;
  std::vector<std::string_view> fields_;
  int columns_ = 0;
  bool integers_ = true;
};

std::string choose_split(const std::string& folder, const std::string& wanted) {
  const auto root = std::filesystem::path(folder) / "split";
  std::vector<std::string> kinds;
  std::error_code failure;
  for (std::filesystem::directory_iterator entry(root, failure), end; !failure && entry != end;
       entry.increment(failure))
    if (entry->is_directory()) kinds.push_back(entry->path().filename().string());
  std::sort(kinds.begin(), kinds.end());
  std::string all;
  for (const auto& kind : kinds) all += (all.empty() ? "" : ", ") + kind;
  if (wanted.empty()) {
    SAN_CHECK(kinds.size() <= 1, "{}: several splits; choose one of {}", root.string(), all);
    return kinds.empty() ? "" : kinds[0];
  }
  SAN_CHECK(std::find(kinds.begin(), kinds.end(), wanted) != kinds.end(), "{}: no split is called '{}'; there is {}",
            root.string(), printable(wanted), all.empty() ? "none" : all);
  return wanted;
}

}  // namespace

struct OgbReader::Impl {
  Impl(const std::string& folder_in, const OgbOptions& options_in)
      : folder(folder_in),
        options(options_in),
        num_nodes(needed("num-node-list")),
        num_edges(needed("num-edge-list")),
        edges(needed("edge")),
        labels(needed("graph-label")) {
    if (const std::string path = raw("node-feat"); !path.empty()) node_features.emplace(path);
    if (const std::string path = raw("edge-feat"); !path.empty()) edge_features.emplace(path);
    if (!options.id_column.empty()) {
      const std::string path = find_file((std::filesystem::path(folder) / "mapping").string(), "mol.csv");
      SAN_CHECK(!path.empty(), "{}: there is no mapping/mol.csv.gz to take the column '{}' from", folder,
                printable(options.id_column));
      mapping.emplace(path);
      id_column = mapping->column(options.id_column);
    }
    split_kind = choose_split(folder, options.split);
    if (!split_kind.empty()) read_split();
  }

  std::string raw(const char* name) const {
    return find_file((std::filesystem::path(folder) / "raw").string(), fmt::format("{}.csv", name));
  }
  std::string needed(const char* name) const {
    const std::string path = raw(name);
    SAN_CHECK(!path.empty(), "{}: not an OGB folder: there is no raw/{}.csv.gz", folder, name);
    return path;
  }

  void read_split() {
    const std::string where = (std::filesystem::path(folder) / "split" / split_kind).string();
    std::vector<std::string_view> row;
    for (size_t part = 0; part < kParts.size(); ++part) {
      const std::string path = find_file(where, fmt::format("{}.csv", kParts[part]));
      SAN_CHECK(!path.empty(), "{}: there is no {}.csv.gz", where, kParts[part]);
      RowReader reader(path);
      while (reader.next(row)) {
        const int64_t index = reader.integer(row[0]);
        // A limit before the allocation below: no set has that many graphs.
        SAN_CHECK(row.size() == 1 && index >= 0 && index < kMaxGraphs, "{}: expected one graph number", reader.where());
        if (static_cast<size_t>(index) >= parts.size()) parts.resize(static_cast<size_t>(index) + 1, kNoPart);
        SAN_CHECK(parts[static_cast<size_t>(index)] == kNoPart, "{}: graph {} is in the split twice", reader.where(),
                  index);
        parts[static_cast<size_t>(index)] = static_cast<uint8_t>(part);
      }
    }
  }

  int64_t count(RowReader& reader, int64_t limit, const char* what) {
    SAN_CHECK(fields.size() == 1, "{}: one number per line, not {}", reader.where(), fields.size());
    const int64_t value = reader.integer(fields[0]);
    SAN_CHECK(value >= 0 && value <= limit, "{}: {} {} in one graph; at most {} are allowed", reader.where(), value,
              what, limit);
    return value;
  }

  bool next(Graph& graph) {
    if (!num_nodes.next(fields)) {
      check_ends();
      return false;
    }
    graph = Graph{};
    graph.num_nodes = static_cast<int32_t>(count(num_nodes, kMaxNodes, "nodes"));
    SAN_CHECK(graph.num_nodes > 0, "{}: a graph without nodes", num_nodes.where());
    SAN_CHECK(num_edges.next(fields), "{}: ends after {} graphs, but {} has more", num_edges.name(), graphs_read,
              num_nodes.name());
    const int64_t edge_count = count(num_edges, kMaxEdges / 2, "edges");

    if (node_features) node_features->describe(graph.node_features);
    for (int32_t i = 0; node_features && i < graph.num_nodes; ++i)
      SAN_CHECK(node_features->append(graph.node_features, 1), "{}: ends in graph {}, after {} of its {} nodes",
                node_features->reader().name(), graphs_read, i, graph.num_nodes);
    if (edge_features) edge_features->describe(graph.edge_features);
    for (int64_t i = 0; i < edge_count; ++i) {
      SAN_CHECK(edges.next(fields), "{}: ends in graph {}, after {} of its {} edges", edges.name(), graphs_read, i,
                edge_count);
      SAN_CHECK(fields.size() == 2, "{}: an edge is 'source,target', not {} numbers", edges.where(), fields.size());
      int32_t ends[2];
      for (size_t k = 0; k < 2; ++k) {
        const int64_t node = edges.integer(fields[k]);
        SAN_CHECK(node >= 0 && node < graph.num_nodes, "{}: node {} in graph {}, which has nodes 0..{}", edges.where(),
                  node, graphs_read, graph.num_nodes - 1);
        ends[k] = static_cast<int32_t>(node);
      }
      graph.edges.push_back({ends[0], ends[1]});
      if (options.add_inverse) graph.edges.push_back({ends[1], ends[0]});
      if (edge_features)
        SAN_CHECK(edge_features->append(graph.edge_features, options.add_inverse ? 2 : 1),
                  "{}: ends in graph {}, after {} of its {} edges", edge_features->reader().name(), graphs_read, i,
                  edge_count);
    }

    // With one task a missing label is an empty line: unlike elsewhere, such a line counts.
    SAN_CHECK(labels.next_with_blanks(label_fields), "{}: ends after {} graphs, but {} has more", labels.name(),
              graphs_read, num_nodes.name());
    for (const auto field : label_fields) graph.graph_labels.push_back(labels.real_or_missing(field));

    const int64_t number = graphs_read++;  // before what may make the graph a bad one: the next is the next
    if (mapping) {
      SAN_CHECK(mapping->next(), "{}: ends after {} graphs, but {} has more", mapping->name(), number,
                num_nodes.name());
      graph.id = (*mapping)[id_column];
    } else {
      graph.id = std::to_string(number);
    }
    if (static_cast<size_t>(number) < parts.size() && parts[static_cast<size_t>(number)] != kNoPart)
      graph.split = kParts[parts[static_cast<size_t>(number)]];
    validate(graph, num_nodes.where());
    return true;
  }

  void check_ends() {
    SAN_CHECK(graphs_read > 0, "{}: is empty", num_nodes.name());
    for (RowReader* reader : {&num_edges, &edges, &labels})
      SAN_CHECK(!reader->next(fields), "{}: more rows than the {} graphs of {} need", reader->where(), graphs_read,
                num_nodes.name());
    for (auto* features : {&node_features, &edge_features})
      SAN_CHECK(!*features || (*features)->ended(), "{}: more rows than the {} graphs of {} need",
                (*features)->reader().where(), graphs_read, num_nodes.name());
    SAN_CHECK(parts.size() <= static_cast<size_t>(graphs_read), "{}/split/{}: names graph {}, but there are only {}",
              folder, split_kind, parts.size() - 1, graphs_read);
  }

  static constexpr int64_t kMaxGraphs = int64_t{1} << 27;
  static constexpr uint8_t kNoPart = 255;

  std::string folder;
  OgbOptions options;
  RowReader num_nodes, num_edges, edges, labels;
  std::optional<FeatureFile> node_features, edge_features;
  std::optional<CsvReader> mapping;
  size_t id_column = 0;
  std::string split_kind;
  std::vector<uint8_t> parts;  // by graph number
  std::vector<std::string_view> fields, label_fields;
  int64_t graphs_read = 0;
};

OgbReader::OgbReader(const std::string& folder, const OgbOptions& options)
    : impl_(std::make_unique<Impl>(folder, options)) {}
OgbReader::~OgbReader() = default;
OgbReader::OgbReader(OgbReader&&) noexcept = default;

bool OgbReader::next(Graph& graph) {
  return impl_->next(graph);
}
const std::string& OgbReader::split_kind() const {
  return impl_->split_kind;
}
int64_t OgbReader::num_graphs_read() const {
  return impl_->graphs_read;
}

int64_t OgbReader::bytes_read() const {
  int64_t sum = 0;
  for (const RowReader* reader : {&impl_->num_nodes, &impl_->num_edges, &impl_->edges, &impl_->labels})
    sum += reader->lines().bytes_read();
  for (const auto* features : {&impl_->node_features, &impl_->edge_features})
    if (*features) sum += (*features)->reader().lines().bytes_read();
  return sum;
}

int64_t OgbReader::bytes_total() const {
  int64_t sum = 0;
  for (const RowReader* reader : {&impl_->num_nodes, &impl_->num_edges, &impl_->edges, &impl_->labels})
    sum += reader->lines().bytes_total();
  for (const auto* features : {&impl_->node_features, &impl_->edge_features})
    if (*features) sum += (*features)->reader().lines().bytes_total();
  return sum;
}

}  // namespace san
