#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>

#include "san/cli/evaluate.h"
#include "san/cli/main.h"
#include "san/train/trainer.h"

namespace san::cli {

std::string cannot_evaluate(const ModelConfig&) {
  return "";
}

int start_torch_program(const std::string& command, int, char**) {
  fail("'{}' is in this program", command);
}

EvalResult evaluate_graphs(StoredModel model, const Dataset& data, const std::vector<int64_t>& graphs, int batch_size,
                           int threads) {
  at::set_num_threads(threads);
  Evaluation result = evaluate(model, data, graphs, batch_size);
  const bool labelled =
      std::any_of(result.labels.begin(), result.labels.end(), [](double label) { return !std::isnan(label); });
  return {labelled, result.loss, std::move(result.metrics), std::move(result.published_metrics)};
}

}  // namespace san::cli
