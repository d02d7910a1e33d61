// Predictor against the torch engine in evaluation mode, on every recorded case and on random networks; losses and readable
// outputs on plain numbers against those on tensors.
#include "san/model/predictor.h"

#include "san/base/random.h"
#include "san/model/task.h"
#include "san/nn/san_model.h"
#include "san/nn/task.h"
#include "tests/model/random_weights.h"
#include "tests/nn/golden.h"
#include "tests/nn/random_models.h"

namespace san::nn {
namespace {

at::Tensor matrix(const std::vector<double>& values, int64_t columns) {
  return at::from_blob(const_cast<double*>(values.data()), {static_cast<int64_t>(values.size()) / columns, columns},
                       at::kDouble)
      .clone();
}

// Relative to the largest output.
double error_of(const at::Tensor& actual, const at::Tensor& expected) {
  return (actual.to(at::kDouble) - expected).abs().max().item<double>() /
         std::max(expected.abs().max().item<double>(), 1e-6);
}

void compare(const StoredModel& stored, const std::vector<Graph>& graphs) {
  const at::NoGradGuard no_grad;
  const ModelConfig& config = stored.description.model;
  SanModel exact(stored, at::kDouble), plain(stored, at::kFloat);
  const Predictor predictor(stored);
  PredictOptions raw;
  raw.raw = true;
  Batch batch = testing::batch_of(graphs, stored.description.input.spectral.num_pairs);
  const at::Tensor expected = exact.forward(to_tensors(batch, config, at::kDouble, at::kCPU), {});
  const at::Tensor rounded = plain.forward(to_tensors(batch, config, at::kFloat, at::kCPU), {});
  const Predictions outputs = predictor.predict(graphs, raw), readable = predictor.predict(graphs);
  ASSERT_EQ(static_cast<int64_t>(outputs.values.size()), expected.numel());
  // Float rounding through exp and norms may itself exceed 1e-5: both engines round some thousand times, in different
  // orders, so that six times the error of the same network in float torch operations is allowed where that is more.
  const double tolerance = std::max(1e-5, 6 * error_of(rounded, expected));
  const double error = error_of(matrix(outputs.values, config.outputs), expected);
  EXPECT_LE(error, tolerance);
  ::testing::Test::RecordProperty("relative_error", fmt::format("{:.2g}", error));
  ::testing::Test::RecordProperty("of_float_torch", fmt::format("{:.2g}", error_of(rounded, expected)));
  EXPECT_LE(error_of(matrix(readable.values, config.outputs),
                     task_predictions(stored.description.task, matrix(outputs.values, config.outputs))),
            1e-14);
}

class Recorded : public ::testing::TestWithParam<std::string> {};

TEST_P(Recorded, PredictorEqualsTheTorchEngine) {
  SAN_NEED_SHARED(root, "golden");
  testing::GoldenCase c = testing::load_golden(root / GetParam());
  compare(c.model, c.graphs);
}

INSTANTIATE_TEST_SUITE_P(Golden, Recorded, ::testing::ValuesIn(testing::golden_names()),
                         [](const auto& info) { return info.param; });

TEST(Predictor, EqualsTheTorchEngineOnRandomNetworks) {
  for (uint64_t seed = testing::first_seed(); seed < testing::first_seed() + 30; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    const ModelConfig config = testing::random_config(random);
    const StoredModel stored = testing::random_model(testing::describe(config), seed);
    std::vector<Graph> graphs;
    for (int i = 0; i < 9; ++i) {
      graphs.push_back(testing::random_graph(config, random));
      testing::add_spectrum(graphs.back(), stored.description.input.spectral.num_pairs);
    }
    compare(stored, graphs);
  }
}

TEST(Task, LossesEqualThoseOnTensors) {
  struct Case {
    TaskKind kind;
    Loss loss;
  };
  constexpr Case kCases[] = {
      {TaskKind::kRegression, Loss::kL1},           {TaskKind::kRegression, Loss::kMse},
      {TaskKind::kBinary, Loss::kCrossEntropy},     {TaskKind::kBinary, Loss::kSigmoidBce},
      {TaskKind::kMulticlass, Loss::kCrossEntropy}, {TaskKind::kNodeClassification, Loss::kWeightedCrossEntropy}};
  for (const Case& c : kCases) {
    for (uint64_t seed = 1; seed <= 20; ++seed) {
      SCOPED_TRACE(std::string(enum_name(c.kind)) + " " + std::string(enum_name(c.loss)) + " " + std::to_string(seed));
      Random random(seed);
      TaskConfig task;
      task.kind = c.kind;
      task.loss = c.loss;
      const int columns = random.range(1, 5), rows = random.range(1, 40);
      const bool classes = c.kind == TaskKind::kMulticlass || c.kind == TaskKind::kNodeClassification;
      const int label_columns = classes ? 1 : columns;
      if (c.kind == TaskKind::kRegression && random.chance(0.5)) {
        for (int i = 0; i < columns; ++i) {
          task.scale.push_back(0.1 + random.uniform());
          task.shift.push_back(random.normal());
        }
      }
      std::vector<double> outputs, labels;
      // Up to where the sigmoid rounds to 0 or 1 and logarithms are cut.
      for (int i = 0; i < rows * columns; ++i) outputs.push_back(random.normal() * (random.chance(0.2) ? 300 : 2));
      for (int i = 0; i < rows * label_columns; ++i) {
        labels.push_back(random.chance(0.2)                ? std::nan("")
                         : classes                         ? random.range(0, columns)
                         : c.kind == TaskKind::kRegression ? random.normal()
                                                           : random.range(0, 2));
      }
      const double expected = task_loss(task, matrix(outputs, columns), matrix(labels, label_columns)).item<double>();
      EXPECT_NEAR(output_loss(task, outputs, columns, labels), expected, 1e-12 * std::max(1.0, std::abs(expected)));
      std::vector<double> readable = outputs;
      make_readable(task, readable, columns);
      EXPECT_LE(error_of(matrix(readable, columns), task_predictions(task, matrix(outputs, columns))), 1e-14);
    }
  }
}

}  // namespace
}  // namespace san::nn
