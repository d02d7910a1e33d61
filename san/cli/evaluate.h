// The half of `san eval` that computes: one definition in each program, by the fused engine in `san`, by libtorch in
// `san-torch` (for models that the fused engine cannot compute).
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "san/data/dataset.h"
#include "san/model/model_folder.h"

namespace san::cli {

struct EvalResult {
  bool labelled = false;
  double loss = 0;
  std::vector<std::pair<std::string, double>> metrics, published_metrics;
};

// Empty when this program can evaluate the model, else the reason.
std::string cannot_evaluate(const ModelConfig& config);

// batch_size: only the published metrics, means over batches, depend on it.
EvalResult evaluate_graphs(StoredModel model, const Dataset& data, const std::vector<int64_t>& graphs, int batch_size,
                           int threads);

}  // namespace san::cli
