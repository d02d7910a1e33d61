#include "san/model/network.h"

#include <limits>

#include "san/model/network_impl.h"

namespace san {
namespace {

constexpr double kBatchNormMomentum = 0.1;
constexpr int64_t kGradientRows = 48;    // least rows of a weight matrix's gradient that one task computes
constexpr int64_t kGradientPieces = 16;  // about so many tasks where the rows are many

}  // namespace

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

void Network::Impl::product(ThreadPool& pool, const float* x, int64_t rows, int in, const float* w, int out, float* y,
                            bool accumulate) {
  const Kernels& k = kernels();
  pool.run(ceil_div(rows, kRows), [&](int64_t task, int) {
    const int64_t first = task * kRows, count = std::min(kRows, rows - first);
    k.gemm({count, out, in, w, out, x + first * in, in, 1, y + first * out, out, accumulate});
  });
}

void Network::Impl::run_gradients(ThreadPool& pool, const std::vector<GradientJob>& jobs) {
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

void Network::Impl::batch_statistics(const BatchNorm& n, const float* block_mean, const float* block_m2, int64_t rows,
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

void Network::Impl::set_statistics(const BatchNorm& n, int i, double mean, double m2, double count, NormState& state) {
  const double variance = m2 / count;
  state.mean[i] = static_cast<float>(mean);
  state.rstd[i] = static_cast<float>(1.0 / std::sqrt(variance + kNormEps));
  float &running_mean = tensors[static_cast<size_t>(n.mean)][i], &running = tensors[static_cast<size_t>(n.variance)][i];
  running_mean = static_cast<float>(running_mean * (1 - kBatchNormMomentum) + mean * kBatchNormMomentum);
  if (count > 1) {
    running = static_cast<float>(running * (1 - kBatchNormMomentum) + m2 / (count - 1) * kBatchNormMomentum);
  }
}

void Network::Impl::running_statistics(const BatchNorm& n, NormState& state) const {
  for (int i = 0; i < n.width; ++i) {
    state.mean[i] = value(n.mean)[i];
    state.rstd[i] = static_cast<float>(1.0 / std::sqrt(static_cast<double>(value(n.variance)[i]) + kNormEps));
  }
}

void Network::Impl::norm_affine(const BatchNorm& n, const NormState& state, float* scale, float* shift) const {
  for (int i = 0; i < n.width; ++i) {
    scale[i] = value(n.weight)[i] * state.rstd[i];
    shift[i] = value(n.bias)[i] - state.mean[i] * scale[i];
  }
}

void Network::Impl::start(Work& w, const Batch& batch, bool training, uint64_t seed) {
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

void Network::Impl::standardise(Work& w) const {
  w.standardised = w.batch->node_features;
  w.node_features = &w.standardised;
  const float *mean = value(id("node_embedding.mean")), *deviation = value(id("node_embedding.deviation"));
  const auto columns = static_cast<size_t>(c.node_values);
  for (size_t i = 0; i < w.standardised.values.size(); ++i) {
    float& x = w.standardised.values[i];
    x = (x - mean[i % columns]) / deviation[i % columns];
  }
}

void Network::Impl::nodes_forward(Work& w, ThreadPool& pool) {
  const int d = c.hidden_dim, width = c.node_embedding_dim();
  Laps laps(w.profile);
  w.start_threads(pool);
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

void Network::Impl::read_out(Work& w) const {
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

void Network::Impl::forward(Work& w, ThreadPool& pool, std::vector<float>& outputs) {
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

void Network::Impl::backward(Work& w, ThreadPool& pool, const float* d_outputs, const std::vector<float*>& g) {
  SAN_CHECK(w.training && !w.trained, "backward() without train_forward()");
  w.trained = true;
  const Kernels& k = kernels();
  const int d = c.final_dim();
  Laps laps(w.profile);
  // Head.
  const float* dy = d_outputs;
  for (int i = 2; i >= 0; --i) {
    const float* x = i == 0 ? w.head_in : w.head_hidden[i - 1];
    run_gradients(pool, {{dy, head[i].out, head[i].out, x, head[i].in, head[i].in, w.rows,
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
