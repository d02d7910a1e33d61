#include "san/nn/task.h"

namespace san::nn {
namespace {

at::Tensor row_of(const std::vector<double>& values, const at::Tensor& like) {
  return at::tensor(at::ArrayRef<double>(values), at::TensorOptions(at::kDouble)).to(like.device(), like.scalar_type());
}

// Mean of `losses` where `known`; 0 when nothing is known.
at::Tensor masked_mean(const at::Tensor& losses, const at::Tensor& known) {
  return losses.masked_fill(~known, 0.0).sum() / known.sum().clamp_min(1).to(losses.scalar_type());
}

at::Tensor cross_entropy(const at::Tensor& outputs, const at::Tensor& labels, bool weighted) {
  const int64_t classes = outputs.size(1);
  const at::Tensor known = ~labels.select(1, 0).isnan();
  const at::Tensor rows = known.nonzero().squeeze(1);
  if (rows.numel() == 0) return outputs.sum() * 0;
  const at::Tensor target = labels.select(1, 0).index_select(0, rows).to(at::kLong);
  SAN_CHECK(target.min().item<int64_t>() >= 0 && target.max().item<int64_t>() < classes,
            "a class label is outside 0..{}, the model's classes", classes - 1);
  const at::Tensor chosen = outputs.index_select(0, rows).log_softmax(1).gather(1, target.unsqueeze(1)).squeeze(1);
  if (!weighted) return -chosen.mean();
  const at::Tensor counts = at::bincount(target, {}, classes).to(outputs.scalar_type());
  const auto total = static_cast<double>(rows.numel());
  const at::Tensor class_weights = (total - counts) / total * counts.gt(0);
  const at::Tensor weights = class_weights.index_select(0, target);
  const at::Tensor sum = weights.sum();
  // All labels of one class: every weight is 0, and 0 / 0 would follow.
  if (sum.item<double>() == 0) return outputs.sum() * 0;
  return -(weights * chosen).sum() / sum;
}

}  // namespace

at::Tensor task_loss(const TaskConfig& task, const at::Tensor& outputs, const at::Tensor& labels) {
  SAN_CHECK(labels.defined() && labels.size(0) == outputs.size(0), "the batch has no labels for its {} outputs",
            outputs.size(0));
  if (task.kind == TaskKind::kMulticlass || task.kind == TaskKind::kNodeClassification) {
    return cross_entropy(outputs, labels, task.loss == Loss::kWeightedCrossEntropy);
  }
  SAN_CHECK(labels.size(1) == outputs.size(1), "{} labels for {} outputs", labels.size(1), outputs.size(1));
  const at::Tensor known = ~labels.isnan();
  at::Tensor target = labels.masked_fill(~known, 0.0);
  if (task.loss == Loss::kSigmoidBce) {
    return masked_mean(at::binary_cross_entropy(outputs.sigmoid(), target, {}, at::Reduction::None), known);
  }
  if (task.kind == TaskKind::kBinary) {
    // max(x, 0) - x y + log(1 + exp(-|x|)): the cross-entropy of sigmoid(x) without overflow.
    const at::Tensor losses = outputs.clamp_min(0) - outputs * target + (-outputs.abs()).exp().log1p();
    return masked_mean(losses, known);
  }
  if (!task.scale.empty()) target = (target - row_of(task.shift, target)) / row_of(task.scale, target);
  const at::Tensor difference = outputs - target;
  return masked_mean(task.loss == Loss::kL1 ? difference.abs() : difference.square(), known);
}

at::Tensor task_predictions(const TaskConfig& task, const at::Tensor& outputs) {
  switch (task.kind) {
    case TaskKind::kBinary:
      return outputs.sigmoid();
    case TaskKind::kMulticlass:
    case TaskKind::kNodeClassification:
      return outputs.softmax(1);
    case TaskKind::kRegression:
      break;
  }
  if (task.scale.empty()) return outputs;
  return outputs * row_of(task.scale, outputs) + row_of(task.shift, outputs);
}

}  // namespace san::nn
