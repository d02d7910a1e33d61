#include "san/cli/training.h"

#include <unistd.h>

#include <algorithm>
#include <csignal>

#include "san/cli/progress.h"
#include "san/train/reproduction.h"

namespace san::cli {
namespace {

std::atomic<bool> stop{false};
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler may only touch lock-free atomics");

void on_signal(int signal) {
  if (stop.exchange(true)) {
    std::signal(signal, SIG_DFL);
    std::raise(signal);
  }
}

std::string metrics_text(const std::vector<std::pair<std::string, double>>& metrics) {
  std::string out;
  for (const auto& [name, value] : metrics) out += fmt::format("{}{} {:.4f}", out.empty() ? "" : "  ", name, value);
  return out;
}

// A live line on a terminal, one plain line per epoch elsewhere.
class Display {
 public:
  explicit Display(bool quiet) : quiet_(quiet), live_(!quiet && ::isatty(STDERR_FILENO) != 0) {}

  void operator()(const TrainProgress& p) {
    if (quiet_) return;
    if (p.record == nullptr) {
      if (!live_) return;
      say("\r\033[Kepoch {:>3}/{}  {:>4}/{} batches  {:.0f} graphs/s  loss {:.4f}{}  ETA {}", p.epoch + 1, p.epochs,
          p.batch, p.batches, p.graphs_per_second, p.loss, best_, duration(p.seconds_left));
      return;
    }
    const EpochRecord& r = *p.record;
    const auto& metrics = r.valid_metrics.empty() ? r.train_metrics : r.valid_metrics;
    const char* part = r.valid_metrics.empty() ? "train" : "valid";
    if (p.best && !metrics.empty()) best_ = fmt::format("  best {} {:.4f}", metrics[0].first, metrics[0].second);
    say("{}epoch {:>3}/{}  loss {:.4f}  {} loss {:.4f}  {}{}  lr {:.2g}  {:.0f} graphs/s{}\n", live_ ? "\r\033[K" : "",
        r.epoch, p.epochs, r.train_loss, part, r.valid_metrics.empty() ? r.train_loss : r.valid_loss,
        metrics_text(metrics), r.test_metrics.empty() ? "" : "  test " + metrics_text(r.test_metrics), r.learning_rate,
        p.graphs_per_second, p.best ? "  *" : "");
  }

 private:
  bool quiet_, live_;
  std::string best_;
};

}  // namespace

void stop_on_signals() {
  std::signal(SIGINT, on_signal);
  std::signal(SIGTERM, on_signal);
}

bool stop_requested() {
  return stop;
}

std::string duration(double seconds) {
  if (seconds < 90) return fmt::format("{:.0f}s", seconds);
  if (seconds < 5400) return fmt::format("{:.0f}min", seconds / 60);
  return fmt::format("{:.1f}h", seconds / 3600);
}

std::string command_line(int argc, char** argv) {
  std::string out = argv[0];
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const bool plain =
        !word.empty() &&
        word.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:=,+@%") ==
            std::string::npos;
    std::string quoted = "'";
    for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
    out += ' ' + (plain ? word : quoted + "'");
  }
  return out;
}

std::optional<Dataset> prepare_data(const RunConfig& config, int threads, bool quiet) {
  const std::unique_ptr<GraphSource> source = open_source(config.data.path, source_options(config.data));
  PrepareOptions options;
  options.spectral = config.spectral;
  options.with_spectra = config.model.lpe.kind != LpeKind::kNone;
  options.threads = threads;
  options.skip_bad_records = config.data.skip_bad_records;
  ProgressBar bar("preparing", "graphs");
  struct StopAsked {};
  options.progress = [&](const Progress& progress) {
    if (stop) throw StopAsked{};
    if (!quiet) bar.update(progress.done, progress.fraction);
  };
  options.on_bad_record = [&](const std::string& message) {
    bar.clear();
    say("san: {}\n", message);
  };
  try {
    return Dataset::prepare(*source, options);
  } catch (const StopAsked&) {
    bar.clear();
    return std::nullopt;
  }
}

namespace {

// A run keeps what it was begun with, but for its limits: a report that names other options would be untrue.
void check_unchanged(const RunConfig& now, const std::filesystem::path& folder) {
  constexpr std::string_view kMayChange[] = {"train.min_lr", "train.patience", "train.early_stopping",
                                             "train.eval_test_every", "train.engine"};
  RunConfig begun;
  read_toml(begun, folder / "config.toml");
  std::vector<Difference> changed = differences(begun, now);
  std::erase_if(changed, [&](const Difference& difference) {
    return std::find(std::begin(kMayChange), std::end(kMayChange), difference.name) != std::end(kMayChange);
  });
  SAN_CHECK(changed.empty(), "{}: was begun with {} = {}, and keeps it; for {} begin another run", folder.string(),
            changed[0].name, changed[0].a, changed[0].b);
}

}  // namespace

void print_result(const TrainResult& result, const std::filesystem::path& folder) {
  if (!result.metric.empty()) {
    fmt::print("best epoch {}: {} {:.4f} ({})\n", result.best_epoch, result.metric, result.best_valid,
               result.validated ? "validation" : "training; there is no validation part");
  }
  if (!result.test_metrics.empty()) fmt::print("test: {}\n", metrics_text(result.test_metrics));
  if (!result.published_metrics.empty()) {
    fmt::print("test, mean of batch means as published: {}\n", metrics_text(result.published_metrics));
  }
  fmt::print("{} epochs in {}; model {}, report {}\n", result.epochs, duration(result.seconds),
             (folder / "model").string(), (folder / "report.html").string());
}

TrainResult train_one(RunConfig config, const Dataset& data, const std::filesystem::path& folder, bool resume,
                      const std::string& command, bool quiet) {
  TrainJob job;
  job.splits = resume ? read_splits(folder / "splits.json", data.size()) : make_splits(config.data, data);
  job.description = resolve(config, data, job.splits);
  if (resume) check_unchanged(config, folder);
  job.config = config;
  job.folder = folder;
  job.command = command;
  job.resume = resume;
  job.stop = &stop;
  Display display(quiet);
  job.progress = [&](const TrainProgress& progress) { display(progress); };
  if (!quiet) {
    say("{} graphs (train {}, valid {}, test {}), {} parameters\n", data.size(), job.splits.train.size(),
        job.splits.valid.size(), job.splits.test.size(), parameter_count(job.description.model));
  }
  return train(job, data);
}

bool has_checkpoint(const std::filesystem::path& folder) {
  std::error_code ignored;
  return std::filesystem::exists(folder / "last" / "state.safetensors", ignored);
}

}  // namespace san::cli
