// The C API over model/predictor.h: checks, copies, and a wall that no exception passes.
#include "capi/san.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "san/base/parallel.h"
#include "san/model/predictor.h"

struct san_model {
  explicit san_model(const char* folder)
      : predictor(san::Predictor::load(folder)), task(predictor.task()), names(predictor.output_names()) {}
  const san::Predictor predictor;
  const std::string task;
  const std::vector<std::string> names;
};

namespace {

using san::Graph;
using san::Predictions;

// Not a string: remembering that memory ran out must not need memory.
thread_local char last_error[1024] = "";

void remember(const char* message) {
  std::strncpy(last_error, message, sizeof last_error - 1);
}

template <typename Result, typename Action>
Result guarded(Result failure, Action&& action) noexcept {
  try {
    return action();
  } catch (const std::bad_alloc&) {
    remember("out of memory");
  } catch (const std::exception& error) {
    remember(error.what());
  } catch (...) {
    remember("unknown error");
  }
  return failure;
}

template <typename T>
void copy_rows(std::vector<T>& to, const T* from, int64_t rows, int32_t columns, const char* what) {
  if (rows == 0 || columns == 0) return;
  SAN_CHECK(from != nullptr, "{} is NULL", what);
  to.assign(from, from + rows * columns);
}

void copy_features(san::Features& to, int64_t rows, int32_t category_columns, const int32_t* categories,
                   int32_t value_columns, const float* values, const char* what) {
  SAN_CHECK(category_columns >= 0 && category_columns <= san::kMaxFeatureColumns && value_columns >= 0 &&
                value_columns <= san::kMaxFeatureColumns,
            "{} features: the number of columns must be from 0 to {}", what, san::kMaxFeatureColumns);
  to.category_columns = category_columns;
  to.value_columns = value_columns;
  copy_rows(to.categories, categories, rows, category_columns, what);
  copy_rows(to.values, values, rows, value_columns, what);
}

Graph to_graph(const san_graph& from) {
  SAN_CHECK(from.num_nodes >= 1 && from.num_nodes <= san::kMaxNodes, "num_nodes must be from 1 to {}", san::kMaxNodes);
  SAN_CHECK(from.num_edges >= 0 && from.num_edges <= san::kMaxEdges, "num_edges must be from 0 to {}", san::kMaxEdges);
  SAN_CHECK(from.num_edges == 0 || from.edges != nullptr, "edges is NULL");
  SAN_CHECK(from.num_pairs >= 0 && from.num_pairs <= from.num_nodes, "num_pairs must be from 0 to num_nodes");
  Graph graph;
  graph.num_nodes = from.num_nodes;
  graph.edges.reserve(static_cast<size_t>(from.num_edges));
  for (int64_t i = 0; i < from.num_edges; ++i) graph.edges.push_back({from.edges[2 * i], from.edges[2 * i + 1]});
  copy_features(graph.node_features, from.num_nodes, from.node_category_columns, from.node_categories,
                from.node_value_columns, from.node_values, "node");
  copy_features(graph.edge_features, from.num_edges, from.edge_category_columns, from.edge_categories,
                from.edge_value_columns, from.edge_values, "edge");
  if (from.num_pairs > 0) {
    san::Eigenpairs& pairs = graph.eigenpairs.emplace();
    pairs.count = from.num_pairs;
    copy_rows(pairs.values, from.eigenvalues, from.num_pairs, 1, "eigenvalues");
    copy_rows(pairs.vectors, from.eigenvectors, from.num_nodes, from.num_pairs, "eigenvectors");
  }
  return graph;
}

std::vector<Graph> to_graphs(const san_graph* graphs, int64_t count) {
  SAN_CHECK(count >= 0 && (count == 0 || graphs != nullptr), "graphs is NULL, or count is negative");
  std::vector<Graph> out;
  if (count == 0) return out;
  // A caller compiled with an older or newer header has shorter or longer records: they lie `size` bytes apart.
  const size_t size = graphs[0].size;
  SAN_CHECK(size >= sizeof(san_graph) && size <= 4096, "san_graph.size is {}: start from SAN_GRAPH_INIT", size);
  const char* at = reinterpret_cast<const char*>(graphs);
  for (int64_t i = 0; i < count; ++i, at += size) {
    san_graph graph;
    std::memcpy(&graph, at, sizeof graph);
    SAN_CHECK(graph.size == size, "graph {}: san_graph.size is not the first one's", i);
    try {
      out.push_back(to_graph(graph));
      out.back().id = std::to_string(i);
    } catch (const san::Error& error) {
      san::fail("graph {}: {}", i, error.what());
    }
  }
  return out;
}

int64_t give(const Predictions& result, double* values, int64_t capacity) {
  const auto needed = static_cast<int64_t>(result.values.size());
  SAN_CHECK(needed <= capacity, "the result has {} numbers, `values` has room for {}", needed, capacity);
  SAN_CHECK(needed == 0 || values != nullptr, "values is NULL");
  std::copy(result.values.begin(), result.values.end(), values);
  return result.rows;
}

san::PredictOptions options_of(const san_model* model, int flags, int threads) {
  SAN_CHECK(model != nullptr, "model is NULL");
  SAN_CHECK((flags & ~(SAN_RAW | SAN_NODES)) == 0, "unknown flags {}", flags);
  san::PredictOptions options;
  options.raw = (flags & SAN_RAW) != 0;
  options.threads = threads;
  return options;
}

// What `compute` makes of the molecules that can be used, one row each; NaN for the others.
template <typename Compute>
int64_t with_molecules(const san_model& model, const char* const* smiles, int64_t count, int threads, int columns,
                       double* values, int64_t capacity, Compute&& compute) {
  SAN_CHECK(count >= 0 && (count == 0 || smiles != nullptr), "smiles is NULL, or count is negative");
  SAN_CHECK(threads >= 0, "threads must not be negative");
  SAN_CHECK(count <= capacity / columns, "the result has {} x {} numbers, `values` has room for {}", count, columns,
            capacity);
  SAN_CHECK(count == 0 || values != nullptr, "values is NULL");
  std::vector<std::optional<Graph>> graphs(static_cast<size_t>(count));
  std::vector<std::string> errors(graphs.size());
  san::parallel_for(count, threads, [&](int64_t i) {
    const auto at = static_cast<size_t>(i);
    if (smiles[i] == nullptr) {
      errors[at] = "a SMILES is NULL";
    } else {
      graphs[at] = model.predictor.graph_of_smiles(smiles[i], errors[at]);
    }
  });
  std::vector<const Graph*> good;
  for (const auto& graph : graphs) {
    if (graph) good.push_back(&*graph);
  }
  const Predictions result = compute(good);
  const double* row = result.values.data();
  bool said = false;
  for (size_t i = 0; i < graphs.size(); ++i, values += columns) {
    if (graphs[i]) {
      std::copy(row, row + columns, values);
      row += columns;
    } else {
      std::fill(values, values + columns, std::numeric_limits<double>::quiet_NaN());
      if (!said) remember(errors[i].c_str());
      said = true;
    }
  }
  return count;
}

}  // namespace

extern "C" {

const char* san_version(void) {
  return SAN_VERSION;
}

const char* san_last_error(void) {
  return last_error;
}

san_model* san_load(const char* folder) {
  return guarded<san_model*>(nullptr, [&] {
    SAN_CHECK(folder != nullptr, "folder is NULL");
    return new san_model(folder);
  });
}

void san_free(san_model* model) {
  delete model;
}

const char* san_task(const san_model* model) {
  return model == nullptr ? "" : model->task.c_str();
}

int san_outputs(const san_model* model) {
  return model == nullptr ? 0 : model->predictor.outputs();
}

const char* san_output_name(const san_model* model, int i) {
  if (model == nullptr || i < 0 || static_cast<size_t>(i) >= model->names.size()) return nullptr;
  return model->names[static_cast<size_t>(i)].c_str();
}

int san_embedding_width(const san_model* model) {
  return model == nullptr ? 0 : model->predictor.embedding_width();
}

int san_is_node_task(const san_model* model) {
  return model != nullptr && model->predictor.node_task() ? 1 : 0;
}

int san_takes_smiles(const san_model* model) {
  return model != nullptr && model->predictor.takes_smiles() ? 1 : 0;
}

int64_t san_predict_graphs(const san_model* model, const san_graph* graphs, int64_t count, int flags, int threads,
                           double* values, int64_t capacity) {
  return guarded<int64_t>(-1, [&] {
    const san::PredictOptions options = options_of(model, flags, threads);
    return give(model->predictor.predict(to_graphs(graphs, count), options), values, capacity);
  });
}

int64_t san_embed_graphs(const san_model* model, const san_graph* graphs, int64_t count, int flags, int threads,
                         double* values, int64_t capacity) {
  return guarded<int64_t>(-1, [&] {
    const san::PredictOptions options = options_of(model, flags, threads);
    return give(model->predictor.embed(to_graphs(graphs, count), (flags & SAN_NODES) != 0, options), values, capacity);
  });
}

int64_t san_predict_smiles(const san_model* model, const char* const* smiles, int64_t count, int flags, int threads,
                           double* values, int64_t capacity) {
  return guarded<int64_t>(-1, [&] {
    const san::PredictOptions options = options_of(model, flags, threads);
    SAN_CHECK(!model->predictor.node_task(), "a node task has a row per atom: make graphs of the molecules");
    return with_molecules(*model, smiles, count, threads, model->predictor.outputs(), values, capacity,
                          [&](const auto& good) { return model->predictor.predict(good, options); });
  });
}

int64_t san_embed_smiles(const san_model* model, const char* const* smiles, int64_t count, int flags, int threads,
                         double* values, int64_t capacity) {
  return guarded<int64_t>(-1, [&] {
    const san::PredictOptions options = options_of(model, flags, threads);
    SAN_CHECK(!model->predictor.node_task() && (flags & SAN_NODES) == 0,
              "embeddings of nodes have a row per atom: make graphs of the molecules");
    return with_molecules(*model, smiles, count, threads, model->predictor.embedding_width(), values, capacity,
                          [&](const auto& good) { return model->predictor.embed(good, false, options); });
  });
}

}  // extern "C"
