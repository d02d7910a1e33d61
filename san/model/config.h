// What a model is: its architecture, the spectra it reads, its task. Everything a model folder's config.json
// says.
//
// The structs are plain values with documented defaults. Each has one table of its fields (visit_fields
// below); reading and writing JSON, config files, --set and the reference documentation all go through that
// table.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "san/base/enum_names.h"
#include "san/spectral/spectrum.h"

namespace san {

enum class LpeKind { kNone, kNode, kEdge, kBoth };
enum class LpeInit { kIndependent, kCopied };
enum class AttentionKind { kFull, kSparse };
enum class AttentionNorm { kJoint, kSeparate };
enum class Readout { kSum, kMean, kMax, kNode };
enum class AddedEdge { kLearned, kRow0 };
enum class TableInit { kNormal, kXavier };
enum class TaskKind { kRegression, kBinary, kMulticlass, kNodeClassification };
enum class Loss { kL1, kMse, kCrossEntropy, kWeightedCrossEntropy, kSigmoidBce };

// The learned positional encoding: a Transformer over eigenpairs, per node, per pair of nodes, or one for both.
struct LpeConfig {
  LpeKind kind = LpeKind::kNode;
  int dim = 8;  // k: width of a code; node (edge) embeddings get d - k
  int layers = 2;
  int heads = 4;      // must divide dim
  int ff_dim = 2048;  // hidden units of the feed-forward blocks
  double dropout = 0.1;
  LpeInit init = LpeInit::kIndependent;  // copied: all layers start with the first one's weights, as published
  bool both_signs = false;  // nodes: the sum of the codes of phi and of -phi, which is the same when all signs change

  bool nodes() const { return kind == LpeKind::kNode || kind == LpeKind::kBoth; }
  bool pairs() const { return kind == LpeKind::kEdge || kind == LpeKind::kBoth; }
  int sequences_per_node() const { return !nodes() ? 0 : both_signs ? 2 : 1; }
  // A node's token: (phi_i, lambda). A pair's: (|phi_a - phi_b|, phi_a phi_b, lambda). With both, each kind has its own columns,
  // and zeros in the other's.
  int token_width() const { return (nodes() ? 2 : 0) + (pairs() ? 3 : 0); }
};

struct ModelConfig {
  // Input: rows of each categorical column's table, and the width of the real-valued vector (0 = none).
  std::vector<int> node_tables = {1};
  int node_values = 0;
  std::vector<int> edge_tables = {2};
  int edge_values = 0;
  // Real-valued node features are standardised with mean and deviation of the training part, which the model keeps. Return
  // probabilities of walks differ by powers of ten; without this a linear map does not see the small ones.
  bool standardise_nodes = false;
  AddedEdge added_edge = AddedEdge::kLearned;  // row0: added pairs use row 0 of every edge table, as published
  TableInit table_init = TableInit::kNormal;   // xavier: as OGB's encoders
  bool extra_mlp = false;                      // BatchNorm -> ReLU -> Linear after the embeddings (MolPCBA)
  // Nodes also begin with the sum, over the real edges that end there, of a vector per kind of edge: attention normalises
  // its weights, so that a node without this learns only slowly how many edges it has and of which kinds.
  bool incident_edges = false;

  LpeConfig lpe;

  AttentionKind attention = AttentionKind::kFull;
  AttentionNorm attention_norm = AttentionNorm::kJoint;
  double gamma = 1e-5;  // bias towards full attention: weight of added pairs against real edges
  int layers = 10;
  int hidden_dim = 56;  // d
  int out_dim = 0;      // width after the last layer; 0 = hidden_dim. If it differs, that layer has no residual
  int heads = 8;        // must divide hidden_dim and out_dim
  bool bias = false;    // biases in the Q, K, E, V maps
  bool residual = true;
  bool layer_norm = false;
  bool batch_norm = true;  // with both on, LayerNorm comes first
  double dropout = 0.0;
  double in_feat_dropout = 0.0;
  Readout readout = Readout::kSum;
  int outputs = 1;

  // d of the last layer's output.
  int final_dim() const { return out_dim == 0 ? hidden_dim : out_dim; }
  int node_embedding_dim() const { return hidden_dim - (lpe.nodes() ? lpe.dim : 0); }
  int edge_embedding_dim() const { return hidden_dim - (lpe.pairs() ? lpe.dim : 0); }
  bool full() const { return attention == AttentionKind::kFull; }
};

// What the outputs mean.
struct TaskConfig {
  TaskKind kind = TaskKind::kRegression;
  // regression: l1 or mse. binary: cross-entropy, or sigmoid-bce: the published program's, whose gradient
  // dies where the sigmoid rounds to 0 or 1. Classes: cross-entropy, or weighted-cross-entropy (each batch's
  // rare classes count more, as published for SBM).
  Loss loss = Loss::kL1;
  std::vector<std::string> targets;  // column names; empty: y0, y1, ...
  std::vector<std::string> classes;  // what the classes are called in the data; empty: 0, 1, ...
  // Regression: label = output * scale + shift, per target; empty = labels as they are.
  std::vector<double> scale;
  std::vector<double> shift;
};

// How the model's graphs are made.
struct InputConfig {
  std::string featuriser = "none";  // none: graphs come as they are; zinc, ogb: from SMILES
  SpectrumOptions spectral;
};

struct ModelDescription {
  ModelConfig model;
  InputConfig input;
  TaskConfig task;
  std::string provenance;  // how it came about, as JSON text; for people, never read by the program
};

// Throws Error naming the field for anything that cannot be built: heads that do not divide, k >= d, tables
// without rows, numbers out of range, more than kMaxParameters parameters.
void validate(const ModelDescription& description);
// The part of it that no data decides: widths, heads, layers, rates. For a word before data is prepared.
void validate_widths(const ModelConfig& config);
inline constexpr int64_t kMaxParameters = int64_t{1} << 31;

// --- names of enum values (see base/enum_names.h) --------------------------------------------------------------------

EnumNames<LpeKind> enum_names(LpeKind);
EnumNames<LpeInit> enum_names(LpeInit);
EnumNames<AttentionKind> enum_names(AttentionKind);
EnumNames<AttentionNorm> enum_names(AttentionNorm);
EnumNames<Readout> enum_names(Readout);
EnumNames<AddedEdge> enum_names(AddedEdge);
EnumNames<TableInit> enum_names(TableInit);
EnumNames<TaskKind> enum_names(TaskKind);
EnumNames<Loss> enum_names(Loss);

// --- tables of fields: field(name, member, what it is) ---------------------------------------------------------------

template <typename Config, typename Visitor>
void visit_lpe_fields(Config& c, Visitor&& field) {
  field("kind", c.kind, "node: a code per node; edge: a code per pair of nodes; both; none");
  field("dim", c.dim, "width k of a code");
  field("layers", c.layers, "encoder layers");
  field("heads", c.heads, "attention heads; must divide dim");
  field("ff_dim", c.ff_dim, "hidden units of the feed-forward blocks");
  field("dropout", c.dropout, "dropout inside the encoder");
  field("init", c.init, "independent, or copied: all layers start equal, as published");
  field("both_signs", c.both_signs, "nodes: sum of the codes of the eigenvectors and of their negatives");
}

template <typename Config, typename Visitor>
void visit_model_fields(Config& c, Visitor&& field) {
  field("node_tables", c.node_tables, "rows of each categorical node column's table");
  field("node_values", c.node_values, "width of the real-valued node features");
  field("standardise_nodes", c.standardise_nodes, "real-valued node features are standardised by the training part's");
  field("edge_tables", c.edge_tables, "rows of each categorical edge column's table");
  field("edge_values", c.edge_values, "width of the real-valued edge features");
  field("added_edge", c.added_edge,
        "embedding of added pairs: a learned vector, or row0 of the edge tables (published)");
  field("table_init", c.table_init, "initial tables: normal(0, 1), or xavier as OGB's encoders");
  field("extra_mlp", c.extra_mlp, "BatchNorm, ReLU, Linear after the embeddings (MolPCBA)");
  field("incident_edges", c.incident_edges, "nodes begin with the sum of vectors of the edges that end there, too");
  field("attention", c.attention, "full: real edges and added pairs; sparse: real edges only");
  field("attention_norm", c.attention_norm,
        "joint (published), or separate: a softmax per kind of pair (paper's eq. 4)");
  field("gamma", c.gamma, "weight of added pairs against real edges");
  field("layers", c.layers, "graph Transformer layers");
  field("hidden_dim", c.hidden_dim, "width d");
  field("out_dim", c.out_dim, "width after the last layer; 0 = hidden_dim");
  field("heads", c.heads, "attention heads; must divide hidden_dim and out_dim");
  field("bias", c.bias, "biases in the Q, K, E, V maps");
  field("residual", c.residual, "residual connections");
  field("layer_norm", c.layer_norm, "LayerNorm after each block");
  field("batch_norm", c.batch_norm, "BatchNorm after each block (after LayerNorm if both)");
  field("dropout", c.dropout, "dropout in the graph Transformer");
  field("in_feat_dropout", c.in_feat_dropout, "dropout on the input embeddings");
  field("readout", c.readout, "graph tasks: sum, mean or max over nodes; node tasks: node");
  field("outputs", c.outputs, "numbers per graph (or node)");
}

template <typename Config, typename Visitor>
void visit_spectral_fields(Config& c, Visitor&& field) {
  field("num_pairs", c.num_pairs, "how many of the lowest eigenpairs to use (m)");
  field("laplacian", c.laplacian, "symmetric, combinatorial or random-walk");
  field("norm", c.norm, "eigenvector: unit vectors (paper); node: unit rows (published program)");
  field("walk_steps", c.walk_steps, "random walks' return probabilities after 1.. steps, as node features; 0 = none");
}

template <typename Config, typename Visitor>
void visit_task_fields(Config& c, Visitor&& field) {
  field("kind", c.kind, "regression, binary, multiclass or node-classification");
  field("loss", c.loss, "l1, mse; cross-entropy, weighted-cross-entropy; sigmoid-bce (published binary loss)");
  field("targets", c.targets, "names of the outputs");
  field("classes", c.classes, "names of the classes");
  field("scale", c.scale, "label = output * scale + shift");
  field("shift", c.shift, "label = output * scale + shift");
}

// What a value of this type is called in messages: "'model.bias' must be true or false".
template <typename T>
constexpr const char* kind_name() {
  if constexpr (std::is_same_v<T, bool>) return "true or false";
  if constexpr (std::is_same_v<T, int>) return "a whole number";
  if constexpr (std::is_same_v<T, double>) return "a number";
  if constexpr (std::is_same_v<T, std::vector<int>>) return "a list of whole numbers";
  if constexpr (std::is_same_v<T, std::vector<double>>) return "a list of numbers";
  if constexpr (std::is_same_v<T, std::vector<std::string>>) return "a list of strings";
  return "a string";
}

// What the output columns are called: the targets, the classes, or y0, y1, ...
std::vector<std::string> output_names(const ModelDescription& description);

// --- JSON ------------------------------------------------------------------------------------------------------------

std::string to_json(const ModelDescription& description);
// Strict: unknown or missing fields, wrong types and anything validate() refuses are Errors that start with
// `where`.
ModelDescription description_from_json(std::string_view json, const std::string& where);

// Of a standardised feature: what differs by less counts as the same, or a hostile value could become infinite.
inline constexpr float kLeastDeviation = 1e-12F;

// --- tensors ---------------------------------------------------------------------------------------------------------

enum class Init { kZeros, kOnes, kUniformFanIn, kXavier, kNormal };

// One tensor of a model of this configuration.
struct TensorSpec {
  std::string name;  // "layers.0.q1.weight"
  std::vector<int64_t> shape;
  bool trained = true;  // false: a BatchNorm statistic
  Init init = Init::kZeros;
  int64_t fan_in = 0;  // kUniformFanIn: bound is 1 / sqrt(fan_in)

  int64_t count() const;
};

// Every tensor of the model, in the order of the flow: the one list that building, loading, saving and
// counting use.
std::vector<TensorSpec> tensor_specs(const ModelConfig& config);

// Trained numbers, as papers count them.
int64_t parameter_count(const ModelConfig& config);

}  // namespace san
