// What the outputs mean, on plain numbers: section 5 of the specification in double. nn/task.h is the same for tensors with
// gradients. Pure functions; safe from any thread.
#pragma once

#include <span>

#include "san/model/config.h"

namespace san {

// Turns outputs of the head, [rows, columns] row-major, into what people read: label units (regression), probabilities
// (sigmoid per column for binary tasks, softmax per row for classes).
void make_readable(const TaskConfig& task, std::span<double> outputs, int columns);

// The training loss of outputs against labels, [rows, label columns]; NaN = missing and ignored, 0 when nothing is labelled.
// What each loss is: nn/task.h. Weighted cross-entropy weighs by the classes of all rows given. Throws Error when the
// numbers of rows or columns do not fit, or for a label that is not a class.
double output_loss(const TaskConfig& task, std::span<const double> outputs, int columns,
                   std::span<const double> labels);

}  // namespace san
