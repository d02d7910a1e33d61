#include "san/nn/engine.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>

#include "san/base/thread_pool.h"
#include "san/model/network.h"

namespace san::nn {

struct Engine::Impl {
  SanModel& model;
  std::unique_ptr<Network> network;
  std::unique_ptr<ThreadPool> pool;
  Network::Workspace workspace;
  std::vector<float*> gradients;
  std::vector<float> outputs;
  Batch batch;  // backward reads it
  std::function<void(const at::Tensor&)> backward;

  explicit Impl(SanModel& m) : model(m) {}

  at::Tensor output_tensor() const {
    const auto columns = static_cast<int64_t>(model.config().outputs);
    const auto rows = static_cast<int64_t>(outputs.size()) / columns;
    return at::from_blob(const_cast<float*>(outputs.data()), {rows, columns}, at::kFloat).clone();
  }
};

namespace {

// The whole network as one step of autograd. Gradients go straight to the model's flat buffer; the input is there only so
// that autograd calls backward.
struct FusedStep : torch::autograd::Function<FusedStep> {
  using Backward = std::function<void(const at::Tensor&)>;
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& /*a parameter*/,
                            at::Tensor outputs, int64_t backward) {
    context->saved_data["backward"] = backward;
    return outputs;
  }
  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext* context,
                                               torch::autograd::tensor_list gradients) {
    const auto* call = reinterpret_cast<const Backward*>(context->saved_data["backward"].toInt());
    (*call)(gradients[0].contiguous());
    return {at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

Engine::Engine(SanModel& model, bool fused) : impl_(std::make_unique<Impl>(model)) {
  if (!fused || model.dtype() != at::kFloat || !model.device().is_cpu() ||
      !Network::unsupported(model.config()).empty())
    return;
  std::vector<float*> tensors;
  for (const SanModel::Entry& entry : model.tensors()) {
    tensors.push_back(entry.tensor.data_ptr<float>());
    impl_->gradients.push_back(entry.spec.trained ? entry.tensor.grad().data_ptr<float>() : nullptr);
  }
  impl_->network = std::make_unique<Network>(model.config(), std::move(tensors));
  impl_->pool = std::make_unique<ThreadPool>(at::get_num_threads());
}
Engine::~Engine() = default;

bool Engine::fused() const {
  return impl_->network != nullptr;
}

int Engine::threads() const {
  return fused() ? impl_->pool->threads() : at::get_num_threads();
}

at::Tensor Engine::training(const Batch& batch, uint64_t seed) {
  SanModel& model = impl_->model;
  if (!fused()) {
    at::manual_seed(seed);
    SanModel::Options options;
    options.training = true;
    return model.forward(to_tensors(batch, model.config(), model.dtype(), model.device()), options);
  }
  impl_->batch = batch;
  impl_->network->train_forward(impl_->batch, seed, *impl_->pool, impl_->workspace, impl_->outputs);
  impl_->backward = [impl = impl_.get()](const at::Tensor& gradient) {
    impl->network->backward(gradient.data_ptr<float>(), impl->gradients, *impl->pool, impl->workspace);
  };
  for (const SanModel::Entry& entry : model.tensors()) {
    if (entry.spec.trained)
      return FusedStep::apply(entry.tensor, impl_->output_tensor(), reinterpret_cast<int64_t>(&impl_->backward));
  }
  fail("a model without a trained tensor");
}

at::Tensor Engine::predict(const Batch& batch) {
  const at::NoGradGuard no_grad;
  SanModel& model = impl_->model;
  if (!fused()) return model.forward(to_tensors(batch, model.config(), model.dtype(), model.device()), {});
  impl_->network->predict(batch, *impl_->pool, impl_->workspace, impl_->outputs);
  return impl_->output_tensor();
}

void Engine::weights_changed() {
  if (fused()) impl_->network->weights_changed(impl_->pool.get());
}

std::vector<std::pair<std::string, double>> Engine::profile() const {
  return impl_->workspace.profile();
}
void Engine::clear_profile() {
  impl_->workspace.clear_profile();
}

TorchThreads::TorchThreads(int threads) : before_(at::get_num_threads()) {
  at::set_num_threads(threads);
}
TorchThreads::~TorchThreads() {
  at::set_num_threads(before_);
}

}  // namespace san::nn
