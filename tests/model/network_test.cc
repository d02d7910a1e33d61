// Training steps without libtorch: the same bits for any number of threads, at every CPU level. What the numbers must be is
// tests/nn/engine_test.cc; this one is what the thread sanitizer and valgrind can look at.
#include "san/model/network.h"

#include <cmath>

#include "san/kernels/cpu.h"
#include "tests/model/random_weights.h"
#include "tests/nn/random_models.h"
#include "tests/testing.h"

namespace san {
namespace {

using testing::first_seed;

struct Step {
  std::vector<float> outputs, tensors;  // tensors: gradients, and statistics after the step
  bool operator==(const Step&) const = default;
};

Step training_step(const StoredModel& stored, const Batch& batch, uint64_t seed, int threads) {
  const ModelConfig& config = stored.description.model;
  std::vector<std::vector<float>> values, gradients;
  std::vector<float*> value_pointers, gradient_pointers;
  const std::vector<TensorSpec> specs = tensor_specs(config);
  for (const TensorSpec& spec : specs) {
    const Tensor& tensor = stored.weights.tensors.at(spec.name);
    values.emplace_back(tensor.f32(), tensor.f32() + tensor.count());
    gradients.emplace_back(values.back().size(), 0.0F);
  }
  for (size_t i = 0; i < specs.size(); ++i) {
    value_pointers.push_back(values[i].data());
    gradient_pointers.push_back(specs[i].trained ? gradients[i].data() : nullptr);
  }
  ThreadPool pool(threads);
  Network network(config, value_pointers);
  Network::Workspace workspace;
  Step step;
  network.train_forward(batch, seed, pool, workspace, step.outputs);
  Random random(seed, 3);
  std::vector<float> d_outputs;
  for (size_t i = 0; i < step.outputs.size(); ++i) d_outputs.push_back(static_cast<float>(random.normal()));
  network.backward(d_outputs.data(), gradient_pointers, pool, workspace);
  for (size_t i = 0; i < specs.size(); ++i) {
    const std::vector<float>& from = specs[i].trained ? gradients[i] : values[i];
    step.tensors.insert(step.tensors.end(), from.begin(), from.end());
  }
  return step;
}

TEST(Network, TrainingStepsGiveTheSameBitsForAnyNumberOfThreads) {
  // A number of cases for a debugger that is slow.
  const char* asked = std::getenv("SAN_TEST_CASES");
  const uint64_t cases = asked == nullptr ? 20 : std::strtoull(asked, nullptr, 10);
  for (uint64_t seed = first_seed(); seed < first_seed() + cases; ++seed) {
    SCOPED_TRACE("SAN_TEST_SEED=" + std::to_string(seed));
    Random random(seed, 6);
    ModelConfig config = testing::random_config(random);
    // Numbers of heads that fill no vector: kernels may not touch what belongs to the next row, another thread's.
    config.heads = 1 + static_cast<int>(seed % 10);
    config.hidden_dim = config.heads * (config.lpe.dim / config.heads + 2 + random.range(0, 3));
    config.out_dim = 0;
    if (config.hidden_dim < 4) config.hidden_dim = 4 * config.heads;
    if (random.chance(0.5)) config.dropout = config.lpe.dropout = 0.1;
    if (seed % 3 == 0) config.lpe.ff_dim = 257 + random.range(0, 300);  // tokens in groups
    std::vector<Graph> graphs;
    std::vector<const Graph*> pointers;
    for (int i = 0; i < 12; ++i) {
      graphs.push_back(testing::random_graph(config, random, 40));
      if (config.lpe.kind != LpeKind::kNone) testing::add_spectrum(graphs.back(), 6);
    }
    for (const Graph& graph : graphs) pointers.push_back(&graph);
    const Batch batch = make_batch(pointers, 6);
    const StoredModel stored = testing::random_model(testing::describe(config), seed);
    for (const CpuLevel level : {CpuLevel::kPortable, CpuLevel::kAvx2, CpuLevel::kAvx512}) {
      if (!cpu_has(level)) continue;
      SCOPED_TRACE(cpu_level_name(level));
      set_cpu_level(level);
      const Step one = training_step(stored, batch, seed, 1);
      for (const float value : one.tensors) ASSERT_TRUE(std::isfinite(value));
      for (const int threads : {2, 4}) EXPECT_TRUE(training_step(stored, batch, seed, threads) == one) << threads;
    }
  }
}

}  // namespace
}  // namespace san
