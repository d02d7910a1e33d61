// Predictions of a trained model, for programs: no libtorch, no Python, no GPU.
//
//   const san::Predictor model = san::Predictor::load("runs/logs/model");
//   const san::Predictions p = model.predict_smiles("CCO");
//   // p.values[0]: the target in the label's units
//
// Whatever is wrong with a folder, a graph or a molecule throws san::Error with one line that says what.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "san/graph/graph.h"

namespace san {

struct ModelDescription;  // everything config.json says: san/model/config.h
struct StoredModel;       // a model folder in memory: san/model/model_folder.h

struct PredictOptions {
  // The head's own outputs (logits, unscaled) instead of what people read: regression in the label's units, probabilities
  // for classes.
  bool raw = false;
  // Cores to use for one call; 0 = all. With 1, nothing but the calling thread works: right when the caller has threads of
  // its own.
  int threads = 1;
  // Graphs computed together; 0 = chosen for speed. Neither this nor `threads` changes a single bit of the results.
  int batch_size = 0;
};

// A table of numbers: rows of graph g are row_offsets[g] .. row_offsets[g + 1].
struct Predictions {
  int64_t rows = 0;
  int columns = 0;
  std::vector<double> values;        // [rows, columns] row-major
  std::vector<int64_t> row_offsets;  // [graphs + 1]

  std::span<const double> row(int64_t i) const { return {values.data() + i * columns, static_cast<size_t>(columns)}; }
};

// One model, immutable: any number of threads may use it at once, and none waits for another. Each computation borrows
// working memory, which is kept for the next one (as many pieces as there were calls at the same time).
class Predictor {
 public:
  // `folder` holds config.json and model.safetensors, as `san train` and `san import` write them. Throws Error naming the
  // file for anything that is not exactly a model: missing, unknown or misshapen tensors, numbers that are not finite, a
  // configuration that cannot be built. What config.json asks for is compared with the weights' file before memory is taken.
  static Predictor load(const std::string& folder);
  // Takes the model. Throws Error as load() does.
  explicit Predictor(StoredModel model);
  ~Predictor();
  Predictor(Predictor&&) noexcept;
  Predictor& operator=(Predictor&&) noexcept;

  const ModelDescription& description() const;
  // "regression", "binary", "multiclass" or "node-classification".
  std::string task() const;
  // True: a row per node; false: a row per graph.
  bool node_task() const;
  // Numbers per row, and what they are called: targets, classes, or y0, y1, ...
  int outputs() const;
  std::vector<std::string> output_names() const;
  // Numbers per row of embed().
  int embedding_width() const;
  // True: the model was trained on molecules and this library was built with RDKit, so that it takes SMILES.
  bool takes_smiles() const;

  // A row per graph, or per node for node tasks, in the order given. Eigenpairs that come with a graph are used as they are,
  // otherwise computed as the model was trained with. Throws Error, naming the graph, for one that breaks a rule of Graph
  // or does not fit the model (other feature columns, a category without a row in its table, numbers so large that the network
  // overflows).
  Predictions predict(std::span<const Graph> graphs, const PredictOptions& options = {}) const;
  Predictions predict(std::span<const Graph* const> graphs, const PredictOptions& options = {}) const;
  Predictions predict(const Graph& graph, const PredictOptions& options = {}) const;

  // The same for molecules. With `errors`, one entry per SMILES: empty, or why it could not be predicted; its row is then
  // NaN (a node task has no rows for it). Without, the first such SMILES throws Error.
  Predictions predict_smiles(std::span<const std::string> smiles, const PredictOptions& options = {},
                             std::vector<std::string>* errors = nullptr) const;
  Predictions predict_smiles(const std::string& smiles, const PredictOptions& options = {}) const;

  // What the network knows before its head: embedding_width() numbers per graph (per node for node tasks), or with `nodes`
  // per node always. `raw` means nothing here.
  Predictions embed(std::span<const Graph> graphs, bool nodes = false, const PredictOptions& options = {}) const;
  Predictions embed(std::span<const Graph* const> graphs, bool nodes = false, const PredictOptions& options = {}) const;

  // A molecule as this model reads it, positions included; nullopt and a line in `error` when it cannot be used. Throws
  // Error when takes_smiles() is false.
  std::optional<Graph> graph_of_smiles(std::string_view smiles, std::string& error) const;
  // Computes what the model reads of a node's place in the graph (eigenpairs, walk features) where the graph has none: for
  // those who predict it several times.
  void add_positions(Graph& graph) const;

 private:
  struct Impl;
  std::unique_ptr<const Impl> impl_;
};

}  // namespace san
