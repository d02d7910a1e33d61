// The narrow part of libtorch that nn/ and train/ use. Precompiled: torch/torch.h would cost 20 s a file.
#pragma once

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/generated/variable_factories.h>
#include <torch/csrc/autograd/grad_mode.h>
