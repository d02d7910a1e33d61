#include "san/model/config.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include "san/spectral/random_walk.h"

namespace san {
namespace {

using Json = nlohmann::ordered_json;

// Generous for any real model; small enough that nothing computed from them overflows.
constexpr int kMaxWidth = 1 << 16;
constexpr int kMaxLayers = 1000;
constexpr int kMaxTableRows = 1 << 26;

}  // namespace

SAN_ENUM_NAMES(LpeKind, {LpeKind::kNone, "none"}, {LpeKind::kNode, "node"}, {LpeKind::kEdge, "edge"},
               {LpeKind::kBoth, "both"})
SAN_ENUM_NAMES(LpeInit, {LpeInit::kIndependent, "independent"}, {LpeInit::kCopied, "copied"})
SAN_ENUM_NAMES(AttentionKind, {AttentionKind::kFull, "full"}, {AttentionKind::kSparse, "sparse"})
SAN_ENUM_NAMES(AttentionNorm, {AttentionNorm::kJoint, "joint"}, {AttentionNorm::kSeparate, "separate"})
SAN_ENUM_NAMES(Readout, {Readout::kSum, "sum"}, {Readout::kMean, "mean"}, {Readout::kMax, "max"},
               {Readout::kNode, "node"})
SAN_ENUM_NAMES(AddedEdge, {AddedEdge::kLearned, "learned"}, {AddedEdge::kRow0, "row0"})
SAN_ENUM_NAMES(TableInit, {TableInit::kNormal, "normal"}, {TableInit::kXavier, "xavier"})
SAN_ENUM_NAMES(TaskKind, {TaskKind::kRegression, "regression"}, {TaskKind::kBinary, "binary"},
               {TaskKind::kMulticlass, "multiclass"}, {TaskKind::kNodeClassification, "node-classification"})
SAN_ENUM_NAMES(Loss, {Loss::kL1, "l1"}, {Loss::kMse, "mse"}, {Loss::kCrossEntropy, "cross-entropy"},
               {Loss::kWeightedCrossEntropy, "weighted-cross-entropy"}, {Loss::kSigmoidBce, "sigmoid-bce"})

// --- validation ------------------------------------------------------------------------------------------------------

namespace {

void check_range(std::string_view field, int64_t value, int64_t low, int64_t high) {
  SAN_CHECK(value >= low && value <= high, "{} = {}: a whole number from {} to {} is expected", field, value, low,
            high);
}

void check_probability(std::string_view field, double value) {
  SAN_CHECK(value >= 0 && value < 1, "{} = {}: a probability below 1 is expected", field, value);
}

void check_tables(std::string_view field, const std::vector<int>& tables, int values, bool edges) {
  SAN_CHECK(!tables.empty() || values > 0, "{}: a model needs a categorical column or real-valued features", field);
  SAN_CHECK(tables.size() <= static_cast<size_t>(kMaxFeatureColumns), "{}: {} columns are more than the {} allowed",
            field, tables.size(), kMaxFeatureColumns);
  for (const int rows : tables) check_range(field, rows, 1, kMaxTableRows);
  check_range(edges ? "model.edge_values" : "model.node_values", values, 0, kMaxFeatureColumns);
}

}  // namespace

void validate_widths(const ModelConfig& m) {
  check_range("model.hidden_dim", m.hidden_dim, 1, kMaxWidth);
  check_range("model.out_dim", m.out_dim, 0, kMaxWidth);
  check_range("model.heads", m.heads, 1, kMaxWidth);
  check_range("model.layers", m.layers, 1, kMaxLayers);
  SAN_CHECK(m.hidden_dim % m.heads == 0, "model.heads = {} does not divide model.hidden_dim = {}", m.heads,
            m.hidden_dim);
  SAN_CHECK(m.final_dim() % m.heads == 0, "model.heads = {} does not divide model.out_dim = {}", m.heads, m.out_dim);
  SAN_CHECK(m.final_dim() >= 4, "the width before the head is {}: at least 4 is needed (d -> d/2 -> d/4 -> outputs)",
            m.final_dim());
  SAN_CHECK(std::isfinite(m.gamma) && m.gamma >= 0, "model.gamma = {}: a number >= 0 is expected", m.gamma);
  check_probability("model.dropout", m.dropout);
  check_probability("model.in_feat_dropout", m.in_feat_dropout);
  if (m.lpe.kind != LpeKind::kNone) {
    check_range("model.lpe.dim", m.lpe.dim, 1, kMaxWidth);
    check_range("model.lpe.layers", m.lpe.layers, 1, kMaxLayers);
    check_range("model.lpe.heads", m.lpe.heads, 1, kMaxWidth);
    check_range("model.lpe.ff_dim", m.lpe.ff_dim, 1, 1 << 20);
    check_probability("model.lpe.dropout", m.lpe.dropout);
    SAN_CHECK(m.lpe.dim % m.lpe.heads == 0, "model.lpe.heads = {} does not divide model.lpe.dim = {}", m.lpe.heads,
              m.lpe.dim);
    SAN_CHECK(m.lpe.dim < m.hidden_dim, "model.lpe.dim = {} leaves no room for the embedding in model.hidden_dim = {}",
              m.lpe.dim, m.hidden_dim);
  }
}

void validate(const ModelDescription& description) {
  const ModelConfig& m = description.model;
  validate_widths(m);
  check_range("model.outputs", m.outputs, 1, kMaxWidth);
  check_tables("model.node_tables", m.node_tables, m.node_values, false);
  check_tables("model.edge_tables", m.edge_tables, m.edge_values, true);
  SAN_CHECK(!m.standardise_nodes || m.node_values > 0, "model.standardise_nodes: nodes have no real-valued features");
  SAN_CHECK(m.added_edge == AddedEdge::kLearned || !m.full() || m.edge_values == 0,
            "model.added_edge = row0 needs categorical edge features only; use learned");
  check_range("spectral.num_pairs", description.input.spectral.num_pairs, 1, kMaxWidth);
  check_range("spectral.walk_steps", description.input.spectral.walk_steps, 0, std::min(kMaxWalkSteps, m.node_values));
  SAN_CHECK(description.input.featuriser == "none" || description.input.featuriser == "zinc" ||
                description.input.featuriser == "ogb",
            "featuriser = '{}': one of none, zinc, ogb is expected", printable(description.input.featuriser));

  const TaskConfig& t = description.task;
  const bool node_task = t.kind == TaskKind::kNodeClassification;
  SAN_CHECK(node_task == (m.readout == Readout::kNode), "task {} does not go with model.readout = {}",
            enum_name(t.kind), enum_name(m.readout));
  const bool classes = node_task || t.kind == TaskKind::kMulticlass;
  const bool goes_with = t.kind == TaskKind::kRegression ? t.loss == Loss::kL1 || t.loss == Loss::kMse
                         : t.kind == TaskKind::kBinary
                             ? t.loss == Loss::kCrossEntropy || t.loss == Loss::kSigmoidBce
                             : t.loss == Loss::kCrossEntropy || t.loss == Loss::kWeightedCrossEntropy;
  SAN_CHECK(goes_with, "task.loss = {} does not go with task.kind = {}", enum_name(t.loss), enum_name(t.kind));
  SAN_CHECK(t.targets.empty() || classes || t.targets.size() == static_cast<size_t>(m.outputs),
            "{} target names for {} outputs", t.targets.size(), m.outputs);
  SAN_CHECK(t.classes.empty() || t.kind == TaskKind::kBinary || t.classes.size() == static_cast<size_t>(m.outputs),
            "{} class names for {} outputs", t.classes.size(), m.outputs);
  SAN_CHECK(t.scale.size() == t.shift.size() && (t.scale.empty() || t.scale.size() == static_cast<size_t>(m.outputs)),
            "task.scale and task.shift need one number for each of the {} outputs", m.outputs);
  for (size_t i = 0; i < t.scale.size(); ++i) {
    SAN_CHECK(std::isfinite(t.scale[i]) && t.scale[i] > 0 && std::isfinite(t.shift[i]),
              "task.scale and task.shift must be finite, scale above 0");
  }
  const int64_t parameters = parameter_count(m);
  SAN_CHECK(parameters <= kMaxParameters, "the configuration asks for {} parameters; at most {} are allowed",
            parameters, kMaxParameters);
}

std::vector<std::string> output_names(const ModelDescription& description) {
  const auto outputs = static_cast<size_t>(description.model.outputs);
  const TaskConfig& task = description.task;
  const bool classes = task.kind == TaskKind::kMulticlass || task.kind == TaskKind::kNodeClassification;
  const std::vector<std::string>& names = classes ? task.classes : task.targets;
  if (names.size() == outputs) return names;
  std::vector<std::string> numbered;
  for (size_t i = 0; i < outputs; ++i) numbered.push_back(fmt::format("y{}", i));
  return numbered;
}

// --- JSON ------------------------------------------------------------------------------------------------------------

namespace {

template <typename T>
concept Enumeration = std::is_enum_v<T>;

struct Writer {
  Json& object;
  template <typename T>
  void operator()(const char* name, const T& value, const char*) {
    if constexpr (Enumeration<T>) {
      object[name] = std::string(enum_name(value));
    } else {
      object[name] = value;
    }
  }
};

bool fits_int(const Json& json) {
  return json.is_number_integer() && json.get<int64_t>() >= INT32_MIN && json.get<int64_t>() <= INT32_MAX &&
         !(json.is_number_unsigned() && json.get<uint64_t>() > INT32_MAX);
}

bool read_value(const Json& json, bool& out) {
  return json.is_boolean() && (out = json.get<bool>(), true);
}
bool read_value(const Json& json, int& out) {
  return fits_int(json) && (out = json.get<int>(), true);
}
bool read_value(const Json& json, double& out) {
  return json.is_number() && (out = json.get<double>(), true);
}
bool read_value(const Json& json, std::string& out) {
  return json.is_string() && (out = json.get<std::string>(), true);
}
template <typename T>
bool read_value(const Json& json, std::vector<T>& out) {
  if (!json.is_array()) return false;
  out.clear();
  for (const Json& item : json) {
    T value{};
    if (!read_value(item, value)) return false;
    out.push_back(std::move(value));
  }
  return true;
}

// Fields that models written by earlier versions do not have: their default is what those did.
bool is_later(std::string_view field) {
  return field == "spectral.walk_steps" || field == "model.lpe.both_signs" || field == "model.incident_edges" ||
         field == "model.standardise_nodes";
}

struct Reader {
  const Json& object;
  std::string section;
  std::set<std::string> known = {};

  template <typename T>
  void operator()(const char* name, T& value, const char*) {
    known.insert(name);
    const std::string field = section + "." + name;
    const auto found = object.find(name);
    if (found == object.end() && is_later(field)) return;
    SAN_CHECK(found != object.end(), "'{}' is missing", field);
    if constexpr (Enumeration<T>) {
      SAN_CHECK(found->is_string(), "'{}' must be a string", field);
      value = parse_enum<T>(found->template get<std::string>(), field);
    } else {
      SAN_CHECK(read_value(*found, value), "'{}' must be {}", field, kind_name<T>());
    }
  }
  void allow(const char* name) { known.insert(name); }
  void finish() const {
    for (const auto& [key, ignored] : object.items()) {
      SAN_CHECK(known.contains(key), "unknown field '{}.{}'", section, printable(key));
    }
  }
};

const Json& section_of(const Json& object, const char* name) {
  const auto found = object.find(name);
  SAN_CHECK(found != object.end() && found->is_object(), "the section '{}' is missing", name);
  return *found;
}

constexpr const char* kFormatName = "san-model";
constexpr int kFormatVersion = 1;

}  // namespace

std::string to_json(const ModelDescription& description) {
  Json root;
  root["format"] = kFormatName;
  root["version"] = kFormatVersion;
  Json model = Json::object(), lpe = Json::object(), spectral = Json::object(), task = Json::object();
  visit_model_fields(description.model, Writer{model});
  visit_lpe_fields(description.model.lpe, Writer{lpe});
  model["lpe"] = lpe;
  visit_spectral_fields(description.input.spectral, Writer{spectral});
  visit_task_fields(description.task, Writer{task});
  root["model"] = model;
  root["featuriser"] = description.input.featuriser;
  root["spectral"] = spectral;
  root["task"] = task;
  if (!description.provenance.empty()) root["provenance"] = Json::parse(description.provenance);
  return root.dump(1, ' ', true, Json::error_handler_t::replace) + "\n";
}

ModelDescription description_from_json(std::string_view json, const std::string& where) {
  try {
    // Deeper than any config of ours: a hostile nest is refused before it is built.
    const auto limit_depth = [](int depth, Json::parse_event_t, Json&) {
      SAN_CHECK(depth <= 32, "nested too deeply");
      return true;
    };
    const Json root = Json::parse(json, limit_depth);
    SAN_CHECK(root.is_object() && root.value("format", "") == kFormatName, "not a san model's config.json");
    SAN_CHECK(root.contains("version") && root["version"] == kFormatVersion,
              "written by another version of san (format version {}, this program reads {})",
              root.contains("version") ? printable(root["version"].dump()) : "?", kFormatVersion);
    for (const auto& [key, ignored] : root.items()) {
      static const std::set<std::string> kKnown = {"format",   "version", "model",     "featuriser",
                                                   "spectral", "task",    "provenance"};
      SAN_CHECK(kKnown.contains(key), "unknown field '{}'", printable(key));
    }
    ModelDescription d;
    Reader model{section_of(root, "model"), "model"};
    visit_model_fields(d.model, model);
    model.allow("lpe");
    model.finish();
    Reader lpe{section_of(root["model"], "lpe"), "model.lpe"};
    visit_lpe_fields(d.model.lpe, lpe);
    lpe.finish();
    Reader spectral{section_of(root, "spectral"), "spectral"};
    visit_spectral_fields(d.input.spectral, spectral);
    spectral.finish();
    Reader task{section_of(root, "task"), "task"};
    visit_task_fields(d.task, task);
    task.finish();
    SAN_CHECK(root.contains("featuriser") && root["featuriser"].is_string(), "'featuriser' must be a string");
    d.input.featuriser = root["featuriser"].get<std::string>();
    if (root.contains("provenance")) d.provenance = root["provenance"].dump();
    validate(d);
    return d;
  } catch (const nlohmann::json::exception& error) {
    fail("{}: not valid JSON: {}", where, printable(error.what(), 200));
  } catch (const Error& error) {
    fail("{}: {}", where, error.what());
  }
}

// --- tensors ---------------------------------------------------------------------------------------------------------

int64_t TensorSpec::count() const {
  int64_t product = 1;
  for (const int64_t extent : shape) product *= extent;
  return product;
}

std::vector<TensorSpec> tensor_specs(const ModelConfig& config) {
  std::vector<TensorSpec> specs;
  const auto linear = [&](const std::string& name, int64_t in, int64_t out, bool bias = true) {
    specs.push_back({name + ".weight", {out, in}, true, Init::kUniformFanIn, in});
    if (bias) specs.push_back({name + ".bias", {out}, true, Init::kUniformFanIn, in});
  };
  const auto layer_norm = [&](const std::string& name, int64_t width) {
    specs.push_back({name + ".weight", {width}, true, Init::kOnes});
    specs.push_back({name + ".bias", {width}, true, Init::kZeros});
  };
  const auto batch_norm = [&](const std::string& name, int64_t width) {
    layer_norm(name, width);
    specs.push_back({name + ".running_mean", {width}, false, Init::kZeros});
    specs.push_back({name + ".running_var", {width}, false, Init::kOnes});
  };
  const auto embedding = [&](const std::string& name, const std::vector<int>& tables, int values, int64_t width) {
    const Init init = config.table_init == TableInit::kXavier ? Init::kXavier : Init::kNormal;
    for (size_t i = 0; i < tables.size(); ++i) {
      specs.push_back({fmt::format("{}.table.{}", name, i), {tables[i], width}, true, init});
    }
    if (values > 0) linear(name + ".linear", values, width);
  };

  const int64_t node_width = config.node_embedding_dim(), edge_width = config.edge_embedding_dim();
  embedding("node_embedding", config.node_tables, config.node_values, node_width);
  if (config.standardise_nodes) {
    specs.push_back({"node_embedding.mean", {config.node_values}, false, Init::kZeros});
    specs.push_back({"node_embedding.deviation", {config.node_values}, false, Init::kOnes});
  }
  embedding("edge_embedding", config.edge_tables, config.edge_values, edge_width);
  if (config.incident_edges) embedding("incident_embedding", config.edge_tables, config.edge_values, node_width);
  if (config.full() && config.added_edge == AddedEdge::kLearned) {
    specs.push_back({"edge_embedding.added", {edge_width}, true, Init::kNormal});
  }
  if (config.extra_mlp) {
    batch_norm("node_mlp.norm", node_width);
    linear("node_mlp.linear", node_width, node_width);
    batch_norm("edge_mlp.norm", edge_width);
    linear("edge_mlp.linear", edge_width, edge_width);
  }

  if (config.lpe.kind != LpeKind::kNone) {
    const int64_t k = config.lpe.dim;
    linear("lpe.input", config.lpe.token_width(), k);
    for (int i = 0; i < config.lpe.layers; ++i) {
      const std::string name = fmt::format("lpe.layers.{}", i);
      specs.push_back({name + ".attention.in.weight", {3 * k, k}, true, Init::kXavier});
      specs.push_back({name + ".attention.in.bias", {3 * k}, true, Init::kZeros});
      specs.push_back({name + ".attention.out.weight", {k, k}, true, Init::kUniformFanIn, k});
      specs.push_back({name + ".attention.out.bias", {k}, true, Init::kZeros});
      layer_norm(name + ".norm1", k);
      linear(name + ".ff1", k, config.lpe.ff_dim);
      linear(name + ".ff2", config.lpe.ff_dim, k);
      layer_norm(name + ".norm2", k);
    }
  }

  for (int i = 0; i < config.layers; ++i) {
    const std::string name = fmt::format("layers.{}", i);
    const int64_t in = config.hidden_dim, out = i + 1 == config.layers ? config.final_dim() : config.hidden_dim;
    for (const char* map : {"q1", "k1", "e1", "q2", "k2", "e2", "v"}) {
      if (map[1] == '2' && !config.full()) continue;
      linear(fmt::format("{}.{}", name, map), in, out, config.bias);
    }
    linear(name + ".o", out, out);
    if (config.layer_norm) layer_norm(name + ".layer_norm1", out);
    if (config.batch_norm) batch_norm(name + ".batch_norm1", out);
    linear(name + ".ffn1", out, 2 * out);
    linear(name + ".ffn2", 2 * out, out);
    if (config.layer_norm) layer_norm(name + ".layer_norm2", out);
    if (config.batch_norm) batch_norm(name + ".batch_norm2", out);
  }

  const int64_t d = config.final_dim();
  linear("head.0", d, d / 2);
  linear("head.1", d / 2, d / 4);
  linear("head.2", d / 4, config.outputs);
  return specs;
}

int64_t parameter_count(const ModelConfig& config) {
  int64_t total = 0;
  for (const TensorSpec& spec : tensor_specs(config)) total += spec.trained ? spec.count() : 0;
  return total;
}

}  // namespace san
