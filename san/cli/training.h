// What `san train` and `san reproduce` share: data, progress, signals, one run.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "san/train/trainer.h"

namespace san::cli {

// From now on the first SIGINT or SIGTERM asks for a clean stop after the step under way; the second one ends the process.
void stop_on_signals();
bool stop_requested();

// As a shell would take it, for reports.
std::string command_line(int argc, char** argv);
// "42s", "12min", "3.5h".
std::string duration(double seconds);

// From the cache, or made now with a progress bar. Nothing when a stop was asked for meanwhile.
std::optional<Dataset> prepare_data(const RunConfig& config, int threads, bool quiet);

// Begins a run in `folder` or goes on with the one that is there; shows its progress.
TrainResult train_one(RunConfig config, const Dataset& data, const std::filesystem::path& folder, bool resume,
                      const std::string& command, bool quiet);
// Whether the folder has a run to go on with.
bool has_checkpoint(const std::filesystem::path& folder);

void print_result(const TrainResult& result, const std::filesystem::path& folder);

}  // namespace san::cli
