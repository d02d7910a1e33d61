// The fused engine against the definition: outputs, statistics and every gradient, on random configurations, awkward sizes,
// all CPU levels and with dropout's masks taken over; the same bits for any number of threads.
#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "san/graph/generators.h"
#include "san/kernels/kernels.h"
#include "san/model/network.h"
#include "san/nn/engine.h"
#include "san/nn/task.h"
#include "tests/nn/golden.h"
#include "tests/nn/random_models.h"

namespace san::nn {
namespace {

using testing::add_spectrum;
using testing::first_seed;
using testing::pick;
using testing::random_config;
using testing::random_graph;

// The masks of the fused engine as tensors, for the definition.
struct Masks {
  const ModelConfig& config;
  uint64_t seed;

  at::Tensor operator()(const at::Tensor& x, DropoutSite site, int layer) const {
    at::Tensor out = at::empty(x.sizes(), at::kDouble);
    double* values = out.data_ptr<double>();
    const int64_t rows = site == DropoutSite::kLpeAttention ? x.size(0) * x.size(2) : x.numel() / x.size(-1);
    const double rate = site == DropoutSite::kInput                                       ? config.in_feat_dropout
                        : site == DropoutSite::kAttention || site == DropoutSite::kHidden ? config.dropout
                                                                                          : config.lpe.dropout;
    uint32_t number = kInputSite;
    switch (site) {
      case DropoutSite::kInput:
        break;
      case DropoutSite::kAttention:
        number = graph_site(layer, 0);
        break;
      case DropoutSite::kHidden:
        number = graph_site(layer, 1);
        break;
      default:
        number = lpe_site(layer, static_cast<int>(site) - static_cast<int>(DropoutSite::kLpeAttention));
    }
    const Dropout dropout = Dropout::make(rate, seed, number);
    if (site == DropoutSite::kLpeAttention) {  // [sequences, heads, m, m]
      const int64_t heads = x.size(1), m = x.size(2);
      for (int64_t s = 0; s < x.size(0); ++s) {
        for (int64_t h = 0; h < heads; ++h) {
          for (int64_t i = 0; i < m; ++i) {
            for (int64_t j = 0; j < m; ++j) {
              *values++ = dropout.factor(static_cast<uint32_t>(s * m + i), static_cast<uint32_t>(j + m * h));
            }
          }
        }
      }
      return out;
    }
    const int64_t columns = x.size(-1), width = columns / config.heads;
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < columns; ++c) {
        const int64_t at = site == DropoutSite::kAttention ? c % width * config.heads + c / width : c;
        *values++ = dropout.factor(static_cast<uint32_t>(r), static_cast<uint32_t>(at));
      }
    }
    return out;
  }
};

struct Result {
  at::Tensor outputs;
  std::map<std::string, at::Tensor> tensors;  // gradients, and statistics after the step
};

at::Tensor weights_like(const at::Tensor& outputs) {
  at::Tensor out = at::empty(outputs.sizes(), at::kDouble);
  Random random(7);
  for (int64_t i = 0; i < out.numel(); ++i) out.data_ptr<double>()[i] = random.normal();
  return out;
}

Result collect(SanModel& model, const at::Tensor& outputs) {
  Result result{outputs.detach().to(at::kDouble), {}};
  for (const SanModel::Entry& entry : model.tensors()) {
    result.tensors[entry.spec.name] = (entry.spec.trained ? entry.tensor.grad() : entry.tensor).to(at::kDouble).clone();
  }
  return result;
}

// One training step's worth of the definition.
Result reference(const StoredModel& stored, const Batch& batch, uint64_t seed, at::ScalarType dtype) {
  SanModel model(stored, dtype);
  SanModel::Options options;
  options.training = true;
  const Masks masks{model.config(), seed};
  options.mask = [&](const at::Tensor& x, DropoutSite site, int layer) { return masks(x, site, layer).to(dtype); };
  const at::Tensor outputs = model.forward(to_tensors(batch, model.config(), dtype, at::kCPU), options);
  (outputs * weights_like(outputs).to(dtype)).sum().backward();
  return collect(model, outputs);
}

Result fused(const StoredModel& stored, const Batch& batch, uint64_t seed) {
  SanModel model(stored, at::kFloat);
  Engine engine(model, true);
  EXPECT_TRUE(engine.fused());
  const at::Tensor outputs = engine.training(batch, seed);
  (outputs * weights_like(outputs).to(at::kFloat)).sum().backward();
  return collect(model, outputs);
}

double error_of(const at::Tensor& actual, const at::Tensor& expected, double floor) {
  if (!actual.isfinite().all().item<bool>()) return std::numeric_limits<double>::infinity();
  if (expected.numel() == 0) return 0;
  return (actual - expected).abs().max().item<double>() / std::max(expected.abs().max().item<double>(), floor);
}

// Errors relative to the tensor's largest entry; gradients that are (nearly) nothing beside the others relative to 1e-3 of
// the largest gradient of all. 1e-5 is asked for; float rounding through some layers of exp and norms may itself exceed
// it, so that six times the largest error of the same network composed of float torch operations is allowed where that
// is more: both round some thousand times, in different orders.
//
// Some cases say nothing: BatchNorm over nodes that are all alike multiplies rounding by 300 per layer; and where one of the
// some 100,000 hidden units is within rounding of 0, or a score of its clamp, its gradient is there in one engine and not in
// the other.
enum class Verdict { kEqual, kDifferent, kNothing };
struct Comparison {
  Verdict verdict = Verdict::kEqual;
  std::string what;
};
Comparison compare_results(const Result& actual, const Result& expected, const Result& rounding) {
  double largest = 0;
  for (const auto& [name, tensor] : expected.tensors) {
    if (name.find("running_") == std::string::npos && tensor.numel() > 0) {
      largest = std::max(largest, tensor.abs().max().item<double>());
    }
  }
  const auto floor_of = [&](const std::string& name) {
    return name.find("running_") == std::string::npos ? 1e-3 * largest : 1e-6;
  };
  double noise = error_of(rounding.outputs, expected.outputs, 1e-6);
  for (const auto& [name, tensor] : expected.tensors) {
    noise = std::max(noise, error_of(rounding.tensors.at(name), tensor, floor_of(name)));
  }
  if (noise > 1e-3) return {Verdict::kNothing, fmt::format("noise {}", noise)};
  const double tolerance = std::max(1e-5, 6 * noise);
  Comparison out;
  const auto check = [&](const std::string& name, double error) {
    if (error <= tolerance) return;
    out.verdict = Verdict::kDifferent;
    out.what += fmt::format("{}: {} > {}\n", name, error, tolerance);
  };
  check("outputs", error_of(actual.outputs, expected.outputs, 1e-6));
  for (const auto& [name, tensor] : expected.tensors) {
    check(name, error_of(actual.tensors.at(name), tensor, floor_of(name)));
  }
  return out;
}

StoredModel random_stored(const ModelConfig& config, uint64_t seed) {
  StoredModel stored;
  stored.description.model = config;
  SanModel model(config, seed, at::kFloat);
  Random random(seed, 99);
  const at::NoGradGuard no_grad;
  for (const SanModel::Entry& entry : model.tensors()) {
    if (entry.spec.init != Init::kOnes && entry.spec.init != Init::kZeros) continue;
    auto* values = entry.tensor.data_ptr<float>();
    for (int64_t i = 0; i < entry.tensor.numel(); ++i) values[i] += static_cast<float>(0.5 * random.uniform());
  }
  stored.weights = model.weights();
  return stored;
}

// At every CPU level, in training and in evaluation mode.
Comparison compare(const ModelConfig& config, const Batch& batch, uint64_t seed) {
  const StoredModel stored = random_stored(config, seed);
  const Result expected = reference(stored, batch, seed, at::kDouble);
  const Result rounding = reference(stored, batch, seed, at::kFloat);
  Comparison all;
  const auto merge = [&](const char* where, const Comparison& one) {
    if (one.verdict != Verdict::kEqual) all = {one.verdict, fmt::format("{}{}: {}", all.what, where, one.what)};
  };
  for (const CpuLevel level : {CpuLevel::kPortable, CpuLevel::kAvx2, CpuLevel::kAvx512}) {
    if (!cpu_has(level)) continue;
    set_cpu_level(level);
    merge(cpu_level_name(level), compare_results(fused(stored, batch, seed), expected, rounding));
  }
  SanModel model(stored, at::kFloat), exact(stored, at::kDouble);
  Engine engine(model, true);
  const at::NoGradGuard no_grad;
  const auto evaluated = [](const at::Tensor& outputs) { return Result{outputs.to(at::kDouble), {}}; };
  merge("evaluation", compare_results(evaluated(engine.predict(batch)),
                                      evaluated(exact.forward(to_tensors(batch, config, at::kDouble, at::kCPU), {})),
                                      evaluated(model.forward(to_tensors(batch, config, at::kFloat, at::kCPU), {}))));
  return all;
}

Batch random_batch(const ModelConfig& config, Random& random, int graphs, int max_nodes, int pairs) {
  std::vector<Graph> list;
  for (int i = 0; i < graphs; ++i) {
    list.push_back(random_graph(config, random, max_nodes));
    if (config.lpe.kind != LpeKind::kNone) add_spectrum(list.back(), pairs);
  }
  return testing::batch_of(list);
}

TEST(Engine, RandomConfigurations) {
  int equal = 0, different = 0;
  std::string what;
  for (uint64_t seed = first_seed(); seed < first_seed() + 60; ++seed) {
    SCOPED_TRACE(fmt::format("SAN_TEST_SEED={}", seed));
    Random random(seed, 5);
    ModelConfig config = random_config(random);
    if (random.chance(0.5)) config.dropout = 0.2;
    if (random.chance(0.5)) config.lpe.dropout = 0.1;
    if (random.chance(0.3)) config.in_feat_dropout = 0.1;
    const int graphs = random.range(1, 6), nodes = random.range(1, 40), pairs = random.range(1, 12);
    const Comparison c = compare(config, random_batch(config, random, graphs, nodes, pairs), seed);
    equal += c.verdict == Verdict::kEqual ? 1 : 0;
    if (c.verdict != Verdict::kDifferent) continue;
    ++different;
    what += fmt::format(
        "SAN_TEST_SEED={}: {} {} lpe {} gamma {} d {}->{} heads {} k {} bias {} residual {} ln {} bn {} readout {} mlp "
        "{}\n{}",
        seed, enum_name(config.attention), enum_name(config.attention_norm), enum_name(config.lpe.kind), config.gamma,
        config.hidden_dim, config.out_dim, config.heads, config.lpe.dim, config.bias, config.residual,
        config.layer_norm, config.batch_norm, enum_name(config.readout), config.extra_mlp, c.what);
  }
  EXPECT_GE(equal, 48) << "of 60 cases";
  EXPECT_LE(different, 2) << what;  // units within rounding of 0
}

TEST(Engine, WidthsAndHeads) {
  struct Shape {
    int d, heads, k, lpe_heads;
  };
  uint64_t seed = 100;
  int again = 0;
  for (const Shape s : {Shape{56, 8, 8, 4},
                        {48, 8, 16, 4},
                        {30, 3, 3, 1},
                        {30, 10, 12, 4},
                        {80, 10, 16, 4},
                        {64, 4, 16, 4},
                        {36, 9, 12, 3},
                        {35, 7, 20, 5},
                        {24, 1, 4, 2},
                        {40, 5, 8, 1},
                        {304, 4, 16, 4}}) {
    for (const LpeKind kind : {LpeKind::kNode, LpeKind::kEdge, LpeKind::kBoth}) {
      SCOPED_TRACE(fmt::format("d {} heads {} k {} {}", s.d, s.heads, s.k, enum_name(kind)));
      ModelConfig config;
      config.hidden_dim = s.d;
      config.heads = s.heads;
      config.layers = 2;
      config.lpe.kind = kind;
      config.lpe.dim = s.k;
      config.lpe.heads = s.lpe_heads;
      config.lpe.ff_dim = kind == LpeKind::kEdge ? 70 : 300;  // in groups of hidden units, and in parts of the blocks
      config.dropout = 0.1;
      config.gamma = 0.1;
      config.node_tables = {5};
      config.edge_tables = {4};
      // A mistake shows with every seed, a unit within rounding of 0 does not.
      Comparison c;
      for (int attempt = 0; attempt < 3; ++attempt) {
        Random random(++seed);
        c = compare(config, random_batch(config, random, 3, 25, 10), seed);
        if (c.verdict == Verdict::kEqual) break;
        ++again;
      }
      EXPECT_EQ(c.verdict, Verdict::kEqual) << c.what;
    }
  }
  EXPECT_LE(again, 8);
}

TEST(Engine, LargeGraphAndManyEdgeTypes) {
  for (const bool many : {false, true}) {
    ModelConfig config;
    config.hidden_dim = 16;
    config.heads = 4;
    config.layers = 1;
    config.lpe.dim = 4;
    config.lpe.heads = 2;
    config.lpe.layers = 1;
    config.lpe.ff_dim = 16;
    config.gamma = 0.1;
    config.readout = Readout::kMean;
    config.node_tables = {3};
    config.edge_tables = many ? std::vector<int>{} : std::vector<int>{2};
    config.edge_values = many ? 2 : 0;
    Random random(5);
    Graph graph;
    graph.num_nodes = 1000;
    for (int a = 0; a < 1000; ++a) {
      for (int e = 0; e < 3; ++e) {
        const int b = random.range(0, 1000);
        graph.edges.push_back({a, b});
        graph.edges.push_back({b, a});
      }
    }
    graph.node_features.category_columns = 1;
    for (int i = 0; i < 1000; ++i) graph.node_features.categories.push_back(random.range(0, 3));
    graph.edge_features.category_columns = many ? 0 : 1;
    graph.edge_features.value_columns = many ? 2 : 0;
    for (size_t i = 0; i < graph.edges.size(); ++i) {
      if (!many) graph.edge_features.categories.push_back(random.range(0, 2));
      for (int v = 0; many && v < 2; ++v) graph.edge_features.values.push_back(static_cast<float>(random.normal()));
    }
    add_spectrum(graph, 6);
    const Comparison c = compare(config, testing::batch_of({graph}), 3);
    EXPECT_EQ(c.verdict, Verdict::kEqual) << c.what;
  }
}

// Real edges that are many and all alike take another way through the kernels.
TEST(Engine, StochasticBlockModels) {
  int again = 0;
  for (const int heads : {8, 10, 5}) {
    Comparison c;
    for (uint64_t seed = 1; seed <= 3; ++seed) {
      ModelConfig config;
      config.hidden_dim = heads == 10 ? 80 : heads == 8 ? 48 : 30;
      config.heads = heads;
      config.layers = 2;
      config.lpe.dim = 8;
      config.lpe.ff_dim = 16;
      config.lpe.layers = 1;
      config.gamma = 0.1;
      config.readout = Readout::kNode;
      config.outputs = 6;
      config.node_tables = {7};
      config.edge_tables = {2};
      ClusterOptions options;
      options.seed = seed;
      std::vector<Graph> graphs = {make_cluster(options, 0), make_cluster(options, 1)};
      graphs[1].edges.push_back({3, 3});  // a self loop is a real edge
      graphs[1].edge_features.categories.push_back(1);
      for (Graph& graph : graphs) add_spectrum(graph, 10);
      c = compare(config, testing::batch_of(graphs), seed);
      if (c.verdict == Verdict::kEqual) break;
      ++again;
    }
    EXPECT_EQ(c.verdict, Verdict::kEqual) << c.what;
  }
  EXPECT_LE(again, 3);
}

// Tokens are put into groups within some ten thousand at a time. Without dropout: the definition takes sequences in pieces, whose
// masks begin anew.
TEST(Engine, MoreTokensThanAreGroupedTogether) {
  ModelConfig config;
  config.hidden_dim = 8;
  config.heads = 2;
  config.layers = 1;
  config.attention = AttentionKind::kSparse;
  config.lpe.dim = 3;
  config.lpe.heads = 1;
  config.lpe.layers = 2;
  config.lpe.ff_dim = 260;
  config.lpe.dropout = 0;
  config.node_tables = {5};
  config.edge_tables = {4};
  Comparison c;
  for (uint64_t seed = 1; seed <= 8; ++seed) {  // millions of hidden units, of which some may be within rounding of 0
    Random random(seed);
    const Batch batch = random_batch(config, random, 280, 40, 10);
    ASSERT_GT(batch.num_nodes * batch.max_pairs, 40960 + 1000);
    c = compare(config, batch, seed);
    if (c.verdict == Verdict::kEqual) break;
  }
  EXPECT_EQ(c.verdict, Verdict::kEqual) << c.what;
}

TEST(Engine, SameBitsForAnyNumberOfThreads) {
  Random random(11);
  ModelConfig config;
  config.node_tables = {5};
  config.edge_tables = {4};
  config.layers = 3;
  config.dropout = 0.1;
  config.lpe.ff_dim = 600;
  const Batch batch = random_batch(config, random, 12, 40, 10);
  const StoredModel stored = random_stored(config, 2);
  const int before = at::get_num_threads();
  at::set_num_threads(1);
  const Result one = fused(stored, batch, 9);
  for (const int threads : {2, 3}) {
    at::set_num_threads(threads);
    const Result many = fused(stored, batch, 9);
    EXPECT_TRUE(many.outputs.equal(one.outputs));
    for (const auto& [name, tensor] : one.tensors) EXPECT_TRUE(many.tensors.at(name).equal(tensor)) << name;
  }
  at::set_num_threads(before);
}

TEST(Engine, AGraphsOutputDoesNotDependOnItsBatch) {
  Random random(12);
  ModelConfig config;
  config.node_tables = {5};
  config.edge_tables = {4};
  config.layers = 2;
  config.lpe.ff_dim = 64;
  std::vector<Graph> graphs;
  for (int i = 0; i < 9; ++i) {
    graphs.push_back(random_graph(config, random, 30));
    add_spectrum(graphs.back(), 10);
  }
  const StoredModel stored = random_stored(config, 2);
  SanModel model(stored, at::kFloat);
  Engine engine(model, true);
  const at::Tensor all = engine.predict(testing::batch_of(graphs));
  for (int64_t i = 0; i < 9; ++i) {
    EXPECT_TRUE(
        engine.predict(testing::batch_of({graphs[static_cast<size_t>(i)]})).select(0, 0).equal(all.select(0, i)))
        << i;
  }
}

// How often numbers are dropped, and that neighbours are dropped independently of each other.
TEST(Engine, DropoutIsFair) {
  const Dropout d = Dropout::make(0.1, 42, 17);
  constexpr int kSide = 1500;
  std::vector<int> dropped(kSide * kSide);
  int64_t total = 0, row_pairs = 0, column_pairs = 0;
  for (int r = 0; r < kSide; ++r) {
    for (int c = 0; c < kSide; ++c)
      total += dropped[r * kSide + c] = d.factor(static_cast<uint32_t>(r), static_cast<uint32_t>(c)) == 0;
  }
  for (int r = 0; r + 1 < kSide; ++r) {
    for (int c = 0; c + 1 < kSide; ++c) {
      row_pairs += dropped[r * kSide + c] & dropped[r * kSide + c + 1];
      column_pairs += dropped[r * kSide + c] & dropped[(r + 1) * kSide + c];
    }
  }
  const double n = kSide * kSide;
  // Six standard deviations of a binomial.
  EXPECT_NEAR(total / n, 0.1, 6 * std::sqrt(0.1 * 0.9 / n));
  EXPECT_NEAR(row_pairs / n, 0.01, 6 * std::sqrt(0.01 * 0.99 / n) + 2e-5);
  EXPECT_NEAR(column_pairs / n, 0.01, 6 * std::sqrt(0.01 * 0.99 / n) + 2e-5);
}

TEST(Engine, KeepsItsThreadsWhileTorchHasOne) {
  const int before = at::get_num_threads();
  at::set_num_threads(2);
  ModelConfig config;
  config.node_tables = {3};
  SanModel model(config, 1);
  const Engine engine(model, true);
  ASSERT_TRUE(engine.fused());
  {
    const TorchThreads one(1);
    EXPECT_EQ(at::get_num_threads(), 1);
    EXPECT_EQ(engine.threads(), 2);
  }
  EXPECT_EQ(at::get_num_threads(), 2);
  at::set_num_threads(before);
}

}  // namespace
}  // namespace san::nn
