// Models with random weights, made without libtorch.
#pragma once

#include <cmath>

#include "san/base/random.h"
#include "san/model/model_folder.h"

namespace san::testing {

// Weights of about the size that initialisation gives; norms and statistics near 1 and 0, but different from them.
inline StoredModel random_model(const ModelDescription& description, uint64_t seed) {
  StoredModel stored;
  stored.description = description;
  Random random(seed, 4711);
  for (const TensorSpec& spec : tensor_specs(description.model)) {
    std::vector<float> values(static_cast<size_t>(spec.count()));
    const double bound = spec.fan_in > 0 ? 1 / std::sqrt(static_cast<double>(spec.fan_in)) : 0.3;
    for (float& value : values) {
      const double u = 2 * random.uniform() - 1;
      value = static_cast<float>(spec.init == Init::kOnes ? 1 + 0.3 * u : bound * u);
    }
    stored.weights.tensors[spec.name] = make_tensor(spec.shape, values);
  }
  return stored;
}

// A description of that network with the task that goes with its readout.
inline ModelDescription describe(const ModelConfig& config) {
  ModelDescription description;
  description.model = config;
  if (config.readout == Readout::kNode) {
    description.task.kind = TaskKind::kNodeClassification;
    description.task.loss = Loss::kCrossEntropy;
  }
  return description;
}

}  // namespace san::testing
