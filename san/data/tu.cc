#include "san/data/tu.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>
#include <unordered_set>

#include "san/data/number_rows.h"

namespace san {
namespace {

using number_rows::RowReader;

struct Location {
  int32_t graph, node;
};

std::string find_name(const std::string& folder) {
  std::error_code failure;
  std::filesystem::directory_iterator entries(folder, failure);
  SAN_CHECK(!failure, "{}: cannot open the folder: {}", folder, failure.message());
  std::vector<std::string> names;
  for (const auto& entry : entries) {
    std::string file = entry.path().filename().string();
    if (file.ends_with(".gz")) file.resize(file.size() - 3);
    constexpr std::string_view kEnd = "_A.txt";
    if (file.size() > kEnd.size() && file.ends_with(kEnd)) names.push_back(file.substr(0, file.size() - kEnd.size()));
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  SAN_CHECK(!names.empty(), "{}: not a TU data set: there is no *_A.txt", folder);
  SAN_CHECK(names.size() == 1, "{}: several TU data sets ({}, {}, ...); give each a folder of its own", folder,
            names[0], names[1]);
  return names[0];
}

// A file of integers with one row for each of `rows` things, as one flat table of categories that count up
// from `first` in the order of the values.
struct CategoryTable {
  int columns = 0;
  std::vector<int32_t> categories;           // [rows, columns]
  std::vector<std::vector<int64_t>> values;  // [columns][category - first]
};

CategoryTable read_categories(const std::string& path, size_t rows, const char* what, int32_t first) {
  RowReader reader(path);
  std::vector<std::string_view> fields;
  std::vector<int64_t> raw;
  CategoryTable table;
  size_t row = 0;
  for (; reader.next_regular(fields); ++row) {
    SAN_CHECK(row < rows, "{}: more rows than the {} {}s", reader.where(), rows, what);
    table.columns = static_cast<int>(fields.size());
    for (const auto field : fields) {
      // Some sets write their classes as 1.0.
      const double value = reader.real(field);
      SAN_CHECK(std::abs(value) < 1e15 && value == static_cast<double>(static_cast<int64_t>(value)),
                "{}: '{}' is not an integer", reader.where(), printable(field, 40));
      raw.push_back(static_cast<int64_t>(value));
    }
  }
  SAN_CHECK(row == rows, "{}: {} rows for {} {}s", path, row, rows, what);
  table.categories.resize(raw.size());
  for (int column = 0; column < table.columns; ++column) {
    auto& values = table.values.emplace_back();
    for (size_t i = static_cast<size_t>(column); i < raw.size(); i += static_cast<size_t>(table.columns)) {
      // Few distinct values come over and over: compact now and then instead of keeping them all.
      values.push_back(raw[i]);
      if (values.size() == values.capacity()) {
        std::sort(values.begin(), values.end());
        values.erase(std::unique(values.begin(), values.end()), values.end());
        values.reserve(std::max<size_t>(1024, values.size() * 2));
      }
    }
    std::sort(values.begin(), values.end());
    values.erase(std::unique(values.begin(), values.end()), values.end());
    for (size_t i = static_cast<size_t>(column); i < raw.size(); i += static_cast<size_t>(table.columns)) {
      table.categories[i] =
          first + static_cast<int32_t>(std::lower_bound(values.begin(), values.end(), raw[i]) - values.begin());
    }
  }
  return table;
}

struct ValueTable {
  int columns = 0;
  std::vector<double> values;  // [rows, columns]
};

ValueTable read_values(const std::string& path, size_t rows, const char* what, bool may_miss) {
  RowReader reader(path);
  std::vector<std::string_view> fields;
  ValueTable table;
  size_t row = 0;
  for (; reader.next_regular(fields); ++row) {
    SAN_CHECK(row < rows, "{}: more rows than the {} {}s", reader.where(), rows, what);
    table.columns = static_cast<int>(fields.size());
    for (const auto field : fields) {
      const double value = may_miss ? reader.real_or_missing(field) : reader.real(field);
      SAN_CHECK(may_miss || std::abs(value) < 3e38, "{}: '{}' is too large for a feature", reader.where(),
                printable(field, 40));
      table.values.push_back(value);
    }
  }
  SAN_CHECK(row == rows, "{}: {} rows for {} {}s", path, row, rows, what);
  return table;
}

// Appends row `row` of the tables to `features`.
void append_row(Features& features, const CategoryTable& categories, const ValueTable& values, size_t row) {
  const auto append = [row](auto& to, const auto& from, int columns) {
    for (int c = 0; c < columns; ++c)
      to.push_back(static_cast<typename std::decay_t<decltype(to)>::value_type>(
          from[row * static_cast<size_t>(columns) + static_cast<size_t>(c)]));
  };
  append(features.categories, categories.categories, categories.columns);
  append(features.values, values.values, values.columns);
}

uint64_t pair_key(int64_t a, int64_t b) {
  return static_cast<uint64_t>(a) << 32 | static_cast<uint64_t>(b);
}

}  // namespace

TuDataset read_tu(const std::string& folder, const TuOptions& options) {
  TuDataset set;
  set.name = find_name(folder);
  const auto file = [&](const char* kind) {
    return number_rows::find_file(folder, fmt::format("{}_{}.txt", set.name, kind));
  };
  const auto needed = [&](const char* kind) {
    const std::string path = file(kind);
    SAN_CHECK(!path.empty(), "{}: not a TU data set: there is no {}_{}.txt", folder, set.name, kind);
    return path;
  };

  // Nodes: which graph, and which place in it.
  std::vector<std::string_view> fields;
  std::vector<Location> nodes;
  std::vector<int32_t> sizes;
  {
    RowReader reader(needed("graph_indicator"));
    while (reader.next(fields)) {
      SAN_CHECK(fields.size() == 1, "{}: one graph number per line, not {}", reader.where(), fields.size());
      const int64_t graph = reader.integer(fields[0]);
      SAN_CHECK(nodes.size() < UINT32_MAX, "{}: more nodes than can be numbered", reader.where());
      // A graph number cannot exceed the number of nodes; lines come in any order, so allow a margin here and
      // look for graphs without nodes afterwards.
      SAN_CHECK(graph >= 1 && graph <= INT32_MAX - 1, "{}: graph {}; graphs are numbered from 1", reader.where(),
                graph);
      nodes.push_back({static_cast<int32_t>(graph - 1), 0});
    }
    SAN_CHECK(!nodes.empty(), "{}: is empty", reader.name());
    int64_t num_graphs = 0;
    for (const Location& node : nodes) num_graphs = std::max<int64_t>(num_graphs, node.graph + 1);
    SAN_CHECK(num_graphs <= static_cast<int64_t>(nodes.size()), "{}: graph {} of {} nodes: some graphs have no node",
              reader.name(), num_graphs, nodes.size());
    sizes.resize(static_cast<size_t>(num_graphs));
    for (Location& node : nodes) {
      node.node = sizes[static_cast<size_t>(node.graph)]++;
      SAN_CHECK(node.node < kMaxNodes, "{}: graph {} has more than {} nodes", reader.name(), node.graph + 1, kMaxNodes);
    }
    for (size_t g = 0; g < sizes.size(); ++g)
      SAN_CHECK(sizes[g] > 0, "{}: graph {} has no nodes", reader.name(), g + 1);
  }
  set.graphs.resize(sizes.size());
  for (size_t g = 0; g < sizes.size(); ++g) {
    set.graphs[g].id = std::to_string(g + 1);
    set.graphs[g].num_nodes = sizes[g];
  }

  // Edges, as listed.
  struct Listed {
    uint32_t source, target;  // over the whole set, from 0
  };
  std::vector<Listed> listed;
  {
    RowReader reader(needed("A"));
    while (reader.next(fields)) {
      SAN_CHECK(fields.size() == 2, "{}: an edge is 'source, target', not {} numbers", reader.where(), fields.size());
      int64_t ends[2];
      for (int k = 0; k < 2; ++k) {
        ends[k] = reader.integer(fields[static_cast<size_t>(k)]);
        SAN_CHECK(ends[k] >= 1 && ends[k] <= static_cast<int64_t>(nodes.size()),
                  "{}: node {} does not exist; nodes are 1..{}", reader.where(), ends[k], nodes.size());
      }
      const int32_t a = nodes[static_cast<size_t>(ends[0] - 1)].graph,
                    b = nodes[static_cast<size_t>(ends[1] - 1)].graph;
      SAN_CHECK(a == b, "{}: the edge joins node {} of graph {} and node {} of graph {}", reader.where(), ends[0],
                a + 1, ends[1], b + 1);
      listed.push_back({static_cast<uint32_t>(ends[0] - 1), static_cast<uint32_t>(ends[1] - 1)});
    }
  }

  const auto categories_of = [&](const char* kind, size_t rows, const char* what, int32_t first) {
    const std::string path = file(kind);
    return path.empty() ? CategoryTable{} : read_categories(path, rows, what, first);
  };
  const auto values_of = [&](const char* kind, size_t rows, const char* what) {
    const std::string path = file(kind);
    return path.empty() ? ValueTable{} : read_values(path, rows, what, false);
  };

  {
    CategoryTable categories = categories_of("node_labels", nodes.size(), "node", 0);
    const ValueTable values = values_of("node_attributes", nodes.size(), "node");
    for (Graph& graph : set.graphs) {
      graph.node_features.category_columns = categories.columns;
      graph.node_features.value_columns = values.columns;
    }
    for (size_t i = 0; i < nodes.size(); ++i)
      append_row(set.graphs[static_cast<size_t>(nodes[i].graph)].node_features, categories, values, i);
    set.node_category_values = std::move(categories.values);
  }
  {
    CategoryTable categories = categories_of("edge_labels", listed.size(), "edge", 1);
    const ValueTable values = values_of("edge_attributes", listed.size(), "edge");
    for (Graph& graph : set.graphs) {
      graph.edge_features.category_columns = categories.columns;
      graph.edge_features.value_columns = values.columns;
    }
    std::unordered_set<uint64_t> present;
    if (options.undirected) {
      present.reserve(listed.size());
      for (const Listed& edge : listed) present.insert(pair_key(edge.source, edge.target));
    }
    for (size_t i = 0; i < listed.size(); ++i) {
      const auto [source, target] = listed[i];
      Graph& graph = set.graphs[static_cast<size_t>(nodes[source].graph)];
      graph.edges.push_back({nodes[source].node, nodes[target].node});
      append_row(graph.edge_features, categories, values, i);
      if (options.undirected && !present.contains(pair_key(target, source))) {
        graph.edges.push_back({nodes[target].node, nodes[source].node});
        append_row(graph.edge_features, categories, values, i);
      }
    }
    set.edge_category_values = std::move(categories.values);
  }

  const std::string labels = file("graph_labels"), attributes = file("graph_attributes");
  SAN_CHECK(options.target != TuTarget::kLabels || !labels.empty(), "{}: there is no {}_graph_labels.txt", folder,
            set.name);
  SAN_CHECK(options.target != TuTarget::kAttributes || !attributes.empty(), "{}: there is no {}_graph_attributes.txt",
            folder, set.name);
  if (!labels.empty() && options.target != TuTarget::kAttributes) {
    CategoryTable table = read_categories(labels, set.graphs.size(), "graph", 0);
    set.classes = true;
    for (size_t i = 0; i < table.categories.size(); ++i)
      set.graphs[i / static_cast<size_t>(table.columns)].graph_labels.push_back(table.categories[i]);
    set.class_values = std::move(table.values);
  } else if (!attributes.empty()) {
    const ValueTable table = read_values(attributes, set.graphs.size(), "graph", true);
    for (size_t i = 0; i < table.values.size(); ++i)
      set.graphs[i / static_cast<size_t>(table.columns)].graph_labels.push_back(table.values[i]);
  }
  for (const Graph& graph : set.graphs) validate(graph, fmt::format("{}: graph {}", folder, graph.id));
  return set;
}

}  // namespace san
