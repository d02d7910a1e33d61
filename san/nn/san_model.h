// The Spectral Attention Network as plain libtorch operations: the readable definition of sections 2 to 6 of
// the specification. Any device, float or double, with gradients by autograd. Faster engines are tested
// against this one.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "san/model/model_folder.h"
#include "san/nn/batch_tensors.h"

namespace san::nn {

// Places where numbers are dropped while training.
enum class DropoutSite { kInput, kLpeAttention, kLpeOutput, kLpeHidden, kLpeFeedForward, kAttention, kHidden };

// One model. forward() in evaluation mode may be called from many threads at once; training is for one
// thread.
class SanModel {
 public:
  // Fresh weights: a pure function of (config, seed).
  SanModel(const ModelConfig& config, uint64_t seed, at::ScalarType dtype = at::kFloat, at::Device device = at::kCPU);
  // The stored weights.
  explicit SanModel(const StoredModel& stored, at::ScalarType dtype = at::kFloat, at::Device device = at::kCPU);

  const ModelConfig& config() const { return config_; }
  at::ScalarType dtype() const { return dtype_; }
  at::Device device() const { return device_; }

  struct Options {
    bool training = false;  // BatchNorm uses (and updates) the batch's statistics; dropout is active
    // Called with "h_in", "e_real", "e_added", "attention.I", "layer.I" and the tensor, if set: for tests and
    // explanations.
    std::function<void(const std::string&, const at::Tensor&)> observe;
    // What to multiply x by instead of drawing from torch's generator, if set: for comparing engines. `layer` counts LPE
    // or graph layers.
    std::function<at::Tensor(const at::Tensor& x, DropoutSite site, int layer)> mask;
  };

  // Outputs of the head, before sigmoid or softmax: [B, outputs], or [N, outputs] for node tasks.
  at::Tensor forward(const BatchTensors& batch, const Options& options);

  // Tensors by name, as tensor_specs() lists them. Parameters require gradients, statistics do not.
  struct Entry {
    TensorSpec spec;
    at::Tensor tensor;
  };
  const std::vector<Entry>& tensors() const { return tensors_; }
  std::vector<at::Tensor> parameters() const;
  // All parameters end to end in one buffer, of which the tensors above are views; and their gradients likewise, in which
  // backward() accumulates. Optimisers work on these.
  const at::Tensor& flat_parameters() const { return flat_parameters_; }
  const at::Tensor& flat_gradients() const { return flat_gradients_; }

  // Copies of all tensors, as float.
  TensorFile weights() const;
  void load(const TensorFile& weights);

 private:
  // real: [E, d]. added: [A, d], or one row that all added pairs share.
  struct EdgeEmbeddings {
    at::Tensor real, added;
  };

  const at::Tensor& tensor(const std::string& name) const;
  at::Tensor linear(const at::Tensor& x, const std::string& name) const;
  at::Tensor dropout(const at::Tensor& x, double probability, const Options& options, DropoutSite site,
                     int layer) const;
  at::Tensor layer_norm(const at::Tensor& x, const std::string& name) const;
  at::Tensor batch_norm(const at::Tensor& x, const std::string& name, const Options& options) const;
  at::Tensor embed(const std::string& name, const at::Tensor& categories, const at::Tensor& values) const;
  at::Tensor extra_mlp(const at::Tensor& x, const std::string& name, const Options& options) const;
  at::Tensor lpe(const at::Tensor& tokens, const at::Tensor& mask, const Options& options) const;
  EdgeEmbeddings embed_edges(const BatchTensors& batch, const at::Tensor& codes, const Options& options) const;
  at::Tensor attention(const at::Tensor& h, const EdgeEmbeddings& e, const BatchTensors& batch, int layer) const;
  at::Tensor graph_layer(const at::Tensor& h, const EdgeEmbeddings& e, const BatchTensors& batch, int layer,
                         const Options& options) const;
  at::Tensor readout(const at::Tensor& h, const BatchTensors& batch) const;

  ModelConfig config_;
  at::ScalarType dtype_;
  at::Device device_;
  at::Tensor flat_parameters_, flat_gradients_;
  std::vector<Entry> tensors_;
  std::map<std::string, at::Tensor> by_name_;
};

}  // namespace san::nn
