// The properties that any SAN must have (section 8 of the specification), on random graphs and random
// configurations. Every test prints the seed of a failing case: run it again with SAN_TEST_SEED.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <numeric>
#include <optional>

#include "san/base/random.h"
#include "san/graph/generators.h"
#include "san/nn/san_model.h"
#include "san/nn/task.h"
#include "tests/nn/golden.h"
#include "tests/nn/random_models.h"

namespace san::nn {
namespace {

constexpr int kCases = 40;

using testing::add_spectrum;
using testing::first_seed;
using testing::pick;
using testing::random_config;
using testing::random_graph;

// Fresh weights with norm scales and running statistics moved off their trivial starts.
SanModel random_model(const ModelConfig& config, uint64_t seed) {
  SanModel model(config, seed, at::kDouble);
  Random random(seed, 99);
  const at::NoGradGuard no_grad;
  for (const SanModel::Entry& entry : model.tensors()) {
    if (entry.spec.init != Init::kOnes && entry.spec.init != Init::kZeros) continue;
    double* values = entry.tensor.data_ptr<double>();
    for (int64_t i = 0; i < entry.tensor.numel(); ++i) values[i] += 0.5 * random.uniform();
  }
  return model;
}

at::Tensor run(SanModel& model, const std::vector<Graph>& graphs) {
  const at::NoGradGuard no_grad;
  return model.forward(to_tensors(testing::batch_of(graphs), model.config(), at::kDouble, at::kCPU), {});
}

// Rounding of a sum over some hundred terms in another order, through a few layers: 1e-9 of the largest
// output is far above it and far below any real difference.
void expect_close(const at::Tensor& a, const at::Tensor& b) {
  ASSERT_EQ(a.sizes(), b.sizes());
  ASSERT_FALSE(a.isnan().any().item<bool>());
  EXPECT_LE((a - b).abs().max().item<double>(), 1e-9 * std::max(1.0, b.abs().max().item<double>()));
}

// Calls body(random, seed) for kCases seeds.
void for_random_cases(const std::function<void(Random&, uint64_t)>& body) {
  for (uint64_t seed = first_seed(); seed < first_seed() + kCases; ++seed) {
    SCOPED_TRACE(fmt::format("SAN_TEST_SEED={}", seed));
    Random random(seed);
    body(random, seed);
    if (::testing::Test::HasFailure()) return;
  }
}

Graph relabelled(const Graph& graph, const std::vector<int>& new_number, Random& random) {
  Graph out = graph;
  const auto move_rows = [&](auto& to, const auto& from, int columns) {
    for (int node = 0; node < graph.num_nodes; ++node) {
      std::copy_n(from.begin() + node * columns, columns, to.begin() + new_number[static_cast<size_t>(node)] * columns);
    }
  };
  move_rows(out.node_features.categories, graph.node_features.categories, graph.node_features.category_columns);
  move_rows(out.node_features.values, graph.node_features.values, graph.node_features.value_columns);
  if (graph.eigenpairs) move_rows(out.eigenpairs->vectors, graph.eigenpairs->vectors, graph.eigenpairs->count);
  std::vector<size_t> order(graph.edges.size());
  std::iota(order.begin(), order.end(), 0);
  random.shuffle(std::span<size_t>(order));
  for (size_t i = 0; i < order.size(); ++i) {
    const Edge& edge = graph.edges[order[i]];
    out.edges[i] = {new_number[static_cast<size_t>(edge.source)], new_number[static_cast<size_t>(edge.target)]};
    const auto copy_row = [&](auto& to, const auto& from, int columns) {
      std::copy_n(from.begin() + static_cast<ptrdiff_t>(order[i]) * columns, columns,
                  to.begin() + static_cast<ptrdiff_t>(i) * columns);
    };
    copy_row(out.edge_features.categories, graph.edge_features.categories, graph.edge_features.category_columns);
    copy_row(out.edge_features.values, graph.edge_features.values, graph.edge_features.value_columns);
  }
  return out;
}

TEST(Properties, RelabellingNodesPermutesNodeOutputsAndKeepsGraphOutputs) {
  for_random_cases([](Random& random, uint64_t seed) {
    const ModelConfig config = random_config(random);
    SanModel model = random_model(config, seed);
    Graph graph = random_graph(config, random);
    add_spectrum(graph, 6);
    std::vector<int> new_number(static_cast<size_t>(graph.num_nodes));
    std::iota(new_number.begin(), new_number.end(), 0);
    random.shuffle(std::span<int>(new_number));
    const at::Tensor before = run(model, {graph});
    at::Tensor after = run(model, {relabelled(graph, new_number, random)});
    if (config.readout == Readout::kNode) {
      const std::vector<int64_t> index(new_number.begin(), new_number.end());
      after = after.index_select(0, at::tensor(at::ArrayRef<int64_t>(index)));
    }
    expect_close(after, before);
  });
}

TEST(Properties, PaddingAndNeighboursInTheBatchNeverChangeAGraphsOutput) {
  for_random_cases([](Random& random, uint64_t seed) {
    const ModelConfig config = random_config(random);
    SanModel model = random_model(config, seed);
    std::vector<Graph> graphs;
    for (int i = random.range(2, 6); i > 0; --i) {
      graphs.push_back(random_graph(config, random));
      add_spectrum(graphs.back(), 8);
    }
    const at::Tensor together = run(model, graphs);
    int64_t row = 0;
    for (const Graph& graph : graphs) {
      const at::Tensor alone = run(model, {graph});
      expect_close(together.narrow(0, row, alone.size(0)), alone);
      row += alone.size(0);
    }
    EXPECT_EQ(row, together.size(0));
  });
}

Graph with_flipped_signs(Graph graph, const std::vector<bool>& flip) {
  Eigenpairs& pairs = *graph.eigenpairs;
  for (int node = 0; node < graph.num_nodes; ++node) {
    for (int i = 0; i < pairs.count; ++i) {
      if (flip[static_cast<size_t>(i)]) pairs.vectors[static_cast<size_t>(node * pairs.count + i)] *= -1;
    }
  }
  return graph;
}

TEST(Properties, EdgeLpeIsExactlySignInvariantAndNodeLpeIsNot) {
  int node_cases = 0;
  for_random_cases([&](Random& random, uint64_t seed) {
    ModelConfig config = random_config(random);
    if (config.lpe.kind == LpeKind::kNone) config.lpe.kind = LpeKind::kEdge;
    // Untrained LayerNorm of width 1 gives a constant: such an encoder cannot see anything.
    if (config.lpe.dim < 3) config.lpe.dim = 3 * config.lpe.heads;
    SanModel model = random_model(config, seed);
    Graph graph = random_graph(config, random);
    add_spectrum(graph, 6);
    std::vector<bool> flip;
    for (int i = 0; i < graph.eigenpairs->count; ++i) flip.push_back(random.chance(0.5));
    flip[0] = true;
    const at::Tensor before = run(model, {graph}), after = run(model, {with_flipped_signs(graph, flip)});
    if (config.lpe.kind == LpeKind::kEdge) {
      EXPECT_TRUE(before.equal(after));
    } else {
      node_cases += !before.equal(after);
    }
  });
  EXPECT_GT(node_cases, kCases / 8);
}

TEST(Properties, WithBothSignsNodeLpeDoesNotSeeThatAllSignsChange) {
  int seen = 0;
  for_random_cases([&](Random& random, uint64_t seed) {
    ModelConfig config = random_config(random);
    config.lpe.kind = LpeKind::kNode;
    config.lpe.both_signs = true;
    if (config.lpe.dim < 3) config.lpe.dim = 3 * config.lpe.heads;
    Graph graph = random_graph(config, random);
    add_spectrum(graph, 6);
    const Graph flipped =
        with_flipped_signs(graph, std::vector<bool>(static_cast<size_t>(graph.eigenpairs->count), true));
    SanModel model = random_model(config, seed);
    expect_close(run(model, {graph}), run(model, {flipped}));
    config.lpe.both_signs = false;
    SanModel plain = random_model(config, seed);
    seen += !run(plain, {graph}).allclose(run(plain, {flipped}), 1e-6, 1e-9);
  });
  EXPECT_GT(seen, kCases / 8);
}

TEST(Properties, GammaZeroEqualsSparseAttention) {
  for_random_cases([](Random& random, uint64_t seed) {
    ModelConfig config = random_config(random);
    config.attention = AttentionKind::kFull;
    config.gamma = 0;
    SanModel full = random_model(config, seed);
    config.attention = AttentionKind::kSparse;
    SanModel sparse = random_model(config, seed);
    {
      const at::NoGradGuard no_grad;
      for (const SanModel::Entry& to : sparse.tensors()) {
        for (const SanModel::Entry& from : full.tensors()) {
          if (to.spec.name == from.spec.name) to.tensor.copy_(from.tensor);
        }
      }
    }
    std::vector<Graph> graphs;
    for (int i = 0; i < 3; ++i) {
      graphs.push_back(random_graph(config, random));
      add_spectrum(graphs.back(), 6);
    }
    expect_close(run(full, graphs), run(sparse, graphs));
  });
}

Graph undirected(int nodes, const std::vector<std::pair<int, int>>& edges) {
  Graph graph;
  graph.num_nodes = nodes;
  for (const auto& [a, b] : edges) {
    graph.edges.push_back({a, b});
    graph.edges.push_back({b, a});
  }
  return graph;
}

TEST(Properties, SanTellsApartGraphsThat1WlCannot) {
  const Graph hexagon = make_cycle(6), triangles = disjoint_union({make_cycle(3), make_cycle(3)});
  // Two fused six-rings against two five-rings joined by a bond: both 10 atoms, 11 bonds.
  const Graph decalin =
      undirected(10, {{0, 1}, {1, 2}, {2, 3}, {3, 4}, {4, 5}, {5, 0}, {4, 6}, {6, 7}, {7, 8}, {8, 9}, {9, 5}});
  const Graph bicyclopentyl =
      undirected(10, {{0, 1}, {1, 2}, {2, 3}, {3, 4}, {4, 0}, {5, 6}, {6, 7}, {7, 8}, {8, 9}, {9, 5}, {0, 5}});
  // The degree as a feature: 1-WL finds it by itself, so the pair stays alike to it. Edge codes change
  // attention weights, not values: over nodes that are all equal a weighted mean cannot show them, over nodes
  // of two kinds it can.
  const auto with_degrees = [](Graph graph) {
    graph.node_features = {1, 0, std::vector<int32_t>(static_cast<size_t>(graph.num_nodes), 0), {}};
    for (const Edge& edge : graph.edges) ++graph.node_features.categories[static_cast<size_t>(edge.source)];
    return graph;
  };
  struct Case {
    Graph first, second;
    bool two_kinds_of_nodes;
  };
  const Case cases[] = {{with_degrees(hexagon), with_degrees(triangles), false},
                        {with_degrees(decalin), with_degrees(bicyclopentyl), true}};
  for (uint64_t seed = first_seed(); seed < first_seed() + 5; ++seed) {
    for (Case c : cases) {
      add_spectrum(c.first, 10);
      add_spectrum(c.second, 10);
      for (const LpeKind kind : {LpeKind::kNone, LpeKind::kNode, LpeKind::kEdge, LpeKind::kBoth}) {
        for (const AttentionKind attention : {AttentionKind::kSparse, AttentionKind::kFull}) {
          SCOPED_TRACE(fmt::format("SAN_TEST_SEED={}, {} LPE, {} attention, {} nodes", seed, enum_name(kind),
                                   enum_name(attention), c.first.num_nodes));
          ModelConfig config;
          config.node_tables = {4};
          config.lpe.kind = kind;
          config.lpe.ff_dim = 32;
          config.attention = attention;
          config.gamma = 0.1;
          config.layers = 3;
          config.hidden_dim = 32;
          SanModel model(config, seed, at::kDouble);
          const double difference = (run(model, {c.first}) - run(model, {c.second})).abs().max().item<double>();
          if (kind == LpeKind::kNone && attention == AttentionKind::kSparse) {
            EXPECT_LT(difference, 1e-12);
          } else if (config.lpe.nodes() || (kind == LpeKind::kEdge && c.two_kinds_of_nodes)) {
            EXPECT_GT(difference, 1e-6);
          }
        }
      }
    }
  }
}

// Section 4 once more, as loops over pairs with everything spelled out, against the model's attention.
TEST(Properties, AttentionIsTheSpecifiedSumOverPairs) {
  for_random_cases([](Random& random, uint64_t seed) {
    const ModelConfig config = random_config(random);
    SanModel model = random_model(config, seed);
    Graph graph = random_graph(config, random, 8);
    add_spectrum(graph, 4);
    const BatchTensors batch = to_tensors(testing::batch_of({graph}), config, at::kDouble, at::kCPU);
    std::map<std::string, at::Tensor> seen;
    SanModel::Options options;
    options.observe = [&](const std::string& name, const at::Tensor& t) { seen[name] = t.detach().contiguous(); };
    model.forward(batch, options);

    const auto map = [&](const at::Tensor& x, const std::string& name) {
      std::map<std::string, at::Tensor> tensors;
      for (const SanModel::Entry& entry : model.tensors()) tensors[entry.spec.name] = entry.tensor.detach();
      at::Tensor y = x.matmul(tensors.at("layers.0." + name + ".weight").t());
      if (config.bias) y = y + tensors.at("layers.0." + name + ".bias");
      return y.contiguous();
    };
    const at::Tensor h = seen.at("h_in"), v = map(h, "v");
    const int64_t width = v.size(1), head_width = width / config.heads, nodes = graph.num_nodes;
    std::map<std::string, at::Tensor> q, k;
    for (const std::string kind : {"1", "2"}) {
      if (kind == "2" && !config.full()) continue;
      q[kind] = map(h, "q" + kind);
      k[kind] = map(h, "k" + kind);
    }
    struct Pair {
      int64_t source, target;
      bool real;
      at::Tensor e;  // projected, [width]
    };
    std::vector<Pair> pairs;
    const auto is_real = [&](int64_t a, int64_t b) {
      return std::any_of(graph.edges.begin(), graph.edges.end(),
                         [&](const Edge& edge) { return edge.source == a && edge.target == b; });
    };
    if (!graph.edges.empty()) {
      const at::Tensor projected = map(seen.at("e_real"), "e1");
      for (size_t i = 0; i < graph.edges.size(); ++i) {
        pairs.push_back({graph.edges[i].source, graph.edges[i].target, true, projected[static_cast<int64_t>(i)]});
      }
    }
    if (config.full() && seen.contains("e_added")) {
      const at::Tensor projected = map(seen.at("e_added"), "e2");
      int64_t row = 0;
      for (int64_t a = 0; a < nodes; ++a) {
        for (int64_t b = 0; b < nodes; ++b) {
          if (a != b && !is_real(a, b)) pairs.push_back({a, b, false, projected[projected.size(0) == 1 ? 0 : row++]});
        }
      }
    }
    at::Tensor expected = at::zeros({nodes, width}, at::kDouble);
    for (int64_t i = 0; i < nodes; ++i) {
      for (int64_t head = 0; head < config.heads; ++head) {
        double total[2] = {0, 0};
        std::vector<double> sum[2] = {std::vector<double>(static_cast<size_t>(head_width), 0.0),
                                      std::vector<double>(static_cast<size_t>(head_width), 0.0)};
        for (const Pair& pair : pairs) {
          if (pair.target != i) continue;
          const std::string kind = pair.real ? "1" : "2";
          double score = 0;
          for (int64_t c = head * head_width; c < (head + 1) * head_width; ++c) {
            score += q[kind][i][c].item<double>() * k[kind][pair.source][c].item<double>() * pair.e[c].item<double>();
          }
          const double weight = std::exp(std::clamp(score / std::sqrt(static_cast<double>(head_width)), -5.0, 5.0));
          total[pair.real ? 0 : 1] += weight;
          for (int64_t c = 0; c < head_width; ++c) {
            sum[pair.real ? 0 : 1][static_cast<size_t>(c)] +=
                weight * v[pair.source][head * head_width + c].item<double>();
          }
        }
        const double share[2] = {config.full() ? 1 / (1 + config.gamma) : 1.0, config.gamma / (1 + config.gamma)};
        for (int64_t c = 0; c < head_width; ++c) {
          const double real = sum[0][static_cast<size_t>(c)], added = sum[1][static_cast<size_t>(c)];
          double out = 0;
          if (config.attention_norm == AttentionNorm::kJoint) {
            out = (share[0] * real + share[1] * added) / (share[0] * total[0] + share[1] * total[1] + 1e-6);
          } else if (total[0] > 0 && total[1] > 0) {
            out = share[0] * real / total[0] + share[1] * added / total[1];
          } else if (total[0] + total[1] > 0) {
            out = (real + added) / (total[0] + total[1]);
          }
          expected[i][head * head_width + c] = out;
        }
      }
    }
    expect_close(seen.at("attention.0"), expected);
  });
}

TEST(Properties, TrainingStaysFiniteOnAwkwardBatches) {
  for_random_cases([](Random& random, uint64_t seed) {
    ModelConfig config = random_config(random);
    config.dropout = config.in_feat_dropout = config.lpe.dropout = 0.2;
    SanModel model = random_model(config, seed);
    std::vector<Graph> graphs;
    for (int i = random.range(1, 4); i > 0; --i) {
      // Single nodes and graphs without edges above all.
      graphs.push_back(random_graph(config, random, random.range(1, 4)));
      add_spectrum(graphs.back(), 6);
    }
    SanModel::Options options;
    options.training = true;
    const at::Tensor outputs =
        model.forward(to_tensors(testing::batch_of(graphs), config, at::kDouble, at::kCPU), options);
    outputs.square().sum().backward();
    ASSERT_TRUE(outputs.isfinite().all().item<bool>());
    for (const SanModel::Entry& entry : model.tensors()) {
      ASSERT_TRUE(entry.tensor.isfinite().all().item<bool>()) << entry.spec.name;
      if (entry.tensor.grad().defined()) {
        ASSERT_TRUE(entry.tensor.grad().isfinite().all().item<bool>()) << entry.spec.name;
      }
    }
  });
}

TEST(SanModel, StartsFromTheSameNumbersInFloatAndDoubleAndForEveryRun) {
  ModelConfig config;
  config.lpe.ff_dim = 16;
  const SanModel a(config, 5, at::kDouble), b(config, 5, at::kDouble), other(config, 6, at::kDouble),
      f(config, 5, at::kFloat);
  bool differs = false;
  for (size_t i = 0; i < a.tensors().size(); ++i) {
    EXPECT_TRUE(a.tensors()[i].tensor.equal(b.tensors()[i].tensor));
    EXPECT_TRUE(a.tensors()[i].tensor.to(at::kFloat).equal(f.tensors()[i].tensor));
    differs = differs || !a.tensors()[i].tensor.equal(other.tensors()[i].tensor);
  }
  EXPECT_TRUE(differs);
}

TEST(SanModel, CopiedLpeLayersStartEqualAndIndependentOnesDoNot) {
  for (const LpeInit init : {LpeInit::kCopied, LpeInit::kIndependent}) {
    ModelConfig config;
    config.lpe.layers = 3;
    config.lpe.ff_dim = 16;
    config.lpe.init = init;
    const SanModel model(config, 1);
    std::map<std::string, at::Tensor> tensors;
    for (const auto& entry : model.tensors()) tensors[entry.spec.name] = entry.tensor;
    EXPECT_EQ(tensors.at("lpe.layers.0.ff1.weight").equal(tensors.at("lpe.layers.2.ff1.weight")),
              init == LpeInit::kCopied);
  }
}

TEST(SanModel, WeightsSurviveTheRoundTripThroughAModelFolder) {
  testing::TemporaryFolder folder;
  StoredModel stored;
  stored.description.model.lpe.ff_dim = 16;
  const SanModel model(stored.description.model, 3);
  stored.weights = model.weights();
  write_model(folder.path() / "model", stored);
  const StoredModel again = read_model(folder.path() / "model");
  EXPECT_EQ(to_json(again.description), to_json(stored.description));
  const SanModel loaded(again);
  for (size_t i = 0; i < model.tensors().size(); ++i) {
    EXPECT_TRUE(model.tensors()[i].tensor.equal(loaded.tensors()[i].tensor)) << model.tensors()[i].spec.name;
  }
}

TEST(TaskLoss, IgnoresMissingLabelsAndScalesRegression) {
  const double nan = std::nan("");
  TaskConfig task;
  task.scale = {2.0, 4.0};
  task.shift = {1.0, 0.0};
  const at::Tensor outputs = at::tensor({1.0, 2.0, 3.0, 4.0}).view({2, 2});
  const at::Tensor labels = at::tensor({3.0, nan, 5.0, 8.0}).view({2, 2});
  // Standardised labels: 1, -, 2, 2 -> |differences| 0, -, 1, 2.
  EXPECT_DOUBLE_EQ(task_loss(task, outputs, labels).item<double>(), 1.0);
  task.loss = Loss::kMse;
  EXPECT_DOUBLE_EQ(task_loss(task, outputs, labels).item<double>(), 5.0 / 3.0);
  EXPECT_DOUBLE_EQ(task_loss(task, outputs, at::full({2, 2}, nan)).item<double>(), 0.0);
  EXPECT_TRUE(task_predictions(task, outputs).equal(at::tensor({3.0, 8.0, 7.0, 16.0}).view({2, 2})));
}

TEST(TaskLoss, WeightsClassesByTheirRarityInTheBatch) {
  TaskConfig task;
  task.kind = TaskKind::kNodeClassification;
  task.loss = Loss::kWeightedCrossEntropy;
  const at::Tensor outputs = at::tensor({0.0, 1.0, 2.0, 0.5, -1.0, 0.0, 1.0, 1.0, 1.0, 0.0, 0.0, 3.0}).view({4, 3});
  const at::Tensor labels = at::tensor({0.0, 0.0, 2.0, 0.0}).view({4, 1});
  // n = (3, 0, 1), V = 4: weights 1/4, 0, 3/4.
  const at::Tensor logp = outputs.log_softmax(1);
  const double expected = -(0.25 * (logp[0][0] + logp[1][0] + logp[3][0]) + 0.75 * logp[2][2]).item<double>() / 1.5;
  EXPECT_NEAR(task_loss(task, outputs, labels).item<double>(), expected, 1e-12);
  EXPECT_EQ(task_loss(task, outputs, at::zeros({4, 1}, at::kDouble)).item<double>(), 0.0);  // one class only
  EXPECT_NE(testing::error_of([&] {
              task_loss(task, outputs, at::full({4, 1}, 3.0, at::kDouble));
            }).find("outside 0..2"),
            std::string::npos);
}

TEST(TaskLoss, BinaryCrossEntropyAgreesWithThePublishedFormAwayFromSaturation) {
  TaskConfig task;
  task.kind = TaskKind::kBinary;
  task.loss = Loss::kCrossEntropy;
  const at::Tensor outputs = at::tensor({-3.0, 0.0, 2.0, 5.0}).view({4, 1});
  const at::Tensor labels = at::tensor({0.0, 1.0, std::nan(""), 0.0}).view({4, 1});
  const double exact = task_loss(task, outputs, labels).item<double>();
  task.loss = Loss::kSigmoidBce;
  EXPECT_NEAR(task_loss(task, outputs, labels).item<double>(), exact, 1e-12);
  // Where the sigmoid rounds to 1, the published loss is 100; the exact one is the output itself.
  const at::Tensor huge = at::full({1, 1}, 60.0, at::kDouble), zero = at::zeros({1, 1}, at::kDouble);
  EXPECT_DOUBLE_EQ(task_loss(task, huge, zero).item<double>(), 100.0);
  task.loss = Loss::kCrossEntropy;
  EXPECT_DOUBLE_EQ(task_loss(task, huge, zero).item<double>(), 60.0);
}

}  // namespace
}  // namespace san::nn
