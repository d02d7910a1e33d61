#include "san/cli/data_flags.h"

namespace san::cli {

void add_source_flags(CLI::App& app, SourceOptions& options) {
  app.add_option("--format", options.format, "what the data is: auto, csv, jsonl, tu, ogb")
      ->check(CLI::IsMember({"auto", "csv", "jsonl", "tu", "ogb"}))
      ->capture_default_str();
  app.add_option("--smiles-column", options.smiles_column, "CSV: the column with the molecules")->capture_default_str();
  app.add_option("--target-columns", options.target_columns,
                 "CSV: the label columns, separated by commas (default: those that hold only numbers)")
      ->delimiter(',');
  app.add_option("--split-column", options.split_column,
                 "CSV: the column that says train, valid or test (default: split)");
  app.add_option("--id-column", options.id_column, "CSV: the column that names the molecules (default: the first)");
  app.add_option("--featuriser", options.featuriser, "CSV: how molecules become graphs: zinc or ogb")
      ->check(CLI::IsMember({"zinc", "ogb"}))
      ->capture_default_str();
  app.add_option_function<std::string>(
         "--unknown-atoms", [&options](const std::string& value) { options.unknown_atoms_error = value == "error"; },
         "zinc: an atom type that is not in its table: error or bucket (a category of its own)")
      ->check(CLI::IsMember({"error", "bucket"}))
      ->default_str("error");
}

void add_spectral_flags(CLI::App& app, SpectrumOptions& options) {
  app.add_option("--pairs", options.num_pairs, "lowest eigenpairs to keep per graph")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app.add_option("--walk-steps", options.walk_steps, "return probabilities of random walks as node features; 0 = none")
      ->check(CLI::Range(0, kMaxWalkSteps))
      ->capture_default_str();
  app.add_option_function<std::string>(
         "--laplacian",
         [&options](const std::string& value) { options.laplacian = parse_enum<Laplacian>(value, "--laplacian"); },
         "symmetric, combinatorial or random-walk")
      ->check(CLI::IsMember({"symmetric", "combinatorial", "random-walk"}))
      ->default_str("symmetric");
  app.add_option_function<std::string>(
         "--norm",
         [&options](const std::string& value) { options.norm = parse_enum<EigenvectorNorm>(value, "--norm"); },
         "eigenvectors: unit length each (eigenvector), or per node over the kept ones (node)")
      ->check(CLI::IsMember({"eigenvector", "node"}))
      ->default_str("eigenvector");
}

void add_on_error_flag(CLI::App& app, bool& skip) {
  app.add_option_function<std::string>(
         "--on-error", [&skip](const std::string& value) { skip = value == "skip"; },
         "a record that cannot be read: skip (report, go on) or fail")
      ->check(CLI::IsMember({"skip", "fail"}))
      ->default_str(skip ? "skip" : "fail");
}

void add_threads_flag(CLI::App& app, int& threads) {
  app.add_option("--threads", threads, "threads; 0 = all cores")->check(CLI::Range(0, 1024))->capture_default_str();
}

}  // namespace san::cli
