// A model on disk: a folder with config.json and model.safetensors. It is all that predicting needs.
#pragma once

#include <filesystem>
#include <string>

#include "san/base/error.h"
#include "san/graph/graph.h"
#include "san/model/config.h"
#include "san/model/safetensors.h"

namespace san {

struct StoredModel {
  ModelDescription description;
  TensorFile weights;  // exactly the tensors of tensor_specs(description.model), all F32, all finite
};

// Throws Error naming the file for anything that is not exactly such a folder.
StoredModel read_model(const std::filesystem::path& folder);
// The folder itself, or, for the folder of a run (`san train --out`), the model in it.
std::filesystem::path model_in(const std::filesystem::path& folder);

// Writes both files, each atomically, weights first. Creates the folder.
void write_model(const std::filesystem::path& folder, const StoredModel& model);

// Throws Error, starting with `where`, unless `weights` are the tensors that the configuration calls for:
// none missing, none unknown, shapes equal, F32, finite.
void check_weights(const ModelConfig& config, const TensorFile& weights, const std::string& where);

// Throws RecordError naming the graph and the column when a model of this configuration cannot read the
// graph: other feature columns, or a category that has no row in its table. `where` ("file:line") starts the
// message; may be empty.
void check_graph(const ModelConfig& config, const Graph& graph, const std::string& where);

}  // namespace san
