#include "san/cli/evaluate.h"

#include <algorithm>
#include <cmath>

#include "san/model/network.h"
#include "san/model/predictor.h"
#include "san/model/task.h"
#include "san/train/metrics.h"

namespace san::cli {

std::string cannot_evaluate(const ModelConfig& config) {
  return Network::unsupported(config);
}

EvalResult evaluate_graphs(StoredModel model, const Dataset& data, const std::vector<int64_t>& graphs, int batch_size,
                           int threads) {
  constexpr size_t kTogether = 2048;  // graphs in memory at a time
  const Predictor predictor(std::move(model));
  const TaskConfig& task = predictor.description().task;
  const int columns = predictor.outputs();
  PredictOptions options;
  options.raw = true;
  options.threads = threads;
  std::vector<double> outputs, labels;
  std::vector<size_t> rows = {0};  // before each graph
  bool labelled = true;
  for (size_t begin = 0; begin < graphs.size(); begin += kTogether) {
    std::vector<Graph> some;
    for (size_t i = begin; i < std::min(graphs.size(), begin + kTogether); ++i) some.push_back(data.graph(graphs[i]));
    const Predictions result = predictor.predict(some, options);
    outputs.insert(outputs.end(), result.values.begin(), result.values.end());
    for (size_t i = 0; i < some.size(); ++i) {
      const std::vector<double>& own = some[i].node_labels.empty() ? some[i].graph_labels : some[i].node_labels;
      labelled = labelled && !own.empty();
      labels.insert(labels.end(), own.begin(), own.end());
      rows.push_back(rows.back() + static_cast<size_t>(result.row_offsets[i + 1] - result.row_offsets[i]));
    }
  }
  EvalResult out;
  out.labelled = labelled && std::any_of(labels.begin(), labels.end(), [](double x) { return !std::isnan(x); });
  if (!out.labelled) return out;
  out.loss = output_loss(task, outputs, columns, labels);
  make_readable(task, outputs, columns);
  out.metrics = task_metrics(task, labels, outputs, columns);

  const size_t label_columns = labels.size() / rows.back(), output_columns = static_cast<size_t>(columns);
  BatchMeans means;
  for (size_t begin = 0; begin < graphs.size(); begin += static_cast<size_t>(batch_size)) {
    const size_t first = rows[begin],
                 count = rows[std::min(graphs.size(), begin + static_cast<size_t>(batch_size))] - first;
    means.add(task, std::span(labels).subspan(first * label_columns, count * label_columns),
              std::span(outputs).subspan(first * output_columns, count * output_columns), columns);
  }
  out.published_metrics = means.means();
  return out;
}

}  // namespace san::cli
