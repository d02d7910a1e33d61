// What `san predict` has in common with its double-precision half in san-torch: flags, ensembles.
#pragma once

#include <CLI/CLI.hpp>
#include <filesystem>
#include <string>
#include <vector>

#include "san/data/source.h"
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
