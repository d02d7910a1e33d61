#include "san/model/model_folder.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "san/base/file.h"

namespace san {
namespace {

constexpr size_t kMaxConfigBytes = size_t{16} << 20;

std::string shape_text(const std::vector<int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

void check_table(const Features& features, size_t rows, int32_t absent, const std::vector<int>& tables, int values,
                 const char* what, const std::string& prefix) {
  const bool absent_features = features.empty();
  const auto columns = absent_features ? size_t{1} : static_cast<size_t>(features.category_columns);
  SAN_CHECK(columns == tables.size() && features.value_columns == values,
            "{}{} categorical and {} real-valued {} feature columns; the model was made for {} and {}", prefix, columns,
            features.value_columns, what, tables.size(), values);
  if (absent_features) {
    SAN_CHECK(rows == 0 || tables[0] > absent, "{}no {} features (category {}), but the model's table has {} row(s)",
              prefix, what, absent, tables[0]);
    return;
  }
  for (size_t i = 0; i < features.categories.size(); ++i) {
    const size_t column = i % columns;
    SAN_CHECK(features.categories[i] < tables[column],
              "{}{} {} has category {} in feature column {}; the model knows 0..{}", prefix, what, i / columns,
              features.categories[i], column, tables[column] - 1);
  }
}

}  // namespace

void check_graph(const ModelConfig& config, const Graph& graph, const std::string& where) {
  const std::string prefix = fmt::format("{}{}graph '{}': ", where, where.empty() ? "" : ": ", printable(graph.id));
  try {
    check_table(graph.node_features, static_cast<size_t>(graph.num_nodes), 0, config.node_tables, config.node_values,
                "node", prefix);
    if (graph.edges.empty()) return;
    check_table(graph.edge_features, graph.edges.size(), 1, config.edge_tables, config.edge_values, "edge", prefix);
  } catch (const Error& error) {
    throw RecordError(error.what());
  }
}

void check_weights(const ModelConfig& config, const TensorFile& weights, const std::string& where) {
  std::set<std::string> known;
  for (const TensorSpec& spec : tensor_specs(config)) {
    known.insert(spec.name);
    const auto found = weights.tensors.find(spec.name);
    SAN_CHECK(found != weights.tensors.end(), "{}: the tensor '{}' is missing", where, spec.name);
    const Tensor& tensor = found->second;
    SAN_CHECK(tensor.dtype == DType::kF32, "{}: the tensor '{}' is not of type F32", where, spec.name);
    SAN_CHECK(tensor.shape == spec.shape, "{}: the tensor '{}' has shape {}; the configuration calls for {}", where,
              spec.name, shape_text(tensor.shape), shape_text(spec.shape));
    const float* values = tensor.f32();
    SAN_CHECK(std::all_of(values, values + tensor.count(), [](float x) { return std::isfinite(x); }),
              "{}: the tensor '{}' holds a number that is not finite", where, spec.name);
    if (spec.name.ends_with(".running_var")) {
      SAN_CHECK(std::all_of(values, values + tensor.count(), [](float x) { return x >= 0; }),
                "{}: the tensor '{}' holds a negative variance", where, spec.name);
    }
    if (spec.name == "node_embedding.deviation") {
      SAN_CHECK(std::all_of(values, values + tensor.count(), [](float x) { return x >= kLeastDeviation; }),
                "{}: the tensor '{}' holds a deviation below {}", where, spec.name, kLeastDeviation);
    }
  }
  for (const auto& [name, ignored] : weights.tensors) {
    SAN_CHECK(known.contains(name), "{}: unknown tensor '{}'", where, printable(name));
  }
}

std::filesystem::path model_in(const std::filesystem::path& folder) {
  const auto is_model = [](const std::filesystem::path& path) {
    std::error_code error;
    return std::filesystem::exists(path / "config.json", error) ||
           std::filesystem::exists(path / "ensemble.json", error);
  };
  return !is_model(folder) && is_model(folder / "model") ? folder / "model" : folder;
}

StoredModel read_model(const std::filesystem::path& given) {
  const std::filesystem::path folder = model_in(given);
  SAN_CHECK(std::filesystem::is_directory(folder), "{}: not a model folder (config.json + model.safetensors)",
            folder.string());
  const std::filesystem::path config = folder / "config.json", weights = folder / "model.safetensors";
  SAN_CHECK(std::filesystem::exists(config) || !std::filesystem::exists(folder / "ensemble.json"),
            "{}: an ensemble; name one of its members, {}", folder.string(), (folder / "member-0").string());
  StoredModel model;
  model.description = description_from_json(read_file(config, kMaxConfigBytes), config.string());
  model.weights = read_safetensors(weights);
  check_weights(model.description.model, model.weights, weights.string());
  return model;
}

void write_model(const std::filesystem::path& folder, const StoredModel& model) {
  validate(model.description);
  check_weights(model.description.model, model.weights, folder.string());
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  SAN_CHECK(std::filesystem::is_directory(folder), "{}: cannot make the folder: {}", folder.string(), error.message());
  write_safetensors(folder / "model.safetensors", model.weights);
  write_file(folder / "config.json", to_json(model.description));
}

}  // namespace san
