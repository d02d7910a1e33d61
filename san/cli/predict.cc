// san predict: a model folder and a file of graphs in, a CSV of predictions out.
#include <unistd.h>

#include <deque>

#include "san/base/file.h"
#include "san/base/parallel.h"
#include "san/cli/commands.h"
#include "san/cli/main.h"
#include "san/data/batch.h"
#include "san/graph/jsonl.h"
#include "san/nn/san_model.h"
#include "san/nn/task.h"
#include "san/spectral/spectrum.h"

#include <ATen/Parallel.h>

namespace san::cli {
namespace {

// Pairs of one batch at most: bounds memory whatever --batch-size says. A larger graph is a batch of its own.
constexpr int64_t kPairsPerBatch = int64_t{1} << 20;

struct Options {
  std::string model, data, out = "-", precision = "double", on_error = "skip";
  bool raw = false;
  int batch_size = 64;
  int threads = 0;
};

// A field as CSV wants it: quoted when it must be.
std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string out = "\"";
  for (const char c : text) out += c == '"' ? std::string("\"\"") : std::string(1, c);
  return out + '"';
}

std::string header_of(const ModelDescription& description, bool raw) {
  std::string header = description.model.readout == Readout::kNode ? "id,node" : "id";
  const std::vector<std::string> names = output_names(description);
  for (size_t i = 0; i < names.size(); ++i) header += ',' + (raw ? fmt::format("y{}", i) : csv_field(names[i]));
  return header + '\n';
}

class Predicting {
 public:
  explicit Predicting(const Options& options)
      : options_(options),
        stored_(read_model(options.model)),
        model_(stored_, options.precision == "float" ? at::kFloat : at::kDouble),
        writer_(options.out) {
    writer_.write(header_of(stored_.description, options.raw));
  }

  int run() {
    GraphReader reader(options_.data);
    std::vector<Graph> graphs;
    int64_t pairs = 0;
    for (;;) {
      Graph graph;
      try {
        if (!reader.next(graph)) break;
        check_graph(stored_.description.model, graph, reader.where());
      } catch (const RecordError& error) {
        skip(error);
        continue;
      }
      const int64_t nodes = graph.num_nodes;
      const int64_t cost = stored_.description.model.full() ? nodes * nodes : static_cast<int64_t>(graph.edges.size());
      if (!graphs.empty() &&
          (static_cast<int>(graphs.size()) >= options_.batch_size || pairs + cost > kPairsPerBatch)) {
        predict(graphs);
        graphs.clear();
        pairs = 0;
      }
      graphs.push_back(std::move(graph));
      pairs += cost;
    }
    if (!graphs.empty()) predict(graphs);
    writer_.commit();
    if (skipped_ > 0) {
      fmt::print(stderr, "san: {} of {} graphs could not be read and have no prediction\n", skipped_, skipped_ + done_);
      return kFailed;
    }
    return kDone;
  }

 private:
  void skip(const RecordError& error) {
    if (options_.on_error == "fail") throw RecordError(error);
    fmt::print(stderr, "san: {}\n", error.what());
    ++skipped_;
  }

  void predict(std::vector<Graph>& graphs) {
    const ModelDescription& description = stored_.description;
    if (description.model.lpe.kind != LpeKind::kNone) {
      parallel_for(static_cast<int64_t>(graphs.size()), options_.threads, [&](int64_t i) {
        Graph& graph = graphs[static_cast<size_t>(i)];
        if (!graph.eigenpairs) graph.eigenpairs = to_eigenpairs(compute_spectrum(graph, description.input.spectral));
      });
    }
    std::vector<const Graph*> pointers;
    for (const Graph& graph : graphs) pointers.push_back(&graph);
    const Batch batch = make_batch(pointers, description.input.spectral.num_pairs);
    const at::NoGradGuard no_grad;
    at::Tensor outputs = model_.forward(nn::to_tensors(batch, description.model, model_.dtype(), model_.device()), {});
    if (!options_.raw) outputs = nn::task_predictions(description.task, outputs);
    outputs = outputs.to(at::kDouble).contiguous();
    const double* values = outputs.data_ptr<double>();
    const bool node = description.model.readout == Readout::kNode;
    std::string rows;
    for (const Graph& graph : graphs) {
      const std::string id = csv_field(graph.id);
      for (int32_t row = 0; row < (node ? graph.num_nodes : 1); ++row) {
        rows += id;
        if (node) rows += fmt::format(",{}", row);
        for (int64_t i = 0; i < outputs.size(1); ++i) {
          SAN_CHECK(std::isfinite(*values), "graph '{}': the model's output is not a finite number",
                    printable(graph.id));
          rows += fmt::format(",{:.9g}", *values++);
        }
        rows += '\n';
      }
    }
    writer_.write(rows);
    done_ += static_cast<int64_t>(graphs.size());
  }

  const Options& options_;
  StoredModel stored_;
  nn::SanModel model_;
  FileWriter writer_;
  int64_t done_ = 0, skipped_ = 0;
};

}  // namespace

int run_predict(int argc, char** argv) {
  Options options;
  CLI::App app(
      "Predictions of a model for every graph of a file, as CSV: id, (node,) then one column per output.\n"
      "Eigenpairs given in the file are used as they are; others are computed as the model was trained "
      "with.");
  app.add_option("--model", options.model, "model folder (config.json + model.safetensors)")->required();
  app.add_option("--data", options.data, "Graph JSONL file, .gz too; - = standard input")->required();
  app.add_option("--out", options.out, "CSV to write; - = standard output")->capture_default_str();
  app.add_flag("--raw", options.raw, "the head's own outputs (logits, unscaled) as y0, y1, ...");
  app.add_option("--on-error", options.on_error, "a graph that cannot be read: skip (report, go on) or fail")
      ->check(CLI::IsMember({"skip", "fail"}))
      ->capture_default_str();
  app.add_option("--batch-size", options.batch_size, "graphs at once; does not change results")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app.add_option("--precision", options.precision, "arithmetic of the network: double or float")
      ->check(CLI::IsMember({"double", "float"}))
      ->capture_default_str();
  app.add_option("--threads", options.threads, "threads; 0 = all cores")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  int exit_code = 0;
  if (!parse_flags(app, argc, argv, exit_code)) return exit_code;
  if (options.threads == 0) options.threads = available_threads();
  at::set_num_threads(options.threads);
  return Predicting(options).run();
}

}  // namespace san::cli
