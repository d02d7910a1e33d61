#include "san/nn/batch_tensors.h"

#include <unordered_map>
#include <unordered_set>

namespace san::nn {
namespace {

// Their indices alone take 2 GB.
constexpr int64_t kMaxPairs = int64_t{1} << 27;

template <typename T>
at::Tensor copy_of(const std::vector<T>& values, std::vector<int64_t> shape, at::ScalarType dtype, at::Device device) {
  const auto source = c10::CppTypeToScalarType<T>::value;
  return at::from_blob(const_cast<T*>(values.data()), shape, at::TensorOptions(source)).to(device, dtype, false, true);
}

uint64_t pair_key(int64_t a, int64_t b) {
  return static_cast<uint64_t>(a) << 32 | static_cast<uint64_t>(b);
}

}  // namespace

at::Tensor labels_of(const Batch& batch) {
  if (batch.labels.empty()) return {};
  return copy_of(batch.labels, {batch.node_labels ? batch.num_nodes : batch.num_graphs, batch.label_columns},
                 at::kFloat, at::kCPU);
}

BatchTensors to_tensors(const Batch& batch, const ModelConfig& config, at::ScalarType dtype, at::Device device) {
  BatchTensors t;
  const int64_t nodes = batch.num_nodes, graphs = batch.num_graphs, edges = batch.num_edges;
  t.num_graphs = graphs;
  t.num_nodes = nodes;
  const Features &nf = batch.node_features, &ef = batch.edge_features;
  t.node_categories = copy_of(nf.categories, {nodes, nf.category_columns}, at::kLong, device);
  t.node_values = copy_of(nf.values, {nodes, nf.value_columns}, dtype, device);
  // A batch without any edge says nothing about columns: take the model's.
  const auto edge_columns = edges > 0 ? int64_t{ef.category_columns} : static_cast<int64_t>(config.edge_tables.size());
  t.edge_categories = copy_of(ef.categories, {edges, edge_columns}, at::kLong, device);
  t.edge_values = copy_of(ef.values, {edges, edges > 0 ? ef.value_columns : config.edge_values}, dtype, device);

  std::vector<int64_t> sources(batch.edge_sources.begin(), batch.edge_sources.end());
  std::vector<int64_t> targets(batch.edge_targets.begin(), batch.edge_targets.end());
  t.num_real = edges;
  if (config.full()) {
    int64_t pairs = edges;
    for (int64_t g = 0; g < graphs; ++g) {
      const int64_t n = batch.node_offsets[g + 1] - batch.node_offsets[g];
      pairs += n * n;
    }
    SAN_CHECK(pairs <= kMaxPairs,
              "full attention over this batch has {} pairs, more than the {} allowed here; take smaller "
              "batches, or a model with sparse attention",
              pairs, kMaxPairs);
    std::unordered_set<uint64_t> real;
    real.reserve(static_cast<size_t>(edges));
    for (int64_t e = 0; e < edges; ++e) real.insert(pair_key(sources[e], targets[e]));
    for (int64_t g = 0; g < graphs; ++g) {
      for (int64_t a = batch.node_offsets[g]; a < batch.node_offsets[g + 1]; ++a) {
        for (int64_t b = batch.node_offsets[g]; b < batch.node_offsets[g + 1]; ++b) {
          if (a == b || real.contains(pair_key(a, b))) continue;
          sources.push_back(a);
          targets.push_back(b);
        }
      }
    }
    t.num_added = static_cast<int64_t>(sources.size()) - edges;
  }
  const auto pairs = static_cast<int64_t>(sources.size());
  t.sources = copy_of(sources, {pairs}, at::kLong, device);
  t.targets = copy_of(targets, {pairs}, at::kLong, device);

  std::vector<int64_t> graph_of_node(static_cast<size_t>(nodes));
  std::vector<int64_t> counts;
  for (int64_t g = 0; g < graphs; ++g) {
    counts.push_back(batch.node_offsets[g + 1] - batch.node_offsets[g]);
    std::fill(graph_of_node.begin() + batch.node_offsets[g], graph_of_node.begin() + batch.node_offsets[g + 1], g);
  }
  t.graph_of_node = copy_of(graph_of_node, {nodes}, at::kLong, device);
  t.node_counts = copy_of(counts, {graphs}, dtype, device);
  t.node_offsets.assign(batch.node_offsets.begin(), batch.node_offsets.end());

  if (config.lpe.kind != LpeKind::kNone) {
    for (int64_t g = 0; g < graphs; ++g) {
      SAN_CHECK(batch.num_pairs[g] > 0, "graph {} of the batch has no eigenpairs, but the model reads them", g);
    }
    const int64_t m = batch.max_pairs;
    const at::Tensor values = copy_of(batch.eigenvalues, {graphs, m}, dtype, device).index_select(0, t.graph_of_node);
    const at::Tensor vectors = copy_of(batch.eigenvectors, {nodes, m}, dtype, device);
    const at::Tensor counts_of_pairs = copy_of(batch.num_pairs, {graphs, 1}, at::kLong, device);
    const at::Tensor positions = at::arange(m, at::TensorOptions(at::kLong).device(device));
    const at::Tensor mask = positions.unsqueeze(0).ge(counts_of_pairs).index_select(0, t.graph_of_node);
    // Each kind of token has its own columns, zeros in the other's.
    std::vector<at::Tensor> tokens, masks;
    const auto add = [&](const at::Tensor& columns, int64_t before, const at::Tensor& padding) {
      tokens.push_back(at::constant_pad_nd(columns, {before, config.lpe.token_width() - before - columns.size(2)}));
      masks.push_back(padding);
    };
    if (config.lpe.nodes()) {
      add(at::stack({vectors, values}, 2), 0, mask);
      if (config.lpe.both_signs) add(at::stack({-vectors, values}, 2), 0, mask);
    }
    if (config.lpe.pairs()) {
      const int64_t node_sequences = config.lpe.sequences_per_node() * nodes;
      // (a, b) and (b, a) have the same code: one sequence for both.
      std::unordered_map<uint64_t, int64_t> codes;
      std::vector<int64_t> first, second, code_of_pair;
      code_of_pair.reserve(static_cast<size_t>(pairs));
      const auto code_of = [&](int64_t a, int64_t b) {
        const auto [found, added] = codes.emplace(pair_key(a, b), static_cast<int64_t>(first.size()));
        if (added) {
          first.push_back(a);
          second.push_back(b);
        }
        return found->second;
      };
      // The order in which model/network numbers them too, so that both engines can drop the same numbers.
      for (int64_t g = 0; config.full() && g < graphs; ++g) {
        for (int64_t a = batch.node_offsets[g]; a < batch.node_offsets[g + 1]; ++a) {
          for (int64_t b = a + 1; b < batch.node_offsets[g + 1]; ++b) code_of(a, b);
        }
      }
      for (int64_t p = 0; p < pairs; ++p) {
        code_of_pair.push_back(node_sequences +
                               code_of(std::min(sources[p], targets[p]), std::max(sources[p], targets[p])));
      }
      const auto sequences = static_cast<int64_t>(first.size());
      const at::Tensor a = copy_of(first, {sequences}, at::kLong, device);
      const at::Tensor b = copy_of(second, {sequences}, at::kLong, device);
      const at::Tensor va = vectors.index_select(0, a), vb = vectors.index_select(0, b);
      add(at::stack({(va - vb).abs(), va * vb, values.index_select(0, a)}, 2), config.lpe.token_width() - 3,
          mask.index_select(0, a));
      t.code_of_pair = copy_of(code_of_pair, {pairs}, at::kLong, device);
    }
    t.lpe_tokens = at::cat(tokens);
    t.lpe_mask = at::cat(masks);
  }
  if (!batch.labels.empty()) {
    t.labels = copy_of(batch.labels, {batch.node_labels ? nodes : graphs, batch.label_columns}, dtype, device);
  }
  return t;
}

}  // namespace san::nn
