// Weights as the kernels read them: maps in both directions, projections stacked, features in the order of attention.
#include <limits>

#include "san/model/network_impl.h"

namespace san {

void Network::Impl::layout(Packer& p) {
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

void Network::Impl::build() {
  Packer counting;
  layout(counting);
  Packer real{packed_memory.zeros(counting.used), 0};
  layout(real);
  pack(nullptr);
}

void Network::Impl::pack(ThreadPool* pool) {
  const auto count = static_cast<int64_t>(layers.size() + lpe.size() + 1);
  const auto task = [&](int64_t i, int) { pack_part(static_cast<size_t>(i)); };
  if (pool == nullptr) {
    for (int64_t i = 0; i < count; ++i) task(i, 0);
  } else {
    pool->run(count, task);
  }
}

void Network::Impl::pack_part(size_t part) {
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

}  // namespace san
