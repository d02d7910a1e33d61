// Batches of a data set in a reproducible order, made ahead on a background thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "san/data/dataset.h"

namespace san {

struct LoaderOptions {
  int batch_size = 32;
  bool shuffle = true;     // order = a pure function of (seed, epoch)
  bool drop_last = false;  // leave out a last batch that is not full
  bool bucket = false;     // batches of graphs of similar size: less imbalance; still a function of (seed, epoch)
  int max_pairs = 10;      // eigenpairs per graph
  int prefetch = 2;        // batches made ahead; 0 = made when asked for
  uint64_t seed = 0;
};

// The graphs of each batch of an epoch. Every graph once.
std::vector<std::vector<int64_t>> batch_plan(const Dataset& data, const std::vector<int64_t>& graphs,
                                             const LoaderOptions& options, int64_t epoch);

struct LoadedBatch {
  std::vector<int64_t> graphs;  // numbers in the data set
  Batch batch;
};

// One pass over an epoch. For one thread. Exceptions of the background thread come out of next().
class Loader {
 public:
  // Starts at batch `first` of the epoch (resuming).
  Loader(const Dataset& data, std::vector<int64_t> graphs, const LoaderOptions& options, int64_t epoch,
         int64_t first = 0);
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  int64_t num_batches() const;
  bool next(LoadedBatch& batch);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace san
