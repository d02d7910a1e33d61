// The network computed by kernels/: forward and backward on plain memory, without libtorch. The same function as
// nn/san_model.h, which defines it, in float.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "san/base/thread_pool.h"
#include "san/data/batch.h"
#include "san/model/config.h"

namespace san {

// Where numbers are dropped: sites for Dropout::make (kernels/random_mask.h). Rows are nodes (graph layers, input) or LPE
// tokens (sequence * m + position); columns are features in the order of attention (feature c of head h at c * heads + h)
// for graph_site(., 0), key position + m * head for lpe_site(., 0), else plain features or hidden units.
inline constexpr uint32_t kInputSite = 1;
constexpr uint32_t lpe_site(int layer, int which) {
  return 16U + 4U * static_cast<uint32_t>(layer) + static_cast<uint32_t>(which);
}
constexpr uint32_t graph_site(int layer, int which) {
  return (1U << 16) + 2U * static_cast<uint32_t>(layer) + static_cast<uint32_t>(which);
}

class Network {
 public:
  // Empty when this engine can compute the configuration, else the reason.
  static std::string unsupported(const ModelConfig& config);

  // `tensors`: one pointer per entry of tensor_specs(config), in that order; the memory stays the caller's. Reads the
  // weights: see weights_changed(). REQUIRES: unsupported(config) is empty.
  Network(const ModelConfig& config, std::vector<float*> tensors);
  ~Network();
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  const ModelConfig& config() const;

  // Weights are kept in a form of their own. Call after the tensors changed, not while anything runs.
  void weights_changed(ThreadPool* pool = nullptr);

  // Memory of one computation, reused by the next. For one thread at a time.
  class Workspace {
   public:
    Workspace();
    ~Workspace();
    int64_t bytes() const;
    // Seconds spent in each part of the computation since clear_profile(), by the caller's clock.
    std::vector<std::pair<std::string, double>> profile() const;
    void clear_profile();

   private:
    friend class Network;
    struct Impl;
    std::unique_ptr<Impl> impl_;
  };

  // Outputs of the head before sigmoid or softmax: rows (graphs, or nodes for node tasks) x config.outputs. Throws Error
  // for graphs that do not fit the model: other feature columns, categories beyond the tables, no eigenpairs. A row is NaN when
  // its numbers overflowed on the way.
  // Thread-safe for different workspaces and pools. The same bits for any number of threads; a graph's outputs do not
  // depend on the rest of its batch.
  void predict(const Batch& batch, ThreadPool& pool, Workspace& workspace, std::vector<float>& outputs) const;

  // As predict() before the head: per graph, or per node for node tasks, final_dim numbers. With `nodes`, per node always.
  void embed(const Batch& batch, bool nodes, ThreadPool& pool, Workspace& workspace, std::vector<float>& outputs) const;

  // With dropout (drawn from `seed`) and the batch's own BatchNorm statistics, which also move the running ones. Leaves in
  // the workspace what backward() needs.
  void train_forward(const Batch& batch, uint64_t seed, ThreadPool& pool, Workspace& workspace,
                     std::vector<float>& outputs);
  // Adds the gradients of all trained tensors: one pointer per tensor spec, ignored for statistics. Once per
  // train_forward() and the same workspace. The same bits for any number of threads.
  void backward(const float* d_outputs, const std::vector<float*>& gradients, ThreadPool& pool, Workspace& workspace);

  // Useful floating-point operations of a forward pass over the batch (a training step has three times as many), counted
  // as in the documentation of the benchmarks: per node and layer 20 d^2, per ordered pair and layer 4 d, per LPE token
  // and layer 4 k F + attention.
  static double forward_operations(const ModelConfig& config, const Batch& batch);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace san
