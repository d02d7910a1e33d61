#include "san/model/predictor.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <mutex>
#include <new>

#include "san/base/parallel.h"
#include "san/base/thread_pool.h"
#include "san/data/batch.h"
#include "san/model/model_folder.h"
#include "san/model/network.h"
#include "san/model/task.h"
#include "san/spectral/random_walk.h"
#ifdef SAN_WITH_RDKIT
#include "san/chem/molecule.h"
#endif

namespace san {
namespace {

// Nodes computed together: enough to fill the vector lanes, few enough to stay in the second-level cache.
constexpr int64_t kAutoNodes = 384;
// Pairs of nodes of one batch at most: bounds memory whatever the batch size. A larger graph is a batch of its own.
constexpr int64_t kPairsPerBatch = int64_t{1} << 20;

// Working memory of one computation.
struct Context {
  Network::Workspace workspace;
  std::vector<float> outputs;
};

// Contexts that nobody uses at the moment.
class ContextPool {
 public:
  class Loan {
   public:
    explicit Loan(ContextPool& pool) : pool_(pool), context_(pool.take()) {}
    ~Loan() { pool_.give(std::move(context_)); }
    Loan(const Loan&) = delete;
    Loan& operator=(const Loan&) = delete;
    Context& operator*() { return *context_; }

   private:
    ContextPool& pool_;
    std::unique_ptr<Context> context_;
  };

 private:
  // What one very large graph needed is not kept.
  static constexpr int64_t kKeptBytes = int64_t{64} << 20;

  std::unique_ptr<Context> take() {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) return std::make_unique<Context>();
    std::unique_ptr<Context> context = std::move(free_.back());
    free_.pop_back();
    return context;
  }
  void give(std::unique_ptr<Context> context) noexcept {
    if (context->workspace.bytes() > kKeptBytes) return;
    const std::lock_guard lock(mutex_);
    try {
      free_.push_back(std::move(context));
    } catch (const std::bad_alloc&) {
      // Then the next computation takes memory of its own.
    }
  }

  std::mutex mutex_;
  std::vector<std::unique_ptr<Context>> free_;
};

std::vector<float*> tensor_pointers(const StoredModel& model) {
  std::vector<float*> pointers;
  for (const TensorSpec& spec : tensor_specs(model.description.model)) {
    // Network takes what it may also train; predicting only reads.
    pointers.push_back(const_cast<float*>(model.weights.tensors.at(spec.name).f32()));
  }
  return pointers;
}

StoredModel checked(StoredModel model) {
  validate(model.description);
  check_weights(model.description.model, model.weights, "the model");
  const std::string reason = Network::unsupported(model.description.model);
  SAN_CHECK(reason.empty(), "this model can only be computed with libtorch ({})", reason);
  return model;
}

struct Piece {
  size_t begin = 0, end = 0;
};

}  // namespace

struct Predictor::Impl {
  explicit Impl(StoredModel model)
      : stored(checked(std::move(model))), network(stored.description.model, tensor_pointers(stored)) {}

  const ModelConfig& config() const { return stored.description.model; }
  bool node_task() const { return config().readout == Readout::kNode; }

  // What the cost of a graph is counted in.
  int64_t pairs_of(const Graph& graph) const {
    const int64_t nodes = graph.num_nodes;
    return config().full() ? nodes * nodes : static_cast<int64_t>(graph.edges.size()) + nodes;
  }

  std::vector<Piece> cut(std::span<const Graph* const> graphs, int batch_size) const {
    std::vector<Piece> pieces;
    int64_t pairs = 0, nodes = 0;
    for (size_t i = 0; i < graphs.size(); ++i) {
      const int64_t more = pairs_of(*graphs[i]);
      const bool full = pieces.empty() || pairs + more > kPairsPerBatch ||
                        (batch_size > 0 ? pieces.back().end - pieces.back().begin >= static_cast<size_t>(batch_size)
                                        : nodes + graphs[i]->num_nodes > kAutoNodes);
      if (full) {
        pieces.push_back({i, i});
        pairs = nodes = 0;
      }
      ++pieces.back().end;
      pairs += more;
      nodes += graphs[i]->num_nodes;
    }
    return pieces;
  }

  bool lacks_walks(const Graph& graph) const {
    const int steps = stored.description.input.spectral.walk_steps;
    return steps > 0 && graph.node_features.value_columns == config().node_values - steps;
  }
  bool lacks_positions(const Graph& graph) const {
    return lacks_walks(graph) || (config().lpe.kind != LpeKind::kNone && !graph.eigenpairs);
  }
  void add_positions(Graph& graph) const {
    const SpectrumOptions& options = stored.description.input.spectral;
    if (lacks_walks(graph)) add_walk_features(graph, options.walk_steps);
    if (config().lpe.kind != LpeKind::kNone && !graph.eigenpairs) {
      graph.eigenpairs = to_eigenpairs(compute_spectrum(graph, options));
    }
  }

  // Graph g as the network reads it, in `own` if it had to be completed.
  const Graph* complete(const Graph* graph, std::optional<Graph>& own) const {
    validate(*graph);
    if (lacks_positions(*graph)) {
      own = *graph;
      add_positions(*own);
      graph = &*own;
    }
    check_graph(config(), *graph, "");
    return graph;
  }

  enum class What { kOutputs, kRows, kNodes };  // kRows, kNodes: embeddings

  // With `problems`, one per graph: a graph that overflows the network is noted there instead of thrown; its rows are not finite.
  Predictions run(std::span<const Graph* const> graphs, What what, const PredictOptions& options,
                  std::vector<std::string>* problems = nullptr) const {
    SAN_CHECK(options.threads >= 0 && options.batch_size >= 0, "threads and batch size must not be negative");
    Predictions out;
    out.columns = what == What::kOutputs ? config().outputs : config().final_dim();
    const bool per_node = what == What::kNodes || node_task();
    out.row_offsets = {0};
    for (const Graph* graph : graphs) out.row_offsets.push_back(out.rows += per_node ? graph->num_nodes : 1);
    out.values.resize(static_cast<size_t>(out.rows) * static_cast<size_t>(out.columns));

    const std::vector<Piece> pieces = cut(graphs, options.batch_size);
    const int threads = options.threads == 0 ? available_threads() : options.threads;
    // Many pieces: each thread has pieces of its own. Few large ones: the threads share each of them.
    int64_t nodes = 0;
    for (const Graph* graph : graphs) nodes += graph->num_nodes;
    const bool inside = threads > 1 && pieces.size() < static_cast<size_t>(threads) && nodes > kAutoNodes;
    const auto work = [&](size_t index, ThreadPool& pool) {
      const Piece piece = pieces[index];
      std::vector<std::optional<Graph>> own(piece.end - piece.begin);
      std::vector<const Graph*> batch_graphs(own.size());
      for (size_t i = 0; i < own.size(); ++i) batch_graphs[i] = complete(graphs[piece.begin + i], own[i]);
      const Batch batch = make_batch(batch_graphs, stored.description.input.spectral.num_pairs);
      ContextPool::Loan loan(contexts);
      Context& context = *loan;
      if (what == What::kOutputs) {
        network.predict(batch, pool, context.workspace, context.outputs);
      } else {
        network.embed(batch, what == What::kNodes, pool, context.workspace, context.outputs);
      }
      const auto begin = static_cast<size_t>(out.row_offsets[piece.begin] * out.columns),
                 end = static_cast<size_t>(out.row_offsets[piece.end] * out.columns);
      std::copy_n(context.outputs.begin(), end - begin, out.values.begin() + static_cast<ptrdiff_t>(begin));
      for (size_t g = piece.begin; g < piece.end; ++g) {
        const double *from = out.values.data() + out.row_offsets[g] * out.columns,
                     *to = out.values.data() + out.row_offsets[g + 1] * out.columns;
        if (std::all_of(from, to, [](double x) { return std::isfinite(x); })) continue;
        const std::string problem = fmt::format("graph '{}': the network's numbers overflow", printable(graphs[g]->id));
        if (problems == nullptr) fail("{}", problem);
        (*problems)[g] = problem;
      }
      if (what == What::kOutputs && !options.raw) {
        make_readable(stored.description.task, std::span(out.values).subspan(begin, end - begin), out.columns);
      }
    };
    if (inside) {
      ThreadPool pool(threads);
      for (size_t i = 0; i < pieces.size(); ++i) work(i, pool);
    } else {
      parallel_for(static_cast<int64_t>(pieces.size()), threads, [&](int64_t i) {
        ThreadPool alone(1);
        work(static_cast<size_t>(i), alone);
      });
    }
    return out;
  }

  StoredModel stored;
  Network network;
  mutable ContextPool contexts;
};

namespace {

std::vector<const Graph*> pointers_to(std::span<const Graph> graphs) {
  std::vector<const Graph*> pointers;
  pointers.reserve(graphs.size());
  for (const Graph& graph : graphs) pointers.push_back(&graph);
  return pointers;
}

}  // namespace

Predictor Predictor::load(const std::string& folder) {
  return Predictor(read_model(folder));
}

Predictor::Predictor(StoredModel model) : impl_(std::make_unique<const Impl>(std::move(model))) {}
Predictor::~Predictor() = default;
Predictor::Predictor(Predictor&&) noexcept = default;
Predictor& Predictor::operator=(Predictor&&) noexcept = default;

const ModelDescription& Predictor::description() const {
  return impl_->stored.description;
}
std::string Predictor::task() const {
  return std::string(enum_name(description().task.kind));
}
bool Predictor::node_task() const {
  return impl_->node_task();
}
int Predictor::outputs() const {
  return impl_->config().outputs;
}
std::vector<std::string> Predictor::output_names() const {
  return san::output_names(description());
}
int Predictor::embedding_width() const {
  return impl_->config().final_dim();
}
bool Predictor::takes_smiles() const {
#ifdef SAN_WITH_RDKIT
  return description().input.featuriser != "none";
#else
  return false;
#endif
}

Predictions Predictor::predict(std::span<const Graph* const> graphs, const PredictOptions& options) const {
  return impl_->run(graphs, Impl::What::kOutputs, options);
}
Predictions Predictor::predict(std::span<const Graph> graphs, const PredictOptions& options) const {
  return predict(pointers_to(graphs), options);
}
Predictions Predictor::predict(const Graph& graph, const PredictOptions& options) const {
  const Graph* const pointer = &graph;
  return predict(std::span(&pointer, 1), options);
}

Predictions Predictor::embed(std::span<const Graph* const> graphs, bool nodes, const PredictOptions& options) const {
  return impl_->run(graphs, nodes ? Impl::What::kNodes : Impl::What::kRows, options);
}
Predictions Predictor::embed(std::span<const Graph> graphs, bool nodes, const PredictOptions& options) const {
  return embed(pointers_to(graphs), nodes, options);
}

std::optional<Graph> Predictor::graph_of_smiles([[maybe_unused]] std::string_view smiles,
                                                [[maybe_unused]] std::string& error) const {
  SAN_CHECK(description().input.featuriser != "none", "this model was not trained on molecules: it takes no SMILES");
#ifdef SAN_WITH_RDKIT
  FeaturiserOptions options;
  options.featuriser = featuriser_from_name(description().input.featuriser);
  std::optional<Graph> graph = smiles_to_graph(smiles, options, error);
  if (!graph) return std::nullopt;
  graph->id = graph->smiles = smiles;
  try {
    add_positions(*graph);
    check_graph(impl_->config(), *graph, "");
  } catch (const Error& problem) {
    error = problem.what();
    return std::nullopt;
  }
  return graph;
#else
  fail("this library was built without RDKit: it reads no SMILES");
#endif
}

void Predictor::add_positions(Graph& graph) const {
  impl_->add_positions(graph);
}

Predictions Predictor::predict_smiles(std::span<const std::string> smiles, const PredictOptions& options,
                                      std::vector<std::string>* errors) const {
  std::vector<std::optional<Graph>> graphs(smiles.size());
  std::vector<std::string> problems(smiles.size());
  parallel_for(static_cast<int64_t>(smiles.size()), options.threads, [&](int64_t i) {
    const auto at = static_cast<size_t>(i);
    graphs[at] = graph_of_smiles(smiles[at], problems[at]);
    if (!graphs[at] && errors == nullptr) fail("{}", problems[at]);
  });
  std::vector<const Graph*> good;
  for (const auto& graph : graphs) {
    if (graph) good.push_back(&*graph);
  }
  std::vector<std::string> overflows(good.size());
  const Predictions some = impl_->run(good, Impl::What::kOutputs, options, errors == nullptr ? nullptr : &overflows);

  Predictions all;
  all.columns = some.columns;
  all.row_offsets = {0};
  size_t next = 0;  // of `good`
  for (size_t i = 0; i < graphs.size(); ++i) {
    if (graphs[i]) problems[i] = overflows[next++];
    if (problems[i].empty()) {
      all.values.insert(all.values.end(), some.values.begin() + some.row_offsets[next - 1] * some.columns,
                        some.values.begin() + some.row_offsets[next] * some.columns);
    } else if (!node_task()) {
      all.values.insert(all.values.end(), static_cast<size_t>(all.columns), std::numeric_limits<double>::quiet_NaN());
    }
    all.rows = static_cast<int64_t>(all.values.size()) / all.columns;
    all.row_offsets.push_back(all.rows);
  }
  if (errors != nullptr) *errors = std::move(problems);
  return all;
}

Predictions Predictor::predict_smiles(const std::string& smiles, const PredictOptions& options) const {
  return predict_smiles(std::span(&smiles, 1), options);
}

}  // namespace san
