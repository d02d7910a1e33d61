// san bench: how fast this machine trains and predicts, as graphs/s and as percent of its own matrix-product peak.
#include <ATen/Parallel.h>
#include <sys/resource.h>

#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>

#include "san/base/parallel.h"
#include "san/base/random.h"
#include "san/base/thread_pool.h"
#include "san/cli/commands.h"
#include "san/cli/main.h"
#include "san/graph/generators.h"
#include "san/kernels/kernels.h"
#include "san/model/network.h"
#include "san/nn/engine.h"
#include "san/nn/task.h"
#include "san/train/optimiser.h"
#include "san/train/trainer.h"

namespace san::cli {
namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::ordered_json;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

struct Options {
  std::string what;
  std::string config, data;
  std::vector<std::string> set;
  std::vector<int> threads;
  std::vector<std::string> engines = {"fused"};
  double seconds = 10;
  int batch_size = 0, nodes = 0;
  bool json = false;
};

// As the network keeps its numbers: at the start of a cache line.
template <typename T>
struct Aligned {
  using value_type = T;
  Aligned() = default;
  template <typename U>
  explicit Aligned(const Aligned<U>&) {}
  T* allocate(size_t n) { return static_cast<T*>(::operator new (n * sizeof(T), std::align_val_t{64})); }
  void deallocate(T* p, size_t) { ::operator delete (p, std::align_val_t{64}); }
  bool operator==(const Aligned&) const { return true; }
};
using Floats = std::vector<float, Aligned<float>>;

double peak_rss_mb() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

// GFLOP/s of products of width 64 .. 512 on all threads at once: the best width, the best of some passes. A pass takes some 30 ms,
// as a training step does: on shared machines shorter moments would show a speed that nothing longer can have.
double matrix_peak(ThreadPool& pool, double seconds) {
  const Kernels& k = kernels();
  double best = 0;
  const auto start = Clock::now();
  std::vector<Floats> memory(static_cast<size_t>(pool.threads()));
  while (seconds_since(start) < seconds) {
    for (const int64_t width : {64, 128, 256, 512}) {
      for (auto& m : memory) m.assign(static_cast<size_t>(3 * width * width + 3 * kPad), 0.01F);
      const auto repeats = static_cast<int64_t>(std::ceil(3e9 / (2.0 * static_cast<double>(width * width * width))));
      const auto began = Clock::now();
      pool.run(pool.threads(), [&](int64_t task, int) {
        float* base = memory[static_cast<size_t>(task)].data();
        float *b = base + width * width + kPad, *c = b + width * width + kPad;
        for (int64_t i = 0; i < repeats; ++i) k.gemm({width, width, width, base, width, b, width, 1, c, width, true});
      });
      const double flops = 2.0 * static_cast<double>(width * width * width * repeats * pool.threads());
      best = std::max(best, flops / seconds_since(began) / 1e9);
    }
  }
  return best;
}

// Molecule-like graphs: trees with a few rings, degree at most 4. For configurations whose data was not named.
Graph make_molecule(const ModelConfig& model, int nodes, Random& random) {
  Graph graph;
  graph.num_nodes = nodes;
  std::vector<int> degree(static_cast<size_t>(nodes));
  const auto join = [&](int a, int b) {
    graph.edges.push_back({a, b});
    graph.edges.push_back({b, a});
    ++degree[static_cast<size_t>(a)];
    ++degree[static_cast<size_t>(b)];
  };
  for (int a = 1; a < nodes; ++a) {
    int b = std::max(0, a - random.range(1, 4));
    while (degree[static_cast<size_t>(b)] >= 4) b = (b + 1) % a;
    join(b, a);
  }
  for (int ring = 0; ring < nodes / 8; ++ring) {
    const int a = random.range(0, nodes - 5), b = a + 5;
    if (degree[static_cast<size_t>(a)] < 4 && degree[static_cast<size_t>(b)] < 4) join(a, b);
  }
  const auto fill = [&](Features& f, size_t rows, const std::vector<int>& tables, int values, int low) {
    f.category_columns = static_cast<int>(tables.size());
    f.value_columns = values;
    for (size_t r = 0; r < rows; ++r) {
      for (const int size : tables) f.categories.push_back(random.range(std::min(low, size - 1), std::min(size, 5)));
      for (int v = 0; v < values; ++v) f.values.push_back(static_cast<float>(random.normal()));
    }
  };
  fill(graph.node_features, static_cast<size_t>(nodes), model.node_tables, model.node_values, 0);
  fill(graph.edge_features, graph.edges.size(), model.edge_tables, model.edge_values, 1);
  return graph;
}

// Labels are made up when there are none.
std::unique_ptr<GraphSource> open_bench_data(const std::string& path, const RunConfig& config) {
  SourceOptions options = source_options(config.data);
  options.labels_required = false;
  return open_source(path, options);
}

std::vector<Graph> bench_graphs(const Options& o, const RunConfig& config, int64_t wanted) {
  std::vector<Graph> graphs;
  const std::string path = o.data.empty() ? config.data.path : o.data;
  Random random(1);
  if (o.nodes > 0 || path.empty()) {
    // The mean sizes of the benchmarks: 23.2 atoms (ZINC), 25.5 (ogbg-molhiv and molpcba).
    const bool zinc = config.data.featuriser == "zinc";
    for (int64_t i = 0; i < wanted; ++i) {
      const int n =
          o.nodes > 0
              ? o.nodes
              : std::clamp(static_cast<int>(std::lround((zinc ? 23.2 : 25.7) + (zinc ? 4.5 : 6) * random.normal())), 6,
                           60);
      graphs.push_back(make_molecule(config.model, n, random));
    }
  } else {
    const std::unique_ptr<GraphSource> source = open_bench_data(path, config);
    for (Record record; static_cast<int64_t>(graphs.size()) < wanted && source->next(record);) {
      graphs.push_back(source->convert(std::move(record)));
    }
  }
  SAN_CHECK(!graphs.empty(), "no graphs to measure with");
  if (config.model.lpe.kind != LpeKind::kNone) {
    parallel_for(static_cast<int64_t>(graphs.size()), 0, [&](int64_t i) {
      Graph& graph = graphs[static_cast<size_t>(i)];
      if (!graph.eigenpairs) graph.eigenpairs = to_eigenpairs(compute_spectrum(graph, config.spectral));
    });
  }
  for (Graph& graph : graphs) {
    const auto rows = config.model.readout == Readout::kNode ? static_cast<size_t>(graph.num_nodes) : 1;
    const bool classes = config.data.task == TaskKind::kMulticlass || config.data.task == TaskKind::kNodeClassification;
    const auto columns =
        classes || config.model.readout == Readout::kNode ? 1 : static_cast<size_t>(config.model.outputs);
    auto& labels = config.model.readout == Readout::kNode ? graph.node_labels : graph.graph_labels;
    labels.clear();
    (config.model.readout == Readout::kNode ? graph.graph_labels : graph.node_labels).clear();
    for (size_t i = 0; i < rows * columns; ++i) {
      labels.push_back(config.data.task == TaskKind::kRegression ? random.normal()
                                                                 : static_cast<double>(random.below(2)));
    }
  }
  return graphs;
}

Json measure(const Options& o, const RunConfig& config, const std::vector<Batch>& batches, int threads,
             const std::string& engine_name) {
  at::set_num_threads(threads);
  ThreadPool pool(threads);
  double peak = matrix_peak(pool, 0.5);
  nn::SanModel model(config.model, 1);
  nn::Engine engine(model, engine_name == "fused");
  const nn::TorchThreads torch_threads(engine.fused() ? 1 : threads);
  TaskConfig task;
  task.kind = config.data.task;
  task.loss = config.train.loss;
  const bool training = o.what == "train";
  const auto count = model.flat_parameters().numel();
  std::vector<float> first(static_cast<size_t>(count)), second(static_cast<size_t>(count));
  int64_t step = 0, graphs = 0;
  double operations = 0, other = 0;
  for (const Batch& batch : batches) {
    graphs += batch.num_graphs;
    operations += Network::forward_operations(config.model, batch) * (training ? 3 : 1);
  }
  const auto run = [&](const Batch& batch) {
    if (!training) {
      engine.predict(batch);
      return;
    }
    model.flat_gradients().zero_();
    const at::Tensor outputs = engine.training(batch, static_cast<uint64_t>(step));
    nn::task_loss(task, outputs, nn::labels_of(batch)).backward();
    const auto began = Clock::now();
    AdamOptions options;
    options.lr = 1e-5;
    adam_step(model.flat_parameters().data_ptr<float>(), model.flat_gradients().data_ptr<float>(), first.data(),
              second.data(), count, ++step, options);
    engine.weights_changed();
    other += seconds_since(began);
  };
  run(batches[0]);
  engine.clear_profile();
  other = 0;
  // Machines are shared: each batch counts with its best time of several passes (at least two), and the peak is the best of
  // those measured between them.
  std::vector<double> best(batches.size(), 1e30);
  const auto start = Clock::now();
  double total = 0;
  for (int pass = 0; pass < 2 || seconds_since(start) < o.seconds; ++pass) {
    for (size_t i = 0; i < batches.size(); ++i) {
      const auto began = Clock::now();
      run(batches[i]);
      const double seconds = seconds_since(began);
      total += seconds;
      best[i] = std::min(best[i], seconds);
    }
    peak = std::max(peak, matrix_peak(pool, 0.05));
  }
  double best_seconds = 0;
  for (const double seconds : best) best_seconds += seconds;
  const double best_flops = operations / best_seconds / 1e9;
  Json out;
  out["what"] = o.what;
  out["config"] = o.config;
  out["engine"] = engine.fused() ? "fused" : "torch";
  out["cpu_level"] = cpu_level_name(cpu_level());
  out["threads"] = threads;
  out["batch_size"] = batches[0].num_graphs;
  out["nodes_per_graph"] = static_cast<double>(batches[0].num_nodes) / batches[0].num_graphs;
  out["eigenpairs"] = batches[0].max_pairs;
  out["graphs_per_s"] = static_cast<double>(graphs) / best_seconds;
  out["mflop_per_graph"] = operations / static_cast<double>(graphs) / 1e6;
  out["gflops"] = best_flops;
  out["peak_gflops"] = peak;
  out["percent_of_peak"] = 100 * best_flops / peak;
  out["peak_rss_mb"] = peak_rss_mb();
  if (engine.fused()) {
    Json shares;
    for (const auto& [name, seconds] : engine.profile()) shares[name] = 100 * seconds / total;
    if (training) shares["optimiser, weights changed"] = 100 * other / total;
    out["percent_of_time"] = shares;
  }
  return out;
}

// GFLOP/s of single kernels on one thread.
Json measure_kernels(double seconds) {
  ThreadPool pool(1);
  const double peak = matrix_peak(pool, seconds);
  Json out;
  out["what"] = "kernels";
  out["cpu_level"] = cpu_level_name(cpu_level());
  out["threads"] = 1;
  out["peak_gflops"] = peak;
  Json table = Json::array();
  const Kernels& k = kernels();
  const auto row = [&](const std::string& name, double flops, const std::function<void()>& body) {
    double best = 1e30;
    const auto start = Clock::now();
    while (seconds_since(start) < 0.3) {
      const auto began = Clock::now();
      body();
      best = std::min(best, seconds_since(began));
    }
    table.push_back(
        {{"kernel", name}, {"gflops", flops / best / 1e9}, {"percent_of_peak", 100 * flops / best / 1e9 / peak}});
  };
  const auto floats = [](int64_t n) {
    Floats v(static_cast<size_t>(n + kPad));
    Random random(3);
    for (float& x : v) x = static_cast<float>(random.normal());
    return v;
  };
  for (const int d : {48, 56, 64, 80, 304}) {
    auto a = floats(5 * d * d), x = floats(64 * 5 * d), y = floats(64 * 5 * d);
    row(fmt::format("projections, d = {}", d), 2.0 * 64 * 5 * d * d, [&] {
      k.gemm({64, 5 * d, d, a.data(), 5 * d, x.data(), d, 1, y.data(), 5 * d, false});
    });
    auto g = floats(12 * d), rows = floats(1024 * d), dy = floats(1024 * 5 * d);
    row(fmt::format("weight gradient, d = {}", d), 2.0 * 1024 * 12 * d, [&] {
      k.gemm({12, d, 1024, rows.data(), d, dy.data(), 1, 5 * d, g.data(), d, true});
    });
  }
  for (const int width : {8, 16}) {
    for (const double rate : {0.0, 0.1}) {
      LpeShape s;
      s.k = width;
      s.heads = 4;
      s.m = 10;
      s.ff = s.ff_padded = 2048;
      auto weights = floats(2048 * width * 2 + 2048 + 8 * width * width);
      LpeLayer l{};
      l.ff1 = weights.data();
      l.ff2 = l.ff1 + 2048 * width;
      l.ff1_bias = l.ff2 + 2048 * width;
      l.in_weight = l.ff1_bias + 2048;
      l.out_weight = l.in_weight + 3 * width * width;
      auto small = floats(9 * width);
      l.in_bias = small.data();
      l.out_bias = l.norm1_weight = l.norm1_bias = l.norm2_weight = l.norm2_bias = l.ff2_bias =
          small.data() + 3 * width;
      l.attention = l.output = l.feed_forward = l.hidden = Dropout::make(rate, 1, 1);
      std::vector<uint32_t> bits(1024);
      for (uint32_t i = 0; i < 1024; ++i) bits[i] = mask_column(l.hidden.key, i);
      l.hidden_bits = bits.data();
      std::vector<int32_t> counts(kLanes, 10);
      constexpr int64_t kBlocks = 32;
      auto scratch = floats(lpe_scratch(s, kBlocks));
      const int64_t size = int64_t{width} * s.tokens();
      auto x = floats(size), saved = floats(3 * size), rstd = floats(2 * s.tokens());
      const LpeBlock block{&s, &l, 0, counts.data(), scratch.data()};
      const LpeSaved keep{saved.data(), saved.data() + size, rstd.data(), saved.data() + 2 * size,
                          rstd.data() + s.tokens()};
      const double flops = 4.0 * width * 2048 * s.tokens();
      const auto start = x;
      row(fmt::format("LPE layer forward, k = {}, dropout {}", width, rate), flops, [&] {
        x = start;
        k.lpe_forward(block, x.data(), &keep);
      });
      auto x1 = floats(kBlocks * size), dy = floats(kBlocks * size), dx = floats(kBlocks * size),
           g = floats(2 * 2048 * width + 2048);
      row(fmt::format("LPE feed-forward backward, k = {}, dropout {}", width, rate), 2 * flops * kBlocks * 256 / 2048,
          [&] {
            k.lpe_feed_forward_backward({&s, &l, kBlocks, 0, 0, 256, x1.data(), dy.data(), dx.data(), g.data(),
                                         g.data() + 2 * 2048 * width, g.data() + 2048 * width, scratch.data()});
          });
      // Tokens that are alike, as training steps have them side by side.
      const int64_t ld = s.row();
      std::vector<float> columns(static_cast<size_t>(2048 * width)), norms(2048),
          rows(static_cast<size_t>(kGroup * ld + kPad)), rows_dy(rows);
      const auto middle = floats(width);
      for (int h = 0; h < 2048; ++h) {
        for (int i = 0; i < width; ++i) {
          columns[static_cast<size_t>(i * 2048 + h)] = l.ff1[h * width + i];
          norms[static_cast<size_t>(h)] += l.ff1[h * width + i] * l.ff1[h * width + i];
        }
        norms[static_cast<size_t>(h)] = std::sqrt(norms[static_cast<size_t>(h)]);
      }
      for (int t = 0; t < kGroup; ++t) {
        for (int i = 0; i < width; ++i) {
          rows[static_cast<size_t>(t * ld + i)] =
              middle[static_cast<size_t>(i)] + 0.1F * x1[static_cast<size_t>(t * width + i)];
          rows_dy[static_cast<size_t>(t * ld + i)] = dy[static_cast<size_t>(t * width + i)];
        }
      }
      l.ff1_columns = columns.data();
      l.ff1_norms = norms.data();
      std::vector<uint32_t> numbers(kGroup), some(64), all(64);
      for (uint32_t t = 0; t < kGroup; ++t) numbers[t] = t;
      auto xt = floats(kGroup * width), dyt = floats(kGroup * width), linear = floats(width * width), sums = floats(ld),
           y = floats(kGroup * ld), d_x = floats(kGroup * ld), group_scratch = floats(lpe_group_scratch(s));
      const double useful = 4.0 * width * 2048 * kGroup;
      row(fmt::format("LPE feed-forward of 64 alike tokens, k = {}, dropout {}", width, rate), useful, [&] {
        k.lpe_group_forward({&s, &l, kGroup, numbers.data(), rows.data(), xt.data(), y.data(), some.data(), all.data(),
                             linear.data(), group_scratch.data()});
      });
      row(fmt::format("the same backward, k = {}, dropout {}", width, rate), 2 * useful, [&] {
        k.lpe_group_backward({&s,
                              &l,
                              kGroup,
                              numbers.data(),
                              rows.data(),
                              xt.data(),
                              rows_dy.data(),
                              dyt.data(),
                              linear.data(),
                              linear.data(),
                              sums.data(),
                              some.data(),
                              all.data(),
                              0,
                              2048,
                              d_x.data(),
                              g.data(),
                              g.data() + 2 * 2048 * width,
                              g.data() + 2048 * width,
                              group_scratch.data()});
      });
    }
  }
  for (const auto& [d, heads, n] :
       {std::array{48, 8, 117}, std::array{80, 10, 118}, std::array{56, 8, 23}, std::array{64, 4, 26}}) {
    AttentionShape s;
    s.d = d;
    s.heads = heads;
    s.ld = 5 * d;
    s.k1 = d;
    s.q2 = 2 * d;
    s.k2 = 3 * d;
    s.v = 4 * d;
    s.added_weight = 0.1F;
    auto p = floats(n * s.ld), q = floats(n * d), num = floats(n * d), z = floats(n * heads), d_out = floats(n * d),
         share = floats(n * heads), dot = floats(n * heads), dp = floats(n * s.ld), e = floats(d), de = floats(d),
         scratch = floats(dense_scratch(s, n, heads));
    for (float& v : p) v *= 0.3F;
    std::vector<int64_t> begin{0};
    std::vector<int32_t> other;
    for (int i = 0; i < n; ++i) {
      for (int j = i % 3; j < n; j += 3) {
        if (j != i) other.push_back(j);
      }
      begin.push_back(static_cast<int64_t>(other.size()));
    }
    DenseGraph g{};
    g.shape = &s;
    g.projections = p.data();
    g.e = g.e1 = e.data();
    g.scaled_q = q.data();
    g.end = n;
    g.head_end = heads;
    g.pair_begin = begin.data();
    g.other = other.data();
    g.scratch = scratch.data();
    g.num = num.data();
    g.z = z.data();
    g.d_out = d_out.data();
    g.share = share.data();
    g.dot = dot.data();
    g.d_projections = dp.data();
    g.d_e = g.d_e1 = de.data();
    const double flops = 4.0 * d * n * n;
    row(fmt::format("attention forward, d = {}, {} heads, {} nodes", d, heads, n), flops, [&] { k.dense_forward(g); });
    row(fmt::format("attention backward, d = {}, {} heads, {} nodes", d, heads, n), 2 * flops,
        [&] { k.dense_backward(g); });
    g.scaled_q1 = q.data();
    row(fmt::format("  with real edges of one type, forward"), flops, [&] { k.dense_forward(g); });
    row(fmt::format("  with real edges of one type, backward"), 2 * flops, [&] { k.dense_backward(g); });
  }
  out["kernels"] = table;
  return out;
}

Json measure_prepare(const Options& o, const RunConfig& config, int threads) {
  const std::string path = o.data.empty() ? config.data.path : o.data;
  SAN_CHECK(!path.empty(), "bench prepare needs --data");
  const std::unique_ptr<GraphSource> source = open_bench_data(path, config);
  StreamOptions stream;
  stream.spectral = config.spectral;
  stream.threads = threads;
  int64_t graphs = 0;
  const auto start = Clock::now();
  stream_graphs(*source, stream, nullptr, [&](Streamed&) { ++graphs; });
  Json out;
  out["what"] = "prepare";
  out["config"] = o.config;
  out["threads"] = threads;
  out["graphs_per_s"] = static_cast<double>(graphs) / seconds_since(start);
  out["peak_rss_mb"] = peak_rss_mb();
  return out;
}

void print(const Json& r) {
  const std::string what = r["what"];
  if (what == "kernels") {
    fmt::print("one thread, {}, matrix-product peak {:.0f} GFLOP/s\n", r["cpu_level"].get<std::string>(),
               r["peak_gflops"].get<double>());
    for (const Json& k : r["kernels"]) {
      fmt::print("  {:<48} {:>6.1f} GFLOP/s  {:>3.0f} %\n", k["kernel"].get<std::string>(), k["gflops"].get<double>(),
                 k["percent_of_peak"].get<double>());
    }
    return;
  }
  if (what == "prepare") {
    fmt::print("{} threads: {:.0f} graphs/s\n", r["threads"].get<int>(), r["graphs_per_s"].get<double>());
    return;
  }
  fmt::print("{}, {} threads: {:.1f} graphs/s, {:.1f} GFLOP/s of {:.0f} = {:.1f} % of peak, {:.0f} MB\n",
             r["engine"].get<std::string>(), r["threads"].get<int>(), r["graphs_per_s"].get<double>(),
             r["gflops"].get<double>(), r["peak_gflops"].get<double>(), r["percent_of_peak"].get<double>(),
             r["peak_rss_mb"].get<double>());
  if (!r.contains("percent_of_time")) return;
  double rest = 100;
  for (const auto& [name, share] : r["percent_of_time"].items()) {
    rest -= share.get<double>();
    if (share.get<double>() >= 0.5) fmt::print("  {:>5.1f} %  {}\n", share.get<double>(), name);
  }
  fmt::print("  {:>5.1f} %  the rest\n", rest);
}

}  // namespace

int run_bench(int argc, char** argv) {
  Options o;
  CLI::App app(
      "Speed on this machine, as graphs/s, GFLOP/s of useful work and percent of the machine's own matrix-product "
      "peak,\n"
      "measured in the same run with the same threads. Useful work: per node and layer 20 d^2, per ordered pair and "
      "layer\n"
      "4 d, per LPE token and layer 4 k F plus attention; a training step is three forward passes; recomputation and\n"
      "dropout do not count. Each batch counts with its best time of several passes, the peak with its best 30 ms.\n\n"
      "  san bench train --config configs/zinc.toml --threads 1,2 --engine fused,torch\n"
      "  san bench kernels");
  app.add_option("what", o.what, "train, forward, kernels or prepare")
      ->required()
      ->check(CLI::IsMember({"train", "forward", "kernels", "prepare"}));
  app.add_option("--config", o.config, "the experiment, configs/*.toml");
  app.add_option("--data", o.data, "graphs to measure with (default: the config's, else molecule-like random graphs)");
  app.add_option("--set", o.set, "other options, section.name=value")->take_all();
  app.add_option("--threads", o.threads, "numbers of threads, separated by commas (default: all cores)")
      ->delimiter(',');
  app.add_option("--engine", o.engines, "fused, torch or both")
      ->delimiter(',')
      ->check(CLI::IsMember({"fused", "torch"}));
  app.add_option("--batch-size", o.batch_size, "graphs per batch (default: the config's)");
  app.add_option("--nodes", o.nodes, "random graphs of so many nodes instead of data")->check(CLI::Range(1, 1 << 20));
  app.add_option("--seconds", o.seconds, "how long to measure each")->capture_default_str();
  app.add_flag("--json", o.json, "one JSON object per line");
  int exit_code = 0;
  if (!parse_flags(app, argc, argv, exit_code)) return exit_code;
  if (o.threads.empty()) o.threads = {available_threads()};
  for (const int threads : o.threads)
    SAN_CHECK(threads >= 1 && threads <= 1024, "--threads: {} is not 1 .. 1024", threads);
  const auto report = [&](const Json& r) {
    if (o.json) {
      fmt::print("{}\n", r.dump());
    } else {
      print(r);
    }
    std::fflush(stdout);
  };
  if (o.what == "kernels") {
    report(measure_kernels(std::min(o.seconds, 2.0)));
    return kDone;
  }
  SAN_CHECK(!o.config.empty(), "bench {} needs --config", o.what);
  RunConfig config;
  read_toml(config, o.config);
  for (const std::string& assignment : o.set) set_option(config, assignment);
  validate(config);
  if (o.what == "prepare") {
    for (const int threads : o.threads) report(measure_prepare(o, config, threads));
    return kDone;
  }
  if (config.data.task == TaskKind::kNodeClassification && config.model.outputs < 2) config.model.outputs = 6;
  const int batch_size = o.batch_size > 0 ? o.batch_size : config.train.batch_size;
  // Large graphs: few of them, a step takes seconds.
  const int64_t enough = o.nodes > 500 ? std::max<int64_t>(1, 2000 / o.nodes) : 12;
  const int64_t batch_count = std::min(enough, std::clamp<int64_t>(512 / batch_size, 2, 12));
  const std::vector<Graph> graphs = bench_graphs(o, config, batch_size * batch_count);
  std::vector<Batch> batches;
  for (size_t first = 0; first < graphs.size(); first += static_cast<size_t>(batch_size)) {
    std::vector<const Graph*> part;
    for (size_t i = first; i < std::min(graphs.size(), first + static_cast<size_t>(batch_size)); ++i)
      part.push_back(&graphs[i]);
    batches.push_back(make_batch(part, config.spectral.num_pairs));
  }
  for (const std::string& engine : o.engines) {
    for (const int threads : o.threads) report(measure(o, config, batches, threads, engine));
  }
  return kDone;
}

}  // namespace san::cli
