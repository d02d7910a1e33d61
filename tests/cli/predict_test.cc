// `san predict`, `eval` and `embed` without libtorch: the same bytes for any batch size and thread count, order and bad rows
// kept, formats as promised.
#include <cmath>
#include <cstring>
#include <sstream>

#include "san/graph/jsonl.h"
#include "san/model/predictor.h"
#include "tests/cli/run.h"
#include "tests/model/tiny_model.h"
#include "tests/nn/random_models.h"

namespace san {
namespace {

using testing::contains;
using testing::Ran;
using testing::run;
using testing::TemporaryFolder;

// Lines of stderr without those about progress, which a slow machine has.
std::string complaints(const std::string& text) {
  std::istringstream in(text);
  std::string out;
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("san: ")) out += line + '\n';
  }
  return out;
}

class Program : public ::testing::Test {
 protected:
  void SetUp() override {
    stored_ = testing::tiny_model();
    write_model(folder_.file("model"), stored_);
    Random random(11);
    for (int i = 0; i < 300; ++i) {
      graphs_.push_back(testing::random_graph(stored_.description.model, random, 20));
      graphs_.back().id = fmt::format("g{}", i);
      graphs_.back().graph_labels = {random.normal()};
      // Every 37th line is no graph.
      if (i % 37 == 5) text_ += "{\"num_nodes\": \n";
      text_ += format_graph(graphs_.back()) + "\n";
    }
    write_file(folder_.file("g.jsonl"), text_);
  }
  Ran predict(std::vector<std::string> more) {
    std::vector<std::string> arguments = {"predict", "--model", folder_.file("model"), "--data",
                                          folder_.file("g.jsonl")};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(folder_, arguments);
  }

  TemporaryFolder folder_;
  StoredModel stored_;
  std::vector<Graph> graphs_;
  std::string text_;
};

TEST_F(Program, PredictGivesTheSameBytesForAnyBatchSizeAndThreadCount) {
  const Ran first = predict({"--batch-size", "1", "--threads", "1"});
  EXPECT_EQ(first.code, 1);  // bad rows
  EXPECT_TRUE(contains(first.err, "8 of 308 records")) << first.err;
  for (const char* batch : {"auto", "2", "64", "1000"}) {
    for (const char* threads : {"1", "2", "7"}) {
      const Ran other = predict({"--batch-size", batch, "--threads", threads});
      EXPECT_EQ(other.out, first.out) << batch << " " << threads;
      EXPECT_EQ(complaints(other.err), complaints(first.err));  // bad rows in the order of the input
    }
  }
  const Predictor predictor(stored_);
  std::string expected = "id,logP\n";
  for (const Graph& graph : graphs_) {
    expected += fmt::format("{},{:.9g}\n", graph.id, predictor.predict(graph).values[0]);
  }
  EXPECT_EQ(first.out, expected);
  for (const char* threads : {"1", "4"}) {
    const Ran strict = predict({"--on-error", "fail", "--threads", threads, "--out", folder_.file("p.csv")});
    EXPECT_EQ(strict.code, 1);
    EXPECT_TRUE(contains(strict.err, "g.jsonl:6:")) << strict.err;
    EXPECT_FALSE(std::filesystem::exists(folder_.file("p.csv")));
  }
  EXPECT_EQ(predict({"--batch-size", "0"}).code, 2);
  EXPECT_EQ(predict({"--batch-size", "many"}).code, 2);
}

TEST_F(Program, EvalGivesLossAndMetrics) {
  const Predictor predictor(stored_);
  double sum = 0;
  std::string text;
  for (const Graph& graph : graphs_) {
    sum += std::abs(predictor.predict(graph).values[0] - graph.graph_labels[0]);
    text += format_graph(graph) + "\n";
  }
  write_file(folder_.file("good.jsonl"), text);
  const Ran ran = run(
      folder_, {"eval", "--model", folder_.file("model"), "--data", folder_.file("good.jsonl"), "--published-metrics"});
  ASSERT_EQ(ran.code, 0) << ran.err;
  EXPECT_TRUE(contains(ran.out, "300 graphs\n"));
  // Labels are scaled by 2 while training.
  EXPECT_TRUE(contains(ran.out, fmt::format("loss {:.6g}\nmae {:.6g}\n", sum / 300 / 2, sum / 300))) << ran.out;
  EXPECT_TRUE(contains(ran.out, "published_mae ")) << ran.out;
}

TEST_F(Program, EmbedWritesCsvAndNpy) {
  const Predictor predictor(stored_);
  const int width = predictor.embedding_width();
  for (const bool nodes : {false, true}) {
    const Predictions expected = predictor.embed(graphs_, nodes);
    std::vector<std::string> arguments = {
        "embed", "--model", folder_.file("model"), "--data", folder_.file("g.jsonl"), "--out", folder_.file("e.npy")};
    if (nodes) arguments.emplace_back("--nodes");
    EXPECT_EQ(run(folder_, arguments).code, 1);  // bad rows
    const std::string npy = read_file(folder_.file("e.npy"), 1 << 26);
    ASSERT_EQ(npy.size(), 128 + static_cast<size_t>(expected.rows * width) * sizeof(float));
    EXPECT_EQ(npy.substr(0, 10), std::string("\x93NUMPY\x01\x00\x76\x00", 10));
    EXPECT_TRUE(contains(npy.substr(0, 128), fmt::format("'shape': ({}, {})", expected.rows, width)));
    EXPECT_EQ(npy[127], '\n');
    for (size_t i = 0; i < expected.values.size(); ++i) {
      float value = 0;
      std::memcpy(&value, npy.data() + 128 + i * sizeof value, sizeof value);
      ASSERT_EQ(value, static_cast<float>(expected.values[i]));
    }
    const std::string ids = read_file(folder_.file("e.ids.csv"), 1 << 26);
    EXPECT_TRUE(ids.starts_with(nodes ? "id,node\ng0,0\n" : "id\ng0\ng1\n")) << ids.substr(0, 30);
    arguments[6] = "-";
    const Ran csv = run(folder_, arguments);
    EXPECT_TRUE(csv.out.starts_with(nodes ? "id,node,e0,e1," : "id,e0,e1,"));
    EXPECT_TRUE(contains(csv.out, fmt::format("\ng0,{}{:.9g},", nodes ? "0," : "", expected.values[0])));
  }
}

TEST_F(Program, AGraphThatOverflowsTheNetworkIsABadRecord) {
  Graph large = graphs_[1];
  large.id = "large";
  large.eigenpairs = Eigenpairs{2, {0, 1}, std::vector<float>(static_cast<size_t>(2 * large.num_nodes), 3e38F)};
  const std::string path = folder_.file("large.jsonl");
  write_file(path, format_graph(graphs_[0]) + "\n" + format_graph(large) + "\n" + format_graph(graphs_[2]) + "\n");
  for (const char* command : {"predict", "embed"}) {
    const Ran ran = run(folder_, {command, "--model", folder_.file("model"), "--data", path, "--out", "-"});
    EXPECT_EQ(ran.code, 1);
    EXPECT_TRUE(contains(ran.err, "large.jsonl:2: graph 'large': the network's numbers overflow")) << ran.err;
    EXPECT_TRUE(contains(ran.out, "\ng0,") && contains(ran.out, "\ng2,") && !contains(ran.out, "large")) << ran.out;
    const Ran strict = run(folder_, {command, "--model", folder_.file("model"), "--data", path, "--out",
                                     folder_.file("x.csv"), "--on-error", "fail"});
    EXPECT_EQ(strict.code, 1);
    EXPECT_FALSE(std::filesystem::exists(folder_.file("x.csv")));
  }
  const Predictor predictor(stored_);
  EXPECT_TRUE(contains(testing::error_of([&] { predictor.predict(large); }), "overflow"));
}

TEST_F(Program, StandardStreamsThatCannotBeWritten) {
  testing::RunOptions deaf;
  deaf.err_to = "/dev/full";
  const std::string rows = predict({}).out, out = folder_.file("p.csv");
  const Ran ran = testing::run_with(
      folder_, {"predict", "--model", folder_.file("model"), "--data", folder_.file("g.jsonl"), "--out", out}, deaf);
  EXPECT_EQ(ran.code, 1);  // bad rows, not an abort
  EXPECT_EQ(read_file(out, 1 << 24), rows);
  EXPECT_EQ(testing::run_with(folder_, {"predict", "--model", "/nowhere", "--data", "x"}, deaf).code, 1);

  testing::RunOptions full;
  full.out_to = "/dev/full";
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"--help"}, {"predict", "--help"}, {"data", "inspect", folder_.file("g.jsonl")}}) {
    const Ran mute = testing::run_with(folder_, arguments, full);
    EXPECT_EQ(mute.code, 1) << arguments[0];
    EXPECT_TRUE(contains(mute.err, "san: <stdout>: cannot write: No space left on device")) << mute.err;
  }
  // As /dev/stdout is when the shell sends it to a file.
  std::filesystem::create_symlink("/proc/self/fd/1", folder_.file("stdout-link"));
  EXPECT_EQ(predict({"--out", folder_.file("stdout-link")}).out, rows);
  EXPECT_TRUE(std::filesystem::is_symlink(folder_.file("stdout-link")));
}

TEST_F(Program, EvalWantsLabelsAndSaysWhatItLeftOut) {
  const auto eval = [&](const std::string& name, const std::string& text, std::vector<std::string> more = {}) {
    write_file(folder_.file(name), text);
    std::vector<std::string> arguments = {"eval", "--model", folder_.file("model"), "--data", folder_.file(name)};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(folder_, arguments);
  };
  Graph graph = graphs_[0];
  graph.graph_labels = {std::nan("")};
  const Ran none = eval("none.jsonl", format_graph(graph) + "\n");
  EXPECT_EQ(none.code, 1);
  EXPECT_TRUE(contains(none.err, "none.jsonl: no labels to compare with")) << none.err;
  graph.graph_labels.clear();
  graph.node_labels.assign(static_cast<size_t>(graph.num_nodes), 1);
  const Ran nodes = eval("nodes.jsonl", format_graph(graph) + "\n");
  EXPECT_EQ(nodes.code, 1);
  EXPECT_TRUE(contains(nodes.err, "has labels of nodes, the model predicts graphs")) << nodes.err;
  const Ran skipping = eval("bad.jsonl", text_, {"--on-error", "skip"});
  EXPECT_EQ(skipping.code, 1);
  EXPECT_TRUE(contains(skipping.out, "300 graphs")) << skipping.out;
  EXPECT_TRUE(contains(skipping.err, "8 of 308 records are bad")) << skipping.err;
  EXPECT_TRUE(contains(eval("bad.jsonl", text_, {"--splits", "x.json"}).err, "--splits goes with --part"));
}

TEST_F(Program, FallsBackToFloatForImportedModelsWithoutLibtorch) {
  if (std::filesystem::exists(std::string(SAN_BIN_DIR) + "/san-torch")) GTEST_SKIP() << "built with libtorch";
  stored_.description.provenance = R"({"imported": "authors' program"})";
  write_model(folder_.file("model"), stored_);
  const Ran ran = predict({});
  EXPECT_TRUE(contains(ran.err, "san-torch is not here")) << ran.err;
  EXPECT_TRUE(contains(ran.out, "\ng299,"));
}

TEST(Linking, ThePredictingProgramNeedsNoLibtorch) {
  const std::string command = "ldd " SAN_BIN_DIR "/san";
  std::FILE* ldd = ::popen(command.c_str(), "r");
  ASSERT_NE(ldd, nullptr);
  std::string text(1 << 16, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), ldd));
  ::pclose(ldd);
  EXPECT_TRUE(contains(text, "libc.so")) << text;
  for (const char* library : {"libtorch", "libc10", "libgomp", "openblas", "libpython"})
    EXPECT_FALSE(contains(text, library)) << text;
}

}  // namespace
}  // namespace san
