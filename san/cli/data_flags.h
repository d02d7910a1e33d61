// Flags that every command which reads data takes, in one place so that they are called the same everywhere.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "san/data/source.h"
#include "san/spectral/random_walk.h"
#include "san/spectral/spectrum.h"

namespace san::cli {

// --format --smiles-column --target-columns --split-column --id-column --featuriser --unknown-atoms
void add_source_flags(CLI::App& app, SourceOptions& options);

// --pairs --laplacian --norm
void add_spectral_flags(CLI::App& app, SpectrumOptions& options);

// --on-error: skip or fail
void add_on_error_flag(CLI::App& app, bool& skip);

void add_threads_flag(CLI::App& app, int& threads);

}  // namespace san::cli
