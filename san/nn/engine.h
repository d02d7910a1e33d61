// What computes a model while it trains: the plain torch operations that define it, or the fused kernels.
#pragma once

#include <memory>
#include <string>

#include "san/data/batch.h"
#include "san/nn/san_model.h"

namespace san::nn {

// One model's engine. For one thread. The model must outlive it.
class Engine {
 public:
  // fused: the kernels where they can compute the model (float, CPU, see fused()), else torch.
  Engine(SanModel& model, bool fused);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  bool fused() const;
  int threads() const;  // that compute: as many as torch had (at::get_num_threads()) when the engine was made

  // Outputs of the head. The result has a gradient: backward() adds the parameters' gradients to the model's
  // flat_gradients(). One call at a time: backward() before the next training(). `seed` draws the dropout.
  at::Tensor training(const Batch& batch, uint64_t seed);
  // Evaluation mode, without gradients.
  at::Tensor predict(const Batch& batch);

  // After an optimiser step or load().
  void weights_changed();

  // Seconds per part of the computation (fused engine) since clear_profile().
  std::vector<std::pair<std::string, double>> profile() const;
  void clear_profile();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// While it lives, torch's own operations use so many threads: one beside the fused kernels. What torch does of a step then is small, but
// its workers spin for milliseconds after each operation, on cores that the kernels need (a tenth of a ZINC step on two cores).
class TorchThreads {
 public:
  explicit TorchThreads(int threads);
  ~TorchThreads();
  TorchThreads(const TorchThreads&) = delete;
  TorchThreads& operator=(const TorchThreads&) = delete;

 private:
  int before_;
};

}  // namespace san::nn
