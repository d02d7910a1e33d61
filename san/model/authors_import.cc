#include "san/model/authors_import.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <nlohmann/json.hpp>

namespace san {
namespace {

using Json = nlohmann::json;

enum class Net { kZinc, kPattern, kCluster, kMolhiv, kMolpcba };

// "ZINC", "SBM_PATTERN", "ogbg-molhiv", "HIV", ...
Net net_of(std::string name) {
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
  constexpr std::pair<std::string_view, Net> kNets[] = {{"zinc", Net::kZinc},
                                                        {"pattern", Net::kPattern},
                                                        {"cluster", Net::kCluster},
                                                        {"hiv", Net::kMolhiv},
                                                        {"pcba", Net::kMolpcba}};
  for (const auto& [part, net] : kNets) {
    if (name.find(part) != std::string::npos) return net;
  }
  fail("unknown dataset '{}': one of ZINC, PATTERN, CLUSTER, MOLHIV, MOLPCBA is expected", printable(name));
}

// One value of net_params, with a clear message when it is absent or of another type.
class Params {
 public:
  explicit Params(const Json& object) : object_(object) {}

  int integer(const char* key) const {
    const Json& value = at(key);
    SAN_CHECK(value.is_number_integer() && value.get<int64_t>() >= 0 && value.get<int64_t>() <= INT32_MAX,
              "net_params.{} must be a whole number", key);
    return value.get<int>();
  }
  double number(const char* key) const {
    SAN_CHECK(at(key).is_number(), "net_params.{} must be a number", key);
    return at(key).get<double>();
  }
  bool boolean(const char* key) const {
    SAN_CHECK(at(key).is_boolean(), "net_params.{} must be true or false", key);
    return at(key).get<bool>();
  }
  std::string text(const char* key) const {
    SAN_CHECK(at(key).is_string(), "net_params.{} must be a string", key);
    return at(key).get<std::string>();
  }
  bool has(const char* key) const { return object_.contains(key); }

 private:
  const Json& at(const char* key) const {
    const auto found = object_.find(key);
    SAN_CHECK(found != object_.end(), "net_params.{} is missing", key);
    return *found;
  }
  const Json& object_;
};

bool take_prefix(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

// The digits at the start of `text` and the dot behind them: "12.rest" -> "12", "rest".
std::optional<std::string> take_index(std::string_view& text) {
  const size_t end = text.find_first_not_of("0123456789");
  if (end == 0 || end == std::string_view::npos || text[end] != '.') return std::nullopt;
  std::string index(text.substr(0, end));
  text.remove_prefix(end + 1);
  return index;
}

std::optional<std::string> replace_prefix(std::string_view name,
                                          std::initializer_list<std::pair<std::string_view, std::string_view>> table) {
  for (const auto& [from, to] : table) {
    if (name.starts_with(from)) return std::string(to) + std::string(name.substr(from.size()));
  }
  return std::nullopt;
}

Tensor to_f32(Tensor tensor, const std::string& name) {
  if (tensor.dtype == DType::kF32) return tensor;
  SAN_CHECK(tensor.dtype == DType::kF64, "the tensor '{}' does not hold real numbers", printable(name));
  std::vector<float> values(tensor.f64(), tensor.f64() + tensor.count());
  return make_tensor(tensor.shape, values);
}

// Rows of the tables "<prefix>0", "<prefix>1", ... in `weights`.
std::vector<int> table_rows(const TensorFile& weights, const std::string& prefix) {
  std::vector<int> rows;
  for (;;) {
    const auto found = weights.tensors.find(prefix + std::to_string(rows.size()));
    if (found == weights.tensors.end()) break;
    SAN_CHECK(found->second.shape.size() == 2 && found->second.shape[0] <= INT32_MAX,
              "an embedding table is not a matrix");
    rows.push_back(static_cast<int>(found->second.shape[0]));
  }
  return rows;
}

int64_t extent(const TensorFile& weights, const std::string& name) {
  const auto found = weights.tensors.find(name);
  SAN_CHECK(found != weights.tensors.end() && !found->second.shape.empty(), "the tensor for '{}' is missing", name);
  return found->second.shape[0];
}

void check_stated(const Params& params, const char* key, int64_t actual) {
  if (params.has(key)) {
    SAN_CHECK(params.integer(key) == actual, "net_params.{} is {}, but the weights have {}", key, params.integer(key),
              actual);
  }
}

StoredModel import_checked(std::string_view json, const TensorFile& state) {
  const Json root = Json::parse(json, [](int depth, Json::parse_event_t, Json&) {
    SAN_CHECK(depth <= 32, "nested too deeply");
    return true;
  });
  SAN_CHECK(root.is_object() && root.contains("dataset") && root["dataset"].is_string(), "'dataset' is missing");
  SAN_CHECK(root.contains("net_params") && root["net_params"].is_object(), "'net_params' is missing");
  const Net net = net_of(root["dataset"].get<std::string>());
  const Params params(root["net_params"]);
  const bool sbm = net == Net::kPattern || net == Net::kCluster;
  const bool ogb = net == Net::kMolhiv || net == Net::kMolpcba;

  StoredModel stored;
  for (const auto& [name, tensor] : state.tensors) {
    if (name.ends_with(".num_batches_tracked")) continue;  // only used without momentum, which is never
    if (ogb && name == "embedding_e_fake.weight") continue;
    const auto ours = authors_tensor_name(name);
    SAN_CHECK(ours, "unknown tensor '{}'", printable(name));
    const bool added = stored.weights.tensors.emplace(*ours, to_f32(tensor, name)).second;
    SAN_CHECK(added, "the tensor '{}' is there under two names", printable(name));
  }

  ModelConfig& m = stored.description.model;
  m.node_tables = table_rows(stored.weights, "node_embedding.table.");
  m.edge_tables = table_rows(stored.weights, "edge_embedding.table.");
  m.added_edge = AddedEdge::kRow0;
  m.table_init = ogb ? TableInit::kXavier : TableInit::kNormal;
  m.attention = params.boolean("full_graph") ? AttentionKind::kFull : AttentionKind::kSparse;
  m.gamma = params.number("gamma");
  m.layers = params.integer("GT_layers");
  m.hidden_dim = params.integer("GT_hidden_dim");
  const int out_dim = params.integer("GT_out_dim");
  m.out_dim = out_dim == m.hidden_dim ? 0 : out_dim;
  m.heads = params.integer("GT_n_heads");
  m.bias = stored.weights.tensors.contains("layers.0.q1.bias");
  m.residual = params.boolean("residual");
  m.layer_norm = params.boolean("layer_norm");
  m.batch_norm = params.boolean("batch_norm");
  m.dropout = params.number("dropout");
  m.in_feat_dropout = params.number("in_feat_dropout");
  // Only one of the three nets of MolPCBA reads net_params.extra_mlp: the weights say whether it is there.
  m.extra_mlp = stored.weights.tensors.contains("node_mlp.linear.weight");
  const std::string readout = params.text("readout");
  // The published nets fall back to the mean for any other word.
  m.readout = sbm                ? Readout::kNode
              : readout == "sum" ? Readout::kSum
              : readout == "max" ? Readout::kMax
                                 : Readout::kMean;
  m.outputs = static_cast<int>(extent(stored.weights, "head.2.weight"));
  m.lpe.kind = parse_enum<LpeKind>(params.text("LPE"), "net_params.LPE");
  SAN_CHECK(m.lpe.kind != LpeKind::kBoth, "net_params.LPE = both: the authors' program has none, node and edge");
  if (m.lpe.kind != LpeKind::kNone) {
    m.lpe.dim = params.integer("LPE_dim");
    m.lpe.layers = params.integer("LPE_layers");
    m.lpe.heads = params.integer("LPE_n_heads");
    m.lpe.ff_dim = static_cast<int>(extent(stored.weights, "lpe.layers.0.ff1.weight"));
    stored.description.input.spectral.num_pairs = params.integer("m");
  }
  m.lpe.dropout = 0.1;
  m.lpe.init = LpeInit::kCopied;
  if (net == Net::kZinc) {
    check_stated(params, "num_atom_type", m.node_tables.empty() ? 0 : m.node_tables[0]);
    check_stated(params, "num_bond_type", m.edge_tables.empty() ? 0 : m.edge_tables[0]);
  }
  if (sbm) {
    check_stated(params, "in_dim", m.node_tables.empty() ? 0 : m.node_tables[0]);
    check_stated(params, "n_classes", m.outputs);
  }

  stored.description.input.featuriser = ogb ? "ogb" : net == Net::kZinc ? "zinc" : "none";
  stored.description.input.spectral.norm = EigenvectorNorm::kNode;
  stored.description.task.kind = sbm ? TaskKind::kNodeClassification : ogb ? TaskKind::kBinary : TaskKind::kRegression;
  stored.description.task.loss = sbm ? Loss::kWeightedCrossEntropy : ogb ? Loss::kSigmoidBce : Loss::kL1;
  stored.description.provenance = Json{{"imported", "authors' program"}, {"dataset", root["dataset"]}}.dump();
  validate(stored.description);
  check_weights(m, stored.weights, "weights");
  return stored;
}

}  // namespace

std::optional<std::string> authors_tensor_name(std::string_view name) {
  if (take_prefix(name, "layers.")) {
    const auto index = take_index(name);
    if (!index) return std::nullopt;
    const auto rest = replace_prefix(name, {{"attention.Q.", "q1."},
                                            {"attention.K.", "k1."},
                                            {"attention.E.", "e1."},
                                            {"attention.V.", "v."},
                                            {"attention.Q_2.", "q2."},
                                            {"attention.K_2.", "k2."},
                                            {"attention.E_2.", "e2."},
                                            {"O_h.", "o."},
                                            {"FFN_h_layer1.", "ffn1."},
                                            {"FFN_h_layer2.", "ffn2."},
                                            {"layer_norm1_h.", "layer_norm1."},
                                            {"layer_norm2_h.", "layer_norm2."},
                                            {"batch_norm1_h.", "batch_norm1."},
                                            {"batch_norm2_h.", "batch_norm2."}});
    return rest ? std::optional("layers." + *index + "." + *rest) : std::nullopt;
  }
  if (take_prefix(name, "PE_Transformer.layers.")) {
    const auto index = take_index(name);
    if (!index) return std::nullopt;
    const auto rest = replace_prefix(name, {{"self_attn.in_proj_weight", "attention.in.weight"},
                                            {"self_attn.in_proj_bias", "attention.in.bias"},
                                            {"self_attn.out_proj.", "attention.out."},
                                            {"linear1.", "ff1."},
                                            {"linear2.", "ff2."},
                                            {"norm1.", "norm1."},
                                            {"norm2.", "norm2."}});
    return rest ? std::optional("lpe.layers." + *index + "." + *rest) : std::nullopt;
  }
  for (const auto& [prefix, ours] :
       {std::pair<std::string_view, std::string>{"embedding_h.atom_embedding_list.", "node"},
        {"embedding_e.bond_embedding_list.", "edge"},
        {"embedding_e_real.bond_embedding_list.", "edge"}}) {
    if (take_prefix(name, prefix)) {
      const auto index = take_index(name);
      return index && name == "weight" ? std::optional(ours + "_embedding.table." + *index) : std::nullopt;
    }
  }
  if (name == "embedding_h.weight") return "node_embedding.table.0";
  if (name == "embedding_e.weight") return "edge_embedding.table.0";
  return replace_prefix(name, {{"linear_A.", "lpe.input."},
                               {"MLP_layer.FC_layers.", "head."},
                               {"norm_node.", "node_mlp.norm."},
                               {"norm_edge.", "edge_mlp.norm."},
                               {"linear_init_node.", "node_mlp.linear."},
                               {"linear_init_edge.", "edge_mlp.linear."}});
}

StoredModel import_authors_model(std::string_view net_params_json, const TensorFile& state, const std::string& where) {
  try {
    return import_checked(net_params_json, state);
  } catch (const Json::exception& error) {
    fail("{}: not valid JSON: {}", where, printable(error.what(), 200));
  } catch (const Error& error) {
    fail("{}: {}", where, error.what());
  }
}

}  // namespace san
