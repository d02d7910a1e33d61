#include "san/train/optimiser.h"

#include <cmath>
#include <iterator>
#include <limits>
#include <numbers>
#include <numeric>

#include "san/kernels/kernels.h"

namespace san {

template <typename T>
void adam_step(T* parameters, const T* gradients, T* first, T* second, int64_t count, int64_t step,
               const AdamOptions& options) {
  const double correction1 = 1 - std::pow(options.beta1, static_cast<double>(step));
  const double correction2 = 1 - std::pow(options.beta2, static_cast<double>(step));
  const T rate = static_cast<T>(options.lr / correction1), root = static_cast<T>(1 / std::sqrt(correction2));
  const T beta1 = static_cast<T>(options.beta1), beta2 = static_cast<T>(options.beta2);
  const T rest1 = static_cast<T>(1 - options.beta1), rest2 = static_cast<T>(1 - options.beta2);
  const T epsilon = static_cast<T>(options.epsilon);
  const T decay = static_cast<T>(options.decoupled ? 0 : options.weight_decay);
  const T keep = static_cast<T>(options.decoupled ? 1 - options.lr * options.weight_decay : 1);
  if constexpr (std::is_same_v<T, float>) {
    kernels().adam(parameters, gradients, first, second, count, beta1, beta2, rate, root, epsilon, decay, keep);
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    const T gradient = gradients[i] + decay * parameters[i];
    first[i] = beta1 * first[i] + rest1 * gradient;
    second[i] = beta2 * second[i] + rest2 * gradient * gradient;
    parameters[i] = keep * parameters[i] - rate * first[i] / (std::sqrt(second[i]) * root + epsilon);
  }
}

template <typename T>
double norm_of(const T* values, int64_t count) {
  // Several sums: one would wait for each addition before the next.
  constexpr int kSums = 16;
  double sums[kSums] = {};
  int64_t i = 0;
  for (; i + kSums <= count; i += kSums) {
    for (int j = 0; j < kSums; ++j) sums[j] += static_cast<double>(values[i + j]) * values[i + j];
  }
  for (; i < count; ++i) sums[0] += static_cast<double>(values[i]) * values[i];
  return std::sqrt(std::accumulate(std::begin(sums), std::end(sums), 0.0));
}

template void adam_step(float*, const float*, float*, float*, int64_t, int64_t, const AdamOptions&);
template void adam_step(double*, const double*, double*, double*, int64_t, int64_t, const AdamOptions&);
template double norm_of(const float*, int64_t);
template double norm_of(const double*, int64_t);

double Schedule::rate(const TrainConfig& config, double progress) const {
  const double base = config.schedule == ScheduleKind::kPlateau && started ? plateau_lr : config.lr;
  if (progress < config.warmup_epochs) return base * progress / config.warmup_epochs;
  if (config.schedule != ScheduleKind::kCosine) return base;
  const double span = std::max(1.0, static_cast<double>(config.epochs) - config.warmup_epochs);
  const double done = std::min(1.0, (progress - config.warmup_epochs) / span);
  return config.min_lr + (config.lr - config.min_lr) * 0.5 * (1 + std::cos(std::numbers::pi * done));
}

bool Schedule::epoch_done(const TrainConfig& config, double progress) {
  if (config.schedule != ScheduleKind::kPlateau) return true;
  // PyTorch's ReduceLROnPlateau with its defaults: progress is a relative improvement of 1e-4; after more than `patience`
  // epochs without it the rate falls. Of negative numbers (a metric that should grow, negated) this rule counts a loss of less
  // than that as progress too: so did the published runs on MolPCBA.
  if (!started) {
    started = true;
    plateau_lr = config.lr;
    best = std::numeric_limits<double>::infinity();
  }
  if (progress < best * (1 - 1e-4)) {
    best = progress;
    bad_epochs = 0;
  } else if (++bad_epochs > config.patience) {
    plateau_lr *= config.factor;
    bad_epochs = 0;
  }
  return plateau_lr >= config.min_lr;
}

}  // namespace san
