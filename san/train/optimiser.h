// Adam over one flat buffer of parameters, and what goes with it.
#pragma once

#include <cstdint>
#include <vector>

#include "san/train/run_config.h"

namespace san {

struct AdamOptions {
  double lr = 1e-3;
  double beta1 = 0.9, beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0;
  bool decoupled = false;  // AdamW: decay acts on the parameters, not through the gradient
};

// One step, `step` counted from 1. All buffers have `count` numbers. T = float or double.
template <typename T>
void adam_step(T* parameters, const T* gradients, T* first, T* second, int64_t count, int64_t step,
               const AdamOptions& options);

// L2 norm, summed in double and in a fixed order.
template <typename T>
double norm_of(const T* values, int64_t count);

// The learning rate over a run. A value that checkpoints store and restore.
struct Schedule {
  double plateau_lr = 0;  // current base rate
  double best = 0;        // plateau: lowest value so far
  int64_t bad_epochs = 0;
  bool started = false;

  // The rate for a step at `progress` epochs (fractional) since the start.
  double rate(const TrainConfig& config, double progress) const;
  // After each epoch. Returns false when training should end: the plateau's rate fell below min_lr.
  // `progress` is what should fall: the validation loss, or the negated metric.
  bool epoch_done(const TrainConfig& config, double progress);
};

}  // namespace san
