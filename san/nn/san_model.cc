#include "san/nn/san_model.h"

#include <algorithm>
#include <cmath>

#include "san/base/random.h"

namespace san::nn {
namespace {

constexpr double kNormEps = 1e-5;
constexpr double kBatchNormMomentum = 0.1;
constexpr double kScoreClamp = 5.0;
constexpr double kAttentionEps = 1e-6;  // keeps a node without incoming pairs at zero

// Work is cut into pieces of these sizes, so that evaluating a large graph needs memory for one piece, not
// for all tokens x 2048 or all pairs x d numbers.
constexpr int64_t kSequencesAtOnce = 1024;
constexpr int64_t kPairsAtOnce = int64_t{1} << 17;

// Initial values in double, so that float and double models start from the same numbers.
at::Tensor initial(const TensorSpec& spec, uint64_t seed, uint64_t stream) {
  at::Tensor out = at::empty(spec.shape, at::kDouble);
  double* values = out.data_ptr<double>();
  Random random(seed, stream);
  const int64_t count = spec.count();
  double bound = 0;
  if (spec.init == Init::kUniformFanIn) bound = 1.0 / std::sqrt(static_cast<double>(spec.fan_in));
  if (spec.init == Init::kXavier) bound = std::sqrt(6.0 / static_cast<double>(spec.shape[0] + spec.shape[1]));
  for (int64_t i = 0; i < count; ++i) {
    switch (spec.init) {
      case Init::kZeros:
        values[i] = 0;
        break;
      case Init::kOnes:
        values[i] = 1;
        break;
      case Init::kNormal:
        values[i] = random.normal();
        break;
      case Init::kUniformFanIn:
      case Init::kXavier:
        values[i] = bound * (2 * random.uniform() - 1);
        break;
    }
  }
  return out;
}

// A stream of random numbers per tensor name: adding an option to a model leaves the other tensors' start as
// it was.
uint64_t stream_of(const std::string& name) {
  uint64_t hash = 0xcbf29ce484222325ULL;  // FNV-1a
  for (const unsigned char c : name) hash = (hash ^ c) * 0x100000001b3ULL;
  return hash;
}

}  // namespace

SanModel::SanModel(const ModelConfig& config, uint64_t seed, at::ScalarType dtype, at::Device device)
    : config_(config), dtype_(dtype), device_(device) {
  const at::TensorOptions options = at::TensorOptions(dtype).device(device);
  flat_parameters_ = at::empty({parameter_count(config)}, options);
  flat_gradients_ = at::zeros_like(flat_parameters_);
  int64_t offset = 0;
  for (const TensorSpec& spec : tensor_specs(config)) {
    std::string source = spec.name;
    if (config.lpe.init == LpeInit::kCopied && source.starts_with("lpe.layers.")) {
      const size_t dot = source.find('.', sizeof("lpe.layers.") - 1);
      source = "lpe.layers.0" + source.substr(dot);
    }
    at::Tensor tensor = initial(spec, seed, stream_of(source)).to(device, dtype);
    if (spec.trained) {
      const auto part = [&](const at::Tensor& flat) {
        return flat.narrow(0, offset, spec.count()).view(spec.shape).detach();
      };
      tensor = part(flat_parameters_).copy_(tensor).set_requires_grad(true);
      tensor.mutable_grad() = part(flat_gradients_);
      offset += spec.count();
    }
    by_name_[spec.name] = tensor;
    tensors_.push_back({spec, tensor});
  }
}

SanModel::SanModel(const StoredModel& stored, at::ScalarType dtype, at::Device device)
    : SanModel(stored.description.model, 0, dtype, device) {
  load(stored.weights);
}

void SanModel::load(const TensorFile& weights) {
  check_weights(config_, weights, "weights");
  at::NoGradGuard no_grad;
  for (Entry& entry : tensors_) {
    const Tensor& source = weights.tensors.at(entry.spec.name);
    entry.tensor.copy_(at::from_blob(const_cast<float*>(source.f32()), source.shape, at::TensorOptions(at::kFloat)));
  }
}

TensorFile SanModel::weights() const {
  TensorFile file;
  for (const Entry& entry : tensors_) {
    const at::Tensor values = entry.tensor.detach().to(at::kCPU, at::kFloat).contiguous();
    const float* data = values.data_ptr<float>();
    file.tensors[entry.spec.name] = make_tensor(entry.spec.shape, {data, data + values.numel()});
  }
  return file;
}

std::vector<at::Tensor> SanModel::parameters() const {
  std::vector<at::Tensor> out;
  for (const Entry& entry : tensors_) {
    if (entry.spec.trained) out.push_back(entry.tensor);
  }
  return out;
}

const at::Tensor& SanModel::tensor(const std::string& name) const {
  return by_name_.at(name);
}

at::Tensor SanModel::linear(const at::Tensor& x, const std::string& name) const {
  const auto bias = by_name_.find(name + ".bias");
  return at::linear(x, tensor(name + ".weight"), bias == by_name_.end() ? at::Tensor{} : bias->second);
}

at::Tensor SanModel::dropout(const at::Tensor& x, double probability, const Options& options, DropoutSite site,
                             int layer) const {
  if (options.training && probability > 0 && options.mask) return x * options.mask(x, site, layer);
  return options.training && probability > 0 ? at::dropout(x, probability, true) : x;
}

at::Tensor SanModel::layer_norm(const at::Tensor& x, const std::string& name) const {
  return at::layer_norm(x, {x.size(-1)}, tensor(name + ".weight"), tensor(name + ".bias"), kNormEps);
}

at::Tensor SanModel::batch_norm(const at::Tensor& x, const std::string& name, const Options& options) const {
  at::Tensor mean = tensor(name + ".running_mean"), variance = tensor(name + ".running_var");
  if (options.training) {
    const at::Tensor batch_mean = x.mean(0), batch_variance = x.var(0, /*unbiased=*/false);
    mean.mul_(1 - kBatchNormMomentum).add_(batch_mean.detach(), kBatchNormMomentum);
    // The running variance is the unbiased one; one row says nothing about it.
    if (const auto rows = static_cast<double>(x.size(0)); rows > 1) {
      variance.mul_(1 - kBatchNormMomentum).add_(batch_variance.detach(), kBatchNormMomentum * rows / (rows - 1));
    }
    mean = batch_mean;
    variance = batch_variance;
  }
  return (x - mean) * (variance + kNormEps).rsqrt() * tensor(name + ".weight") + tensor(name + ".bias");
}

at::Tensor SanModel::embed(const std::string& name, const at::Tensor& categories, const at::Tensor& values) const {
  at::Tensor sum;
  for (int64_t column = 0; column < categories.size(1); ++column) {
    const at::Tensor rows =
        at::embedding(tensor(fmt::format("{}.table.{}", name, column)), categories.select(1, column));
    sum = sum.defined() ? sum + rows : rows;
  }
  if (values.size(1) > 0) {
    const at::Tensor mapped = linear(values, name + ".linear");
    sum = sum.defined() ? sum + mapped : mapped;
  }
  return sum;
}

at::Tensor SanModel::extra_mlp(const at::Tensor& x, const std::string& name, const Options& options) const {
  return linear(at::relu(batch_norm(x, name + ".norm", options)), name + ".linear");
}

// Section 2: tokens [S, M, 2 or 3], mask [S, M] -> codes [S, k].
at::Tensor SanModel::lpe(const at::Tensor& tokens, const at::Tensor& mask, const Options& options) const {
  if (tokens.size(0) > kSequencesAtOnce) {
    std::vector<at::Tensor> codes;
    const auto token_parts = tokens.split(kSequencesAtOnce), mask_parts = mask.split(kSequencesAtOnce);
    for (size_t i = 0; i < token_parts.size(); ++i) codes.push_back(lpe(token_parts[i], mask_parts[i], options));
    return at::cat(codes);
  }
  const LpeConfig& c = config_.lpe;
  const int64_t sequences = tokens.size(0), m = tokens.size(1), width = c.dim / c.heads;
  at::Tensor x = linear(tokens, "lpe.input");
  const at::Tensor key_mask = mask.view({sequences, 1, 1, m});
  for (int i = 0; i < c.layers; ++i) {
    const std::string name = fmt::format("lpe.layers.{}", i);
    const auto heads = [&](const at::Tensor& y) { return y.view({sequences, m, c.heads, width}).transpose(1, 2); };
    const auto qkv = linear(x, name + ".attention.in").chunk(3, -1);
    at::Tensor scores = at::matmul(heads(qkv[0].contiguous()) / std::sqrt(static_cast<double>(width)),
                                   heads(qkv[1].contiguous()).transpose(2, 3));
    // A large finite number, not -inf: softmax then never divides zero by zero, and exp() of it is exactly 0.
    scores = scores.masked_fill(key_mask, -1e30);
    const at::Tensor weights = dropout(scores.softmax(-1), c.dropout, options, DropoutSite::kLpeAttention, i);
    const at::Tensor mixed =
        at::matmul(weights, heads(qkv[2].contiguous())).transpose(1, 2).reshape({sequences, m, c.dim});
    const at::Tensor attended = linear(mixed, name + ".attention.out");
    x = layer_norm(x + dropout(attended, c.dropout, options, DropoutSite::kLpeOutput, i), name + ".norm1");
    const at::Tensor hidden =
        dropout(at::relu(linear(x, name + ".ff1")), c.dropout, options, DropoutSite::kLpeHidden, i);
    const at::Tensor y = linear(hidden, name + ".ff2");
    x = layer_norm(x + dropout(y, c.dropout, options, DropoutSite::kLpeFeedForward, i), name + ".norm2");
  }
  return x.masked_fill(mask.unsqueeze(2), 0.0).sum(1);
}

// Section 4: one weight per pair and head, then a weighted mean of V over each target's pairs.
at::Tensor SanModel::attention(const at::Tensor& h, const EdgeEmbeddings& e, const BatchTensors& batch,
                               int layer) const {
  const std::string name = fmt::format("layers.{}.", layer);
  const at::Tensor v = linear(h, name + "v");
  const int64_t width = v.size(1) / config_.heads;
  const auto heads = [&](const at::Tensor& x) { return x.view({-1, config_.heads, width}); };

  struct Sums {
    at::Tensor values;   // [N, H, D]: sum of weight * V
    at::Tensor weights;  // [N, H, 1]
  };
  // Over the pairs begin .. begin + count, whose embeddings are `edges`: one row each, or one row for all.
  const auto sums_over = [&](int64_t begin, int64_t count, const at::Tensor& edges, const char* kind, double scale) {
    const at::Tensor q = heads(linear(h, name + "q" + kind)), k = heads(linear(h, name + "k" + kind));
    Sums sums{at::zeros_like(heads(v)), at::zeros({batch.num_nodes, config_.heads, 1}, v.options())};
    for (int64_t done = 0; done < count; done += kPairsAtOnce) {
      const int64_t now = std::min(kPairsAtOnce, count - done);
      const at::Tensor source = batch.sources.narrow(0, begin + done, now);
      const at::Tensor target = batch.targets.narrow(0, begin + done, now);
      const at::Tensor projected =
          heads(linear(edges.size(0) == 1 ? edges : edges.narrow(0, done, now), name + "e" + kind));
      const at::Tensor products = k.index_select(0, source) * q.index_select(0, target) * projected;
      const at::Tensor scores = products.sum(-1, true) / std::sqrt(static_cast<double>(width));
      const at::Tensor weight = scores.clamp(-kScoreClamp, kScoreClamp).exp() * scale;
      sums.values = sums.values.index_add(0, target, weight * heads(v).index_select(0, source));
      sums.weights = sums.weights.index_add(0, target, weight);
    }
    return sums;
  };

  const double gamma = config_.gamma;
  const double real_share = config_.full() ? 1 / (1 + gamma) : 1.0, added_share = gamma / (1 + gamma);
  at::Tensor out;
  if (config_.attention_norm == AttentionNorm::kJoint) {
    Sums sums = sums_over(0, batch.num_real, e.real, "1", real_share);
    if (config_.full()) {
      const Sums added = sums_over(batch.num_real, batch.num_added, e.added, "2", added_share);
      sums.values = sums.values + added.values;
      sums.weights = sums.weights + added.weights;
    }
    out = sums.values / (sums.weights + kAttentionEps);
  } else {
    // A softmax per kind; a node without pairs of one kind gives its whole weight to the other. Weights are
    // at least exp(-5), so "no pairs" is exactly "weights sum to 0".
    const auto softmax = [&](const Sums& sums, double share, at::Tensor& present) {
      present = sums.weights.detach().gt(0).to(v.scalar_type()) * share;
      return sums.values / sums.weights.masked_fill(sums.weights.detach().eq(0), 1.0);
    };
    at::Tensor real_present;
    const at::Tensor real = softmax(sums_over(0, batch.num_real, e.real, "1", 1.0), real_share, real_present);
    if (config_.full() && gamma > 0) {
      at::Tensor added_present;
      const at::Tensor added =
          softmax(sums_over(batch.num_real, batch.num_added, e.added, "2", 1.0), added_share, added_present);
      const at::Tensor total = real_present + added_present;
      out = (real * real_present + added * added_present) / total.masked_fill(total.eq(0), 1.0);
    } else {
      out = real;
    }
  }
  return out.reshape({batch.num_nodes, -1});
}

at::Tensor SanModel::graph_layer(const at::Tensor& h, const EdgeEmbeddings& e, const BatchTensors& batch, int layer,
                                 const Options& options) const {
  const std::string name = fmt::format("layers.{}.", layer);
  const bool residual = config_.residual && !(layer + 1 == config_.layers && config_.final_dim() != config_.hidden_dim);
  const auto norm = [&](at::Tensor x, const char* which) {
    if (config_.layer_norm) x = layer_norm(x, name + "layer_norm" + which);
    if (config_.batch_norm) x = batch_norm(x, name + "batch_norm" + which, options);
    return x;
  };
  const at::Tensor attended = attention(h, e, batch, layer);
  if (options.observe) options.observe(fmt::format("attention.{}", layer), attended);
  at::Tensor x = linear(dropout(attended, config_.dropout, options, DropoutSite::kAttention, layer), name + "o");
  x = norm(residual ? h + x : x, "1");
  const at::Tensor hidden =
      dropout(at::relu(linear(x, name + "ffn1")), config_.dropout, options, DropoutSite::kHidden, layer);
  const at::Tensor y = linear(hidden, name + "ffn2");
  return norm(residual ? x + y : y, "2");
}

at::Tensor SanModel::readout(const at::Tensor& h, const BatchTensors& batch) const {
  if (config_.readout == Readout::kNode) return h;
  if (config_.readout == Readout::kMax) {
    std::vector<at::Tensor> rows;
    for (int64_t g = 0; g < batch.num_graphs; ++g) {
      const int64_t begin = batch.node_offsets[g];
      rows.push_back(std::get<0>(h.narrow(0, begin, batch.node_offsets[g + 1] - begin).max(0)));
    }
    return at::stack(rows);
  }
  const at::Tensor sum = at::zeros({batch.num_graphs, h.size(1)}, h.options()).index_add(0, batch.graph_of_node, h);
  return config_.readout == Readout::kSum ? sum : sum / batch.node_counts.unsqueeze(1);
}

// The embeddings of all pairs: tables, the extra MLP, the edge codes.
SanModel::EdgeEmbeddings SanModel::embed_edges(const BatchTensors& batch, const at::Tensor& codes,
                                               const Options& options) const {
  EdgeEmbeddings e{embed("edge_embedding", batch.edge_categories, batch.edge_values), {}};
  if (config_.full()) {
    if (config_.added_edge == AddedEdge::kLearned) {
      e.added = tensor("edge_embedding.added").unsqueeze(0);
    } else {
      e.added = at::zeros({1, config_.edge_embedding_dim()}, e.real.options());
      for (size_t i = 0; i < config_.edge_tables.size(); ++i) {
        e.added = e.added + tensor(fmt::format("edge_embedding.table.{}", i)).narrow(0, 0, 1);
      }
    }
  }
  const int64_t real = batch.num_real, added = batch.num_added;
  // Without a single pair there is nothing to normalise, and a mean over nothing would be NaN.
  if (config_.extra_mlp && real + added > 0) {
    if (!options.training || added == 0) {
      e.real = extra_mlp(e.real, "edge_mlp", options);
      if (added > 0) e.added = extra_mlp(e.added, "edge_mlp", options);
    } else {
      // The statistics run over all pairs, each added one counted.
      const at::Tensor all = extra_mlp(at::cat({e.real, e.added.expand({added, -1})}), "edge_mlp", options);
      e.real = all.narrow(0, 0, real);
      e.added = all.narrow(0, real, 1);
    }
  }
  if (config_.lpe.pairs() && real + added > 0) {
    e.real = at::cat({e.real, codes.index_select(0, batch.code_of_pair.narrow(0, 0, real))}, 1);
    if (added > 0) {
      const at::Tensor added_codes = codes.index_select(0, batch.code_of_pair.narrow(0, real, added));
      e.added = at::cat({e.added.expand({added, -1}), added_codes}, 1);
    }
  }
  return e;
}

at::Tensor SanModel::forward(const BatchTensors& batch, const Options& options) {
  at::Tensor values = batch.node_values;
  if (config_.standardise_nodes) {
    values = (values - tensor("node_embedding.mean")) / tensor("node_embedding.deviation");
  }
  at::Tensor h = embed("node_embedding", batch.node_categories, values);
  if (config_.incident_edges) {
    const at::Tensor rows = embed("incident_embedding", batch.edge_categories, batch.edge_values);
    h = h.index_add(0, batch.targets.narrow(0, 0, batch.num_real), rows);
  }
  if (config_.extra_mlp) h = extra_mlp(h, "node_mlp", options);
  at::Tensor codes;
  if (config_.lpe.kind != LpeKind::kNone && batch.lpe_tokens.size(0) > 0) {
    codes = lpe(batch.lpe_tokens, batch.lpe_mask, options);
  }
  const EdgeEmbeddings e = embed_edges(batch, codes, options);
  if (config_.lpe.nodes()) {
    const int64_t nodes = batch.num_nodes;
    h = at::cat({h, config_.lpe.both_signs ? codes.narrow(0, 0, nodes) + codes.narrow(0, nodes, nodes)
                                           : codes.narrow(0, 0, nodes)},
                1);
  }
  h = dropout(h, config_.in_feat_dropout, options, DropoutSite::kInput, 0);
  if (options.observe) {
    options.observe("h_in", h);
    options.observe("e_real", e.real);
    if (batch.num_added > 0) options.observe("e_added", e.added);
  }
  for (int layer = 0; layer < config_.layers; ++layer) {
    h = graph_layer(h, e, batch, layer, options);
    if (options.observe) options.observe(fmt::format("layer.{}", layer), h);
  }
  at::Tensor x = readout(h, batch);
  x = at::relu(linear(x, "head.0"));
  x = at::relu(linear(x, "head.1"));
  return linear(x, "head.2");
}

}  // namespace san::nn
