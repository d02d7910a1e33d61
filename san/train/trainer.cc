#include "san/train/trainer.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>

#include "san/base/file.h"
#include "san/base/random.h"
#include "san/data/csv.h"
#include "san/data/fingerprint.h"
#include "san/data/loader.h"
#include "san/nn/engine.h"
#include "san/nn/task.h"
#include "san/train/charts.h"
#include "san/train/metrics.h"
#include "san/train/optimiser.h"
#include "san/train/tensorboard.h"

namespace san {
namespace {

using charts::grouped;
using Json = nlohmann::ordered_json;
using Metrics = std::vector<std::pair<std::string, double>>;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Held while a run writes to its folder; the system lets go of it when the process ends, however it ends.
class FolderLock {
 public:
  explicit FolderLock(const std::filesystem::path& folder) {
    const std::string path = (folder / ".lock").string();
    fd_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    SAN_CHECK(fd_ >= 0, "{}: cannot write: {}", path, std::strerror(errno));
    if (::flock(fd_, LOCK_EX | LOCK_NB) != 0) {
      ::close(fd_);
      fail("{}: another run is writing to this folder; let it end, or choose another folder", folder.string());
    }
  }
  ~FolderLock() { ::close(fd_); }
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int fd_ = -1;
};

// Node LPE: random signs of the eigenvectors. A pure function of (seed, epoch, graph or batch, eigenvector).
void flip_signs(Batch& batch, const std::vector<int64_t>& graphs, SignFlip mode, uint64_t seed, int64_t epoch,
                int64_t batch_number) {
  if (mode == SignFlip::kNone) return;
  const uint64_t stream = random_bits(seed, 0x51676e, static_cast<uint64_t>(epoch));
  for (int32_t g = 0; g < batch.num_graphs; ++g) {
    const auto item = static_cast<uint64_t>(mode == SignFlip::kBatch ? batch_number : graphs[static_cast<size_t>(g)]);
    for (int32_t i = 0; i < batch.num_pairs[static_cast<size_t>(g)]; ++i) {
      if (random_bits(stream, item, static_cast<uint64_t>(i)) >> 63 == 0) continue;
      for (int32_t node = batch.node_offsets[static_cast<size_t>(g)];
           node < batch.node_offsets[static_cast<size_t>(g) + 1]; ++node) {
        float& entry = batch.eigenvectors[static_cast<size_t>(node) * static_cast<size_t>(batch.max_pairs) +
                                          static_cast<size_t>(i)];
        entry = -entry;
      }
    }
  }
}

void append_tensor(std::vector<double>& to, const at::Tensor& tensor) {
  const at::Tensor values = tensor.detach().to(at::kCPU, at::kDouble).contiguous();
  to.insert(to.end(), values.data_ptr<double>(), values.data_ptr<double>() + values.numel());
}

at::Tensor matrix_of(const std::vector<double>& values, int64_t columns) {
  const auto rows = static_cast<int64_t>(values.size()) / std::max<int64_t>(1, columns);
  return at::from_blob(const_cast<double*>(values.data()), {rows, columns}, at::TensorOptions(at::kDouble));
}

std::vector<double> readable(const TaskConfig& task, const std::vector<double>& outputs, int64_t columns) {
  std::vector<double> predictions;
  append_tensor(predictions, nn::task_predictions(task, matrix_of(outputs, columns)));
  return predictions;
}

Evaluation evaluate_with(nn::Engine& engine, const ModelDescription& description, const Dataset& data,
                         const std::vector<int64_t>& graphs, int batch_size) {
  Evaluation out;
  LoaderOptions options;
  options.batch_size = batch_size;
  options.shuffle = false;
  options.max_pairs = description.input.spectral.num_pairs;
  Loader loader(data, graphs, options, 0);
  const at::NoGradGuard no_grad;
  std::vector<double> outputs;
  BatchMeans means;
  const int columns = description.model.outputs;
  for (LoadedBatch loaded; loader.next(loaded);) {
    const at::Tensor result = engine.predict(loaded.batch);
    append_tensor(outputs, result);
    out.labels.insert(out.labels.end(), loaded.batch.labels.begin(), loaded.batch.labels.end());
    if (!loaded.batch.labels.empty()) {
      std::vector<double> predictions;
      append_tensor(predictions, nn::task_predictions(description.task, result));
      means.add(description.task, loaded.batch.labels, predictions, columns);
    }
  }
  out.predictions = readable(description.task, outputs, columns);
  if (!out.labels.empty()) {
    const auto rows = static_cast<int64_t>(outputs.size()) / columns;
    out.loss = nn::task_loss(description.task, matrix_of(outputs, columns),
                             matrix_of(out.labels, static_cast<int64_t>(out.labels.size()) / rows))
                   .item<double>();
    out.metrics = task_metrics(description.task, out.labels, out.predictions, columns);
    out.published_metrics = means.means();
  }
  return out;
}

// --- the state of a run, as a checkpoint holds it --------------------------------------------------------------------

// JSON has neither NaN nor infinity: they travel as strings.
Json number(double value) {
  return std::isfinite(value) ? Json(value) : Json(fmt::format("{}", value));
}
double number(const Json& json) {
  if (!json.is_string()) return json.get<double>();
  const auto text = json.get<std::string>();
  return text == "inf"    ? std::numeric_limits<double>::infinity()
         : text == "-inf" ? -std::numeric_limits<double>::infinity()
                          : std::nan("");
}

Json to_json(const Metrics& metrics) {
  Json out = Json::array();
  for (const auto& [name, value] : metrics) out.push_back({name, number(value)});
  return out;
}

Metrics metrics_from(const Json& json) {
  Metrics out;
  for (const Json& item : json) out.emplace_back(item.at(0).get<std::string>(), number(item.at(1)));
  return out;
}

struct RunState {
  int64_t epoch = 0;  // under way
  int64_t batch = 0;  // next one of that epoch
  int64_t step = 0;   // optimiser steps done
  double seconds = 0;
  Schedule schedule;
  double best_score = std::nan("");
  int64_t best_epoch = 0;  // counted from 1; 0 = none yet
  bool finished = false;
  std::vector<EpochRecord> history;
  // Of the epoch under way.
  double loss_sum = 0;
  int64_t loss_count = 0;
  std::vector<double> outputs, labels;

  Json json() const {
    Json epochs = Json::array();
    for (const EpochRecord& r : history) {
      epochs.push_back({r.epoch, r.seconds, r.learning_rate, number(r.train_loss), number(r.valid_loss),
                        to_json(r.train_metrics), to_json(r.valid_metrics), to_json(r.test_metrics)});
    }
    return {{"epoch", epoch},
            {"batch", batch},
            {"step", step},
            {"seconds", seconds},
            {"plateau_lr", schedule.plateau_lr},
            {"plateau_best", number(schedule.best)},
            {"plateau_bad", schedule.bad_epochs},
            {"plateau_started", schedule.started},
            {"best_score", number(best_score)},
            {"best_epoch", best_epoch},
            {"finished", finished},
            {"loss_sum", loss_sum},
            {"loss_count", loss_count},
            {"history", epochs}};
  }

  void read(const Json& json) {
    epoch = json.at("epoch");
    batch = json.at("batch");
    step = json.at("step");
    seconds = json.at("seconds");
    schedule = {json.at("plateau_lr"), number(json.at("plateau_best")), json.at("plateau_bad"),
                json.at("plateau_started")};
    best_score = number(json.at("best_score"));
    best_epoch = json.at("best_epoch");
    finished = json.at("finished");
    loss_sum = json.at("loss_sum");
    loss_count = json.at("loss_count");
    history.clear();
    for (const Json& e : json.at("history")) {
      history.push_back({e.at(0), e.at(1), e.at(2), number(e.at(3)), number(e.at(4)), metrics_from(e.at(5)),
                         metrics_from(e.at(6)), metrics_from(e.at(7))});
    }
  }
};

std::string metrics_csv(const std::vector<EpochRecord>& history) {
  std::string out = "epoch,seconds,lr,train_loss,valid_loss";
  if (history.empty()) return out + "\n";
  const auto names = [&](const char* part, const Metrics& metrics) {
    for (const auto& [name, ignored] : metrics) out += fmt::format(",{}_{}", part, name);
  };
  // The test columns stand there from the first epoch that has them.
  const EpochRecord* tested = &history.back();
  for (const EpochRecord& r : history) {
    if (!r.test_metrics.empty()) tested = &r;
  }
  names("train", history.back().train_metrics);
  names("valid", history.back().valid_metrics);
  names("test", tested->test_metrics);
  for (const EpochRecord& r : history) {
    out += fmt::format("\n{},{:.2f},{:.6g},{:.9g},{:.9g}", r.epoch, r.seconds, r.learning_rate, r.train_loss,
                       r.valid_loss);
    const auto values = [&](const Metrics& metrics, size_t columns) {
      for (size_t i = 0; i < columns; ++i) out += i < metrics.size() ? fmt::format(",{:.9g}", metrics[i].second) : ",";
    };
    values(r.train_metrics, history.back().train_metrics.size());
    values(r.valid_metrics, history.back().valid_metrics.size());
    values(r.test_metrics, tested->test_metrics.size());
  }
  return out + "\n";
}

std::string cpu_name() {
  LineReader reader("/proc/cpuinfo");
  for (std::string_view line; reader.next(line);) {
    if (line.starts_with("model name")) {
      const size_t colon = line.find(':');
      if (colon != std::string_view::npos) return std::string(line.substr(std::min(line.size(), colon + 2)));
    }
  }
  return "unknown";
}

// The running mean of a model's weights and statistics, ready to be evaluated.
struct Average {
  nn::SanModel model;
  nn::Engine engine;

  Average(const TrainJob& job, uint64_t seed)
      : model(job.description.model, seed), engine(model, job.config.train.engine == EngineKind::kFused) {}

  // After optimiser step number `step`, counted from 1. The first steps weigh more, or the mean would long remember where
  // training began.
  void follow(const nn::SanModel& trained, double decay, int64_t step) {
    const at::NoGradGuard no_grad;
    const double now = static_cast<double>(step), share = 1 - std::min(decay, (1 + now) / (10 + now));
    model.flat_parameters().lerp_(trained.flat_parameters(), share);
    for (size_t i = 0; i < model.tensors().size(); ++i) {
      const nn::SanModel::Entry& entry = model.tensors()[i];
      if (!entry.spec.trained) at::Tensor(entry.tensor).lerp_(trained.tensors()[i].tensor, share);
    }
  }
};

constexpr const char* kDataMark = "data-2";  // in a checkpoint; "data" was made of sizes and labels only

// Tells data sets apart by their graphs, categories and labels. Not by what is computed from them, in which another machine's
// last digits may differ.
std::string mark_of(const Dataset& data) {
  std::vector<uint64_t> sums;
  const auto add = [&](const auto& values) {
    sums.push_back(checksum(std::data(values), std::span(values).size_bytes()));
  };
  add(data.labels());
  for (int64_t i = 0; i < data.size(); ++i) {
    const Graph graph = data.graph(i);
    sums.push_back(static_cast<uint64_t>(graph.num_nodes));
    add(graph.edges);
    add(graph.node_features.categories);
    add(graph.edge_features.categories);
    add(graph.node_labels);
  }
  return fmt::format("{:016x}", checksum(sums.data(), sums.size() * sizeof(uint64_t)));
}

// --- the run ---------------------------------------------------------------------------------------------------------

class Run {
 public:
  Run(const TrainJob& job, const Dataset& data)
      : job_(job),
        config_(job.config.train),
        data_(data),
        lock_(prepared(job)),
        model_(job.description.model, static_cast<uint64_t>(job.config.train.seed)),
        engine_(model_, job.config.train.engine == EngineKind::kFused) {
    // Files that a killed process was writing. The lock is ours, so nobody is at it.
    for (const auto& part : {job.folder, job.folder / "last", job.folder / "model"}) remove_temporaries(part);
    if (config_.average > 0) average_.emplace(job, static_cast<uint64_t>(config_.seed));
    if (engine_.fused()) torch_threads_.emplace(1);
    const auto count = static_cast<size_t>(model_.flat_parameters().numel());
    first_.assign(count, 0);
    second_.assign(count, 0);
    if (job.resume) {
      restore();
    } else {
      if (job.description.model.standardise_nodes) measure_nodes();
      write_splits(job.folder / "splits.json", job.splits);
    }
    write_file(job.folder / "config.toml", to_toml(job.config));  // a resumed run may have been given higher limits
    if (!state_.finished) std::filesystem::remove(job.folder / "result.json");
  }

  TrainResult run() {
    start_ = Clock::now();
    events_.emplace((job_.folder / "events").string());
    while (!state_.finished) {
      if (state_.epoch >= config_.epochs || out_of_time()) break;
      if (!run_epoch()) return result(true);
    }
    state_.finished = true;
    checkpoint();
    return finish();
  }

 private:
  // Means and deviations of the training part's real-valued node features.
  void measure_nodes() {
    const auto columns = static_cast<size_t>(job_.description.model.node_values);
    std::vector<double> sum(columns), squares(columns);
    double count = 0;
    const auto each = [&](const auto& visit) {
      for (const int64_t graph : job_.splits.train) {
        const std::vector<float> values = data_.graph(graph).node_features.values;
        for (size_t i = 0; i < values.size(); ++i) visit(i % columns, static_cast<double>(values[i]));
      }
    };
    each([&](size_t column, double value) {
      sum[column] += value;
      count += column == 0 ? 1 : 0;
    });
    for (double& value : sum) value /= std::max(1.0, count);
    each([&](size_t column, double value) { squares[column] += (value - sum[column]) * (value - sum[column]); });
    const at::NoGradGuard no_grad;
    for (nn::SanModel* model : {&model_, average_ ? &average_->model : nullptr}) {
      if (model == nullptr) continue;
      for (const nn::SanModel::Entry& entry : model->tensors()) {
        if (entry.spec.name != "node_embedding.mean" && entry.spec.name != "node_embedding.deviation") continue;
        auto* to = entry.tensor.data_ptr<float>();
        for (size_t i = 0; i < columns; ++i) {
          const double deviation = std::sqrt(squares[i] / std::max(1.0, count));
          // A column that is the same everywhere stays so.
          const double kept = deviation > 1e-6 * std::abs(sum[i]) && deviation > kLeastDeviation ? deviation : 1.0;
          to[i] = static_cast<float>(entry.spec.name.ends_with("mean") ? sum[i] : kept);
        }
      }
    }
    engine_.weights_changed();
  }

  static const std::filesystem::path& prepared(const TrainJob& job) {
    std::error_code error;
    std::filesystem::create_directories(job.folder, error);
    SAN_CHECK(std::filesystem::is_directory(job.folder), "{}: cannot make the folder: {}", job.folder.string(),
              error.message());
    const bool has_run = std::filesystem::exists(job.folder / "last" / "state.safetensors");
    SAN_CHECK(job.resume || !has_run, "{}: holds a run already; go on with --resume {}, or choose another --out",
              job.folder.string(), job.folder.string());
    SAN_CHECK(!job.resume || has_run, "{}: no checkpoint to resume from", job.folder.string());
    std::filesystem::create_directories(job.folder / "last", error);
    return job.folder;
  }

  std::filesystem::path state_path() const { return job_.folder / "last" / "state.safetensors"; }
  double total_seconds() const { return state_.seconds + seconds_since(start_); }
  bool out_of_time() const { return config_.time_limit > 0 && total_seconds() >= config_.time_limit * 3600; }

  void checkpoint() {
    TensorFile file;
    const auto put = [&](const std::string& prefix, const nn::SanModel& model) {
      for (auto& [name, tensor] : model.weights().tensors) file.tensors[prefix + name] = std::move(tensor);
    };
    put("model.", model_);
    if (average_) put("average.", average_->model);
    const auto flat = [](const std::vector<float>& values) {
      return make_tensor({static_cast<int64_t>(values.size())}, values);
    };
    file.tensors["adam.first"] = flat(first_);
    file.tensors["adam.second"] = flat(second_);
    const auto doubles = [](const std::vector<double>& values) {
      Tensor tensor;
      tensor.dtype = DType::kF64;
      tensor.shape = {static_cast<int64_t>(values.size())};
      const auto* bytes = reinterpret_cast<const std::byte*>(values.data());
      tensor.data.assign(bytes, bytes + values.size() * sizeof(double));
      return tensor;
    };
    file.tensors["epoch.outputs"] = doubles(state_.outputs);
    file.tensors["epoch.labels"] = doubles(state_.labels);
    RunState now = state_;
    now.seconds = total_seconds();
    file.metadata["state"] = now.json().dump();
    file.metadata[kDataMark] = data_mark_;
    write_safetensors(state_path(), file);
    last_checkpoint_ = Clock::now();
  }

  void restore() {
    const TensorFile file = read_safetensors(state_path());
    const std::string where = state_path().string();
    const auto mark = file.metadata.find(kDataMark);
    SAN_CHECK(mark == file.metadata.end() || mark->second == data_mark_,
              "{}: its data has changed since it began ({}): other graphs or labels; begin a new run",
              job_.folder.string(), job_.config.data.path);
    try {
      const auto get = [&](const std::string& prefix, nn::SanModel& model, nn::Engine& engine) {
        TensorFile weights;
        for (const auto& [name, tensor] : file.tensors) {
          if (name.starts_with(prefix)) weights.tensors[name.substr(prefix.size())] = tensor;
        }
        check_weights(job_.description.model, weights, where);
        model.load(weights);
        engine.weights_changed();
      };
      get("model.", model_, engine_);
      if (average_) get("average.", average_->model, average_->engine);
      const auto flat = [&](const char* name, std::vector<float>& to) {
        const Tensor& tensor = file.tensors.at(name);
        SAN_CHECK(tensor.dtype == DType::kF32 && tensor.count() == static_cast<int64_t>(to.size()),
                  "{}: '{}' does not fit the model", where, name);
        to.assign(tensor.f32(), tensor.f32() + tensor.count());
      };
      flat("adam.first", first_);
      flat("adam.second", second_);
      const auto doubles = [&](const char* name, std::vector<double>& to) {
        const Tensor& tensor = file.tensors.at(name);
        SAN_CHECK(tensor.dtype == DType::kF64, "{}: '{}' has the wrong type", where, name);
        to.assign(tensor.f64(), tensor.f64() + tensor.count());
      };
      state_.read(Json::parse(file.metadata.at("state")));
      doubles("epoch.outputs", state_.outputs);
      doubles("epoch.labels", state_.labels);
    } catch (const nlohmann::json::exception& error) {
      fail("{}: not a checkpoint of this program: {}", where, printable(error.what(), 200));
    } catch (const std::out_of_range&) {
      fail("{}: not a checkpoint of this program", where);
    }
    if (state_.best_epoch > 0 && state_.best_epoch == state_.epoch && state_.batch == 0) save_best();
    // Time limits and numbers of epochs may be raised for a resumed run.
    if (state_.finished && state_.epoch < config_.epochs && !out_of_time()) state_.finished = ended_by_rule();
  }

  bool ended_by_rule() const {
    if (config_.schedule == ScheduleKind::kPlateau && state_.schedule.started &&
        state_.schedule.plateau_lr < config_.min_lr) {
      return true;
    }
    return config_.early_stopping > 0 && state_.epoch - state_.best_epoch >= config_.early_stopping;
  }

  // False when asked to stop.
  bool run_epoch() {
    const Clock::time_point epoch_start = Clock::now();
    int64_t graphs_done = 0;
    LoaderOptions options;
    options.batch_size = config_.batch_size;
    options.bucket = config_.bucket;
    options.max_pairs = job_.description.input.spectral.num_pairs;
    options.seed = static_cast<uint64_t>(config_.seed);
    Loader loader(data_, job_.splits.train, options, state_.epoch, state_.batch);
    const int64_t batches = loader.num_batches();
    double rate = 0;
    for (LoadedBatch loaded; loader.next(loaded);) {
      const bool first_of_step = state_.batch % config_.accumulate == 0;
      const bool last_of_step = (state_.batch + 1) % config_.accumulate == 0 || state_.batch + 1 == batches;
      if (first_of_step) model_.flat_gradients().zero_();
      run_batch(loaded);
      graphs_done += static_cast<int64_t>(loaded.graphs.size());
      ++state_.batch;
      if (!last_of_step) continue;
      rate =
          update(static_cast<double>(state_.epoch) + static_cast<double>(state_.batch) / static_cast<double>(batches));
      if (job_.progress) {
        TrainProgress progress;
        fill(progress, epoch_start, graphs_done);
        progress.batches = batches;
        job_.progress(progress);
      }
      if (state_.batch == batches) break;
      if (job_.stop != nullptr && *job_.stop) {
        checkpoint();
        return false;
      }
      if (seconds_since(last_checkpoint_) >= config_.checkpoint_seconds) checkpoint();
      if (out_of_time()) {
        checkpoint();
        return true;
      }
    }
    end_epoch(epoch_start, graphs_done, batches, rate);
    return job_.stop == nullptr || !*job_.stop;
  }

  void run_batch(LoadedBatch& loaded) {
    const ModelDescription& description = job_.description;
    if (description.model.lpe.nodes()) {
      flip_signs(loaded.batch, loaded.graphs, config_.sign_flip, static_cast<uint64_t>(config_.seed), state_.epoch,
                 state_.batch);
    }
    // Dropout's numbers depend on (seed, epoch, batch) alone, so a resumed run draws the same ones.
    const uint64_t seed = random_bits(static_cast<uint64_t>(config_.seed), static_cast<uint64_t>(state_.epoch) + 1,
                                      static_cast<uint64_t>(state_.batch));
    const at::Tensor outputs = engine_.training(loaded.batch, seed);
    const at::Tensor loss = nn::task_loss(description.task, outputs, nn::labels_of(loaded.batch));
    const double value = loss.item<double>();
    if (!std::isfinite(value)) {
      std::string ids;
      for (size_t i = 0; i < loaded.graphs.size() && i < 8; ++i) {
        ids += (i == 0 ? "" : ", ") + printable(data_.graph(loaded.graphs[i]).id, 40);
      }
      fail(
          "epoch {}, batch {} (step {}): the loss is {}; graphs {}{}. Try a smaller train.lr or train.clip=1; "
          "checkpoints of before are sound",
          state_.epoch + 1, state_.batch + 1, state_.step, value, ids, loaded.graphs.size() > 8 ? ", ..." : "");
    }
    (loss / static_cast<double>(config_.accumulate)).backward();
    const auto weight = static_cast<int64_t>(loaded.graphs.size());
    state_.loss_sum += value * static_cast<double>(weight);
    state_.loss_count += weight;
    append_tensor(state_.outputs, outputs);
    state_.labels.insert(state_.labels.end(), loaded.batch.labels.begin(), loaded.batch.labels.end());
  }

  double update(double progress) {
    auto* gradients = model_.flat_gradients().data_ptr<float>();
    const int64_t count = model_.flat_gradients().numel();
    const double norm = norm_of(gradients, count);
    SAN_CHECK(std::isfinite(norm),
              "epoch {}, step {}: the gradient is not finite. Try a smaller train.lr or train.clip=1; "
              "checkpoints of before are sound",
              state_.epoch, state_.step);
    if (config_.clip > 0 && norm > config_.clip) model_.flat_gradients().mul_(config_.clip / norm);
    AdamOptions options;
    options.lr = state_.schedule.rate(config_, progress);
    options.weight_decay = config_.weight_decay;
    options.decoupled = config_.optimiser == OptimiserKind::kAdamW;
    adam_step(model_.flat_parameters().data_ptr<float>(), gradients, first_.data(), second_.data(), count,
              ++state_.step, options);
    engine_.weights_changed();
    if (average_) average_->follow(model_, config_.average, state_.step);
    return options.lr;
  }

  void fill(TrainProgress& progress, Clock::time_point epoch_start, int64_t graphs_done) const {
    progress.epoch = state_.epoch;
    progress.epochs = config_.epochs;
    progress.batch = state_.batch;
    progress.loss = state_.loss_count > 0 ? state_.loss_sum / static_cast<double>(state_.loss_count) : 0;
    const double seconds = seconds_since(epoch_start);
    progress.graphs_per_second = seconds > 0 ? static_cast<double>(graphs_done) / seconds : 0;
    const auto total = static_cast<double>(job_.splits.train.size());
    if (progress.graphs_per_second > 0) {
      progress.seconds_left =
          ((static_cast<double>(config_.epochs - state_.epoch)) * total - static_cast<double>(graphs_done)) /
          progress.graphs_per_second;
    }
  }

  void end_epoch(Clock::time_point epoch_start, int64_t graphs_done, int64_t batches, double rate) {
    const ModelDescription& description = job_.description;
    const int columns = description.model.outputs;
    EpochRecord record;
    record.epoch = state_.epoch + 1;
    record.learning_rate = rate;
    record.train_loss = state_.loss_count > 0 ? state_.loss_sum / static_cast<double>(state_.loss_count) : std::nan("");
    record.train_metrics =
        task_metrics(description.task, state_.labels, readable(description.task, state_.outputs, columns), columns);
    if (average_) average_->engine.weights_changed();
    nn::Engine& judged = average_ ? average_->engine : engine_;
    double selection_loss = record.train_loss;
    Metrics selection = record.train_metrics;
    if (!job_.splits.valid.empty()) {
      const Evaluation valid = evaluate_with(judged, description, data_, job_.splits.valid, config_.batch_size);
      record.valid_loss = selection_loss = valid.loss;
      record.valid_metrics = selection = valid.metrics;
    } else {
      record.valid_loss = std::nan("");
    }
    if (config_.eval_test_every > 0 && (state_.epoch + 1) % config_.eval_test_every == 0 && !job_.splits.test.empty()) {
      record.test_metrics = evaluate_with(judged, description, data_, job_.splits.test, config_.batch_size).metrics;
    }
    record.seconds = total_seconds();

    // A metric that does not exist (a validation part with one class) leaves the choice to the loss.
    const bool by_loss = selection.empty() || !std::isfinite(selection[0].second);
    const double score = by_loss                                ? -selection_loss
                         : larger_is_better(selection[0].first) ? selection[0].second
                                                                : -selection[0].second;
    // The first, whatever it is; then what is better, or better than none (NaN).
    const bool best = state_.best_epoch == 0 || (!std::isnan(score) && !(score <= state_.best_score));
    if (best) {
      state_.best_score = score;
      state_.best_epoch = record.epoch;
    }
    state_.history.push_back(record);
    const bool go_on =
        state_.schedule.epoch_done(config_, config_.plateau_on == PlateauOn::kMetric ? -score : selection_loss);
    ++state_.epoch;
    state_.batch = 0;
    state_.loss_sum = 0;
    state_.loss_count = 0;
    state_.outputs.clear();
    state_.labels.clear();
    state_.finished = !go_on || ended_by_rule();

    write_file(job_.folder / "metrics.csv", metrics_csv(state_.history));
    const auto event = [&](const char* part, const Metrics& metrics) {
      for (const auto& [name, value] : metrics) events_->scalar(fmt::format("{}/{}", name, part), value, record.epoch);
    };
    events_->scalar("loss/train", record.train_loss, record.epoch);
    if (std::isfinite(record.valid_loss)) events_->scalar("loss/valid", record.valid_loss, record.epoch);
    events_->scalar("lr", record.learning_rate, record.epoch);
    event("train", record.train_metrics);
    event("valid", record.valid_metrics);
    event("test", record.test_metrics);
    events_->flush();
    // In this order: a process that is killed in between finds the best weights in its checkpoint, see restore(). The other way round
    // model/ would be of an epoch that the checkpoint does not know.
    checkpoint();
    if (best) save_best();
    if (job_.progress) {
      TrainProgress progress;
      fill(progress, epoch_start, graphs_done);
      progress.epoch = record.epoch - 1;
      progress.batch = progress.batches = batches;
      progress.loss = record.train_loss;
      progress.record = &state_.history.back();
      progress.best = best;
      job_.progress(progress);
    }
  }

  void save_best() {
    StoredModel stored;
    stored.description = job_.description;
    const Json provenance = {{"command", job_.command},
                             {"seed", config_.seed},
                             {"epoch", state_.best_epoch},
                             {"train_graphs", job_.splits.train.size()}};
    // A command line may hold any bytes.
    stored.description.provenance = provenance.dump(-1, ' ', false, Json::error_handler_t::replace);
    stored.weights = (average_ ? average_->model : model_).weights();
    write_model(job_.folder / "model", stored);
  }

  TrainResult result(bool interrupted) const {
    TrainResult out;
    out.interrupted = interrupted;
    out.epochs = static_cast<int64_t>(state_.history.size());
    out.best_epoch = state_.best_epoch;
    out.seconds = total_seconds();
    for (const EpochRecord& record : state_.history) {
      const Metrics& metrics = record.valid_metrics.empty() ? record.train_metrics : record.valid_metrics;
      if (record.epoch == state_.best_epoch && !metrics.empty()) {
        out.metric = metrics[0].first;
        out.best_valid = metrics[0].second;
      }
    }
    out.validated = !job_.splits.valid.empty();
    out.stopped = ended_by_rule() ? "rule" : state_.epoch >= config_.epochs ? "epochs" : "time";
    out.train_graphs = static_cast<int64_t>(job_.splits.train.size());
    out.parameters = parameter_count(job_.description.model);
    out.machine = fmt::format("{}, {} thread{}", cpu_name(), engine_.threads(), engine_.threads() == 1 ? "" : "s");
    out.command = job_.command;
    const double seconds = state_.history.empty() ? 0 : state_.history.back().seconds;  // of whole epochs
    if (seconds > 0) out.graphs_per_second = static_cast<double>(out.epochs * out.train_graphs) / seconds;
    return out;
  }

  TrainResult finish() {
    if (state_.best_epoch == 0) save_best();  // no epoch was run: the initial weights
    TrainResult out = result(false);
    write_file(job_.folder / "metrics.csv", metrics_csv(state_.history));  // a killed process may have written more
    const StoredModel best = read_model(job_.folder / "model");
    Evaluation test;
    if (!job_.splits.test.empty()) {
      test = evaluate(best, data_, job_.splits.test, config_.batch_size);
      out.test_metrics = test.metrics;
      if (config_.published_metrics) out.published_metrics = test.published_metrics;
      write_test_predictions(best.description, test);
    }
    write_report(out, test);
    write_result(job_.folder / "result.json", out);  // last: it says that all the rest is there
    return out;
  }

  void write_test_predictions(const ModelDescription& description, const Evaluation& test) const {
    const bool node = description.model.readout == Readout::kNode;
    const auto outputs = static_cast<size_t>(description.model.outputs);
    const std::vector<std::string> names = output_names(description);
    size_t rows = 0;
    for (const int64_t i : job_.splits.test) rows += node ? static_cast<size_t>(data_.num_nodes(i)) : 1;
    const size_t label_columns = rows == 0 ? 0 : test.labels.size() / rows;
    std::string text = node ? "id,node" : "id";
    for (const std::string& name : names) {
      text += ',';
      append_csv_field(text, name);
    }
    for (size_t i = 0; i < label_columns; ++i) {
      text += ',';
      append_csv_field(text, label_columns == outputs && label_columns > 0 && !node ? names[i] + "_label" : "label");
    }
    text += '\n';
    size_t row = 0;
    for (const int64_t i : job_.splits.test) {
      const Graph graph = data_.graph(i);
      for (int32_t n = 0; n < (node ? graph.num_nodes : 1); ++n, ++row) {
        append_csv_field(text, graph.id);
        if (node) text += fmt::format(",{}", n);
        for (size_t c = 0; c < outputs; ++c) text += fmt::format(",{:.9g}", test.predictions[row * outputs + c]);
        for (size_t c = 0; c < label_columns; ++c) {
          const double label = test.labels[row * label_columns + c];
          text += std::isnan(label) ? "," : fmt::format(",{:.9g}", label);
        }
        text += '\n';
      }
    }
    write_file(job_.folder / "test_predictions.csv", text);
  }

  void write_report(const TrainResult& out, const Evaluation& test) const {
    const ModelDescription& d = job_.description;
    ReportInput input;
    input.title = job_.folder.filename().empty() ? job_.folder.parent_path().filename().string()
                                                 : job_.folder.filename().string();
    input.command = job_.command;
    input.epochs = state_.history;
    input.best_epoch = state_.best_epoch;
    input.description = d;
    input.test_labels = test.labels;
    input.test_predictions = test.predictions;
    input.label_columns = d.model.readout == Readout::kNode ? 1 : data_.label_columns();
    input.test_metrics = out.test_metrics;
    input.config_toml = to_toml(job_.config);
    for (const int64_t i : job_.splits.test) {
      const Graph graph = data_.graph(i);
      if (d.model.readout != Readout::kNode) input.test_ids.push_back(graph.id);
      for (int32_t n = 0; d.model.readout == Readout::kNode && n < graph.num_nodes; ++n) {
        input.test_ids.push_back(fmt::format("{} node {}", graph.id, n));
      }
    }
    input.model = {
        {"task", std::string(enum_name(d.task.kind))},
        {"parameters", grouped(parameter_count(d.model))},
        {"attention", fmt::format("{}, gamma {}", enum_name(d.model.attention), d.model.gamma)},
        {"LPE", d.model.lpe.kind == LpeKind::kNone
                    ? "none"
                    : fmt::format("{}, {} layers of width {}, {} eigenpairs", enum_name(d.model.lpe.kind),
                                  d.model.lpe.layers, d.model.lpe.dim, d.input.spectral.num_pairs)},
        {"layers", fmt::format("{} of width {}, {} heads", d.model.layers, d.model.hidden_dim, d.model.heads)},
        {"readout", std::string(enum_name(d.model.readout))}};
    input.data = {
        {"source", job_.config.data.path},
        {"featuriser", d.input.featuriser},
        {"graphs", grouped(data_.size())},
        {"train / valid / test", fmt::format("{} / {} / {}", grouped(static_cast<int64_t>(job_.splits.train.size())),
                                             grouped(static_cast<int64_t>(job_.splits.valid.size())),
                                             grouped(static_cast<int64_t>(job_.splits.test.size())))},
        {"skipped records", grouped(data_.bad_records())}};
    input.environment = {{"machine", cpu_name()},
                         {"threads", std::to_string(engine_.threads())},
                         {"engine", std::string(enum_name(config_.engine))},
                         {"epochs", fmt::format("{} (best {})", state_.history.size(), state_.best_epoch)},
                         {"time", fmt::format("{:.0f} s", out.seconds)},
                         {"seed", std::to_string(config_.seed)}};
    write_file(job_.folder / "report.html", render_report(input));
  }

  const TrainJob& job_;
  const TrainConfig& config_;
  const Dataset& data_;
  const std::string data_mark_ = mark_of(data_);
  FolderLock lock_;
  nn::SanModel model_;
  nn::Engine engine_;
  std::optional<Average> average_;
  std::optional<nn::TorchThreads> torch_threads_;
  std::vector<float> first_, second_;
  RunState state_;
  std::optional<EventWriter> events_;
  Clock::time_point start_ = Clock::now();
  Clock::time_point last_checkpoint_ = Clock::now();
};

}  // namespace

Evaluation evaluate(const StoredModel& model, const Dataset& data, const std::vector<int64_t>& graphs, int batch_size) {
  nn::SanModel network(model);
  nn::Engine engine(network, /*fused=*/true);
  return evaluate_with(engine, model.description, data, graphs, batch_size);
}

TrainResult train(const TrainJob& job, const Dataset& data) {
  return Run(job, data).run();
}

}  // namespace san
