// Models of the authors' published program (PyTorch + DGL): their configuration keys and parameter names in,
// ours out.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "san/model/model_folder.h"

namespace san {

// Our name for a tensor of theirs ("layers.0.attention.Q_2.weight" -> "layers.0.q2.weight"); nothing for
// other names.
std::optional<std::string> authors_tensor_name(std::string_view name);

// `net_params_json`: an object with "dataset" (ZINC, PATTERN, CLUSTER, MOLHIV or MOLPCBA; their longer
// spellings too) and "net_params" (the authors' keys), as in their configs. `state` holds the state dict
// under their names. Sizes of tables, outputs and feed-forward width are read from the tensors. Everything is
// as published: symmetric Laplacian, eigenvectors normalised per node, added pairs share row 0.
//
// Throws Error, starting with `where`, for a missing key, an unknown dataset, or tensors that are missing,
// unknown or of another shape. `embedding_e_fake` (never used by the published program) is dropped.
StoredModel import_authors_model(std::string_view net_params_json, const TensorFile& state, const std::string& where);

}  // namespace san
