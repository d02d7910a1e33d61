// Trains one model into a run folder.
//
// A run folder holds config.toml (resolved), splits.json, metrics.csv, model/ (best so far), last/state.safetensors (weights,
// optimiser, schedule, history: everything a resumed run needs), TensorBoard events, and at its end test_predictions.csv, report.html
// and result.json.
// Every file is written under a temporary name and renamed; the checkpoint is one file, so a run killed at any moment resumes
// from the last one and continues bit for bit. A lock keeps a second run out of the folder.
#pragma once

#include <atomic>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "san/data/dataset.h"
#include "san/data/splits.h"
#include "san/model/model_folder.h"
#include "san/train/report.h"
#include "san/train/result.h"
#include "san/train/run_config.h"

namespace san {

struct TrainProgress {
  int64_t epoch = 0, epochs = 0;
  int64_t batch = 0, batches = 0;  // of this epoch; batch == batches: the epoch is done
  double loss = 0;                 // mean over this epoch so far
  double graphs_per_second = 0;
  double seconds_left = 0;              // by epochs; 0 = unknown
  const EpochRecord* record = nullptr;  // when an epoch is done
  bool best = false;                    // it is the best so far
};

struct TrainJob {
  RunConfig config;              // as resolve() left it
  ModelDescription description;  // likewise
  Splits splits;
  std::filesystem::path folder;
  std::string command;  // for the report
  bool resume = false;
  std::atomic<bool>* stop = nullptr;  // set from a signal handler: stop after the current step, checkpoint, return
  std::function<void(const TrainProgress&)> progress;
};

// Fills in what the data decides and nobody gave: table sizes, outputs, readout, loss, model size by data size, label
// scaling. Throws Error when data, task and options do not go together.
ModelDescription resolve(RunConfig& config, const Dataset& data, const Splits& splits);

// The split that the configuration asks for.
Splits make_splits(const DataConfig& config, const Dataset& data);

TrainResult train(const TrainJob& job, const Dataset& data);

// Outputs of a stored model for graphs of a data set: predictions as people read them, [rows, outputs] row-major, and the
// labels beside them ([rows, label columns]; empty when there are none).
struct Evaluation {
  double loss = 0;
  std::vector<double> labels, predictions;
  std::vector<std::pair<std::string, double>> metrics, published_metrics;
};
Evaluation evaluate(const StoredModel& model, const Dataset& data, const std::vector<int64_t>& graphs, int batch_size);

}  // namespace san
