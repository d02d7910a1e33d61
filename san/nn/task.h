// What the outputs mean: losses while training, readable numbers when predicting. Section 5 of the
// specification.
#pragma once

#include "san/model/config.h"
#include "san/nn/torch.h"

namespace san::nn {

// The training loss, a scalar. `outputs`: what SanModel::forward gives; `labels`: [rows, columns], NaN =
// missing and ignored. A batch without a single label has loss 0.
//   l1, mse                 mean over labelled entries, on standardised labels (label - shift) / scale
//   cross-entropy           of the sigmoid, mean over labelled entries (binary); of the softmax, mean over
//   labelled rows weighted-cross-entropy  with class weights (V - n_c) / V over the batch's V labels, 0 for
//   absent classes sigmoid-bce             as cross-entropy, computed from the rounded sigmoid with
//   logarithms cut at -100, as published
at::Tensor task_loss(const TaskConfig& task, const at::Tensor& outputs, const at::Tensor& labels);

// Outputs as people read them: label units, or probabilities.
at::Tensor task_predictions(const TaskConfig& task, const at::Tensor& outputs);

}  // namespace san::nn
