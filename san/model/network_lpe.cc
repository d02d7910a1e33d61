// The encoder over eigenpairs: blocks of 16 sequences, or groups of alike tokens, and the way back.
#include "san/model/network_impl.h"
#include "san/model/token_groups.h"

namespace san {
namespace {

constexpr int kUnitsOfTask = 256;  // hidden units of one task of the LPE feed-forward's backward pass
// More hidden units than that: tokens are worked on in groups, about so many tokens at a time (fewer where they are wide). More find
// groups that are more alike, and need more memory, as do more tasks.
constexpr int64_t kTokensOfSpan = 40960, kMostHiddenTasks = 16;
// No more: a task of the LPE's backward pass takes so many blocks at a time. There are so many tasks.
constexpr int64_t kBlocksOfPart = 4, kMostParts = 32;

int64_t span_blocks(const LpeShape& s) {
  return std::max<int64_t>(1, kTokensOfSpan * kLanes / s.row() / s.tokens());
}

// A group's `linear`, which is read beyond its end, where the next group's would be.
int64_t linear_size(const LpeShape& s) {
  return int64_t{s.k} * s.k + kPad;
}

// Number of a token within its span, and dropout's row of it.
uint32_t token_row(const LpeShape& s, int64_t first_block, int32_t token) {
  const int64_t block = token / s.tokens(), position = token % s.tokens() / kLanes, lane = token % kLanes;
  return static_cast<uint32_t>(((first_block + block) * kLanes + lane) * s.m + position);
}

// Feature 0 of a token in blocks [k][T]; the others are kLanes apart.
int64_t token_place(const LpeShape& s, int32_t token) {
  return (int64_t{token} / kLanes) * kLanes * s.k + token % kLanes;
}

// rows[place][c] = scale * the tokens of a group, zeros beyond k. The rest: zeros beyond `count`, or, where that is kGroup, copies of
// the first one.
void gather(const LpeShape& s, const LpeGroups& groups, int64_t group, int count, float scale, const float* blocks,
            float* rows) {
  for (int place = 0; place < kGroup; ++place) {
    float* to = rows + place * s.row();
    std::fill(to, to + s.row(), 0.0F);
    if (place >= count) continue;
    const float* from = blocks + token_place(s, groups.at(group, place));
    for (int i = 0; i < s.k; ++i) to[i] = scale * from[i * kLanes];
  }
}

}  // namespace

void Network::Impl::prepare_lpe(Work& w) {
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

void Network::Impl::tokens_of(const Work& w, int64_t block, float* tokens) const {
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

LpeBlock Network::Impl::lpe_block(Work& w, int layer, int64_t block, float* scratch) const {
  return {&w.shape, &w.lpe_layers[static_cast<size_t>(layer)], static_cast<uint32_t>(block * kLanes),
          w.lpe_counts.data() + block * kLanes, scratch};
}

LpeSaved Network::Impl::lpe_saved(const Work& w, int layer, int64_t block) const {
  const int64_t tokens = w.shape.tokens(), size = tokens * w.shape.k;
  const Work::LpeArrays& a = w.lpe_saved[static_cast<size_t>(layer)];
  return {a.x + block * size, a.hat1 + block * size, a.rstd1 + block * tokens, a.hat2 + block * size,
          a.rstd2 + block * tokens};
}

void Network::Impl::lpe_forward(Work& w, ThreadPool& pool) {
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
  w.start_threads(pool);
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

void Network::Impl::lpe_input(const Work& w, int64_t block, Arena& arena, float* x) const {
  const int width = c.lpe.token_width();
  float* input = arena.take(width * w.shape.tokens());
  tokens_of(w, block, input);
  kernels().lpe_linear(value(lpe_input_weight), value(lpe_input_bias), input, x, width, w.shape.k, w.shape.tokens());
}

void Network::Impl::lpe_codes(Work& w, int64_t block, const float* x) const {
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

bool Network::Impl::grouped() const {
  // With vectors of 16, up to 8 features leave half of each empty in what dropout takes from single tokens: computing all units is faster.
  const bool half_empty = cpu_level() == CpuLevel::kAvx512 && c.lpe.dim <= 8 && c.lpe.dropout > 0;
  return ff_padded > kUnitsOfTask && !half_empty;
}

void Network::Impl::lpe_forward_span(Work& w, ThreadPool& pool, int64_t first, int64_t end) {
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
    LpeGroups groups;
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
    LpeGroups& groups = w.lpe_groups[static_cast<size_t>(layer)].back();
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
      k.lpe_finish(lpe_block(w, layer, first + b, nullptr), x + b * size, y + b * size, lpe_saved(w, layer, first + b));
    });
  }
  pool.run(end - first, [&](int64_t b, int) { lpe_codes(w, first + b, x + b * size); });
  w.arena.rewind(mark);
}

Network::Impl::LpeSums Network::Impl::lpe_sums(Arena& arena, const LpeShape& s) const {
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

void Network::Impl::lpe_codes_back(const Work& w, int64_t block, const float* d_codes, float* d) const {
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

void Network::Impl::lpe_input_back(const Work& w, int64_t block, const float* d, Arena& arena, float* sums) const {
  const int k = w.shape.k, token = c.lpe.token_width();
  float* input = arena.take(token * w.shape.tokens());
  tokens_of(w, block, input);
  kernels().lpe_linear_gradient(d, input, sums, sums + k * token, token, k, w.shape.tokens());
}

void Network::Impl::lpe_backward_blocks(Work& w, const float* d_codes, int64_t first, int64_t end, Arena& arena,
                                        LpeSums& sums) {
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

void Network::Impl::lpe_backward_span(Work& w, ThreadPool& pool, const float* d_codes, int64_t span, LpeSums& sums) {
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
    const LpeGroups& groups = w.lpe_groups[static_cast<size_t>(layer)][static_cast<size_t>(span)];
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

void Network::Impl::lpe_backward(Work& w, ThreadPool& pool, const float* d_codes, const std::vector<float*>& g) {
  const LpeShape& s = w.shape;
  const int64_t blocks = ceil_div(w.plan->sequences, kLanes);
  w.start_threads(pool);
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

void Network::Impl::add_lpe_gradients(const LpeSums& sums, const LpeShape& s, const std::vector<float*>& g) const {
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

}  // namespace san
