// `san import`, `predict` and `spectrum` as people run them: right answers for the recorded cases, one line for everything wrong.
#include <cmath>
#include <cstring>
#include <fstream>

#include "san/base/file.h"
#include "san/data/csv.h"
#include "san/model/safetensors.h"
#include "tests/cli/run.h"
#include "tests/nn/golden.h"

namespace san {
namespace {

using testing::Ran;
using testing::run;
using testing::TemporaryFolder;

void put(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

// The numbers of a predictions file, without the columns that name the row.
std::vector<double> numbers_of(const std::string& path, size_t skip) {
  std::vector<double> numbers;
  CsvReader reader(path);
  while (reader.next()) {
    for (size_t i = skip; i < reader.fields().size(); ++i) numbers.push_back(std::stod(std::string(reader[i])));
  }
  return numbers;
}

// One line on stderr that names the file, a failure, no crash.
void expect_one_line_error(const Ran& ran, const std::string& file, const std::string& what) {
  EXPECT_GT(ran.code, 0) << ran.err;
  EXPECT_LT(ran.code, 100) << ran.err;
  const std::string first = ran.err.substr(0, ran.err.find('\n'));
  EXPECT_TRUE(first.starts_with("san: ")) << ran.err;
  EXPECT_NE(first.find(file), std::string::npos) << ran.err;
  EXPECT_NE(first.find(what), std::string::npos) << ran.err;
}

std::string golden_file(const std::filesystem::path& root, const std::string& name, const std::string& file) {
  return (root / name / file).string();
}

Ran import_case(const TemporaryFolder& folder, const std::filesystem::path& root, const std::string& name) {
  return run(folder, {"import", "--net-params", golden_file(root, name, "net_params.json"), "--weights",
                      golden_file(root, name, "weights.safetensors"), "--out", folder.file(name)});
}

TEST(ImportAndPredict, GiveTheAuthorsAnswersOnEveryRecordedCase) {
  SAN_NEED_SHARED(root, "golden");
  for (const std::string& name : testing::golden_names()) {
    SCOPED_TRACE(name);
    const TemporaryFolder folder;
    const Ran imported = import_case(folder, root, name);
    ASSERT_EQ(imported.code, 0) << imported.err;
    const TensorFile expected = read_safetensors(golden_file(root, name, "expected.safetensors"));
    const Tensor& eval = expected.tensors.at("eval64");
    const bool nodes = name.starts_with("pattern") || name.starts_with("cluster");
    const bool after_sigmoid = name.starts_with("mol");
    for (const char* batch_size : {"1", "64"}) {
      std::vector<std::string> arguments = {"predict",
                                            "--model",
                                            folder.file(name),
                                            "--data",
                                            golden_file(root, name, "graphs.jsonl"),
                                            "--out",
                                            folder.file("p.csv"),
                                            "--batch-size",
                                            batch_size};
      if (!after_sigmoid) arguments.emplace_back("--raw");
      const Ran predicted = run(folder, arguments);
      ASSERT_EQ(predicted.code, 0) << predicted.err;
      const std::vector<double> numbers = numbers_of(folder.file("p.csv"), nodes ? 2 : 1);
      ASSERT_EQ(static_cast<int64_t>(numbers.size()), eval.count());
      double scale = 0, difference = 0;
      for (int64_t i = 0; i < eval.count(); ++i) {
        scale = std::max(scale, std::abs(eval.f64()[i]));
        difference = std::max(difference, std::abs(eval.f64()[i] - numbers[static_cast<size_t>(i)]));
      }
      // Nine printed digits; edge LPE: the program rounds pair features to float.
      EXPECT_LE(difference, 1e-7 * scale);
    }
  }
}

TEST(Predict, SaysWhatIsWrongWithItsInput) {
  SAN_NEED_SHARED(root, "golden");
  const TemporaryFolder folder;
  ASSERT_EQ(import_case(folder, root, "zinc_node_full").code, 0);
  const std::string model = folder.file("zinc_node_full"), data = folder.file("g.jsonl");
  const auto predict = [&](const std::string& file) {
    return run(folder, {"predict", "--model", model, "--data", file, "--out", folder.file("p.csv")});
  };
  const std::string good =
      R"({"num_nodes": 2, "edges": [[0,1],[1,0]], "node_feat": [[1],[2]], "edge_feat": [[1],[1]]})";
  put(data, good + "\n");
  ASSERT_EQ(predict(data).code, 0);
  struct Case {
    std::string line;
    const char* what;
  };
  const Case cases[] = {
      {R"({"num_nodes": 2, "edges": [[0,2]], "node_feat": [1,2], "edge_feat": [1]})", "g.jsonl:2"},
      {R"({"num_nodes": 2, "edges": [[0,1]], "node_feat": [1,NaN], "edge_feat": [1]})", "g.jsonl:2"},
      {R"({"num_nodes": 2, "edges": [[0,1]], "node_feat": [[1,1],[2,2]], "edge_feat": [1]})",
       "the model was made for 1"},
      {R"({"num_nodes": 2, "edges": [[0,1]], "node_feat": [[1],[2,3]], "edge_feat": [1]})", "g.jsonl:2"},
      {R"({"num_nodes": 2, "edges": [[0,1]], "node_feat": [1,28], "edge_feat": [1]})", "category 28"},
      {R"({"num_nodes": 2, "num_nodes": 2, "edges": []})", "g.jsonl:2"},
      {std::string(200000, '['), "g.jsonl:2"},
      {"{", "g.jsonl:2"},
  };
  for (const Case& c : cases) {
    put(data, good + "\n" + c.line + "\n" + good + "\n");
    const Ran ran = predict(data);
    expect_one_line_error(ran, "g.jsonl:2", c.what);
    // The other graphs are predicted, and the count of those that are not is said.
    EXPECT_NE(ran.err.find("1 of 3 records"), std::string::npos) << ran.err;
    EXPECT_EQ(numbers_of(folder.file("p.csv"), 1).size(), 2U);
    std::filesystem::remove(folder.file("p.csv"));
    const Ran strict =
        run(folder, {"predict", "--model", model, "--data", data, "--out", folder.file("p.csv"), "--on-error", "fail"});
    expect_one_line_error(strict, "g.jsonl:2", "g.jsonl:2");
    EXPECT_FALSE(std::filesystem::exists(folder.file("p.csv")));
  }
  put(data, "");
  expect_one_line_error(predict(data), "g.jsonl", "");
  write_file(folder.file("g.jsonl.gz"), good + "\n");
  const std::string bytes = read_file(folder.file("g.jsonl.gz"), 1 << 20);
  put(folder.file("g.jsonl.gz"), bytes.substr(0, bytes.size() / 2));
  expect_one_line_error(predict(folder.file("g.jsonl.gz")), "g.jsonl.gz", "gzip");
  expect_one_line_error(predict("/no/such.jsonl"), "/no/such.jsonl", "");
  EXPECT_EQ(run(folder, {"predict", "--model", model}).code, 2);
  EXPECT_EQ(run(folder, {"predict", "--no-such-flag"}).code, 2);
}

TEST(Predict, RefusesHostileModelFolders) {
  SAN_NEED_SHARED(root, "golden");
  const TemporaryFolder folder;
  ASSERT_EQ(import_case(folder, root, "zinc_none_full").code, 0);
  const std::string model = folder.file("zinc_none_full"), weights = model + "/model.safetensors",
                    config = model + "/config.json";
  const std::string good_weights = read_file(weights, 1 << 26), good_config = read_file(config, 1 << 20);
  const auto predict = [&] {
    return run(folder, {"predict", "--model", model, "--data", golden_file(root, "zinc_none_full", "graphs.jsonl")});
  };
  ASSERT_EQ(predict().code, 0);
  std::string claim = good_weights;
  const uint64_t two_gigabytes = uint64_t{2} << 30;
  std::memcpy(claim.data(), &two_gigabytes, sizeof two_gigabytes);
  for (const std::string& bytes :
       {claim, good_weights.substr(0, good_weights.size() - 1), good_weights + "x", std::string("short")}) {
    put(weights, bytes);
    const Ran ran = predict();
    expect_one_line_error(ran, "model.safetensors", "");
    EXPECT_LT(ran.peak_kilobytes, 1 << 20);
  }
  put(weights, good_weights);
  std::string huge = good_config;
  huge.replace(huge.find("\"hidden_dim\": 32"), 16, "\"hidden_dim\": 65536");
  huge.replace(huge.find("\"layers\": 2"), 11, "\"layers\": 1000");
  put(config, huge);
  expect_one_line_error(predict(), "config.json", "parameters");
  expect_one_line_error(run(folder, {"predict", "--model", folder.file("none"), "--data", "x.jsonl"}), "none",
                        "not a model folder");
}

TEST(Import, SaysWhatIsWrong) {
  SAN_NEED_SHARED(root, "golden");
  const TemporaryFolder folder;
  const std::string params = golden_file(root, "zinc_clamp", "net_params.json");
  const auto import = [&](const std::string& json, const std::string& weights) {
    return run(folder, {"import", "--net-params", json, "--weights", weights, "--out", folder.file("out")});
  };
  put(folder.file("bad.json"), "{\"dataset\": \"ZINC\"");
  expect_one_line_error(import(folder.file("bad.json"), golden_file(root, "zinc_clamp", "weights.safetensors")),
                        "bad.json", "JSON");
  expect_one_line_error(import(params, golden_file(root, "molhiv_node_full", "weights.safetensors")), "net_params.json",
                        "");
  expect_one_line_error(import(params, params), "net_params.json", "");
  EXPECT_FALSE(std::filesystem::exists(folder.file("out")));
}

TEST(Spectrum, PrintsEigenvaluesMultiplicitiesAndDistances) {
  const TemporaryFolder folder;
  // A square: eigenvalues 0, 1, 1, 2 of the symmetric Laplacian.
  put(folder.file("g.jsonl"),
      R"({"id": "square", "num_nodes": 4, "edges": [[0,1],[1,2],[2,3],[3,0]], "undirected": true})"
      "\n");
  const Ran ran = run(folder, {"spectrum", folder.file("g.jsonl"), "--distances"});
  ASSERT_EQ(ran.code, 0) << ran.err;
  for (const char* expected : {"square", "1.000000  x2", "biharmonic", "diffusion"}) {
    EXPECT_NE(ran.out.find(expected), std::string::npos) << expected << " in\n" << ran.out;
  }
  put(folder.file("g.jsonl"), "{}\n");
  expect_one_line_error(run(folder, {"spectrum", folder.file("g.jsonl")}), "g.jsonl:1", "");
}

TEST(Program, ExplainsItself) {
  const TemporaryFolder folder;
  const Ran help = run(folder, {"--help"});
  EXPECT_EQ(help.code, 0);
  for (const char* command : {"train", "predict", "eval", "embed", "import", "spectrum", "data"}) {
    EXPECT_NE(help.out.find(command), std::string::npos) << command;
    const Ran one = run(folder, {command, "--help"});
    EXPECT_EQ(one.code, 0) << one.err;
    EXPECT_FALSE(one.out.empty());
  }
  EXPECT_EQ(run(folder, {"--version"}).code, 0);
  EXPECT_EQ(run(folder, {}).code, 2);
  EXPECT_EQ(run(folder, {"no-such-command"}).code, 2);
}

}  // namespace
}  // namespace san
