#include "san/model/network.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <optional>

#include "san/kernels/kernels.h"
#include "san/model/network_plan.h"
#include "san/model/token_groups.h"

namespace san {
namespace {

constexpr double kNormEps = 1e-5;
constexpr double kBatchNormMomentum = 0.1;
constexpr float kAttentionEps = 1e-6F;
constexpr int64_t kRows = 48;      // rows of a matrix that one task works on; a multiple of the kernels' 6 and 8
constexpr int kUnitsOfTask = 256;  // hidden units of one task of the LPE feed-forward's backward pass
// More hidden units than that: tokens are worked on in groups, about so many tokens at a time (fewer where they are wide). More find
// groups that are more alike, and need more memory, as do more tasks.
constexpr int64_t kTokensOfSpan = 40960, kMostHiddenTasks = 16;
// No more: a task of the LPE's backward pass takes so many blocks at a time. There are so many tasks.
constexpr int64_t kBlocksOfPart = 4, kMostParts = 32;
constexpr int64_t kGradientRows = 48;    // least rows of a weight matrix's gradient that one task computes
constexpr int64_t kGradientPieces = 16;  // about so many tasks where the rows are many
constexpr int64_t kPairsTogether = 256;  // edge LPE: pairs whose edge vectors exist at a time

int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

// Memory by the piece, given back all at once and kept for the next time. Each piece ends in zeros that kernels may read.
class Arena {
 public:
  float* take(int64_t count) {
    const int64_t size = (count + kPad + 15) / 16 * 16;
    while (current_ < blocks_.size() && blocks_[current_].used + size > blocks_[current_].size) ++current_;
    if (current_ == blocks_.size()) {
      const int64_t wanted = std::max(size, int64_t{1} << 18);
      blocks_.push_back({std::unique_ptr<float, Free>(static_cast<float*>(
                             ::operator new (static_cast<size_t>(wanted) * sizeof(float), std::align_val_t{64}))),
                         wanted, 0});
    }
    Block& block = blocks_[current_];
    float* out = block.data.get() + block.used;
    block.used += size;
    std::fill(out + count, out + size, 0.0F);
    return out;
  }
  float* zeros(int64_t count) {
    float* out = take(count);
    std::fill(out, out + count, 0.0F);
    return out;
  }
  // Pieces taken since mark() are given back by rewind().
  struct Mark {
    size_t block;
    int64_t used;
  };
  Mark mark() const { return {current_, current_ < blocks_.size() ? blocks_[current_].used : 0}; }
  void rewind(Mark to) {
    for (size_t i = to.block; i < blocks_.size(); ++i) blocks_[i].used = i == to.block ? to.used : 0;
    current_ = to.block;
  }
  void reset() {
    // What came in pieces comes in one piece next time.
    if (blocks_.size() > 1) {
      int64_t total = 0;
      for (const Block& block : blocks_) total += block.size;
      blocks_.clear();
      blocks_.push_back({std::unique_ptr<float, Free>(static_cast<float*>(
                             ::operator new (static_cast<size_t>(total) * sizeof(float), std::align_val_t{64}))),
                         total, 0});
    }
    for (Block& block : blocks_) block.used = 0;
    current_ = 0;
  }
  int64_t bytes() const {
    int64_t total = 0;
    for (const Block& block : blocks_) total += block.size * static_cast<int64_t>(sizeof(float));
    return total;
  }

 private:
  struct Free {
    void operator()(float* p) const { ::operator delete (p, std::align_val_t{64}); }
  };
  struct Block {
    std::unique_ptr<float, Free> data;
    int64_t size, used;
  };
  std::vector<Block> blocks_;
  size_t current_ = 0;
};

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
constexpr const char* kPartNames[] = {"plan",
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

}  // namespace

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
  // The groups of alike tokens of a layer and a span of blocks (Impl::grouped).
  struct LpeGroups {
    std::vector<int32_t> tokens;  // of group g: g * kGroup ..., the last one's less; numbers within the span
    uint32_t *some, *all;         // [groups][ff_padded / 32]
    float* linear;                // [groups][linear_size()]
    int64_t count() const { return (static_cast<int64_t>(tokens.size()) + kGroup - 1) / kGroup; }
    int size(int64_t group) const {
      return static_cast<int>(std::min<int64_t>(kGroup, static_cast<int64_t>(tokens.size()) - group * kGroup));
    }
    // The token in a place of a group; the first one stands for those that are not there.
    int32_t at(int64_t group, int place) const {
      return tokens[static_cast<size_t>(group * kGroup + (place < size(group) ? place : 0))];
    }
  };
  std::vector<std::vector<LpeGroups>> lpe_groups;  // [layer][span]
  std::vector<int32_t> lpe_counts;                 // [blocks * 16]
  float* codes = nullptr;                          // [sequences][k]
  std::vector<LayerState> layers;
  float *final_h = nullptr, *head_in = nullptr, *head_hidden[2] = {nullptr, nullptr};
  std::vector<int32_t> max_row;  // readout = max: which node
  // Backward: gradients of the layer under way.
};

Network::Workspace::Workspace() : impl_(std::make_unique<Impl>()) {}
Network::Workspace::~Workspace() = default;
int64_t Network::Workspace::bytes() const {
  int64_t total = impl_->arena.bytes();
  for (const Arena& arena : impl_->thread_arenas) total += arena.bytes();
  return total;
}

std::vector<std::pair<std::string, double>> Network::Workspace::profile() const {
  std::vector<std::pair<std::string, double>> out;
  for (size_t i = 0; i < impl_->profile.size(); ++i) out.emplace_back(kPartNames[i], impl_->profile[i]);
  return out;
}
void Network::Workspace::clear_profile() {
  impl_->profile = {};
}

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

  // --- weights -------------------------------------------------------------------------------------------------------

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

  void layout(Packer& p) {
    const auto map = [&](Map& m, const std::string& name, int in, int out) {
      m.in = in;
      m.out = out;
      m.forward = p.take(int64_t{in} * out);
      m.backward = p.take(int64_t{in} * out);
      m.bias = p.take(out);
      m.weight_tensor = id(name + ".weight");
      m.bias_tensor = id(name + ".bias");
    };
    const auto norm = [&](BatchNorm& n, const std::string& name, int width) {
      n = {width, id(name + ".weight"), id(name + ".bias"), id(name + ".running_mean"), id(name + ".running_var")};
    };
    const auto embedding = [&](Embedding& e, const std::string& name, size_t tables, int width) {
      e = {width, {}, id(name + ".linear.weight"), id(name + ".linear.bias")};
      for (size_t t = 0; t < tables; ++t) e.tables.push_back(id(fmt::format("{}.table.{}", name, t)));
    };
    embedding(node_embedding, "node_embedding", c.node_tables.size(), c.node_embedding_dim());
    embedding(edge_embedding, "edge_embedding", c.edge_tables.size(), c.edge_embedding_dim());
    if (c.incident_edges) {
      embedding(incident_embedding, "incident_embedding", c.edge_tables.size(), c.node_embedding_dim());
    }
    added_edge = id("edge_embedding.added");
    layers.resize(static_cast<size_t>(c.layers));
    for (int i = 0; i < c.layers; ++i) {
      LayerWeights& l = layers[static_cast<size_t>(i)];
      const std::string name = fmt::format("layers.{}.", i);
      l.in = c.hidden_dim;
      l.out = i + 1 == c.layers ? c.final_dim() : c.hidden_dim;
      l.sections = c.full() ? 5 : 3;
      l.residual = c.residual && l.in == l.out;
      l.projections = p.take(int64_t{l.in} * l.out * l.sections);
      l.projections_back = p.take(int64_t{l.in} * l.out * l.sections);
      l.projections_bias = p.take(int64_t{l.out} * l.sections);
      static constexpr const char* kFull[] = {"q1", "k1", "q2", "k2", "v"};
      static constexpr const char* kSparse[] = {"q1", "k1", "v"};
      for (int s = 0; s < l.sections; ++s) {
        const char* section = c.full() ? kFull[s] : kSparse[s];
        l.section_tensor[s] = id(name + section + ".weight");
        l.section_bias[s] = id(name + section + ".bias");
      }
      for (int kind = 0; kind < (c.full() ? 2 : 1); ++kind) {
        LayerWeights::Edge& e = l.edge[kind];
        const int width = c.edge_embedding_dim(), k = l.in - width;
        e.table = p.take(int64_t{width} * l.out);
        e.table_back = p.take(int64_t{width} * l.out);
        e.bias = p.take(l.out);
        if (k > 0) {
          e.code = p.take(int64_t{k} * l.out);
          e.code_back = p.take(int64_t{k} * l.out);
        }
        e.weight_tensor = id(fmt::format("{}e{}.weight", name, kind + 1));
        e.bias_tensor = id(fmt::format("{}e{}.bias", name, kind + 1));
      }
      map(l.o, name + "o", l.out, l.out);
      map(l.ffn1, name + "ffn1", l.out, 2 * l.out);
      map(l.ffn2, name + "ffn2", 2 * l.out, l.out);
      for (int n = 0; n < 2; ++n) {
        l.layer_norm[n] = id(fmt::format("{}layer_norm{}.weight", name, n + 1));
        l.layer_norm_bias[n] = id(fmt::format("{}layer_norm{}.bias", name, n + 1));
        norm(l.batch_norm[n], fmt::format("{}batch_norm{}", name, n + 1), l.out);
      }
    }
    const int d = c.final_dim();
    map(head[0], "head.0", d, d / 2);
    map(head[1], "head.1", d / 2, d / 4);
    map(head[2], "head.2", d / 4, c.outputs);
    if (c.extra_mlp) {
      map(node_mlp, "node_mlp.linear", c.node_embedding_dim(), c.node_embedding_dim());
      map(edge_mlp, "edge_mlp.linear", c.edge_embedding_dim(), c.edge_embedding_dim());
      norm(node_mlp_norm, "node_mlp.norm", c.node_embedding_dim());
      norm(edge_mlp_norm, "edge_mlp.norm", c.edge_embedding_dim());
    }
    if (c.lpe.kind != LpeKind::kNone) {
      ff_padded = (c.lpe.ff_dim + kHiddenStep - 1) / kHiddenStep * kHiddenStep;
      lpe_input_weight = id("lpe.input.weight");
      lpe_input_bias = id("lpe.input.bias");
      lpe.resize(static_cast<size_t>(c.lpe.layers));
      for (int i = 0; i < c.lpe.layers; ++i) {
        LpePacked& l = lpe[static_cast<size_t>(i)];
        l.ff1 = p.take(int64_t{ff_padded} * c.lpe.dim);
        l.ff2 = p.take(int64_t{ff_padded} * c.lpe.dim);
        l.ff1_bias = p.take(ff_padded);
        l.ff1_columns = p.take(int64_t{ff_padded} * c.lpe.dim);
        l.ff1_norms = p.take(ff_padded);
        l.first_tensor = id(fmt::format("lpe.layers.{}.attention.in.weight", i));
      }
    }
  }

  void build() {
    Packer counting;
    layout(counting);
    Packer real{packed_memory.zeros(counting.used), 0};
    layout(real);
    pack(nullptr);
  }

  // Where feature `row` = h * width + c of a head-major layer stands in attention's order.
  int attention_order(int row, int width) const { return row % width * c.heads + row / width; }

  // Layers, LPE layers and the rest are independent of each other.
  void pack(ThreadPool* pool) {
    const auto count = static_cast<int64_t>(layers.size() + lpe.size() + 1);
    const auto task = [&](int64_t i, int) { pack_part(static_cast<size_t>(i)); };
    if (pool == nullptr) {
      for (int64_t i = 0; i < count; ++i) task(i, 0);
    } else {
      pool->run(count, task);
    }
  }

  void pack_part(size_t part) {
    const auto map = [&](const Map& m) {
      const float* w = value(m.weight_tensor);
      for (int o = 0; o < m.out; ++o) {
        for (int i = 0; i < m.in; ++i) {
          m.forward[int64_t{i} * m.out + o] = m.backward[int64_t{o} * m.in + i] = w[int64_t{o} * m.in + i];
        }
        m.bias[o] = value(m.bias_tensor)[o];
      }
    };
    if (part < layers.size()) {
      const LayerWeights& l = layers[part];
      const int width = l.out / c.heads, total = l.out * l.sections;
      for (int s = 0; s < l.sections; ++s) {
        const float* w = value(l.section_tensor[s]);
        for (int row = 0; row < l.out; ++row) {
          const int at = s * l.out + attention_order(row, width);
          for (int i = 0; i < l.in; ++i) {
            l.projections[int64_t{i} * total + at] = l.projections_back[int64_t{at} * l.in + i] =
                w[int64_t{row} * l.in + i];
          }
          l.projections_bias[at] = l.section_bias[s] >= 0 ? value(l.section_bias[s])[row] : 0.0F;
        }
      }
      const int embedding = c.edge_embedding_dim(), k = l.in - embedding;
      const float scale = 1.0F / std::sqrt(static_cast<float>(width));
      for (int kind = 0; kind < (c.full() ? 2 : 1); ++kind) {
        const LayerWeights::Edge& e = l.edge[kind];
        const float* w = value(e.weight_tensor);
        for (int row = 0; row < l.out; ++row) {
          const int at = attention_order(row, width);
          for (int i = 0; i < embedding; ++i) {
            e.table[int64_t{i} * l.out + at] = e.table_back[int64_t{at} * embedding + i] =
                w[int64_t{row} * l.in + i] * scale;
          }
          for (int i = 0; i < k; ++i) {
            e.code[int64_t{i} * l.out + at] = e.code_back[int64_t{at} * k + i] =
                w[int64_t{row} * l.in + embedding + i] * scale;
          }
          e.bias[at] = e.bias_tensor >= 0 ? value(e.bias_tensor)[row] * scale : 0.0F;
        }
      }
      // o reads attention's order.
      const float* w = value(l.o.weight_tensor);
      for (int o = 0; o < l.out; ++o) {
        for (int row = 0; row < l.out; ++row) {
          const int at = attention_order(row, width);
          l.o.forward[int64_t{at} * l.out + o] = l.o.backward[int64_t{o} * l.out + at] = w[int64_t{o} * l.out + row];
        }
        l.o.bias[o] = value(l.o.bias_tensor)[o];
      }
      map(l.ffn1);
      map(l.ffn2);
    } else if (part < layers.size() + lpe.size()) {
      const LpePacked& l = lpe[part - layers.size()];
      const int k = c.lpe.dim, f = c.lpe.ff_dim;
      const float *w1 = value(l.first_tensor + 6), *b1 = value(l.first_tensor + 7), *w2 = value(l.first_tensor + 8);
      std::copy_n(w1, int64_t{f} * k, l.ff1);
      std::copy_n(b1, f, l.ff1_bias);
      for (int h = 0; h < f; ++h) {
        float square = 0;
        for (int i = 0; i < k; ++i) {
          l.ff2[int64_t{h} * k + i] = w2[int64_t{i} * f + h];
          l.ff1_columns[int64_t{i} * ff_padded + h] = w1[int64_t{h} * k + i];
          square += w1[int64_t{h} * k + i] * w1[int64_t{h} * k + i];
        }
        l.ff1_norms[h] = std::isfinite(square) ? std::sqrt(square) : std::numeric_limits<float>::quiet_NaN();
      }
    } else {
      for (const Map& m : head) map(m);
      if (c.extra_mlp) {
        map(node_mlp);
        map(edge_mlp);
      }
    }
  }

  // --- pieces --------------------------------------------------------------------------------------------------------

  // y = x W^T (no bias), rows in parallel.
  static void product(ThreadPool& pool, const float* x, int64_t rows, int in, const float* w, int out, float* y,
                      bool accumulate = false) {
    const Kernels& k = kernels();
    pool.run(ceil_div(rows, kRows), [&](int64_t task, int) {
      const int64_t first = task * kRows, count = std::min(kRows, rows - first);
      k.gemm({count, out, in, w, out, x + first * in, in, 1, y + first * out, out, accumulate});
    });
  }

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
  static void run_gradients(ThreadPool& pool, const std::vector<GradientJob>& jobs) {
    const Kernels& k = kernels();
    struct Piece {
      const GradientJob* job;
      int64_t first, count;
    };
    // Every piece reads all of x: wide matrices in few of them.
    int64_t all = 0;
    for (const GradientJob& job : jobs) all += job.out;
    const int64_t together = std::max<int64_t>(1, all / (kGradientPieces * kGradientRows)) * kGradientRows;
    std::vector<Piece> pieces;
    for (const GradientJob& job : jobs) {
      for (int64_t first = 0; first < job.out; first += together) {
        pieces.push_back({&job, first, std::min(together, job.out - first)});
      }
    }
    // Large ones first: the last task is what other threads wait for.
    std::stable_sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) {
      return a.count * a.job->in * a.job->rows > b.count * b.job->in * b.job->rows;
    });
    pool.run(static_cast<int64_t>(pieces.size()), [&](int64_t task, int) {
      const auto [job, first, count] = pieces[static_cast<size_t>(task)];
      k.gemm({count, job->in, job->rows, job->x, job->x_ld, job->dy + first, 1, job->dy_ld, job->dw + first * job->in,
              job->in, true});
      if (job->db == nullptr) return;
      for (int64_t r = 0; r < job->rows; ++r) {
        for (int64_t o = 0; o < count; ++o) job->db[first + o] += job->dy[r * job->dy_ld + first + o];
      }
    });
  }

  // Mean and 1 / deviation of the rows' columns from the moments of their blocks; moves the running statistics.
  void batch_statistics(const BatchNorm& n, const float* block_mean, const float* block_m2, int64_t rows,
                        NormState& state) {
    const int64_t blocks = ceil_div(rows, kRows);
    for (int i = 0; i < n.width; ++i) {
      double mean = 0, m2 = 0, seen = 0;
      for (int64_t b = 0; b < blocks; ++b) {
        const auto count = static_cast<double>(std::min(kRows, rows - b * kRows));
        const double other = block_mean[b * n.width + i], delta = other - mean;
        mean += delta * count / (seen + count);
        m2 += block_m2[b * n.width + i] + delta * delta * seen * count / (seen + count);
        seen += count;
      }
      set_statistics(n, i, mean, m2, seen, state);
    }
  }
  void set_statistics(const BatchNorm& n, int i, double mean, double m2, double count, NormState& state) {
    const double variance = m2 / count;
    state.mean[i] = static_cast<float>(mean);
    state.rstd[i] = static_cast<float>(1.0 / std::sqrt(variance + kNormEps));
    float &running_mean = tensors[static_cast<size_t>(n.mean)][i],
          &running = tensors[static_cast<size_t>(n.variance)][i];
    running_mean = static_cast<float>(running_mean * (1 - kBatchNormMomentum) + mean * kBatchNormMomentum);
    if (count > 1) {
      running = static_cast<float>(running * (1 - kBatchNormMomentum) + m2 / (count - 1) * kBatchNormMomentum);
    }
  }
  void running_statistics(const BatchNorm& n, NormState& state) const {
    for (int i = 0; i < n.width; ++i) {
      state.mean[i] = value(n.mean)[i];
      state.rstd[i] = static_cast<float>(1.0 / std::sqrt(static_cast<double>(value(n.variance)[i]) + kNormEps));
    }
  }
  // scale, shift of y = x * scale + shift.
  void norm_affine(const BatchNorm& n, const NormState& state, float* scale, float* shift) const {
    for (int i = 0; i < n.width; ++i) {
      scale[i] = value(n.weight)[i] * state.rstd[i];
      shift[i] = value(n.bias)[i] - state.mean[i] * scale[i];
    }
  }

  // --- embeddings ----------------------------------------------------------------------------------------------------

  // Sum of table rows and the linear map of the values, for one row of features.
  void embed_row(const Embedding& e, const Features& f, int64_t row, float* out) const {
    std::fill(out, out + e.width, 0.0F);
    const auto tables = static_cast<int64_t>(e.tables.size());
    for (int64_t t = 0; t < tables; ++t) {
      const int32_t category = f.categories[static_cast<size_t>(row * tables + t)];
      const float* from = value(e.tables[static_cast<size_t>(t)]) + int64_t{category} * e.width;
      for (int i = 0; i < e.width; ++i) out[i] += from[i];
    }
    if (f.value_columns == 0) return;
    const float *w = value(e.weight), *b = value(e.bias), *x = f.values.data() + row * f.value_columns;
    for (int i = 0; i < e.width; ++i) {
      float sum = b[i];
      for (int v = 0; v < f.value_columns; ++v) sum += w[int64_t{i} * f.value_columns + v] * x[v];
      out[i] += sum;
    }
  }
  void embed_row_back(const Embedding& e, const Features& f, int64_t row, const float* d,
                      const std::vector<float*>& g) const {
    const auto tables = static_cast<int64_t>(e.tables.size());
    for (int64_t t = 0; t < tables; ++t) {
      const int32_t category = f.categories[static_cast<size_t>(row * tables + t)];
      float* to = g[static_cast<size_t>(e.tables[static_cast<size_t>(t)])] + int64_t{category} * e.width;
      for (int i = 0; i < e.width; ++i) to[i] += d[i];
    }
    if (f.value_columns == 0) return;
    float *w = g[static_cast<size_t>(e.weight)], *b = g[static_cast<size_t>(e.bias)];
    const float* x = f.values.data() + row * f.value_columns;
    for (int i = 0; i < e.width; ++i) {
      b[i] += d[i];
      for (int v = 0; v < f.value_columns; ++v) w[int64_t{i} * f.value_columns + v] += d[i] * x[v];
    }
  }

  // Adds to the nodes' rows what their incoming edges bring, a vector per type of edge.
  void add_incident_edges(Work& w) const {
    const NetworkPlan& plan = *w.plan;
    const int width = incident_embedding.width;
    const Arena::Mark mark = w.arena.mark();
    float* rows = w.arena.take(int64_t{plan.types} * width);
    for (int32_t t = 0; t < plan.types; ++t) {
      embed_row(incident_embedding, w.batch->edge_features, plan.type_edge[static_cast<size_t>(t)],
                rows + int64_t{t} * width);
    }
    for_incoming(plan, w.nodes, [&](int64_t node, int64_t type) {
      for (int i = 0; i < width; ++i) w.node_embedding[node * width + i] += rows[type * width + i];
    });
    w.arena.rewind(mark);
  }
  void incident_edges_back(Work& w, const float* d_nodes, const std::vector<float*>& g) const {
    const NetworkPlan& plan = *w.plan;
    const int width = incident_embedding.width;
    const Arena::Mark mark = w.arena.mark();
    float* rows = w.arena.zeros(int64_t{plan.types} * width);
    for_incoming(plan, w.nodes, [&](int64_t node, int64_t type) {
      for (int i = 0; i < width; ++i) rows[type * width + i] += d_nodes[node * width + i];
    });
    for (int32_t t = 0; t < plan.types; ++t) {
      embed_row_back(incident_embedding, w.batch->edge_features, plan.type_edge[static_cast<size_t>(t)],
                     rows + int64_t{t} * width, g);
    }
    w.arena.rewind(mark);
  }
  // visit(node, type) for each real edge, by target.
  template <typename Visit>
  static void for_incoming(const NetworkPlan& plan, int64_t nodes, const Visit& visit) {
    for (int64_t node = 0; node < nodes; ++node) {
      for (int64_t p = plan.in.begin[static_cast<size_t>(node)]; p < plan.in.begin[static_cast<size_t>(node) + 1];
           ++p) {
        visit(node, plan.in.type[static_cast<size_t>(p)]);
      }
    }
  }

  // BatchNorm -> ReLU -> Linear in place on x [rows][width]; rows count `weights` times (null: once).
  void extra_mlp(Work& w, ThreadPool& pool, float* x, int64_t rows, const BatchNorm& norm, const Map& map,
                 const std::vector<float>* weights, Work::Mlp& state) {
    const int width = norm.width;
    state.norm.mean = w.arena.take(width);
    state.norm.rstd = w.arena.take(width);
    state.input = w.arena.take(rows * width);
    state.active = w.arena.take(rows * width);
    std::copy_n(x, rows * width, state.input);
    if (w.training) {
      for (int i = 0; i < width; ++i) {
        double mean = 0, m2 = 0, count = 0;
        for (int64_t r = 0; r < rows; ++r) {
          const double n = weights == nullptr ? 1.0 : (*weights)[static_cast<size_t>(r)];
          mean += n * x[r * width + i];
          count += n;
        }
        mean /= count;
        for (int64_t r = 0; r < rows; ++r) {
          const double n = weights == nullptr ? 1.0 : (*weights)[static_cast<size_t>(r)];
          m2 += n * (x[r * width + i] - mean) * (x[r * width + i] - mean);
        }
        set_statistics(norm, i, mean, m2, count, state.norm);
      }
    } else {
      running_statistics(norm, state.norm);
    }
    std::vector<float> scale(static_cast<size_t>(width)), shift(static_cast<size_t>(width));
    norm_affine(norm, state.norm, scale.data(), shift.data());
    kernels().affine(x, rows, width, scale.data(), shift.data(), state.active);
    for (int64_t i = 0; i < rows * width; ++i) state.active[i] = std::max(state.active[i], 0.0F);
    product(pool, state.active, rows, width, map.forward, width, x);
    kernels().bias_residual(x, rows, width, map.bias, nullptr);
  }
  // d [rows][width]: gradient of the result -> of the input. For weighted rows, d is the sum over all that a row stands for.
  void extra_mlp_back(Work& w, ThreadPool& pool, float* d, int64_t rows, const BatchNorm& norm, const Map& map,
                      const std::vector<float>* weights, const Work::Mlp& state, const std::vector<float*>& g) {
    const int width = norm.width;
    run_gradients(pool, {{d, width, width, state.active, width, width, rows, g[static_cast<size_t>(map.weight_tensor)],
                          g[static_cast<size_t>(map.bias_tensor)]}});
    float* active = w.arena.take(rows * width);
    product(pool, d, rows, width, map.backward, width, active);
    double total = 0;
    for (int64_t r = 0; r < rows; ++r) total += weights == nullptr ? 1.0 : (*weights)[static_cast<size_t>(r)];
    for (int i = 0; i < width; ++i) {
      const double mean = state.norm.mean[i], rstd = state.norm.rstd[i], weight = value(norm.weight)[i];
      double s1 = 0, s2 = 0;
      for (int64_t r = 0; r < rows; ++r) {
        if (state.active[r * width + i] <= 0) active[r * width + i] = 0;
        s1 += active[r * width + i];
        s2 += active[r * width + i] * (state.input[r * width + i] - mean) * rstd;
      }
      g[static_cast<size_t>(norm.weight)][i] += static_cast<float>(s2);
      g[static_cast<size_t>(norm.bias)][i] += static_cast<float>(s1);
      for (int64_t r = 0; r < rows; ++r) {
        const double n = weights == nullptr ? 1.0 : (*weights)[static_cast<size_t>(r)];
        const double hat = (state.input[r * width + i] - mean) * rstd;
        d[r * width + i] = static_cast<float>(weight * rstd * (active[r * width + i] - n * (s1 + hat * s2) / total));
      }
    }
  }

  // Types of edges: the real ones, then the added one. Rows of edge_embedding_dim().
  void embed_edges(Work& w, ThreadPool& pool) {
    const NetworkPlan& plan = *w.plan;
    const int width = c.edge_embedding_dim();
    const int64_t rows = int64_t{plan.types} + (c.full() ? 1 : 0);
    w.edge_embedding = w.arena.take(std::max<int64_t>(1, rows) * width);
    w.edge_weights.clear();
    for (int32_t t = 0; t < plan.types; ++t) {
      embed_row(edge_embedding, w.batch->edge_features, plan.type_edge[static_cast<size_t>(t)],
                w.edge_embedding + int64_t{t} * width);
      w.edge_weights.push_back(static_cast<float>(plan.type_count[static_cast<size_t>(t)]));
    }
    if (c.full()) {
      float* added = w.edge_embedding + int64_t{plan.types} * width;
      std::fill(added, added + width, 0.0F);
      if (c.added_edge == AddedEdge::kLearned) {
        std::copy_n(value(added_edge), width, added);
      } else {
        for (const int tensor : edge_embedding.tables) {
          const float* table = value(tensor);
          for (int i = 0; i < width; ++i) added[i] += table[i];
        }
      }
      w.edge_weights.push_back(static_cast<float>(plan.added_pairs));
    }
    if (has_edge_mlp(w)) {
      extra_mlp(w, pool, w.edge_embedding, edge_mlp_rows(w), edge_mlp_norm, edge_mlp, &w.edge_weights, w.edge_mlp);
    }
  }
  // Without a single pair there is nothing to normalise; an added type that no pair has is left alone.
  bool has_edge_mlp(const Work& w) const { return c.extra_mlp && w.batch->num_edges + w.plan->added_pairs > 0; }
  static int64_t edge_mlp_rows(const Work& w) { return int64_t{w.plan->types} + (w.plan->added_pairs > 0 ? 1 : 0); }

  void embed_edges_back(Work& w, ThreadPool& pool, float* d, const std::vector<float*>& g) {
    const NetworkPlan& plan = *w.plan;
    const int width = c.edge_embedding_dim();
    if (has_edge_mlp(w)) {
      extra_mlp_back(w, pool, d, edge_mlp_rows(w), edge_mlp_norm, edge_mlp, &w.edge_weights, w.edge_mlp, g);
    }
    for (int32_t t = 0; t < plan.types; ++t) {
      embed_row_back(edge_embedding, w.batch->edge_features, plan.type_edge[static_cast<size_t>(t)],
                     d + int64_t{t} * width, g);
    }
    if (c.full() && plan.added_pairs > 0) {
      const float* added = d + int64_t{plan.types} * width;
      if (c.added_edge == AddedEdge::kLearned) {
        float* to = g[static_cast<size_t>(added_edge)];
        for (int i = 0; i < width; ++i) to[i] += added[i];
      } else {
        for (const int tensor : edge_embedding.tables) {
          float* to = g[static_cast<size_t>(tensor)];
          for (int i = 0; i < width; ++i) to[i] += added[i];
        }
      }
    }
  }

  // --- LPE -----------------------------------------------------------------------------------------------------------

  void prepare_lpe(Work& w) {
    LpeShape& s = w.shape;
    s.k = c.lpe.dim;
    s.heads = c.lpe.heads;
    s.m = w.batch->max_pairs;
    s.ff = c.lpe.ff_dim;
    s.ff_padded = ff_padded;
    w.lpe_layers.clear();
    w.hidden_bits.resize(static_cast<size_t>(c.lpe.layers));
    for (int i = 0; i < c.lpe.layers; ++i) {
      const LpePacked& p = lpe[static_cast<size_t>(i)];
      const int t = p.first_tensor;
      LpeLayer l{};
      l.in_weight = value(t);
      l.in_bias = value(t + 1);
      l.out_weight = value(t + 2);
      l.out_bias = value(t + 3);
      l.norm1_weight = value(t + 4);
      l.norm1_bias = value(t + 5);
      l.ff1 = p.ff1;
      l.ff1_bias = p.ff1_bias;
      l.ff2 = p.ff2;
      l.ff2_bias = value(t + 9);
      l.ff1_columns = p.ff1_columns;
      l.ff1_norms = p.ff1_norms;
      l.norm2_weight = value(t + 10);
      l.norm2_bias = value(t + 11);
      const double rate = w.training ? c.lpe.dropout : 0;
      l.attention = Dropout::make(rate, w.seed, lpe_site(i, 0));
      l.output = Dropout::make(rate, w.seed, lpe_site(i, 1));
      l.hidden = Dropout::make(rate, w.seed, lpe_site(i, 2));
      l.feed_forward = Dropout::make(rate, w.seed, lpe_site(i, 3));
      auto& bits = w.hidden_bits[static_cast<size_t>(i)];
      bits.resize(static_cast<size_t>(ff_padded) / 2);
      for (size_t h = 0; h < bits.size(); ++h) bits[h] = mask_column(l.hidden.key, static_cast<uint32_t>(h));
      l.hidden_bits = bits.data();
      w.lpe_layers.push_back(l);
    }
    const int64_t blocks = ceil_div(w.plan->sequences, kLanes);
    w.lpe_counts.assign(static_cast<size_t>(blocks * kLanes), 0);
    for (int64_t i = 0; i < w.plan->sequences; ++i) {
      const auto graph = static_cast<size_t>(w.plan->sequence_graph[static_cast<size_t>(i)]);
      w.lpe_counts[static_cast<size_t>(i)] = w.batch->num_pairs[graph];
    }
  }

  // Tokens of a block: [token width][T].
  void tokens_of(const Work& w, int64_t block, float* tokens) const {
    const Batch& b = *w.batch;
    const int m = w.shape.m, width = c.lpe.token_width();
    std::fill(tokens, tokens + width * w.shape.tokens(), 0.0F);
    for (int lane = 0; lane < kLanes; ++lane) {
      const int64_t s = block * kLanes + lane;
      if (s >= w.plan->sequences) break;
      const int64_t first = w.plan->sequence_first[static_cast<size_t>(s)];
      const int64_t second = w.plan->sequence_second[static_cast<size_t>(s)];
      const int64_t graph = w.plan->sequence_graph[static_cast<size_t>(s)];
      const float *values = b.eigenvalues.data() + graph * m, *va = b.eigenvectors.data() + first * m;
      for (int i = 0; i < m; ++i) {
        float* at = tokens + i * width * kLanes + lane;
        if (second < 0) {
          at[0] = s < w.nodes ? va[i] : -va[i];
          at[kLanes] = values[i];
        } else {
          const float* vb = b.eigenvectors.data() + second * m;
          at += (width - 3) * kLanes;
          at[0] = std::abs(va[i] - vb[i]);
          at[kLanes] = va[i] * vb[i];
          at[2 * kLanes] = values[i];
        }
      }
    }
  }

  LpeBlock lpe_block(Work& w, int layer, int64_t block, float* scratch) const {
    return {&w.shape, &w.lpe_layers[static_cast<size_t>(layer)], static_cast<uint32_t>(block * kLanes),
            w.lpe_counts.data() + block * kLanes, scratch};
  }
  LpeSaved lpe_saved(const Work& w, int layer, int64_t block) const {
    const int64_t tokens = w.shape.tokens(), size = tokens * w.shape.k;
    const Work::LpeArrays& a = w.lpe_saved[static_cast<size_t>(layer)];
    return {a.x + block * size, a.hat1 + block * size, a.rstd1 + block * tokens, a.hat2 + block * size,
            a.rstd2 + block * tokens};
  }

  void lpe_forward(Work& w, ThreadPool& pool) {
    prepare_lpe(w);
    const LpeShape& s = w.shape;
    const int64_t blocks = ceil_div(w.plan->sequences, kLanes), tokens = s.tokens(), size = tokens * s.k;
    w.codes = w.arena.take(std::max<int64_t>(1, w.plan->sequences) * s.k);
    w.lpe_saved.clear();
    if (w.training) {
      for (int i = 0; i < c.lpe.layers; ++i) {
        w.lpe_saved.push_back({w.arena.take(blocks * size), w.arena.take(blocks * size), w.arena.take(blocks * tokens),
                               w.arena.take(blocks * size), w.arena.take(blocks * tokens)});
      }
    }
    const Kernels& k = kernels();
    start_threads(w, pool);
    if (w.training && grouped()) {
      w.lpe_groups.assign(static_cast<size_t>(c.lpe.layers), {});
      for (int64_t first = 0; first < blocks; first += span_blocks(s)) {
        lpe_forward_span(w, pool, first, std::min(blocks, first + span_blocks(s)));
      }
    } else {
      pool.run(blocks, [&](int64_t block, int thread) {
        Arena& arena = w.thread_arenas[static_cast<size_t>(thread)];
        arena.reset();
        float *x = arena.take(size), *scratch = arena.take(lpe_scratch(s));
        lpe_input(w, block, arena, x);
        for (int layer = 0; layer < c.lpe.layers; ++layer) {
          LpeSaved saved{};
          if (w.training) saved = lpe_saved(w, layer, block);
          k.lpe_forward(lpe_block(w, layer, block, scratch), x, w.training ? &saved : nullptr);
        }
        lpe_codes(w, block, x);
      });
    }
    if (c.lpe.nodes() && c.lpe.both_signs) {
      for (int64_t i = 0; i < w.nodes * s.k; ++i) w.codes[i] += w.codes[w.nodes * s.k + i];
    }
  }

  // A block's tokens, after the first map: x [k][T].
  void lpe_input(const Work& w, int64_t block, Arena& arena, float* x) const {
    const int width = c.lpe.token_width();
    float* input = arena.take(width * w.shape.tokens());
    tokens_of(w, block, input);
    kernels().lpe_linear(value(lpe_input_weight), value(lpe_input_bias), input, x, width, w.shape.k, w.shape.tokens());
  }

  // A block's codes: sums over the valid tokens of x [k][T].
  void lpe_codes(Work& w, int64_t block, const float* x) const {
    const int k = w.shape.k;
    for (int lane = 0; lane < kLanes; ++lane) {
      const int64_t sequence = block * kLanes + lane;
      if (sequence >= w.plan->sequences) break;
      const int count = w.lpe_counts[static_cast<size_t>(sequence)];
      for (int i = 0; i < k; ++i) {
        float sum = 0;
        for (int p = 0; p < count; ++p) sum += x[(p * k + i) * kLanes + lane];
        w.codes[sequence * k + i] = sum;
      }
    }
  }

  // Training steps of maps with many hidden units work on groups of alike tokens, wherever in the span of blocks these are.
  bool grouped() const { return ff_padded > kUnitsOfTask; }
  static int64_t span_blocks(const LpeShape& s) {
    return std::max<int64_t>(1, kTokensOfSpan * kLanes / s.row() / s.tokens());
  }
  // A group's `linear`, which is read beyond its end, where the next group's would be.
  static int64_t linear_size(const LpeShape& s) { return int64_t{s.k} * s.k + kPad; }

  // Number of a token within its span, and dropout's row of it.
  static uint32_t token_row(const LpeShape& s, int64_t first_block, int32_t token) {
    const int64_t block = token / s.tokens(), position = token % s.tokens() / kLanes, lane = token % kLanes;
    return static_cast<uint32_t>(((first_block + block) * kLanes + lane) * s.m + position);
  }
  // Feature 0 of a token in blocks [k][T]; the others are kLanes apart.
  static int64_t token_place(const LpeShape& s, int32_t token) {
    return (int64_t{token} / kLanes) * kLanes * s.k + token % kLanes;
  }
  // rows[place][c] = scale * the tokens of a group, zeros beyond k. The rest: zeros beyond `count`, or, where that is kGroup, copies of
  // the first one.
  static void gather(const LpeShape& s, const Work::LpeGroups& groups, int64_t group, int count, float scale,
                     const float* blocks, float* rows) {
    for (int place = 0; place < kGroup; ++place) {
      float* to = rows + place * s.row();
      std::fill(to, to + s.row(), 0.0F);
      if (place >= count) continue;
      const float* from = blocks + token_place(s, groups.at(group, place));
      for (int i = 0; i < s.k; ++i) to[i] = scale * from[i * kLanes];
    }
  }

  void lpe_forward_span(Work& w, ThreadPool& pool, int64_t first, int64_t end) {
    const LpeShape& s = w.shape;
    const Kernels& k = kernels();
    const int64_t tokens = s.tokens(), size = tokens * s.k, row = s.row(), words = ff_padded / 32;
    std::vector<int32_t> valid;
    for (int64_t b = first; b < end; ++b) {
      const int32_t* counts = w.lpe_counts.data() + b * kLanes;
      for (int position = 0; position < s.m; ++position) {
        for (int lane = 0; lane < kLanes; ++lane) {
          if (position < counts[lane])
            valid.push_back(static_cast<int32_t>((b - first) * tokens + position * kLanes + lane));
        }
      }
    }
    for (auto& layer : w.lpe_groups) {
      Work::LpeGroups groups;
      groups.tokens = valid;
      groups.some = reinterpret_cast<uint32_t*>(w.arena.take(groups.count() * words));
      groups.all = reinterpret_cast<uint32_t*>(w.arena.take(groups.count() * words));
      groups.linear = w.arena.take(groups.count() * linear_size(s));
      layer.push_back(std::move(groups));
    }
    const Arena::Mark mark = w.arena.mark();
    float *x = w.arena.take((end - first) * size), *rows = w.arena.take((end - first) * tokens * row);
    float* y = w.arena.take((end - first) * size);
    pool.run(end - first, [&](int64_t b, int thread) {
      Arena& arena = w.thread_arenas[static_cast<size_t>(thread)];
      arena.reset();
      lpe_input(w, first + b, arena, x + b * size);
    });
    for (int layer = 0; layer < c.lpe.layers; ++layer) {
      const LpeLayer& weights = w.lpe_layers[static_cast<size_t>(layer)];
      Work::LpeGroups& groups = w.lpe_groups[static_cast<size_t>(layer)].back();
      pool.run(end - first, [&](int64_t b, int thread) {
        Arena& arena = w.thread_arenas[static_cast<size_t>(thread)];
        arena.reset();
        k.lpe_attend(lpe_block(w, layer, first + b, arena.take(lpe_scratch(s))), x + b * size,
                     lpe_saved(w, layer, first + b));
        for (int64_t t = 0; t < tokens; ++t) {
          const float* from = x + b * size + token_place(s, static_cast<int32_t>(t));
          for (int i = 0; i < s.k; ++i) rows[(b * tokens + t) * row + i] = from[i * kLanes];
        }
        std::fill_n(y + b * size, size, 0.0F);
      });
      group_alike(rows, row, s.k, kGroup, pool, groups.tokens);
      pool.run(groups.count(), [&](int64_t group, int thread) {
        Arena& arena = w.thread_arenas[static_cast<size_t>(thread)];
        arena.reset();
        uint32_t numbers[kGroup];
        float *own = arena.take(kGroup * row), *result = arena.take(kGroup * row);
        for (int place = 0; place < kGroup; ++place) numbers[place] = token_row(s, first, groups.at(group, place));
        gather(s, groups, group, kGroup, 1, x, own);
        k.lpe_group_forward({&s, &weights, groups.size(group), numbers, own, arena.take(kGroup * s.k), result,
                             groups.some + group * words, groups.all + group * words,
                             groups.linear + group * linear_size(s), arena.take(lpe_group_scratch(s))});
        for (int place = 0; place < groups.size(group); ++place) {
          float* to = y + token_place(s, groups.at(group, place));
          for (int i = 0; i < s.k; ++i) {
            to[i * kLanes] = result[place * row + i] * weights.hidden.scale + weights.ff2_bias[i];
          }
        }
      });
      pool.run(end - first, [&](int64_t b, int) {
        k.lpe_finish(lpe_block(w, layer, first + b, nullptr), x + b * size, y + b * size,
                     lpe_saved(w, layer, first + b));
      });
    }
    pool.run(end - first, [&](int64_t b, int) { lpe_codes(w, first + b, x + b * size); });
    w.arena.rewind(mark);
  }

  static void start_threads(Work& w, ThreadPool& pool) {
    if (w.thread_arenas.size() < static_cast<size_t>(pool.threads()))
      w.thread_arenas.resize(static_cast<size_t>(pool.threads()));
  }

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
  LpeSums lpe_sums(Arena& arena, const LpeShape& s) const {
    const auto layout = [&](Packer p) {
      LpeSums sums;
      for (int layer = 0; layer < c.lpe.layers; ++layer) {
        float *ff1 = p.take(int64_t{ff_padded} * s.k), *ff1_bias = p.take(ff_padded),
              *ff2 = p.take(int64_t{ff_padded} * s.k);
        sums.layers.push_back({ff1, ff1_bias, ff2, p.take(LpeSmallGradients::size(s.k))});
      }
      sums.input = p.take(s.k * (c.lpe.token_width() + 1));
      sums.all = p.base;
      sums.count = p.used;
      return sums;
    };
    return layout({arena.zeros(layout({}).count)});
  }

  // A block's gradient after the last layer: that of the codes for all valid tokens. d [k][T].
  void lpe_codes_back(const Work& w, int64_t block, const float* d_codes, float* d) const {
    const int k = w.shape.k;
    std::fill_n(d, k * w.shape.tokens(), 0.0F);
    for (int lane = 0; lane < kLanes; ++lane) {
      const int64_t sequence = block * kLanes + lane;
      if (sequence >= w.plan->sequences) break;
      const int valid = w.lpe_counts[static_cast<size_t>(sequence)];
      for (int i = 0; i < k; ++i) {
        for (int p = 0; p < valid; ++p) d[(p * k + i) * kLanes + lane] = d_codes[sequence * k + i];
      }
    }
  }

  // The first map, backwards: adds to `sums`, weight [k][token], then bias [k]. d [k][T].
  void lpe_input_back(const Work& w, int64_t block, const float* d, Arena& arena, float* sums) const {
    const int k = w.shape.k, token = c.lpe.token_width();
    float* input = arena.take(token * w.shape.tokens());
    tokens_of(w, block, input);
    kernels().lpe_linear_gradient(d, input, sums, sums + k * token, token, k, w.shape.tokens());
  }

  // Blocks [first, end) from the last layer to the first, a few at a time, on one thread.
  void lpe_backward_blocks(Work& w, const float* d_codes, int64_t first, int64_t end, Arena& arena, LpeSums& sums) {
    const LpeShape& s = w.shape;
    const int64_t size = s.tokens() * s.k;
    const Kernels& kn = kernels();
    arena.reset();
    float *d = arena.take(kBlocksOfPart * size), *d_ff = arena.take(kBlocksOfPart * size),
          *x1 = arena.take(kBlocksOfPart * size), *d_x = arena.take(kBlocksOfPart * size);
    float* scratch = arena.take(lpe_scratch(s, kBlocksOfPart));
    const Arena::Mark mark = arena.mark();
    for (; first < end; first += kBlocksOfPart) {
      const int64_t count = std::min(kBlocksOfPart, end - first);
      for (int64_t b = 0; b < count; ++b) lpe_codes_back(w, first + b, d_codes, d + b * size);
      for (int layer = c.lpe.layers - 1; layer >= 0; --layer) {
        LpeSums::Layer& sum = sums.layers[static_cast<size_t>(layer)];
        for (int64_t b = 0; b < count; ++b) {
          kn.lpe_norm_backward({lpe_block(w, layer, first + b, nullptr), lpe_saved(w, layer, first + b), d + b * size,
                                d_ff + b * size, x1 + b * size, sum.small});
        }
        kn.lpe_feed_forward_backward({&s, &w.lpe_layers[static_cast<size_t>(layer)], count,
                                      static_cast<uint32_t>(first * kLanes), 0, ff_padded, x1, d_ff, d_x, sum.ff1,
                                      sum.ff1_bias, sum.ff2, scratch});
        for (int64_t b = 0; b < count; ++b) {
          for (int64_t i = b * size; i < (b + 1) * size; ++i) d[i] += d_x[i];
          kn.lpe_attention_backward(
              {lpe_block(w, layer, first + b, scratch), lpe_saved(w, layer, first + b), d + b * size, sum.small});
        }
      }
      for (int64_t b = 0; b < count; ++b) {
        arena.rewind(mark);
        lpe_input_back(w, first + b, d + b * size, arena, sums.input);
      }
    }
  }

  // A span of blocks by groups of tokens. Tasks own hidden units, whose gradients they add up over all groups.
  void lpe_backward_span(Work& w, ThreadPool& pool, const float* d_codes, int64_t span, LpeSums& sums) {
    const LpeShape& s = w.shape;
    const Kernels& kn = kernels();
    const int64_t blocks = ceil_div(w.plan->sequences, kLanes), first = span * span_blocks(s);
    const int64_t count = std::min(blocks - first, span_blocks(s)), parts = std::min(count, kMostParts);
    const int64_t size = s.tokens() * s.k, row = s.row(), words = ff_padded / 32, square = s.k * s.k;
    const int64_t small = LpeSmallGradients::size(s.k), input = s.k * (c.lpe.token_width() + 1);
    const int64_t most = ceil_div(count * s.tokens(), kGroup),
                  units = std::max<int64_t>(kUnitsOfTask, ceil_div(ff_padded, kMostHiddenTasks * 32) * 32);
    const int64_t tasks = ceil_div(ff_padded, units);
    const Arena::Mark mark = w.arena.mark();
    float *d = w.arena.take(count * size), *d_ff = w.arena.take(count * size), *x1 = w.arena.take(count * size);
    float *x = w.arena.take(most * kGroup * row), *xt = w.arena.take(most * kGroup * s.k);
    float *dy = w.arena.take(most * kGroup * row), *dyt = w.arena.take(most * kGroup * s.k);
    float *outer = w.arena.take(most * square), *outer_t = w.arena.take(most * square),
          *dy_sums = w.arena.take(most * row);
    float* d_x = w.arena.take(tasks * most * kGroup * row);
    float *small_parts = w.arena.take(parts * small), *input_parts = w.arena.zeros(parts * input);
    std::vector<uint32_t> numbers(static_cast<size_t>(most * kGroup));
    Laps laps(w.profile);
    // body(block, part) for all blocks; those of a part one after the other, which may add to the same sums.
    const auto each_block = [&](auto&& body) {
      pool.run(parts, [&](int64_t part, int thread) {
        for (int64_t b = part * count / parts; b < (part + 1) * count / parts; ++b) body(b, part, thread);
      });
    };
    for (int layer = c.lpe.layers - 1; layer >= 0; --layer) {
      const LpeLayer& weights = w.lpe_layers[static_cast<size_t>(layer)];
      const Work::LpeGroups& groups = w.lpe_groups[static_cast<size_t>(layer)][static_cast<size_t>(span)];
      LpeSums::Layer& sum = sums.layers[static_cast<size_t>(layer)];
      std::fill_n(small_parts, parts * small, 0.0F);
      each_block([&](int64_t b, int64_t part, int) {
        if (layer == c.lpe.layers - 1) lpe_codes_back(w, first + b, d_codes, d + b * size);
        kn.lpe_norm_backward({lpe_block(w, layer, first + b, nullptr), lpe_saved(w, layer, first + b), d + b * size,
                              d_ff + b * size, x1 + b * size, small_parts + part * small});
      });
      laps.add(Part::kLpeBackwardSmall);
      pool.run(groups.count(), [&](int64_t g, int) {
        float *own = x + g * kGroup * row, *gradient = dy + g * kGroup * row, *total = dy_sums + g * row;
        gather(s, groups, g, kGroup, 1, x1, own);
        gather(s, groups, g, groups.size(g), weights.hidden.scale, d_ff, gradient);
        std::fill_n(total, row, 0.0F);
        for (int t = 0; t < kGroup; ++t) {
          numbers[static_cast<size_t>(g * kGroup + t)] = token_row(s, first, groups.at(g, t));
          for (int i = 0; i < s.k; ++i) {
            xt[(g * s.k + i) * kGroup + t] = own[t * row + i];
            dyt[(g * s.k + i) * kGroup + t] = gradient[t * row + i];
            total[i] += gradient[t * row + i];
          }
        }
        kn.gemm({s.k, s.k, kGroup, own, row, gradient, 1, row, outer + g * square, s.k, false});
        kn.gemm({s.k, s.k, kGroup, gradient, row, own, 1, row, outer_t + g * square, s.k, false});
      });
      pool.run(tasks, [&](int64_t task, int thread) {
        Arena& arena = w.thread_arenas[static_cast<size_t>(thread)];
        arena.reset();
        float* scratch = arena.take(lpe_group_scratch(s));
        const auto begin = static_cast<int>(task * units),
                   last = static_cast<int>(std::min<int64_t>(ff_padded, (task + 1) * units));
        for (int64_t g = 0; g < groups.count(); ++g) {
          kn.lpe_group_backward({&s,
                                 &weights,
                                 groups.size(g),
                                 numbers.data() + g * kGroup,
                                 x + g * kGroup * row,
                                 xt + g * kGroup * s.k,
                                 dy + g * kGroup * row,
                                 dyt + g * kGroup * s.k,
                                 outer + g * square,
                                 outer_t + g * square,
                                 dy_sums + g * row,
                                 groups.some + g * words,
                                 groups.all + g * words,
                                 begin,
                                 last,
                                 d_x + (task * most + g) * kGroup * row,
                                 sum.ff1,
                                 sum.ff1_bias,
                                 sum.ff2,
                                 scratch});
        }
      });
      pool.run(groups.count(), [&](int64_t g, int thread) {
        Arena& arena = w.thread_arenas[static_cast<size_t>(thread)];
        arena.reset();
        float *own = d_x + g * kGroup * row, *transposed = arena.take(square);
        for (int64_t task = 1; task < tasks; ++task) {
          const float* part = d_x + (task * most + g) * kGroup * row;
          for (int64_t i = 0; i < kGroup * row; ++i) own[i] += part[i];
        }
        for (int64_t i = 0; i < square; ++i) {
          transposed[i % s.k * s.k + i / s.k] = groups.linear[g * linear_size(s) + i];
        }
        kn.gemm({kGroup, s.k, s.k, transposed, s.k, dy + g * kGroup * row, row, 1, own, row, true});
        for (int place = 0; place < groups.size(g); ++place) {
          float* to = d + token_place(s, groups.at(g, place));
          for (int i = 0; i < s.k; ++i) to[i * kLanes] += own[place * row + i];
        }
      });
      laps.add(Part::kLpeBackwardFeedForward);
      each_block([&](int64_t b, int64_t part, int thread) {
        Arena& arena = w.thread_arenas[static_cast<size_t>(thread)];
        arena.reset();
        kn.lpe_attention_backward({lpe_block(w, layer, first + b, arena.take(lpe_scratch(s))),
                                   lpe_saved(w, layer, first + b), d + b * size, small_parts + part * small});
        if (layer == 0) lpe_input_back(w, first + b, d + b * size, arena, input_parts + part * input);
      });
      for (int64_t part = 0; part < parts; ++part) {
        for (int64_t i = 0; i < small; ++i) sum.small[i] += small_parts[part * small + i];
      }
    }
    for (int64_t part = 0; part < parts; ++part) {
      for (int64_t i = 0; i < input; ++i) sums.input[i] += input_parts[part * input + i];
    }
    laps.add(Part::kLpeBackwardSmall);
    w.arena.rewind(mark);
  }

  void lpe_backward(Work& w, ThreadPool& pool, const float* d_codes, const std::vector<float*>& g) {
    const LpeShape& s = w.shape;
    const int64_t blocks = ceil_div(w.plan->sequences, kLanes);
    start_threads(w, pool);
    if (grouped()) {
      LpeSums sums = lpe_sums(w.arena, s);
      for (int64_t span = 0; span * span_blocks(s) < blocks; ++span) lpe_backward_span(w, pool, d_codes, span, sums);
      add_lpe_gradients(sums, s, g);
      return;
    }
    // Small maps: each task owns blocks from the last layer to the first, and has sums of its own. Their number does not depend on
    // the threads, so that neither do the results.
    Laps laps(w.profile);
    const int64_t parts = std::min(ceil_div(blocks, kBlocksOfPart), kMostParts);
    std::vector<LpeSums> sums;
    for (int64_t i = 0; i < parts; ++i) sums.push_back(lpe_sums(w.arena, s));
    pool.run(parts, [&](int64_t part, int thread) {
      lpe_backward_blocks(w, d_codes, part * blocks / parts, (part + 1) * blocks / parts,
                          w.thread_arenas[static_cast<size_t>(thread)], sums[static_cast<size_t>(part)]);
    });
    for (size_t i = 1; i < sums.size(); ++i) {
      for (int64_t j = 0; j < sums[0].count; ++j) sums[0].all[j] += sums[i].all[j];
    }
    add_lpe_gradients(sums[0], s, g);
    laps.add(Part::kLpeBackward);
  }

  void add_lpe_gradients(const LpeSums& sums, const LpeShape& s, const std::vector<float*>& g) const {
    const int k = s.k, f = c.lpe.ff_dim;
    for (int layer = 0; layer < c.lpe.layers; ++layer) {
      const auto t = static_cast<size_t>(lpe[static_cast<size_t>(layer)].first_tensor);
      const LpeSums::Layer& sum = sums.layers[static_cast<size_t>(layer)];
      const float* from = sum.small;
      const auto add = [&](size_t tensor, int64_t n) {
        for (int64_t i = 0; i < n; ++i) g[tensor][i] += from[i];
        from += n;
      };
      add(t, 3 * k * k);
      add(t + 1, 3 * k);
      add(t + 2, k * k);
      add(t + 3, k);
      add(t + 4, k);  // norm1
      add(t + 5, k);
      add(t + 10, k);  // norm2
      add(t + 11, k);
      add(t + 9, k);  // ff2.bias
      for (int64_t i = 0; i < int64_t{f} * k; ++i) g[t + 6][i] += sum.ff1[i];
      for (int i = 0; i < f; ++i) g[t + 7][i] += sum.ff1_bias[i];
      for (int h = 0; h < f; ++h) {
        for (int i = 0; i < k; ++i) g[t + 8][int64_t{i} * f + h] += sum.ff2[int64_t{h} * k + i];
      }
    }
    float *weight = g[static_cast<size_t>(lpe_input_weight)], *bias = g[static_cast<size_t>(lpe_input_bias)];
    const int token = c.lpe.token_width();
    for (int i = 0; i < k * token; ++i) weight[i] += sums.input[i];
    for (int i = 0; i < k; ++i) bias[i] += sums.input[k * token + i];
  }

  // --- attention -----------------------------------------------------------------------------------------------------

  AttentionShape attention_shape(const LayerWeights& l) const {
    AttentionShape s;
    s.d = l.out;
    s.heads = c.heads;
    s.ld = int64_t{l.out} * l.sections;
    s.q1 = 0;
    s.k1 = l.out;
    s.q2 = 2 * l.out;
    s.k2 = 3 * l.out;
    s.v = (l.sections - 1) * l.out;
    s.separate = c.attention_norm == AttentionNorm::kSeparate;
    s.real_weight = c.full() ? static_cast<float>(1 / (1 + c.gamma)) : 1.0F;
    s.added_weight = static_cast<float>(c.gamma / (1 + c.gamma));
    return s;
  }
  // Added pairs that weigh nothing are not looked at.
  bool uses_added() const { return c.full() && c.gamma > 0; }

  // Edge vectors per type of one layer.
  void edge_tables(Work& w, ThreadPool& pool, const LayerWeights& l, LayerState& state) const {
    const int width = c.edge_embedding_dim();
    for (int kind = 0; kind < (c.full() ? 2 : 1); ++kind) {
      const int64_t rows = kind == 0 ? w.plan->types : 1;
      const float* e = w.edge_embedding + (kind == 0 ? 0 : int64_t{w.plan->types} * width);
      state.table[kind] = w.arena.take(std::max<int64_t>(1, rows) * l.out);
      product(pool, e, rows, width, l.edge[kind].table, l.out, state.table[kind]);
      kernels().bias_residual(state.table[kind], rows, l.out, l.edge[kind].bias, nullptr);
    }
  }

  // All pairs of a node of one kind whose edge vectors differ from pair to pair (edge LPE), a few at a time:
  // use(PairList, codes, types).
  template <typename Use>
  void explicit_pairs(const Work& w, const LayerWeights& l, const LayerState& state, int kind, bool as_target,
                      int32_t node, Arena& arena, Use&& use) const {
    const NetworkPlan& plan = *w.plan;
    const Adjacency& a = as_target ? plan.in : plan.out;
    const int64_t begin = a.begin[static_cast<size_t>(node)], end = a.begin[static_cast<size_t>(node) + 1];
    if (!c.lpe.pairs()) {
      if (kind == 0 && end > begin) {
        use(PairList{end - begin, a.other.data() + begin, state.table[0], a.type.data() + begin}, nullptr,
            a.type.data() + begin);
      }
      return;
    }
    const int k = c.lpe.dim;
    std::vector<int32_t> other, type;
    std::vector<int64_t> code;
    float *rows = arena.take(kPairsTogether * l.out), *codes = arena.take(kPairsTogether * k);
    const auto flush = [&] {
      const auto count = static_cast<int64_t>(other.size());
      if (count == 0) return;
      for (int64_t p = 0; p < count; ++p) {
        std::copy_n(w.codes + code[static_cast<size_t>(p)] / 2 * k, k, codes + p * k);
        std::copy_n(state.table[kind] + int64_t{type[static_cast<size_t>(p)]} * l.out, l.out, rows + p * l.out);
      }
      kernels().gemm({count, l.out, k, l.edge[kind].code, l.out, codes, k, 1, rows, l.out, true});
      use(PairList{count, other.data(), rows, nullptr}, code.data(), type.data());
      other.clear();
      type.clear();
      code.clear();
    };
    const auto add = [&](int32_t j, int32_t t, int64_t at) {
      other.push_back(j);
      type.push_back(t);
      code.push_back(at);
      if (static_cast<int64_t>(other.size()) == kPairsTogether) flush();
    };
    if (kind == 0) {
      for (int64_t p = begin; p < end; ++p) {
        add(a.other[static_cast<size_t>(p)], a.type[static_cast<size_t>(p)], a.code[static_cast<size_t>(p)]);
      }
    } else {
      const int32_t graph = plan.graph_of[static_cast<size_t>(node)];
      const int32_t first = w.batch->node_offsets[static_cast<size_t>(graph)];
      const int32_t last = w.batch->node_offsets[static_cast<size_t>(graph) + 1];
      std::vector<bool> real(static_cast<size_t>(last - first));
      for (int64_t p = begin; p < end; ++p) real[static_cast<size_t>(a.other[static_cast<size_t>(p)] - first)] = true;
      real[static_cast<size_t>(node - first)] = true;
      for (int32_t j = first; j < last; ++j) {
        if (real[static_cast<size_t>(j - first)]) continue;
        const int32_t target = as_target ? node : j, source = as_target ? j : node;
        add(j, 0, 2 * plan.code_of(graph, *w.batch, source, target) + (target > source ? 1 : 0));
      }
    }
    flush();
  }

  // all(graph) for the graphs of a task of dense attention.
  template <typename All>
  void dense_graphs(const Work& w, const DenseTask& task, const AttentionShape& s, const LayerState& state,
                    const float* scaled_q, const Adjacency& real, Arena& arena, All&& all) const {
    for (int32_t graph = task.graph_begin; graph < task.graph_end; ++graph) {
      const int32_t type = w.plan->dense_type[static_cast<size_t>(graph)];
      arena.reset();
      DenseGraph g{};
      g.shape = &s;
      g.projections = state.projections;
      g.e = state.table[1];
      g.scaled_q = scaled_q;
      if (type >= 0) {
        g.e1 = state.table[0] + int64_t{type} * s.d;
        g.scaled_q1 = scaled_q + w.nodes * s.d;
      }
      g.begin = w.batch->node_offsets[static_cast<size_t>(graph)];
      g.end = w.batch->node_offsets[static_cast<size_t>(graph) + 1];
      g.head_begin = task.head_begin;
      g.head_end = task.head_end;
      g.pair_begin = real.begin.data();
      g.other = real.other.data();
      g.scratch = arena.take(dense_scratch(s, g.end - g.begin, task.head_end - task.head_begin));
      all(g, type);
    }
  }

  void attention_forward(Work& w, ThreadPool& pool, const LayerWeights& l, LayerState& state, const float* scaled_q) {
    const AttentionShape s = attention_shape(l);
    const NetworkPlan& plan = *w.plan;
    const Kernels& k = kernels();
    const int d = l.out, heads = c.heads;
    // Sums of weight * value and of weight, over the real edges and over the added pairs; with a joint norm over both.
    float *num[2] = {state.attention, state.attention}, *z[2] = {state.share[0], state.share[0]};
    if (s.separate) {
      num[1] = w.arena.take(w.nodes * d);
      z[1] = state.share[1];
    }
    pool.run(static_cast<int64_t>(plan.dense.size()), [&](int64_t task, int thread) {
      dense_graphs(w, plan.dense[static_cast<size_t>(task)], s, state, scaled_q, plan.out,
                   w.thread_arenas[static_cast<size_t>(thread)], [&](DenseGraph& g, int32_t) {
                     g.num = num[1];
                     g.z = z[1];
                     k.dense_forward(g);
                   });
    });
    pool.run(static_cast<int64_t>(plan.chunk_begin.size()) - 1, [&](int64_t chunk, int thread) {
      Arena& arena = w.thread_arenas[static_cast<size_t>(thread)];
      for (int64_t i = plan.chunk_begin[static_cast<size_t>(chunk)];
           i < plan.chunk_begin[static_cast<size_t>(chunk) + 1]; ++i) {
        const Tile& t = plan.tiles[static_cast<size_t>(i)];
        arena.reset();
        for (int kind = 0; kind < (s.separate ? 2 : 1); ++kind) {
          if (!plan.dense.empty() && num[kind] == num[1]) continue;  // set above
          std::fill_n(num[kind] + int64_t{t.first} * d, int64_t{t.lanes} * d, 0.0F);
          std::fill_n(z[kind] + int64_t{t.first} * heads, int64_t{t.lanes} * heads, 0.0F);
        }
        for (int32_t lane = 0; lane < t.lanes && t.dense_type < 0; ++lane) {
          const int64_t node = t.first + lane;
          for (int kind = 0; kind < (uses_added() && c.lpe.pairs() ? 2 : 1); ++kind) {
            explicit_pairs(w, l, state, kind, true, t.first + lane, arena,
                           [&](const PairList& pairs, const int64_t*, const int32_t*) {
                             k.pairs_forward({&s, state.projections, node, kind == 0, pairs, num[kind] + node * d,
                                              z[kind] + node * heads});
                           });
          }
        }
        for (int32_t lane = 0; lane < t.lanes; ++lane) {
          const int64_t node = t.first + lane;
          float* out = state.attention + node * d;
          if (!s.separate) {
            float* share = z[0] + node * heads;
            for (int h = 0; h < heads; ++h) share[h] = 1.0F / (share[h] + kAttentionEps);
            for (int f = 0; f < d; f += heads) {
              for (int h = 0; h < heads; ++h) out[f + h] *= share[h];
            }
            continue;
          }
          for (int h = 0; h < heads; ++h) {
            const float real = z[0][node * heads + h], added = z[1][node * heads + h];
            const float p0 = real > 0 ? s.real_weight : 0, p1 = added > 0 ? s.added_weight : 0, total = p0 + p1;
            const float share0 = p0 > 0 ? p0 / total / real : 0, share1 = p1 > 0 ? p1 / total / added : 0;
            state.share[0][node * heads + h] = share0;
            state.share[1][node * heads + h] = share1;
            for (int f = h; f < d; f += heads) {
              const float of_real = out[f], of_added = num[1][node * d + f];
              out[f] = of_real * share0 + of_added * share1;
              if (state.means[0] != nullptr) {
                state.means[0][node * d + f] = real > 0 ? of_real / real : 0;
                state.means[1][node * d + f] = added > 0 ? of_added / added : 0;
              }
            }
          }
        }
      }
    });
  }

  // --- layers --------------------------------------------------------------------------------------------------------

  // After the row blocks have filled sum[n]: statistics, then the affine map that makes the norm's output.
  void norm_ready(Work& w, const LayerWeights& l, LayerState& state, int n, const float* block_mean,
                  const float* block_m2, float* scale, float* shift) {
    if (!c.batch_norm) {
      std::fill(scale, scale + l.out, 1.0F);
      std::fill(shift, shift + l.out, 0.0F);
      return;
    }
    state.norm[n].mean = w.arena.take(l.out);
    state.norm[n].rstd = w.arena.take(l.out);
    if (w.training) {
      batch_statistics(l.batch_norm[n], block_mean, block_m2, w.nodes, state.norm[n]);
    } else {
      running_statistics(l.batch_norm[n], state.norm[n]);
    }
    norm_affine(l.batch_norm[n], state.norm[n], scale, shift);
  }

  // h [N][in] -> next [N][out]. scaled_q: for the layer's own use.
  void layer_forward(Work& w, ThreadPool& pool, int number, float* h, float* scaled_q, float* next) {
    const LayerWeights& l = layers[static_cast<size_t>(number)];
    LayerState& state = w.layers[static_cast<size_t>(number)];
    const Kernels& k = kernels();
    const int64_t nodes = w.nodes, blocks = ceil_div(nodes, kRows);
    const int d = l.out, ld = d * l.sections;
    Laps laps(w.profile);
    state = {};
    state.h = h;
    edge_tables(w, pool, l, state);
    state.projections = w.arena.take(nodes * ld);
    state.attention = w.arena.take(nodes * d);
    const bool separate = c.attention_norm == AttentionNorm::kSeparate;
    state.share[0] = w.arena.take(nodes * c.heads);
    if (separate) {
      state.share[1] = w.arena.take(nodes * c.heads);
      state.means[0] = w.arena.take(nodes * d);
      state.means[1] = w.arena.take(nodes * d);
    } else {
      state.share[1] = state.share[0];
    }
    pool.run(blocks, [&](int64_t block, int) {
      const int64_t first = block * kRows, count = std::min(kRows, nodes - first);
      float* out = state.projections + first * ld;
      k.gemm({count, ld, l.in, l.projections, ld, h + first * l.in, l.in, 1, out, ld, false});
      if (c.bias) k.bias_residual(out, count, ld, l.projections_bias, nullptr);
      if (c.full()) scale_queries(w, state, l, first, count, scaled_q);
    });
    laps.add(Part::kProjections);
    attention_forward(w, pool, l, state, scaled_q);
    laps.add(Part::kAttention);

    const Dropout drop_attention = Dropout::make(w.training ? c.dropout : 0, w.seed, graph_site(number, 0));
    const Dropout drop_hidden = Dropout::make(w.training ? c.dropout : 0, w.seed, graph_site(number, 1));
    float *moments = w.arena.take(blocks * d), *moments2 = w.arena.take(blocks * d);
    float *scale = w.arena.take(d), *shift = w.arena.take(d);
    state.bn_in[0] = w.arena.take(nodes * d);
    state.bn_in[1] = w.arena.take(nodes * d);
    if (c.layer_norm && w.training) {
      for (int n = 0; n < 2; ++n) {
        state.ln_hat[n] = w.arena.take(nodes * d);
        state.ln_rstd[n] = w.arena.take(nodes);
      }
    }
    const auto finish = [&](int64_t block, int n, float* x) {  // LayerNorm and the moments of one block of rows
      const int64_t first = block * kRows, count = std::min(kRows, nodes - first);
      if (c.layer_norm) {
        k.row_norm(x, count, d, value(l.layer_norm[n]), value(l.layer_norm_bias[n]), static_cast<float>(kNormEps),
                   w.training ? state.ln_hat[n] + first * d : nullptr, w.training ? state.ln_rstd[n] + first : nullptr);
      }
      if (c.batch_norm && w.training) k.column_moments(x, count, d, d, moments + block * d, moments2 + block * d);
    };
    pool.run(blocks, [&](int64_t block, int thread) {
      const int64_t first = block * kRows, count = std::min(kRows, nodes - first);
      const float* attended = state.attention + first * d;
      if (drop_attention.active()) {
        Arena& arena = w.thread_arenas[static_cast<size_t>(thread)];
        arena.reset();
        float* dropped = arena.take(count * d);
        std::copy_n(attended, count * d, dropped);
        k.drop(dropped, count, d, drop_attention, first);
        attended = dropped;
      }
      float* x = state.bn_in[0] + first * d;
      k.gemm({count, d, d, l.o.forward, d, attended, d, 1, x, d, false});
      k.bias_residual(x, count, d, l.o.bias, l.residual ? h + first * d : nullptr);
      finish(block, 0, x);
    });
    norm_ready(w, l, state, 0, moments, moments2, scale, shift);
    state.x1 = w.arena.take(nodes * d);
    state.hidden = w.arena.take(nodes * 2 * d);
    pool.run(blocks, [&](int64_t block, int) {
      const int64_t first = block * kRows, count = std::min(kRows, nodes - first);
      float *x1 = state.x1 + first * d, *hidden = state.hidden + first * 2 * d, *y = state.bn_in[1] + first * d;
      k.affine(state.bn_in[0] + first * d, count, d, scale, shift, x1);
      k.gemm({count, 2 * d, d, l.ffn1.forward, 2 * d, x1, d, 1, hidden, 2 * d, false});
      k.bias_relu(hidden, count, 2 * d, l.ffn1.bias, drop_hidden, first);
      k.gemm({count, d, 2 * d, l.ffn2.forward, d, hidden, 2 * d, 1, y, d, false});
      k.bias_residual(y, count, d, l.ffn2.bias, l.residual ? x1 : nullptr);
      finish(block, 1, y);
    });
    norm_ready(w, l, state, 1, moments, moments2, scale, shift);
    pool.run(blocks, [&](int64_t block, int) {
      const int64_t first = block * kRows, count = std::min(kRows, nodes - first);
      k.affine(state.bn_in[1] + first * d, count, d, scale, shift, next + first * d);
    });
    laps.add(Part::kFeedForward);
  }

  // scaled_q = q2 * the added pairs' edge vector * log2(e); after all nodes' the same of q1 and the real edges' vector, where
  // a graph's real edges are all alike.
  static void scale_queries(const Work& w, const LayerState& state, const LayerWeights& l, int64_t first, int64_t count,
                            float* scaled_q) {
    const Kernels& k = kernels();
    const int d = l.out, ld = d * l.sections;
    k.scale_rows(state.projections + first * ld + 2 * d, count, d, ld, state.table[1], kLog2E, scaled_q + first * d);
    const auto type_of = [&](int64_t r) {
      return w.plan->dense_type[static_cast<size_t>(w.plan->graph_of[static_cast<size_t>(r)])];
    };
    for (int64_t r = first, end = r; r < first + count; r = end) {
      const int32_t type = type_of(r);
      while (end < first + count && type_of(end) == type) ++end;
      if (type < 0) continue;
      k.scale_rows(state.projections + r * ld, end - r, d, ld, state.table[0] + int64_t{type} * d, kLog2E,
                   scaled_q + (w.nodes + r) * d);
    }
  }

  // Through BatchNorm n and LayerNorm n: d [N][out] in place. Sums over all rows first, then row by row in `each`.
  template <typename Each>
  void norm_backward(Work& w, ThreadPool& pool, const LayerWeights& l, const LayerState& state, int n, float* d_out,
                     const std::vector<float*>& g, Each&& each) {
    const Kernels& k = kernels();
    const int64_t nodes = w.nodes, blocks = ceil_div(nodes, kRows);
    const int d = l.out;
    std::vector<float> scale(static_cast<size_t>(d)), s1(static_cast<size_t>(d)), s2(static_cast<size_t>(d));
    const NormState& norm = state.norm[n];
    if (c.batch_norm) {
      float *sums = w.arena.take(blocks * d), *sums_hat = w.arena.take(blocks * d);
      pool.run(blocks, [&](int64_t block, int) {
        const int64_t first = block * kRows, count = std::min(kRows, nodes - first);
        k.norm_sums(d_out + first * d, state.bn_in[n] + first * d, count, d, norm.mean, norm.rstd, sums + block * d,
                    sums_hat + block * d);
      });
      const BatchNorm& bn = l.batch_norm[n];
      for (int i = 0; i < d; ++i) {
        double total = 0, total_hat = 0;
        for (int64_t b = 0; b < blocks; ++b) {
          total += sums[b * d + i];
          total_hat += sums_hat[b * d + i];
        }
        g[static_cast<size_t>(bn.weight)][i] += static_cast<float>(total_hat);
        g[static_cast<size_t>(bn.bias)][i] += static_cast<float>(total);
        const auto count = static_cast<double>(nodes);
        scale[static_cast<size_t>(i)] = value(bn.weight)[i] * norm.rstd[i];
        s1[static_cast<size_t>(i)] = static_cast<float>(total / count);
        s2[static_cast<size_t>(i)] = static_cast<float>(norm.rstd[i] * total_hat / count);
      }
    }
    float *ln_weight = nullptr, *ln_bias = nullptr;
    if (c.layer_norm) {
      ln_weight = w.arena.zeros(blocks * d);
      ln_bias = w.arena.zeros(blocks * d);
    }
    pool.run(blocks, [&](int64_t block, int thread) {
      const int64_t first = block * kRows, count = std::min(kRows, nodes - first);
      float* rows = d_out + first * d;
      if (c.batch_norm) {
        k.norm_backward(rows, state.bn_in[n] + first * d, count, d, scale.data(), s1.data(), norm.mean, s2.data());
      }
      if (c.layer_norm) {
        k.row_norm_backward(rows, count, d, value(l.layer_norm[n]), state.ln_hat[n] + first * d,
                            state.ln_rstd[n] + first, ln_weight + block * d, ln_bias + block * d);
      }
      each(block, first, count, rows, thread);
    });
    if (c.layer_norm) {
      for (int64_t b = 0; b < blocks; ++b) {
        for (int i = 0; i < d; ++i) {
          g[static_cast<size_t>(l.layer_norm[n])][i] += ln_weight[b * d + i];
          g[static_cast<size_t>(l.layer_norm_bias[n])][i] += ln_bias[b * d + i];
        }
      }
    }
  }

  // d_out [N][out], gradient of the layer's output (destroyed) -> d_h [N][in], of its input. d_edges: gradient of the edge
  // embeddings per type, d_slots: of the edge LPE's codes per ordered pair; both are added to.
  void layer_backward(Work& w, ThreadPool& pool, int number, float* d_out, float* d_h, float* d_edges, float* d_slots,
                      const std::vector<float*>& g) {
    const LayerWeights& l = layers[static_cast<size_t>(number)];
    const LayerState& state = w.layers[static_cast<size_t>(number)];
    const Kernels& k = kernels();
    const NetworkPlan& plan = *w.plan;
    const int64_t nodes = w.nodes;
    const int d = l.out, ld = d * l.sections, heads = c.heads;
    const AttentionShape s = attention_shape(l);
    const Dropout drop_attention = Dropout::make(c.dropout, w.seed, graph_site(number, 0));
    const Dropout drop_hidden = Dropout::make(c.dropout, w.seed, graph_site(number, 1));

    Laps laps(w.profile);

    // The feed-forward block.
    float *d_hidden = w.arena.take(nodes * 2 * d), *d_x1 = w.arena.take(nodes * d);
    norm_backward(w, pool, l, state, 1, d_out, g, [&](int64_t, int64_t first, int64_t count, float* rows, int) {
      float *hidden = d_hidden + first * 2 * d, *x = d_x1 + first * d;
      k.gemm({count, 2 * d, d, l.ffn2.backward, 2 * d, rows, d, 1, hidden, 2 * d, false});
      k.relu_backward(hidden, state.hidden + first * 2 * d, count * 2 * d, drop_hidden.scale);
      if (l.residual) std::copy_n(rows, count * d, x);
      k.gemm({count, d, 2 * d, l.ffn1.backward, d, hidden, 2 * d, 1, x, d, l.residual});
    });

    // Attention's output map.
    float *d_attention = w.arena.take(nodes * d), *dropped = state.attention;
    float *dot[2] = {w.arena.take(nodes * heads), nullptr},
          *scaled_q = c.full() ? w.arena.take(2 * nodes * d) : nullptr;
    dot[1] = s.separate ? w.arena.take(nodes * heads) : dot[0];
    if (drop_attention.active()) dropped = w.arena.take(nodes * d);
    norm_backward(w, pool, l, state, 0, d_x1, g, [&](int64_t, int64_t first, int64_t count, float* rows, int) {
      float* da = d_attention + first * d;
      k.gemm({count, d, d, l.o.backward, d, rows, d, 1, da, d, false});
      if (drop_attention.active()) {
        k.drop(da, count, d, drop_attention, first);
        std::copy_n(state.attention + first * d, count * d, dropped + first * d);
        k.drop(dropped + first * d, count, d, drop_attention, first);
      }
      for (int kind = 0; kind < (s.separate ? 2 : 1); ++kind) {
        k.head_dots(da, (s.separate ? state.means[kind] : state.attention) + first * d, count, d, heads,
                    dot[kind] + first * heads);
      }
      if (c.full()) scale_queries(w, state, l, first, count, scaled_q);
    });

    laps.add(Part::kFeedForwardBackward);

    // Attention: all pairs, which set the gradients of all graphs, then edges one by one, once as their target and once as their
    // source, which add to them.
    float* d_projections = plan.dense.empty() ? w.arena.zeros(nodes * ld) : w.arena.take(nodes * ld);
    const auto chunks = static_cast<int64_t>(plan.chunk_begin.size()) - 1;
    const bool shared_rows = !plan.own_rows;
    const int64_t type_size = int64_t{plan.types} * d;
    float* d_types = w.arena.zeros((shared_rows ? chunks : 1) * std::max<int64_t>(1, type_size));
    const auto dense = static_cast<int64_t>(plan.dense.size());
    float *d_added = w.arena.zeros((dense > 0 ? dense : chunks) * d),
          *d_dense_types = w.arena.zeros(shared_rows ? dense * type_size : 0);
    const int code_k = c.lpe.pairs() ? c.lpe.dim : 0;
    const int64_t code_size = int64_t{code_k} * d;
    float* d_code_weight[2] = {w.arena.zeros(chunks * std::max<int64_t>(1, code_size)),
                               w.arena.zeros(chunks * std::max<int64_t>(1, code_size))};
    pool.run(dense, [&](int64_t task, int thread) {
      dense_graphs(w, plan.dense[static_cast<size_t>(task)], s, state, scaled_q, plan.in,
                   w.thread_arenas[static_cast<size_t>(thread)], [&](DenseGraph& graph, int32_t type) {
                     graph.d_out = d_attention;
                     graph.share = state.share[1];
                     graph.dot = dot[1];
                     graph.d_projections = d_projections;
                     graph.d_e = d_added + task * d;
                     if (type >= 0) graph.d_e1 = d_dense_types + task * type_size + int64_t{type} * d;
                     k.dense_backward(graph);
                   });
    });
    pool.run(2 * chunks, [&](int64_t task, int thread) {
      const bool as_target = task % 2 == 0;
      const int64_t chunk = task / 2;
      Arena& arena = w.thread_arenas[static_cast<size_t>(thread)];
      float* types = shared_rows ? d_types + chunk * type_size : d_types;
      for (int64_t i = plan.chunk_begin[static_cast<size_t>(chunk)];
           i < plan.chunk_begin[static_cast<size_t>(chunk) + 1]; ++i) {
        const Tile& t = plan.tiles[static_cast<size_t>(i)];
        for (int32_t lane = 0; lane < t.lanes && t.dense_type < 0; ++lane) {
          const int32_t node = t.first + lane;
          for (int kind = 0; kind < (uses_added() && c.lpe.pairs() ? 2 : 1); ++kind) {
            arena.reset();
            explicit_pairs(
                w, l, state, kind, as_target, node, arena,
                [&](const PairList& pairs, const int64_t* codes, const int32_t* type) {
                  PairsBackward b{&s,   state.projections, d_attention, state.share[kind], dot[kind],
                                  node, kind == 0,         pairs,       d_projections,     nullptr};
                  if (!as_target) {
                    k.pairs_backward_source(b);
                    return;
                  }
                  if (codes == nullptr) {
                    b.d_e = types;
                    k.pairs_backward_target(b);
                    return;
                  }
                  // Edge LPE: gradients of the pairs' vectors, shared out to the types, the codes and the codes' weights.
                  float* rows = b.d_e = arena.zeros(pairs.count * d);
                  k.pairs_backward_target(b);
                  float* d_codes = arena.take(pairs.count * code_k);
                  float* own = arena.take(pairs.count * code_k);
                  k.gemm({pairs.count, code_k, d, l.edge[kind].code_back, code_k, rows, d, 1, d_codes, code_k, false});
                  for (int64_t p = 0; p < pairs.count; ++p) {
                    float* slot = d_slots + codes[p] * code_k;
                    std::copy_n(w.codes + codes[p] / 2 * code_k, code_k, own + p * code_k);
                    for (int q = 0; q < code_k; ++q) slot[q] += d_codes[p * code_k + q];
                    float* to = kind == 0 ? types + int64_t{type[p]} * d : d_added + chunk * d;
                    for (int f = 0; f < d; ++f) to[f] += rows[p * d + f];
                  }
                  k.gemm({code_k, d, pairs.count, rows, d, own, 1, code_k, d_code_weight[kind] + chunk * code_size, d,
                          true});
                });
          }
        }
      }
    });

    laps.add(Part::kAttentionBackward);

    // The layer's input.
    pool.run(ceil_div(nodes, kRows), [&](int64_t block, int) {
      const int64_t first = block * kRows, count = std::min(kRows, nodes - first);
      if (l.residual) std::copy_n(d_x1 + first * d, count * d, d_h + first * d);
      k.gemm({count, l.in, ld, l.projections_back, l.in, d_projections + first * ld, ld, 1, d_h + first * l.in, l.in,
              l.residual});
    });

    laps.add(Part::kProjectionsBackward);

    // Weights.
    const auto grad = [&](int tensor) { return g[static_cast<size_t>(tensor)]; };
    float *d_stacked = w.arena.zeros(int64_t{ld} * l.in), *d_stacked_bias = w.arena.zeros(ld);
    float* d_o = w.arena.zeros(int64_t{d} * d);
    run_gradients(
        pool, {{d_projections, ld, ld, state.h, l.in, l.in, nodes, d_stacked, c.bias ? d_stacked_bias : nullptr},
               {d_x1, d, d, dropped, d, d, nodes, d_o, grad(l.o.bias_tensor)},
               {d_hidden, 2 * d, 2 * d, state.x1, d, d, nodes, grad(l.ffn1.weight_tensor), grad(l.ffn1.bias_tensor)},
               {d_out, d, d, state.hidden, 2 * d, 2 * d, nodes, grad(l.ffn2.weight_tensor), grad(l.ffn2.bias_tensor)}});
    const int width = d / heads;
    for (int section = 0; section < l.sections; ++section) {
      float* to = grad(l.section_tensor[section]);
      for (int row = 0; row < d; ++row) {
        const int at = section * d + attention_order(row, width);
        for (int i = 0; i < l.in; ++i) to[int64_t{row} * l.in + i] += d_stacked[int64_t{at} * l.in + i];
        if (c.bias) grad(l.section_bias[section])[row] += d_stacked_bias[at];
      }
    }
    for (int o = 0; o < d; ++o) {
      for (int row = 0; row < d; ++row)
        grad(l.o.weight_tensor)[int64_t{o} * d + row] += d_o[int64_t{o} * d + attention_order(row, width)];
    }

    laps.add(Part::kWeightGradients);

    // Edge maps: chunks in order.
    if (shared_rows) {
      for (int64_t chunk = 1; chunk < chunks; ++chunk) {
        for (int64_t i = 0; i < type_size; ++i) d_types[i] += d_types[chunk * type_size + i];
      }
      for (int64_t i = 0; i < dense * type_size; ++i) d_types[i % type_size] += d_dense_types[i];
    }
    for (int64_t i = d; i < (dense > 0 ? dense : chunks) * d; ++i) d_added[i % d] += d_added[i];
    for (int64_t chunk = 1; chunk < chunks; ++chunk) {
      for (int64_t i = 0; i < code_size; ++i) {
        d_code_weight[0][i] += d_code_weight[0][chunk * code_size + i];
        d_code_weight[1][i] += d_code_weight[1][chunk * code_size + i];
      }
    }
    const int embedding = c.edge_embedding_dim();
    const float scale = 1.0F / std::sqrt(static_cast<float>(width));
    for (int kind = 0; kind < (c.full() ? 2 : 1); ++kind) {
      const int64_t rows = kind == 0 ? plan.types : 1;
      const float* dy = kind == 0 ? d_types : d_added;
      const float* e = w.edge_embedding + (kind == 0 ? 0 : int64_t{plan.types} * embedding);
      float* de = d_edges + (kind == 0 ? 0 : int64_t{plan.types} * embedding);
      product(pool, dy, rows, d, l.edge[kind].table_back, embedding, de, true);
      float *dw = w.arena.zeros(int64_t{d} * embedding), *db = w.arena.zeros(d);
      run_gradients(pool, {{dy, d, d, e, embedding, embedding, rows, dw, db}});
      float* to = grad(l.edge[kind].weight_tensor);
      for (int row = 0; row < d; ++row) {
        const int at = attention_order(row, width);
        for (int i = 0; i < embedding; ++i) to[int64_t{row} * l.in + i] += dw[int64_t{at} * embedding + i] * scale;
        for (int i = 0; i < code_k; ++i)
          to[int64_t{row} * l.in + embedding + i] += d_code_weight[kind][int64_t{i} * d + at] * scale;
        if (l.edge[kind].bias_tensor >= 0) grad(l.edge[kind].bias_tensor)[row] += db[at] * scale;
      }
    }
    laps.add(Part::kEdgeGradients);
  }

  // --- the whole -----------------------------------------------------------------------------------------------------

  void start(Work& w, const Batch& batch, bool training, uint64_t seed) {
    w.batch = &batch;
    w.training = training;
    w.trained = false;
    w.seed = seed;
    w.arena.reset();
    Laps laps(w.profile);
    w.plan.emplace(batch, c);
    laps.add(Part::kPlan);
    w.nodes = batch.num_nodes;
    w.node_features = &batch.node_features;
    if (c.standardise_nodes) standardise(w);
    w.layers.resize(static_cast<size_t>(c.layers));
  }

  void standardise(Work& w) const {
    w.standardised = w.batch->node_features;
    w.node_features = &w.standardised;
    const float *mean = value(id("node_embedding.mean")), *deviation = value(id("node_embedding.deviation"));
    const auto columns = static_cast<size_t>(c.node_values);
    for (size_t i = 0; i < w.standardised.values.size(); ++i) {
      float& x = w.standardised.values[i];
      x = (x - mean[i % columns]) / deviation[i % columns];
    }
  }

  // Nodes after the last layer: w.final_h.
  void nodes_forward(Work& w, ThreadPool& pool) {
    const int d = c.hidden_dim, width = c.node_embedding_dim();
    Laps laps(w.profile);
    start_threads(w, pool);
    w.node_embedding = w.arena.take(w.nodes * width);
    for (int64_t i = 0; i < w.nodes; ++i) {
      embed_row(node_embedding, *w.node_features, i, w.node_embedding + i * width);
    }
    if (c.incident_edges) add_incident_edges(w);
    if (c.extra_mlp) extra_mlp(w, pool, w.node_embedding, w.nodes, node_mlp_norm, node_mlp, nullptr, w.node_mlp);
    embed_edges(w, pool);
    laps.add(Part::kEmbedding);
    if (c.lpe.kind != LpeKind::kNone && w.plan->sequences > 0) lpe_forward(w, pool);
    laps.add(Part::kLpeForward);
    float* h = w.arena.take(w.nodes * d);
    for (int64_t i = 0; i < w.nodes; ++i) {
      std::copy_n(w.node_embedding + i * width, width, h + i * d);
      if (width < d) std::copy_n(w.codes + i * c.lpe.dim, c.lpe.dim, h + i * d + width);
    }
    if (w.training) kernels().drop(h, w.nodes, d, Dropout::make(c.in_feat_dropout, w.seed, kInputSite), 0);
    laps.add(Part::kEmbedding);
    // What no one needs after a layer is used again by the next: it stays in the cache. A training step keeps the layers' numbers.
    const int64_t widest = std::max(d, c.final_dim());
    float* scaled_q = c.full() ? w.arena.take(2 * w.nodes * widest) : nullptr;
    float* turns[2] = {nullptr, nullptr};
    for (float*& turn : turns) turn = w.training ? nullptr : w.arena.take(w.nodes * widest);
    for (int i = 0; i < c.layers; ++i) {
      const Arena::Mark mark = w.arena.mark();
      float* next = w.training ? w.arena.take(w.nodes * widest) : turns[i % 2];
      layer_forward(w, pool, i, h, scaled_q, next);
      if (!w.training) w.arena.rewind(mark);
      h = next;
    }
    w.final_h = h;
  }

  // Readout: rows of final_dim.
  void read_out(Work& w) const {
    const int d = c.final_dim();
    if (c.readout == Readout::kNode) {
      w.rows = w.nodes;
      w.head_in = w.final_h;
      return;
    }
    const Batch& b = *w.batch;
    w.rows = b.num_graphs;
    w.head_in = w.arena.zeros(w.rows * d);
    if (c.readout == Readout::kMax) w.max_row.assign(static_cast<size_t>(w.rows * d), 0);
    for (int64_t g = 0; g < w.rows; ++g) {
      const int32_t begin = b.node_offsets[static_cast<size_t>(g)], end = b.node_offsets[static_cast<size_t>(g) + 1];
      float* out = w.head_in + g * d;
      if (c.readout == Readout::kMax) {
        for (int i = 0; i < d; ++i) {
          int32_t best = begin;
          for (int32_t n = begin; n < end; ++n) {
            const float value = w.final_h[int64_t{n} * d + i];
            if (value > w.final_h[int64_t{best} * d + i] || std::isnan(value)) best = n;
          }
          w.max_row[static_cast<size_t>(g * d + i)] = best;
          out[i] = w.final_h[int64_t{best} * d + i];
        }
        continue;
      }
      for (int32_t n = begin; n < end; ++n) {
        for (int i = 0; i < d; ++i) out[i] += w.final_h[int64_t{n} * d + i];
      }
      if (c.readout == Readout::kMean) {
        for (int i = 0; i < d; ++i) out[i] /= static_cast<float>(end - begin);
      }
    }
  }

  void forward(Work& w, ThreadPool& pool, std::vector<float>& outputs) {
    nodes_forward(w, pool);
    Laps laps(w.profile);
    read_out(w);
    const float* x = w.head_in;
    for (int i = 0; i < 2; ++i) {
      w.head_hidden[i] = w.arena.take(w.rows * head[i].out);
      product(pool, x, w.rows, head[i].in, head[i].forward, head[i].out, w.head_hidden[i]);
      kernels().bias_relu(w.head_hidden[i], w.rows, head[i].out, head[i].bias, Dropout{}, 0);
      x = w.head_hidden[i];
    }
    outputs.resize(static_cast<size_t>(w.rows * c.outputs));
    product(pool, x, w.rows, head[2].in, head[2].forward, c.outputs, outputs.data());
    kernels().bias_residual(outputs.data(), w.rows, c.outputs, head[2].bias, nullptr);
    laps.add(Part::kHead);
  }

  void backward(Work& w, ThreadPool& pool, const float* d_outputs, const std::vector<float*>& g) {
    SAN_CHECK(w.training && !w.trained, "backward() without train_forward()");
    w.trained = true;
    const Kernels& k = kernels();
    const int d = c.final_dim();
    Laps laps(w.profile);
    // Head.
    const float* dy = d_outputs;
    for (int i = 2; i >= 0; --i) {
      const float* x = i == 0 ? w.head_in : w.head_hidden[i - 1];
      run_gradients(pool,
                    {{dy, head[i].out, head[i].out, x, head[i].in, head[i].in, w.rows,
                      g[static_cast<size_t>(head[i].weight_tensor)], g[static_cast<size_t>(head[i].bias_tensor)]}});
      float* dx = w.arena.take(w.rows * head[i].in);
      product(pool, dy, w.rows, head[i].out, head[i].backward, head[i].in, dx);
      if (i > 0) k.relu_backward(dx, x, w.rows * head[i].in, 1.0F);
      dy = dx;
    }
    // Readout.
    const int64_t widest = std::max(c.hidden_dim, d);
    float *d_h = w.arena.take(w.nodes * widest), *d_next = w.arena.take(w.nodes * widest);
    if (c.readout == Readout::kMax) std::fill(d_h, d_h + w.nodes * d, 0.0F);
    const Batch& b = *w.batch;
    for (int64_t r = 0; r < w.rows; ++r) {
      if (c.readout == Readout::kNode) {
        std::copy_n(dy + r * d, d, d_h + r * d);
        continue;
      }
      const int32_t begin = b.node_offsets[static_cast<size_t>(r)], end = b.node_offsets[static_cast<size_t>(r) + 1];
      if (c.readout == Readout::kMax) {
        for (int i = 0; i < d; ++i) d_h[int64_t{w.max_row[static_cast<size_t>(r * d + i)]} * d + i] = dy[r * d + i];
        continue;
      }
      const float factor = c.readout == Readout::kMean ? 1.0F / static_cast<float>(end - begin) : 1.0F;
      for (int32_t n = begin; n < end; ++n) {
        for (int i = 0; i < d; ++i) d_h[int64_t{n} * d + i] = dy[r * d + i] * factor;
      }
    }
    laps.add(Part::kHead);
    // Layers.
    const int edge_width = c.edge_embedding_dim();
    float* d_edges = w.arena.zeros((int64_t{w.plan->types} + 1) * edge_width);
    float* d_slots = c.lpe.pairs() ? w.arena.zeros(std::max<int64_t>(1, 2 * w.plan->sequences * c.lpe.dim)) : nullptr;
    for (int i = c.layers - 1; i >= 0; --i) {
      const Arena::Mark mark = w.arena.mark();
      layer_backward(w, pool, i, d_h, d_next, d_edges, d_slots, g);
      w.arena.rewind(mark);
      std::swap(d_h, d_next);
    }
    // Embeddings.
    const int in = c.hidden_dim, width = c.node_embedding_dim(), code = c.lpe.dim;
    k.drop(d_h, w.nodes, in, Dropout::make(c.in_feat_dropout, w.seed, kInputSite), 0);
    if (c.lpe.kind != LpeKind::kNone && w.plan->sequences > 0) {
      float* d_codes = w.arena.take(w.plan->sequences * code);
      for (int64_t i = 0; i < w.plan->sequences; ++i) {
        for (int q = 0; q < code; ++q) {
          d_codes[i * code + q] = i < w.plan->node_sequences
                                      ? d_h[i % w.nodes * in + width + q]
                                      : d_slots[2 * i * code + q] + d_slots[(2 * i + 1) * code + q];
        }
      }
      lpe_backward(w, pool, d_codes, g);
    }
    Laps after(w.profile);
    float* d_nodes = w.arena.take(w.nodes * width);
    for (int64_t i = 0; i < w.nodes; ++i) std::copy_n(d_h + i * in, width, d_nodes + i * width);
    if (c.extra_mlp) extra_mlp_back(w, pool, d_nodes, w.nodes, node_mlp_norm, node_mlp, nullptr, w.node_mlp, g);
    for (int64_t i = 0; i < w.nodes; ++i) {
      embed_row_back(node_embedding, *w.node_features, i, d_nodes + i * width, g);
    }
    if (c.incident_edges) incident_edges_back(w, d_nodes, g);
    embed_edges_back(w, pool, d_edges, g);
    after.add(Part::kEmbedding);
  }
};

std::string Network::unsupported(const ModelConfig& config) {
  if (config.lpe.kind != LpeKind::kNone && config.lpe.dim > kMaxLpeWidth) {
    return fmt::format("lpe.dim above {}", kMaxLpeWidth);
  }
  return "";
}

Network::Network(const ModelConfig& config, std::vector<float*> tensors)
    : impl_(std::make_unique<Impl>(config, std::move(tensors))) {}
Network::~Network() = default;

const ModelConfig& Network::config() const {
  return impl_->c;
}
void Network::weights_changed(ThreadPool* pool) {
  impl_->pack(pool);
}

void Network::predict(const Batch& batch, ThreadPool& pool, Workspace& workspace, std::vector<float>& outputs) const {
  Workspace::Impl& w = *workspace.impl_;
  impl_->start(w, batch, false, 0);
  impl_->forward(w, pool, outputs);
  // The head's ReLUs make 0 of -infinity: an overflow before them would come out as a number like any other.
  const int64_t d = impl_->c.final_dim(), columns = impl_->c.outputs;
  for (int64_t row = 0; row < w.rows; ++row) {
    const float* in = w.head_in + row * d;
    if (std::all_of(in, in + d, [](float x) { return std::isfinite(x); })) continue;
    std::fill_n(outputs.begin() + row * columns, columns, std::numeric_limits<float>::quiet_NaN());
  }
}

void Network::embed(const Batch& batch, bool nodes, ThreadPool& pool, Workspace& workspace,
                    std::vector<float>& outputs) const {
  Workspace::Impl& w = *workspace.impl_;
  impl_->start(w, batch, false, 0);
  impl_->nodes_forward(w, pool);
  const int d = impl_->c.final_dim();
  if (nodes) {
    outputs.assign(w.final_h, w.final_h + w.nodes * d);
    return;
  }
  impl_->read_out(w);
  outputs.assign(w.head_in, w.head_in + w.rows * d);
}

void Network::train_forward(const Batch& batch, uint64_t seed, ThreadPool& pool, Workspace& workspace,
                            std::vector<float>& outputs) {
  Workspace::Impl& w = *workspace.impl_;
  impl_->start(w, batch, true, seed);
  impl_->forward(w, pool, outputs);
}

void Network::backward(const float* d_outputs, const std::vector<float*>& gradients, ThreadPool& pool,
                       Workspace& workspace) {
  impl_->backward(*workspace.impl_, pool, d_outputs, gradients);
}

double Network::forward_operations(const ModelConfig& config, const Batch& batch) {
  double total = 0;
  for (int i = 0; i < config.layers; ++i) {
    const double d = i + 1 == config.layers ? config.final_dim() : config.hidden_dim;
    total += 20 * d * d * batch.num_nodes;
    double pairs = static_cast<double>(batch.num_edges);
    if (config.full()) {
      pairs = 0;
      for (int32_t g = 0; g < batch.num_graphs; ++g) {
        const double n = batch.node_offsets[static_cast<size_t>(g) + 1] - batch.node_offsets[static_cast<size_t>(g)];
        pairs += n * (n - 1);
      }
    }
    total += 4 * d * pairs;
  }
  if (config.lpe.kind != LpeKind::kNone) {
    const NetworkPlan plan(batch, config);
    const double k = config.lpe.dim, m = batch.max_pairs;
    const double tokens = static_cast<double>(plan.sequences) * m;
    total += tokens * config.lpe.layers * (4 * k * config.lpe.ff_dim + 8 * k * k + 4 * k * m);
  }
  return total;
}

}  // namespace san
