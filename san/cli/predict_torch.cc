// san predict --precision double: the definition itself, by libtorch. What predict.cc does with the fused engine.
#include <ATen/Parallel.h>

#include <cmath>
#include <optional>
#include <span>

#include "san/base/file.h"
#include "san/base/parallel.h"
#include "san/cli/commands.h"
#include "san/cli/main.h"
#include "san/cli/model_flags.h"
#include "san/cli/progress.h"
#include "san/data/batch.h"
#include "san/data/csv.h"
#include "san/data/stream.h"
#include "san/nn/san_model.h"
#include "san/nn/task.h"

namespace san::cli {
namespace {

// Pairs of one batch at most: bounds memory whatever --batch-size says. A larger graph is a batch of its own.
constexpr int64_t kPairsPerBatch = int64_t{1} << 20;

constexpr int kAutoBatch = 64;

class Predicting {
 public:
  explicit Predicting(const PredictFlags& options)
      : options_(options),
        stored_(read_members(options.model)),
        description_(stored_[0].description),
        writer_(options.out) {
    const at::ScalarType dtype = options.precision == "float" ? at::kFloat : at::kDouble;
    for (const StoredModel& member : stored_) networks_.emplace_back(member, dtype);
  }

  int run() {
    const auto source = open_input(options_.data, options_.source, description_);
    writer_.write(predictions_header(description_, source->id_name(), options_.raw, stored_.size() > 1));

    StreamOptions stream;
    stream.spectral = description_.input.spectral;
    stream.with_spectra = false;
    for (const StoredModel& member : stored_) {
      stream.with_spectra = stream.with_spectra || member.description.model.lpe.kind != LpeKind::kNone;
    }
    stream.threads = options_.threads;
    stream.skip_bad_records = options_.on_error == "skip";
    stream.on_bad_record = [](const std::string& message) { say("san: {}\n", message); };
    const auto check = [&](Streamed& item) {
      for (const StoredModel& member : stored_) check_graph(member.description.model, item.graph, item.where);
    };
    const int64_t unread = stream_graphs(*source, stream, check, [&](Streamed& item) { add(std::move(item)); });
    predict();
    const int64_t skipped = unread + overflown_;
    SAN_CHECK(done_ + skipped > 0, "{}: nothing to predict in it", options_.data);
    writer_.commit();
    if (skipped == 0) return kDone;
    say("san: {} of {} records could not be read and have no prediction\n", skipped, skipped + done_);
    return kFailed;
  }

 private:
  bool node_task() const { return description_.model.readout == Readout::kNode; }

  void add(Streamed item) {
    const int64_t nodes = item.graph.num_nodes;
    const int64_t cost = description_.model.full() ? nodes * nodes : static_cast<int64_t>(item.graph.edges.size());
    if (static_cast<int>(gathered_.size()) >= (options_.batch_size > 0 ? options_.batch_size : kAutoBatch) ||
        pairs_ + cost > kPairsPerBatch)
      predict();
    gathered_.push_back(std::move(item));
    pairs_ += cost;
  }

  // Predicts what has gathered and writes its rows.
  void predict() {
    std::vector<const Graph*> graphs;
    for (const Streamed& item : gathered_) graphs.push_back(&item.graph);
    if (graphs.empty()) return;
    std::optional<std::string> rows;
    try {
      rows = rows_of(graphs);
    } catch (const Error&) {
      // One graph of them is too much for the network: which?
      for (const Streamed& item : gathered_) predict_alone(item);
    }
    if (rows) {
      writer_.write(*rows);
      done_ += std::ssize(graphs);
    }
    gathered_.clear();
    pairs_ = 0;
  }

  void predict_alone(const Streamed& item) {
    const Graph* graph = &item.graph;
    std::string rows;
    try {
      rows = rows_of({&graph, 1});
    } catch (const Error& error) {
      const std::string message = fmt::format("{}: {}", item.where, error.what());
      if (options_.on_error != "skip") fail("{}", message);
      say("san: {}\n", message);
      ++overflown_;
      return;
    }
    writer_.write(rows);
    ++done_;
  }

  std::string rows_of(std::span<const Graph* const> graphs) {
    const Batch batch = make_batch(graphs, description_.input.spectral.num_pairs);
    const at::NoGradGuard no_grad;
    std::vector<at::Tensor> results;
    for (size_t k = 0; k < networks_.size(); ++k) {
      nn::SanModel& network = networks_[k];
      at::Tensor outputs =
          network.forward(nn::to_tensors(batch, network.config(), network.dtype(), network.device()), {});
      if (!options_.raw) outputs = nn::task_predictions(stored_[k].description.task, outputs);
      results.push_back(outputs.to(at::kDouble));
    }
    at::Tensor table = results[0];
    if (results.size() > 1) {
      const at::Tensor all = at::stack(results);
      table = at::cat({all.mean(0), all.std(0, /*unbiased=*/true)}, 1);
    }
    table = table.contiguous();
    const double* values = table.data_ptr<double>();
    std::string rows;
    for (const Graph* graph : graphs) {
      for (int32_t row = 0; row < (node_task() ? graph->num_nodes : 1); ++row) {
        append_csv_field(rows, graph->id);
        if (node_task()) rows += fmt::format(",{}", row);
        for (int64_t i = 0; i < table.size(1); ++i) {
          SAN_CHECK(std::isfinite(*values), "graph '{}': the network's numbers overflow", printable(graph->id));
          rows += fmt::format(",{:.9g}", *values++);
        }
        rows += '\n';
      }
    }
    return rows;
  }

  const PredictFlags& options_;
  std::vector<StoredModel> stored_;
  const ModelDescription& description_;
  std::vector<nn::SanModel> networks_;
  FileWriter writer_;
  std::vector<Streamed> gathered_;
  int64_t pairs_ = 0, done_ = 0, overflown_ = 0;
};

}  // namespace

int run_predict(int argc, char** argv) {
  PredictFlags options;
  CLI::App app(kPredictHelp);
  add_predict_flags(app, options);
  int exit_code = 0;
  if (!parse_flags(app, argc, argv, exit_code)) return exit_code;
  if (options.threads == 0) options.threads = available_threads();
  at::set_num_threads(options.threads);
  return Predicting(options).run();
}

}  // namespace san::cli
