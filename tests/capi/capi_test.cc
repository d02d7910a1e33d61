// The C API as a C program sees it: the same numbers as Predictor, NULL and nonsense refused, errors per thread.
#include <cmath>
#include <cstdio>
#include <thread>

#include "capi/san.h"
#include "san/model/predictor.h"
#include "tests/model/tiny_model.h"
#include "tests/testing.h"

namespace san {
namespace {

class CApi : public ::testing::Test {
 protected:
  void SetUp() override {
    write_model(folder_.path(), testing::tiny_model());
    model_ = san_load(folder_.path().c_str());
    ASSERT_NE(model_, nullptr) << san_last_error();
    graph_.num_nodes = 3;
    graph_.num_edges = 6;
    graph_.edges = kEdges;
    graph_.node_category_columns = 1;
    graph_.node_categories = kCategories;
  }
  void TearDown() override { san_free(model_); }

  static constexpr int32_t kEdges[] = {0, 1, 1, 0, 1, 2, 2, 1, 2, 0, 0, 2};
  static constexpr int32_t kCategories[] = {0, 1, 2};
  testing::TemporaryFolder folder_;
  san_model* model_ = nullptr;
  san_graph graph_ = SAN_GRAPH_INIT;
};

TEST_F(CApi, GivesWhatPredictorGives) {
  const Predictor predictor = Predictor::load(folder_.path().string());
  Graph graph;
  graph.num_nodes = 3;
  graph.edges = {{0, 1}, {1, 0}, {1, 2}, {2, 1}, {2, 0}, {0, 2}};
  graph.node_features = {1, 0, {0, 1, 2}, {}};
  EXPECT_STREQ(san_version(), SAN_VERSION);
  EXPECT_STREQ(san_task(model_), "regression");
  EXPECT_EQ(san_outputs(model_), 1);
  EXPECT_STREQ(san_output_name(model_, 0), "logP");
  EXPECT_EQ(san_output_name(model_, 1), nullptr);
  EXPECT_EQ(san_is_node_task(model_), 0);
  const san_graph two[] = {graph_, graph_};
  double values[2] = {};
  ASSERT_EQ(san_predict_graphs(model_, two, 2, 0, 1, values, 2), 2) << san_last_error();
  EXPECT_EQ(values[0], predictor.predict(graph).values[0]);
  EXPECT_EQ(values[1], values[0]);
  ASSERT_EQ(san_predict_graphs(model_, two, 1, SAN_RAW, 0, values, 2), 1);
  EXPECT_EQ(values[1], 2 * values[0] + 1);

  const int width = san_embedding_width(model_);
  std::vector<double> embeddings(static_cast<size_t>(3 * width));
  ASSERT_EQ(san_embed_graphs(model_, &graph_, 1, SAN_NODES, 1, embeddings.data(), 3 * width), 3);
  EXPECT_EQ(embeddings, predictor.embed(std::span(&graph, 1), true).values);
  EXPECT_EQ(san_predict_graphs(model_, nullptr, 0, 0, 1, nullptr, 0), 0);
}

TEST_F(CApi, TakesMolecules) {
  if (san_takes_smiles(model_) == 0) GTEST_SKIP() << "built without RDKit";
  const char* smiles[] = {"CCO", "no_molecule", "c1ccccc1", nullptr};
  double values[4];
  ASSERT_EQ(san_predict_smiles(model_, smiles, 4, 0, 2, values, 4), 4) << san_last_error();
  EXPECT_TRUE(std::isfinite(values[0]) && std::isnan(values[1]) && std::isfinite(values[2]) && std::isnan(values[3]));
  EXPECT_NE(std::string(san_last_error()).find("no_molecule"), std::string::npos);
  std::vector<double> embeddings(static_cast<size_t>(3 * san_embedding_width(model_)));
  EXPECT_EQ(san_embed_smiles(model_, smiles, 3, 0, 1, embeddings.data(), static_cast<int64_t>(embeddings.size())), 3);
  EXPECT_EQ(san_predict_smiles(model_, smiles, 4, 0, 1, values, 3), -1);
  EXPECT_EQ(san_embed_smiles(model_, smiles, 1, SAN_NODES, 1, embeddings.data(), 100), -1);
}

TEST_F(CApi, RefusesNonsense) {
  double value = 0;
  const auto expect_error = [&](const san_graph& graph, const char* what) {
    EXPECT_EQ(san_predict_graphs(model_, &graph, 1, 0, 1, &value, 1), -1);
    EXPECT_NE(std::string(san_last_error()).find(what), std::string::npos) << san_last_error();
  };
  EXPECT_EQ(san_load("/no/such/folder"), nullptr);
  EXPECT_NE(std::string(san_last_error()).find("/no/such/folder"), std::string::npos);
  EXPECT_EQ(san_load(nullptr), nullptr);
  san_free(nullptr);
  EXPECT_EQ(san_outputs(nullptr), 0);
  EXPECT_EQ(san_predict_graphs(nullptr, &graph_, 1, 0, 1, &value, 1), -1);
  EXPECT_EQ(san_predict_graphs(model_, nullptr, 1, 0, 1, &value, 1), -1);
  EXPECT_EQ(san_predict_graphs(model_, &graph_, -1, 0, 1, &value, 1), -1);
  EXPECT_EQ(san_predict_graphs(model_, &graph_, 1, 64, 1, &value, 1), -1);
  EXPECT_EQ(san_predict_graphs(model_, &graph_, 1, 0, -1, &value, 1), -1);
  EXPECT_EQ(san_predict_graphs(model_, &graph_, 1, 0, 1, &value, 0), -1);
  san_graph bad = graph_;
  bad.size = 0;
  expect_error(bad, "SAN_GRAPH_INIT");
  bad = graph_;
  bad.edges = nullptr;
  expect_error(bad, "edges is NULL");
  bad = graph_;
  bad.num_nodes = 2;
  expect_error(bad, "graph");
  bad = graph_;
  bad.num_nodes = -1;
  expect_error(bad, "num_nodes");
  bad = graph_;
  bad.num_edges = INT64_MAX;
  expect_error(bad, "num_edges");
  bad = graph_;
  bad.node_category_columns = 1 << 30;
  expect_error(bad, "columns");
  bad = graph_;
  bad.num_pairs = 2;
  expect_error(bad, "eigenvalues");
}

TEST_F(CApi, KeepsErrorsPerThread) {
  EXPECT_EQ(san_load("/nowhere/one"), nullptr);
  std::string other;
  std::thread([&] {
    other = san_last_error();
    EXPECT_EQ(san_load("/nowhere/two"), nullptr);
    other += san_last_error();
  }).join();
  EXPECT_NE(other.find("/nowhere/two"), std::string::npos);
  EXPECT_EQ(other.find("/nowhere/one"), std::string::npos);
  EXPECT_NE(std::string(san_last_error()).find("/nowhere/one"), std::string::npos);
}

TEST(CLibrary, ExportsItsFunctionsAndNothingElse) {
  std::FILE* nm = ::popen("nm -D --defined-only " SAN_C_LIBRARY, "r");
  ASSERT_NE(nm, nullptr);
  char name[512];
  int functions = 0;
  while (std::fscanf(nm, "%*x %*c %511s", name) == 1) {
    const std::string symbol = name;
    if (symbol.starts_with("SAN_0")) continue;  // the version itself
    EXPECT_TRUE(symbol.starts_with("san_")) << symbol;
    ++functions;
  }
  EXPECT_EQ(::pclose(nm), 0);
  EXPECT_EQ(functions, 14);
}

}  // namespace
}  // namespace san
