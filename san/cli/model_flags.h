// What the commands that apply a model have in common: predict, its double-precision half in san-torch, embed.
#pragma once

#include <CLI/CLI.hpp>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "san/data/source.h"
#include "san/data/stream.h"
#include "san/model/model_folder.h"

namespace san::cli {

struct PredictFlags {
  std::string model, data, out = "-", precision = "auto", on_error = "skip";
  SourceOptions source;
  bool raw = false;
  int batch_size = 0;  // 0 = auto
  int threads = 0;
};

// The help text of `san predict`.
extern const char* const kPredictHelp;
void add_predict_flags(CLI::App& app, PredictFlags& flags);

// --data, --smiles-column, --id-column, --format: where graphs without labels come from.
void add_input_flags(CLI::App& app, std::string& data, SourceOptions& source);
// Opens them as the model reads them: its featuriser, labels not needed.
std::unique_ptr<GraphSource> open_input(const std::string& data, SourceOptions source, const ModelDescription& model);

// Fills block.text by `append_rows` with the rows of its graphs; those that not all models can read, and those for which
// append_rows throws Error, become the block's problems.
void fill_block(StreamBlock& block, std::span<const ModelConfig* const> models,
                const std::function<void(std::span<const Graph* const>, std::string&)>& append_rows);

// --batch-size auto | N, kept as 0 for auto.
void add_batch_size_flag(CLI::App& app, int& batch_size, const std::string& what);

// The model in `folder`, or the members of an ensemble there (`san train --ensemble`).
std::vector<StoredModel> read_members(const std::filesystem::path& folder);

// True when `san import` made the model from the authors' program.
bool imported(const ModelDescription& description);

// The first line of predictions: the id, (node,) outputs, for several members also their standard deviations.
std::string predictions_header(const ModelDescription& description, const std::string& id_name, bool raw,
                               bool deviations);

}  // namespace san::cli
