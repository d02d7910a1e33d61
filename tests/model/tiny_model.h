// A small regression model of molecules with random weights.
#pragma once

#include "tests/model/random_weights.h"

namespace san::testing {

inline ModelDescription small_molecules() {
  ModelDescription description;
  ModelConfig& m = description.model;
  m.node_tables = {28};
  m.edge_tables = {4};
  m.layers = 2;
  m.hidden_dim = 16;
  m.heads = 4;
  m.lpe.ff_dim = 32;
  m.lpe.heads = 2;
  description.input.featuriser = "zinc";
  description.task.targets = {"logP"};
  description.task.scale = {2.0};
  description.task.shift = {1.0};
  return description;
}

inline StoredModel tiny_model() {
  return random_model(small_molecules(), 2);
}

}  // namespace san::testing
