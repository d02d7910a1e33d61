// The inside of Network: its weights, the memory of a computation, and the steps of forward and backward. They are defined
// in network.cc and network_*.cc, which alone include this.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <map>
#include <optional>

#include "san/kernels/kernels.h"
#include "san/model/arena.h"
#include "san/model/network.h"
#include "san/model/network_plan.h"

namespace san {

inline constexpr double kNormEps = 1e-5;
inline constexpr int64_t kRows = 48;  // rows of a matrix that one task works on; a multiple of the kernels' 6 and 8

inline int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

// Parts of the computation whose time is kept.
enum class Part {
  kPlan,
  kEmbedding,
  kLpeForward,
  kLpeBackward,
  kLpeBackwardSmall,
  kLpeBackwardFeedForward,
  kProjections,
  kAttention,
  kFeedForward,
  kAttentionBackward,
  kFeedForwardBackward,
  kProjectionsBackward,
  kWeightGradients,
  kEdgeGradients,
  kHead,
  kCount
};
inline constexpr const char* kPartNames[] = {"plan",
                                             "embeddings",
                                             "LPE forward",
                                             "LPE backward",
                                             "LPE backward, attention and norms",
                                             "LPE backward, feed-forward",
                                             "projections",
                                             "attention",
                                             "output map, feed-forward, norms",
                                             "attention backward",
                                             "output map, feed-forward, norms backward",
                                             "projections backward",
                                             "weight gradients",
                                             "edge maps' gradients",
                                             "readout and head"};
using Profile = std::array<double, static_cast<size_t>(Part::kCount)>;

// Shares out the time from one call to the next.
class Laps {
 public:
  explicit Laps(Profile& profile) : profile_(profile) {}
  void add(Part part) {
    const auto now = std::chrono::steady_clock::now();
    profile_[static_cast<size_t>(part)] += std::chrono::duration<double>(now - last_).count();
    last_ = now;
  }

 private:
  Profile& profile_;
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

// A linear map ready for products: forward [in][out], backward [out][in].
struct Map {
  int in = 0, out = 0;
  float *forward = nullptr, *backward = nullptr, *bias = nullptr;
  int weight_tensor = -1, bias_tensor = -1;
};

struct BatchNorm {
  int width = 0;
  int weight = -1, bias = -1, mean = -1, variance = -1;  // tensors
};

// The tensors that turn features into vectors: a table per categorical column, a linear map of the values (-1: none).
struct Embedding {
  int width = 0;
  std::vector<int> tables;
  int weight = -1, bias = -1;
};

struct LayerWeights {
  int in = 0, out = 0, sections = 0;
  bool residual = false;
  float *projections = nullptr, *projections_back = nullptr, *projections_bias = nullptr;  // q1 k1 [q2 k2] v stacked
  int section_tensor[5] = {}, section_bias[5] = {};
  // Edge vectors of kind 0 (real) and 1 (added), scaled by 1 / sqrt(head width).
  struct Edge {
    float *table = nullptr, *table_back = nullptr;  // [embedding][out], [out][embedding]
    float *code = nullptr, *code_back = nullptr;    // [k][out], [out][k]; edge LPE
    float* bias = nullptr;                          // [out]
    int weight_tensor = -1, bias_tensor = -1;
  } edge[2];
  Map o, ffn1, ffn2;  // o reads features in the order of attention
  int layer_norm[2] = {-1, -1}, layer_norm_bias[2] = {-1, -1};
  BatchNorm batch_norm[2];
};

// What a training step keeps of a BatchNorm.
struct NormState {
  float *mean = nullptr, *rstd = nullptr;
};

struct LayerState {
  float *h = nullptr, *projections = nullptr, *attention = nullptr, *means[2] = {nullptr, nullptr};
  float* share[2] = {nullptr, nullptr};
  float *ln_hat[2] = {nullptr, nullptr}, *ln_rstd[2] = {nullptr, nullptr};  // LayerNorm
  float* bn_in[2] = {nullptr, nullptr};
  NormState norm[2];
  float *x1 = nullptr, *hidden = nullptr;
  float* table[2] = {nullptr, nullptr};  // edge vectors per type; [0]: real types, [1]: the added one
};

// A layer's backward pass: gradients of its output and of what has the same name in LayerState, [N][..]; and sums in parts, one for
// each of the tasks that may run side by side, to be added in their order.
struct LayerGradients {
  float *out = nullptr, *hidden = nullptr, *x1 = nullptr, *attention = nullptr, *projections = nullptr;
  float* dropped = nullptr;              // what attention's output map read: the state's, after dropout
  float* dot[2] = {nullptr, nullptr};    // [N][heads]: attention's gradient times its result
  float* scaled_q = nullptr;             // see scale_queries
  int64_t type_size = 0, code_size = 0;  // floats of a part of `types`, `code_weight`
  int64_t type_parts = 0, dense_type_parts = 0, added_parts = 0, code_parts = 0;
  float *types = nullptr,
        *dense_types = nullptr;                // of the real edges' vectors, by the edges one by one and by all pairs
  float* added = nullptr;                      // of the added pairs' vector
  float* code_weight[2] = {nullptr, nullptr};  // of LayerWeights::Edge::code
};

// The groups of alike tokens of a layer and a span of blocks (Network::Impl::grouped).
struct LpeGroups {
  std::vector<int32_t> tokens;  // of group g: g * kGroup ..., the last one's less; numbers within the span
  uint32_t *some, *all;         // [groups][ff_padded / 32]
  float* linear;                // [groups][k * k + kPad]
  int64_t count() const { return (static_cast<int64_t>(tokens.size()) + kGroup - 1) / kGroup; }
  int size(int64_t group) const {
    return static_cast<int>(std::min<int64_t>(kGroup, static_cast<int64_t>(tokens.size()) - group * kGroup));
  }
  // The token in a place of a group; the first one stands for those that are not there.
  int32_t at(int64_t group, int place) const {
    return tokens[static_cast<size_t>(group * kGroup + (place < size(group) ? place : 0))];
  }
};

struct Network::Workspace::Impl {
  Profile profile{};
  Arena arena;  // of the whole computation
  std::vector<Arena> thread_arenas;
  std::optional<NetworkPlan> plan;
  const Batch* batch = nullptr;
  bool training = false, trained = false;
  uint64_t seed = 0;

  int64_t nodes = 0, rows = 0;  // rows of the output
  Features standardised;        // node features, if the model standardises them
  const Features* node_features = nullptr;
  // Embeddings.
  float *node_embedding = nullptr, *edge_embedding = nullptr;  // [N][..], [types + 1][..] after the extra MLP
  struct Mlp {
    float *input = nullptr, *active = nullptr;  // before the norm; after ReLU
    NormState norm;
  } node_mlp, edge_mlp;
  std::vector<float> edge_weights;  // how many pairs each type stands for
  // LPE.
  LpeShape shape;
  std::vector<LpeLayer> lpe_layers;
  std::vector<std::vector<uint32_t>> hidden_bits;
  struct LpeArrays {
    float *x, *hat1, *rstd1, *hat2, *rstd2;
  };
  std::vector<LpeArrays> lpe_saved;
  std::vector<std::vector<LpeGroups>> lpe_groups;  // [layer][span]
  std::vector<int32_t> lpe_counts;                 // [blocks * 16]
  float* codes = nullptr;                          // [sequences][k]
  std::vector<LayerState> layers;
  float *final_h = nullptr, *head_in = nullptr, *head_hidden[2] = {nullptr, nullptr};
  std::vector<int32_t> max_row;  // readout = max: which node

  void start_threads(const ThreadPool& pool) {
    const auto count = static_cast<size_t>(pool.threads());
    if (thread_arenas.size() < count) thread_arenas.resize(count);
  }
};

struct Network::Impl {
  using Work = Workspace::Impl;

  ModelConfig c;
  std::vector<TensorSpec> specs;
  std::vector<float*> tensors;
  std::map<std::string, int> index;

  Arena packed_memory;
  std::vector<LayerWeights> layers;
  Embedding node_embedding, edge_embedding, incident_embedding;
  int added_edge = -1;  // tensor of the learned edge vector of added pairs
  Map head[3], node_mlp, edge_mlp;
  BatchNorm node_mlp_norm, edge_mlp_norm;
  struct LpePacked {
    float *ff1, *ff1_bias, *ff2, *ff1_columns, *ff1_norms;
    int first_tensor;  // attention.in.weight; the others follow in the order of tensor_specs
  };
  std::vector<LpePacked> lpe;
  int lpe_input_weight = -1, lpe_input_bias = -1;  // tensors
  int ff_padded = 0;

  Impl(const ModelConfig& config, std::vector<float*> pointers)
      : c(config), specs(tensor_specs(config)), tensors(std::move(pointers)) {
    SAN_CHECK(tensors.size() == specs.size(), "{} tensors for a model that has {}", tensors.size(), specs.size());
    for (size_t i = 0; i < specs.size(); ++i) index[specs[i].name] = static_cast<int>(i);
    build();
  }

  int id(const std::string& name) const {
    const auto found = index.find(name);
    return found == index.end() ? -1 : found->second;
  }
  const float* value(int tensor) const { return tensors[static_cast<size_t>(tensor)]; }

  // --- Weights in the form the kernels read (network_weights.cc) -----------------------------------------------------

  // Offsets first, memory second: `layout` is called twice, the first time only to count.
  struct Packer {
    float* base = nullptr;
    int64_t used = 0;
    float* take(int64_t count) {
      float* out = base == nullptr ? nullptr : base + used;
      used += (count + kPad + 15) / 16 * 16;
      return out;
    }
  };
  void layout(Packer& p);
  void build();
  // Where feature `row` = h * width + c of a head-major layer stands in attention's order.
  int attention_order(int row, int width) const { return row % width * c.heads + row / width; }
  // Layers, LPE layers and the rest are independent of each other.
  void pack(ThreadPool* pool);
  void pack_part(size_t part);

  // --- Pieces that all use (network.cc) ------------------------------------------------------------------------------

  // y = x W^T (no bias), rows in parallel.
  static void product(ThreadPool& pool, const float* x, int64_t rows, int in, const float* w, int out, float* y,
                      bool accumulate = false);
  // dw[out][in] (+)= dy^T x; sums of dy's columns in db. Jobs are collected and run side by side.
  struct GradientJob {
    const float* dy;
    int64_t dy_ld;
    int out;
    const float* x;
    int64_t x_ld;
    int in;
    int64_t rows;
    float *dw, *db;
  };
  static void run_gradients(ThreadPool& pool, const std::vector<GradientJob>& jobs);
  // Mean and 1 / deviation of the rows' columns from the moments of their blocks; moves the running statistics.
  void batch_statistics(const BatchNorm& n, const float* block_mean, const float* block_m2, int64_t rows,
                        NormState& state);
  void set_statistics(const BatchNorm& n, int i, double mean, double m2, double count, NormState& state);
  void running_statistics(const BatchNorm& n, NormState& state) const;
  // scale, shift of y = x * scale + shift.
  void norm_affine(const BatchNorm& n, const NormState& state, float* scale, float* shift) const;

  // --- Embeddings (network_embeddings.cc) ----------------------------------------------------------------------------

  // Sum of table rows and the linear map of the values, for one row of features.
  void embed_row(const Embedding& e, const Features& f, int64_t row, float* out) const;
  void embed_row_back(const Embedding& e, const Features& f, int64_t row, const float* d,
                      const std::vector<float*>& g) const;
  // Adds to the nodes' rows what their incoming edges bring, a vector per type of edge.
  void add_incident_edges(Work& w) const;
  void incident_edges_back(Work& w, const float* d_nodes, const std::vector<float*>& g) const;
  // BatchNorm -> ReLU -> Linear in place on x [rows][width]; rows count `weights` times (null: once).
  void extra_mlp(Work& w, ThreadPool& pool, float* x, int64_t rows, const BatchNorm& norm, const Map& map,
                 const std::vector<float>* weights, Work::Mlp& state);
  // d [rows][width]: gradient of the result -> of the input. For weighted rows, d is the sum over all that a row stands for.
  void extra_mlp_back(Work& w, ThreadPool& pool, float* d, int64_t rows, const BatchNorm& norm, const Map& map,
                      const std::vector<float>* weights, const Work::Mlp& state, const std::vector<float*>& g);
  // Types of edges: the real ones, then the added one. Rows of edge_embedding_dim().
  void embed_edges(Work& w, ThreadPool& pool);
  // Without a single pair there is nothing to normalise; an added type that no pair has is left alone.
  bool has_edge_mlp(const Work& w) const { return c.extra_mlp && w.batch->num_edges + w.plan->added_pairs > 0; }
  static int64_t edge_mlp_rows(const Work& w) { return int64_t{w.plan->types} + (w.plan->added_pairs > 0 ? 1 : 0); }
  void embed_edges_back(Work& w, ThreadPool& pool, float* d, const std::vector<float*>& g);

  // --- The LPE encoder (network_lpe.cc) ------------------------------------------------------------------------------

  void prepare_lpe(Work& w);
  // Tokens of a block: [token width][T].
  void tokens_of(const Work& w, int64_t block, float* tokens) const;
  LpeBlock lpe_block(Work& w, int layer, int64_t block, float* scratch) const;
  LpeSaved lpe_saved(const Work& w, int layer, int64_t block) const;
  void lpe_forward(Work& w, ThreadPool& pool);
  // A block's tokens, after the first map: x [k][T].
  void lpe_input(const Work& w, int64_t block, Arena& arena, float* x) const;
  // A block's codes: sums over the valid tokens of x [k][T].
  void lpe_codes(Work& w, int64_t block, const float* x) const;
  // Training steps of maps with many hidden units work on groups of alike tokens, wherever in the span of blocks these are.
  bool grouped() const;
  void lpe_forward_span(Work& w, ThreadPool& pool, int64_t first, int64_t end);
  // What the encoder's backward pass adds up over blocks.
  struct LpeSums {
    struct Layer {
      float *ff1, *ff1_bias, *ff2, *small;
    };
    std::vector<Layer> layers;
    float* input;  // weight [k][token], then bias [k]
    float* all;    // all of it
    int64_t count;
  };
  LpeSums lpe_sums(Arena& arena, const LpeShape& s) const;
  // A block's gradient after the last layer: that of the codes for all valid tokens. d [k][T].
  void lpe_codes_back(const Work& w, int64_t block, const float* d_codes, float* d) const;
  // The first map, backwards: adds to `sums`, weight [k][token], then bias [k]. d [k][T].
  void lpe_input_back(const Work& w, int64_t block, const float* d, Arena& arena, float* sums) const;
  // Blocks [first, end) from the last layer to the first, a few at a time, on one thread.
  void lpe_backward_blocks(Work& w, const float* d_codes, int64_t first, int64_t end, Arena& arena, LpeSums& sums);
  // A span of blocks by groups of tokens. Tasks own hidden units, whose gradients they add up over all groups.
  void lpe_backward_span(Work& w, ThreadPool& pool, const float* d_codes, int64_t span, LpeSums& sums);
  void lpe_backward(Work& w, ThreadPool& pool, const float* d_codes, const std::vector<float*>& g);
  void add_lpe_gradients(const LpeSums& sums, const LpeShape& s, const std::vector<float*>& g) const;

  // --- Attention and layers (network_layers.cc) ----------------------------------------------------------------------

  AttentionShape attention_shape(const LayerWeights& l) const;
  // Added pairs that weigh nothing are not looked at.
  bool uses_added() const { return c.full() && c.gamma > 0; }
  // Edge vectors per type of one layer.
  void edge_tables(Work& w, ThreadPool& pool, const LayerWeights& l, LayerState& state) const;
  // All pairs of a node of one kind whose edge vectors differ from pair to pair (edge LPE), a few at a time:
  // use(PairList, codes, types).
  template <typename Use>
  void explicit_pairs(const Work& w, const LayerWeights& l, const LayerState& state, int kind, bool as_target,
                      int32_t node, Arena& arena, Use&& use) const;
  // all(graph) for the graphs of a task of dense attention.
  template <typename All>
  void dense_graphs(const Work& w, const DenseTask& task, const AttentionShape& s, const LayerState& state,
                    const float* scaled_q, const Adjacency& real, Arena& arena, All&& all) const;
  void attention_forward(Work& w, ThreadPool& pool, const LayerWeights& l, LayerState& state, const float* scaled_q);
  // After the row blocks have filled sum[n]: statistics, then the affine map that makes the norm's output.
  void norm_ready(Work& w, const LayerWeights& l, LayerState& state, int n, const float* block_mean,
                  const float* block_m2, float* scale, float* shift);
  // h [N][in] -> next [N][out]. scaled_q: for the layer's own use.
  void layer_forward(Work& w, ThreadPool& pool, int number, float* h, float* scaled_q, float* next);
  // scaled_q = q2 * the added pairs' edge vector * log2(e); after all nodes' the same of q1 and the real edges' vector, where
  // a graph's real edges are all alike.
  static void scale_queries(const Work& w, const LayerState& state, const LayerWeights& l, int64_t first, int64_t count,
                            float* scaled_q);
  // Through BatchNorm n and LayerNorm n: d [N][out] in place. Sums over all rows first, then row by row in `each`.
  template <typename Each>
  void norm_backward(Work& w, ThreadPool& pool, const LayerWeights& l, const LayerState& state, int n, float* d_out,
                     const std::vector<float*>& g, Each&& each);
  // d_out [N][out], gradient of the layer's output (destroyed) -> d_h [N][in], of its input. d_edges: gradient of the edge
  // embeddings per type, d_slots: of the edge LPE's codes per ordered pair; both are added to.
  void layer_backward(Work& w, ThreadPool& pool, int number, float* d_out, float* d_h, float* d_edges, float* d_slots,
                      const std::vector<float*>& g);
  // All pairs, which set the projections' gradients of all graphs, then edges one by one, once as their target and once as
  // their source, which add to them.
  void attention_backward(Work& w, ThreadPool& pool, const LayerWeights& l, const LayerState& state, LayerGradients& b,
                          float* d_slots);
  // Of the layer's maps of nodes, and of its maps of edges; the latter add up the parts of `b`.
  void weight_gradients(Work& w, ThreadPool& pool, const LayerWeights& l, const LayerState& state,
                        const LayerGradients& b, const std::vector<float*>& g) const;
  void edge_gradients(Work& w, ThreadPool& pool, const LayerWeights& l, LayerGradients& b, float* d_edges,
                      const std::vector<float*>& g) const;

  // --- The whole (network.cc) ----------------------------------------------------------------------------------------

  void start(Work& w, const Batch& batch, bool training, uint64_t seed);
  void standardise(Work& w) const;
  // Nodes after the last layer: w.final_h.
  void nodes_forward(Work& w, ThreadPool& pool);
  // Readout: rows of final_dim.
  void read_out(Work& w) const;
  void forward(Work& w, ThreadPool& pool, std::vector<float>& outputs);
  void backward(Work& w, ThreadPool& pool, const float* d_outputs, const std::vector<float*>& g);
};

}  // namespace san
