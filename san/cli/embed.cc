// san embed: what the network knows of graphs before its head, as features for other programs.
#include "san/base/file.h"
#include "san/cli/commands.h"
#include "san/cli/data_flags.h"
#include "san/cli/main.h"
#include "san/cli/model_flags.h"
#include "san/cli/progress.h"
#include "san/data/csv.h"
#include "san/data/stream.h"
#include "san/model/model_folder.h"
#include "san/model/predictor.h"

namespace san::cli {
namespace {

constexpr int kBlock = 64;

// A matrix of floats in NumPy's format 1.0, written row by row: the number of rows goes into the header at the end.
class NpyWriter {
 public:
  NpyWriter(const std::string& path, int columns) : file_(path), columns_(columns) { file_.write(header()); }

  void rows(std::string_view bytes) {
    file_.write(bytes);
    rows_ += static_cast<int64_t>(bytes.size() / sizeof(float)) / columns_;
  }
  void commit() {
    file_.rewrite_start(header());
    file_.commit();
  }

 private:
  std::string header() const {  // 128 bytes, whatever the number of rows
    std::string text = fmt::format("{{'descr': '<f4', 'fortran_order': False, 'shape': ({}, {}), }}", rows_, columns_);
    text.resize(117, ' ');
    return std::string("\x93NUMPY\x01\x00\x76\x00", 10) + text + '\n';
  }

  FileWriter file_;
  int columns_;
  int64_t rows_ = 0;
};

struct Flags {
  std::string model, data, out;
  bool nodes = false, skip = true;
  int threads = 0;
  SourceOptions source;
};

class Embedding {
 public:
  explicit Embedding(const Flags& flags)
      : flags_(flags),
        npy_(flags.out.ends_with(".npy")),
        predictor_(Predictor::load(flags.model)),
        per_node_(flags.nodes || predictor_.node_task()) {}

  int run() {
    const ModelDescription& description = predictor_.description();
    const auto source = open_input(flags_.data, flags_.source, description);

    // Ids: the first columns of the CSV, or a file of their own beside the matrix.
    std::string header;
    append_csv_field(header, source->id_name());
    if (per_node_) header += ",node";
    std::optional<NpyWriter> matrix;
    if (npy_) {
      matrix.emplace(flags_.out, predictor_.embedding_width());
    } else {
      for (int i = 0; i < predictor_.embedding_width(); ++i) header += fmt::format(",e{}", i);
    }
    FileWriter csv(npy_ ? flags_.out.substr(0, flags_.out.size() - 4) + ".ids.csv" : flags_.out);
    csv.write(header + '\n');

    ProgressBar bar("embedding", "graphs");
    StreamOptions stream;
    stream.spectral = description.input.spectral;
    stream.with_spectra = description.model.lpe.kind != LpeKind::kNone;
    stream.threads = flags_.threads;
    stream.skip_bad_records = flags_.skip;
    stream.on_bad_record = [&](const std::string& message) {
      bar.clear();
      say("san: {}\n", message);
    };
    stream.progress = [&](const Progress& progress) { bar.update(progress.done, progress.fraction); };
    const auto take = [&](StreamBlock& block) {
      if (!npy_) return csv.write(block.text);
      matrix->rows(block.text);
      std::string ids;
      for (size_t i = 0; i < block.graphs.size(); ++i) {
        if (!block.problems[i].empty()) continue;
        const Graph& graph = block.graphs[i]->graph;
        for (int32_t row = 0; row < (per_node_ ? graph.num_nodes : 1); ++row) {
          append_csv_field(ids, graph.id, /*alone=*/!per_node_);
          if (per_node_) ids += fmt::format(",{}", row);
          ids += '\n';
        }
      }
      csv.write(ids);
    };
    const ModelConfig* model = &description.model;
    const auto work = [&](StreamBlock& block) {
      fill_block(block, {&model, 1},
                 [this](std::span<const Graph* const> graphs, std::string& text) { append_rows(graphs, text); });
    };
    const int64_t skipped = stream_blocks(*source, stream, kBlock, work, take);
    bar.clear();
    SAN_CHECK(bar.done() + skipped > 0, "{}: nothing to embed in it", flags_.data);
    if (matrix) matrix->commit();
    csv.commit();
    if (skipped == 0) return kDone;
    say("san: {} of {} records could not be read and have no embedding\n", skipped, skipped + bar.done());
    return kFailed;
  }

 private:
  void append_rows(std::span<const Graph* const> graphs, std::string& text) const {
    const Predictions table = predictor_.embed(graphs, flags_.nodes);
    for (size_t g = 0; g < graphs.size(); ++g) {
      for (int64_t row = table.row_offsets[g]; row < table.row_offsets[g + 1]; ++row) {
        if (!npy_) append_csv_field(text, graphs[g]->id);
        if (!npy_ && per_node_) fmt::format_to(std::back_inserter(text), ",{}", row - table.row_offsets[g]);
        for (const double wide : table.row(row)) {
          const auto value = static_cast<float>(wide);
          if (npy_) {
            text.append(reinterpret_cast<const char*>(&value), sizeof value);
          } else {
            fmt::format_to(std::back_inserter(text), ",{:.9g}", value);
          }
        }
        if (!npy_) text += '\n';
      }
    }
  }

  const Flags& flags_;
  const bool npy_;
  const Predictor predictor_;
  const bool per_node_;
};

}  // namespace

int run_embed(int argc, char** argv) {
  Flags flags;
  CLI::App app(
      "Embeddings: what the network knows of a graph (or a node) before its head, as features for other programs.\n"
      "X.csv: the id, (the node,) e0, e1, ...; X.npy: a float matrix for NumPy, with the ids in X.ids.csv.\n"
      "Computed in float, without libtorch; streams in constant memory.\n\n"
      "  san embed --model runs/my --data new.csv --out features.npy");
  app.add_option("--model", flags.model, "model folder (config.json + model.safetensors); of an ensemble: one member")
      ->required();
  add_input_flags(app, flags.data, flags.source);
  app.add_option("--out", flags.out, "FILE.csv (.gz too), FILE.npy, or - = CSV on standard output")->required();
  app.add_flag("--nodes", flags.nodes, "a row per node, also for models of whole graphs");
  add_on_error_flag(app, flags.skip);
  add_threads_flag(app, flags.threads);
  int exit_code = 0;
  if (!parse_flags(app, argc, argv, exit_code)) return exit_code;
  return Embedding(flags).run();
}

}  // namespace san::cli
