// Predictor without libtorch: the same bits whatever the batch size and the number of threads, clear errors for hostile
// folders, graphs and molecules. What the numbers must be is tests/nn/predictor_test.cc.
#include "san/model/predictor.h"

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "san/base/file.h"
#include "san/model/task.h"
#include "tests/model/tiny_model.h"
#include "tests/nn/random_models.h"
#include "tests/testing.h"

namespace san {
namespace {

using testing::describe;
using testing::error_of;
using testing::first_seed;
using testing::random_config;
using testing::random_graph;
using testing::random_model;
using testing::small_molecules;
using testing::TemporaryFolder;

std::vector<Graph> random_graphs(const ModelConfig& config, Random& random, int count, int max_nodes = 24) {
  std::vector<Graph> graphs;
  for (int i = 0; i < count; ++i) graphs.push_back(random_graph(config, random, max_nodes));
  return graphs;
}

TEST(Predictor, GivesTheSameBitsForAnyBatchSizeAndThreadCount) {
  for (uint64_t seed = first_seed(); seed < first_seed() + 25; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    const ModelConfig config = random_config(random);
    const Predictor predictor(random_model(describe(config), seed));
    const std::vector<Graph> graphs = random_graphs(config, random, 23);
    PredictOptions one;
    one.batch_size = 1;
    const Predictions expected = predictor.predict(graphs, one);
    const Predictions embedded = predictor.embed(graphs, false, one), nodes = predictor.embed(graphs, true, one);
    ASSERT_EQ(expected.columns, config.outputs);
    ASSERT_EQ(embedded.rows, expected.rows);
    ASSERT_EQ(nodes.columns, predictor.embedding_width());
    for (const double value : expected.values) ASSERT_TRUE(std::isfinite(value));
    for (const int batch_size : {0, 2, 7, 100}) {
      for (const int threads : {1, 3, 6}) {
        PredictOptions options;
        options.batch_size = batch_size;
        options.threads = threads;
        EXPECT_EQ(predictor.predict(graphs, options).values, expected.values) << batch_size << " " << threads;
        EXPECT_EQ(predictor.embed(graphs, false, options).values, embedded.values);
        EXPECT_EQ(predictor.embed(graphs, true, options).values, nodes.values);
      }
    }
    EXPECT_EQ(predictor.predict(graphs[5], {}).values,
              std::vector<double>(expected.values.begin() + expected.row_offsets[5] * expected.columns,
                                  expected.values.begin() + expected.row_offsets[6] * expected.columns));
  }
}

// SAN_TEST_SECONDS=60 runs it for a minute (the acceptance under the thread sanitizer).
TEST(Predictor, IsSharedByManyThreads) {
  const char* text = std::getenv("SAN_TEST_SECONDS");
  const std::chrono::duration<double> limit(text == nullptr ? 1.0 : std::strtod(text, nullptr));
  Random random(5);
  ModelConfig config;
  config.layers = 2;
  config.lpe.ff_dim = 64;
  config.node_tables = {6};
  config.edge_tables = {3};
  const Predictor predictor(random_model(describe(config), 5));
  const std::vector<Graph> graphs = random_graphs(config, random, 16);
  const Predictions expected = predictor.predict(graphs);
  const Predictions embedded = predictor.embed(graphs, true);
  const auto start = std::chrono::steady_clock::now();
  std::atomic<int64_t> calls{0}, wrong{0};
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 8; ++t) {
      threads.emplace_back([&, t] {
        for (int i = 0; std::chrono::steady_clock::now() - start < limit; ++i, ++calls) {
          PredictOptions options;
          options.batch_size = (t + i) % 5;
          options.threads = i % 16 == 0 ? 2 : 1;
          const bool same = i % 2 == 0 ? predictor.predict(graphs, options).values == expected.values
                                       : predictor.embed(graphs, true, options).values == embedded.values;
          wrong += same ? 0 : 1;
        }
      });
    }
  }
  EXPECT_EQ(wrong, 0);
  EXPECT_GE(calls, 8);
  RecordProperty("calls", static_cast<int>(calls));
}

TEST(Predictor, MakesOutputsReadable) {
  ModelDescription description = small_molecules();
  Random random(3);
  const std::vector<Graph> graphs = random_graphs(description.model, random, 5);
  PredictOptions raw;
  raw.raw = true;
  const Predictor regression(random_model(description, 1));
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(regression.predict(graphs).values[static_cast<size_t>(i)],
              2 * regression.predict(graphs, raw).values[static_cast<size_t>(i)] + 1);
  }
  EXPECT_EQ(regression.output_names(), std::vector<std::string>{"logP"});
  EXPECT_EQ(regression.task(), "regression");

  description.task = {};
  description.model.outputs = 3;
  description.task.kind = TaskKind::kMulticlass;
  description.task.loss = Loss::kCrossEntropy;
  const Predictions classes = Predictor(random_model(description, 1)).predict(graphs);
  for (int64_t i = 0; i < 5; ++i) EXPECT_NEAR(classes.row(i)[0] + classes.row(i)[1] + classes.row(i)[2], 1, 1e-12);

  description.task.kind = TaskKind::kBinary;
  const Predictor binary(random_model(description, 1));
  EXPECT_NEAR(binary.predict(graphs).values[4], 1 / (1 + std::exp(-binary.predict(graphs, raw).values[4])), 1e-15);
}

TEST(Predictor, TakesMolecules) {
  const Predictor predictor(random_model(small_molecules(), 2));
  const std::vector<std::string> smiles = {"CCO", "not_a_molecule", "c1ccccc1", "[Xe]"};
  if (!predictor.takes_smiles()) {
    EXPECT_NE(error_of([&] { predictor.predict_smiles("CCO"); }).find("RDKit"), std::string::npos);
    GTEST_SKIP() << "built without RDKit";
  }
  std::vector<std::string> errors;
  const Predictions all = predictor.predict_smiles(smiles, {}, &errors);
  ASSERT_EQ(all.rows, 4);
  EXPECT_TRUE(errors[0].empty() && errors[2].empty());
  EXPECT_NE(errors[1].find("not_a_molecule"), std::string::npos) << errors[1];
  EXPECT_FALSE(errors[3].empty());
  EXPECT_TRUE(std::isnan(all.values[1]) && std::isnan(all.values[3]));
  EXPECT_EQ(all.values[0], predictor.predict_smiles("CCO").values[0]);
  EXPECT_EQ(all.values[2], predictor.predict_smiles("c1ccccc1").values[0]);
  EXPECT_NE(error_of([&] { predictor.predict_smiles(smiles); }).find("not_a_molecule"), std::string::npos);
  PredictOptions many;
  many.threads = 3;
  EXPECT_NE(error_of([&] { predictor.predict_smiles(smiles, many); }).find("not_a_molecule"), std::string::npos);
  std::string error;
  const auto graph = predictor.graph_of_smiles("CCO", error);
  ASSERT_TRUE(graph);
  EXPECT_EQ(predictor.predict(*graph).values[0], all.values[0]);
}

TEST(Predictor, RefusesGraphsThatItCannotRead) {
  const Predictor predictor(random_model(small_molecules(), 2));
  Graph graph;
  graph.id = "g";
  graph.num_nodes = 2;
  graph.edges = {{0, 1}, {1, 0}};
  graph.node_features = {1, 0, {3, 4}, {}};
  graph.edge_features = {1, 0, {1, 1}, {}};
  EXPECT_EQ(predictor.predict(graph).rows, 1);
  Graph bad = graph;
  bad.edges[0].target = 2;
  EXPECT_FALSE(error_of([&] { predictor.predict(bad); }).empty());
  bad = graph;
  bad.node_features.categories[1] = 28;
  EXPECT_NE(error_of([&] { predictor.predict(bad); }).find("category 28"), std::string::npos);
  bad = graph;
  bad.node_features.categories.pop_back();
  EXPECT_FALSE(error_of([&] { predictor.predict(bad); }).empty());
  bad = graph;
  bad.eigenpairs = Eigenpairs{3, {0, 1, 2}, {0, 1}};
  EXPECT_FALSE(error_of([&] { predictor.predict(bad); }).empty());
  bad.eigenpairs = Eigenpairs{};
  EXPECT_FALSE(error_of([&] { predictor.predict(bad); }).empty());
  EXPECT_EQ(predictor.predict(std::span<const Graph>{}).rows, 0);
}

class HostileFolder : public ::testing::Test {
 protected:
  void SetUp() override {
    model_ = random_model(small_molecules(), 7);
    write_model(folder_.path(), model_);
    ASSERT_EQ(Predictor::load(folder_.path().string()).outputs(), 1);
  }
  std::string load_error() {
    return error_of([&] { Predictor::load(folder_.path().string()); });
  }
  void rewrite_weights() { write_safetensors(folder_.path() / "model.safetensors", model_.weights); }
  void replace_in_config(const std::string& from, const std::string& to) {
    std::string text = read_file(folder_.path() / "config.json", 1 << 20);
    const size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    write_file(folder_.path() / "config.json", text.replace(at, from.size(), to));
  }

  TemporaryFolder folder_;
  StoredModel model_;
};

TEST_F(HostileFolder, WrongShape) {
  model_.weights.tensors["layers.0.q1.weight"] = make_tensor({8, 32}, std::vector<float>(256, 0.1F));
  rewrite_weights();
  const std::string error = load_error();
  EXPECT_NE(error.find("layers.0.q1.weight"), std::string::npos) << error;
  EXPECT_NE(error.find("[16, 16]"), std::string::npos) << error;
}

TEST_F(HostileFolder, MissingAndUnknownTensors) {
  auto node = model_.weights.tensors.extract("layers.1.ffn1.bias");
  rewrite_weights();
  EXPECT_NE(load_error().find("'layers.1.ffn1.bias' is missing"), std::string::npos);
  node.key() = "layers.1.surprise";
  model_.weights.tensors[std::string("layers.1.ffn1.bias")] = node.mapped();
  model_.weights.tensors.insert(std::move(node));
  rewrite_weights();
  EXPECT_NE(load_error().find("layers.1.surprise"), std::string::npos);
  std::filesystem::remove(folder_.path() / "model.safetensors");
  EXPECT_NE(load_error().find("model.safetensors"), std::string::npos);
}

TEST_F(HostileFolder, NumbersThatAreNotFinite) {
  for (const float poison : {std::nanf(""), INFINITY, -INFINITY}) {
    StoredModel bad = model_;
    std::memcpy(bad.weights.tensors.at("head.1.weight").data.data() + 8, &poison, sizeof poison);
    write_safetensors(folder_.path() / "model.safetensors", bad.weights);
    EXPECT_NE(load_error().find("'head.1.weight' holds a number that is not finite"), std::string::npos);
    EXPECT_NE(error_of([&] { Predictor{bad}; }).find("not finite"), std::string::npos);
  }
}

TEST_F(HostileFolder, ConfigurationsThatAskForTooMuch) {
  const std::string good = read_file(folder_.path() / "config.json", 1 << 20);
  // 10^12 parameters: refused by counting, before anything of that size is asked for.
  replace_in_config("\"hidden_dim\": 16", "\"hidden_dim\": 65536");
  replace_in_config("\"layers\": 2", "\"layers\": 100");
  EXPECT_NE(load_error().find("parameters"), std::string::npos);
  // Allowed in number, but not what the file holds.
  write_file(folder_.path() / "config.json", good);
  replace_in_config("\"hidden_dim\": 16", "\"hidden_dim\": 8192");
  EXPECT_NE(load_error().find("shape"), std::string::npos);
  for (const char* value : {"-16", "0", "1e3", "\"16\"", "17", "99999999999999999999"}) {
    write_file(folder_.path() / "config.json", good);
    replace_in_config("\"hidden_dim\": 16", std::string("\"hidden_dim\": ") + value);
    EXPECT_NE(load_error().find("config.json"), std::string::npos) << value;
  }
  write_file(folder_.path() / "config.json", std::string(100000, '['));
  EXPECT_NE(load_error().find("config.json"), std::string::npos);
}

TEST(Task, LossesIgnoreMissingLabelsAndRefuseWrongOnes) {
  TaskConfig task;
  const std::vector<double> outputs = {1, 2, 3, 4};
  EXPECT_EQ(output_loss(task, outputs, 2, std::vector<double>{0, std::nan(""), 1, 4}), 1.0);
  EXPECT_EQ(output_loss(task, outputs, 2, std::vector<double>(4, std::nan(""))), 0.0);
  EXPECT_FALSE(error_of([&] { output_loss(task, outputs, 2, std::vector<double>{0, 1}); }).empty());
  task.kind = TaskKind::kMulticlass;
  task.loss = Loss::kCrossEntropy;
  EXPECT_NEAR(output_loss(task, outputs, 2, std::vector<double>{1, 1}), std::log1p(std::exp(-1.0)), 1e-15);
  EXPECT_FALSE(error_of([&] { output_loss(task, outputs, 2, std::vector<double>{0, 2}); }).empty());
}

}  // namespace
}  // namespace san
