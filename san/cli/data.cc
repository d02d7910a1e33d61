// san data: look at data, prepare it, split it, generate it.
#include <filesystem>

#include "san/base/file.h"
#include "san/cli/commands.h"
#include "san/cli/data_flags.h"
#include "san/cli/inspection.h"
#include "san/cli/main.h"
#include "san/cli/progress.h"
#include "san/data/dataset.h"
#include "san/data/splits.h"
#include "san/graph/jsonl.h"

namespace san::cli {
namespace {

constexpr int kBadRowsShown = 20;

// Connects a streaming job to a bar; bad records are printed above it.
void show(StreamOptions& options, ProgressBar& bar) {
  options.progress = [&bar](const Progress& progress) { bar.update(progress.done, progress.fraction); };
  options.on_bad_record = [&bar, shown = 0](const std::string& message) mutable {
    if (shown == kBadRowsShown) say("san: more bad records follow; they are counted\n");
    if (shown++ >= kBadRowsShown) return;
    bar.clear();
    say("san: {}\n", message);
  };
}

std::string per_second(int64_t count, double seconds) {
  return fmt::format("{:.2f} s, {} graphs/s", seconds, with_commas(std::llround(static_cast<double>(count) / seconds)));
}

int inspect(int argc, char** argv) {
  std::string spec;
  SourceOptions source_options;
  StreamOptions options;
  options.skip_bad_records = true;
  bool no_spectra = false;
  CLI::App app("What is in a data set: sizes, labels, features, spectra, and which records are bad and why.");
  app.add_option("data", spec, "CSV or JSONL file (.gz too), TU or OGB folder, generate:..., or - for standard input")
      ->required();
  app.add_flag("--no-spectra", no_spectra, "leave out the spectra: quicker");
  add_source_flags(app, source_options);
  add_spectral_flags(app, options.spectral);
  add_threads_flag(app, options.threads);
  int exit_code = 0;
  if (!parse_flags(app, argc, argv, exit_code)) return exit_code;
  options.with_spectra = !no_spectra;

  const auto source = open_source(spec, source_options);
  Inspection inspection(source->targets(), options.spectral.num_pairs);
  {
    ProgressBar bar("inspecting", "graphs");
    options.progress = [&bar](const Progress& progress) { bar.update(progress.done, progress.fraction); };
    options.on_bad_record = [&](const std::string& message) { inspection.add_bad(message); };
    stream_graphs(*source, options, {}, [&](Streamed& item) { inspection.add(item.graph); });
  }
  const bool zinc = source_options.featuriser == "zinc" && !source->targets().empty();
  fmt::print("{}\n{}", source->name(), inspection.report(zinc));
  return kDone;
}

int prepare(int argc, char** argv) {
  std::string spec;
  SourceOptions source_options;
  PrepareOptions options;
  bool no_spectra = false;
  CLI::App app(
      "Turns data into graphs with eigenpairs, once: one file that training opens at once.\n"
      "Done again only when the data, the featuriser or the spectral options change.");
  app.add_option("data", spec, "CSV or JSONL file (.gz too), TU or OGB folder, or generate:...")->required();
  app.add_option("--cache", options.cache_folder, "folder for the file (default: $SAN_CACHE_DIR, else ~/.cache/san)");
  app.add_flag("--no-spectra", no_spectra, "without eigenpairs, for models without positional encoding");
  add_source_flags(app, source_options);
  add_spectral_flags(app, options.spectral);
  add_on_error_flag(app, options.skip_bad_records);
  add_threads_flag(app, options.threads);
  int exit_code = 0;
  if (!parse_flags(app, argc, argv, exit_code)) return exit_code;
  options.with_spectra = !no_spectra;

  const auto source = open_source(spec, source_options);
  ProgressBar bar("preparing", "graphs");
  show(options, bar);
  const Dataset data = Dataset::prepare(*source, options);
  const double seconds = bar.seconds();
  bar.clear();
  if (!data.rebuilt_because().empty()) {
    say("san: {}: built anew: {}\n", data.path(), data.rebuilt_because());
  }
  fmt::print("{} graphs, {} nodes, {} edges; labels: {}\n", with_commas(data.size()), with_commas(data.total_nodes()),
             with_commas(data.total_edges()),
             data.node_labels() ? "one per node" : fmt::format("{} per graph", data.label_columns()));
  fmt::print("{}\n", data.built() ? "prepared in " + per_second(data.size(), seconds)
                                  : fmt::format("was prepared before; opened in {:.1f} ms", 1000 * seconds));
  fmt::print("{}\n", data.path());
  if (data.bad_records() == 0) return kDone;
  say("san: {} of {} records are bad and were left out\n", with_commas(data.bad_records()),
      with_commas(data.bad_records() + data.size()));
  return kFailed;
}

SplitFractions parse_fractions(const std::vector<double>& numbers) {
  SAN_CHECK(numbers.size() == 3, "--fractions wants three numbers: train,valid,test");
  return {numbers[0], numbers[1], numbers[2]};
}

// The labels to keep proportions of: one column.
std::vector<double> class_labels(const Dataset& data, const std::string& column) {
  SAN_CHECK(data.label_columns() > 0, "stratified splits need graph labels, and this data has none");
  size_t place = 0;
  if (!column.empty()) {
    const auto& names = data.targets();
    const auto found = std::find(names.begin(), names.end(), column);
    SAN_CHECK(found != names.end(), "--by: no label column is called '{}'", printable(column));
    place = static_cast<size_t>(found - names.begin());
  } else {
    SAN_CHECK(data.label_columns() == 1, "{} label columns: say which one to stratify by with --by",
              data.label_columns());
  }
  std::vector<double> labels;
  const auto all = data.labels();
  for (size_t i = place; i < all.size(); i += static_cast<size_t>(data.label_columns())) labels.push_back(all[i]);
  return labels;
}

struct SplitFlags {
  std::string kind = "random", by, out = "splits.json";
  std::vector<double> fractions = {0.8, 0.1, 0.1};
  uint64_t seed = 0;
  int folds = 10, fold = -1;
  bool stratify = false;
};

Splits make_split(const Dataset& data, const SplitFlags& flags, int threads) {
  const SplitFractions fractions = parse_fractions(flags.fractions);
  if (flags.kind == "random") return random_split(data.size(), fractions, flags.seed);
  if (flags.kind == "stratified") return stratified_split(class_labels(data, flags.by), fractions, flags.seed);
  if (flags.kind == "scaffold") {
    ProgressBar bar("scaffolds of", "molecules");
    return scaffold_split(
        dataset_scaffolds(data, threads,
                          [&](const Progress& progress) { bar.update(progress.done, progress.fraction); }),
        fractions);
  }
  std::vector<std::string> words;
  for (int64_t i = 0; i < data.size(); ++i) words.push_back(data.split(i));
  return given_split(words);
}

void write_and_print(const std::string& path, const Splits& splits, int64_t size) {
  validate(splits, size);
  write_splits(path, splits);
  // The file may be standard output: then it must be alone there.
  const std::string line = fmt::format("{}: train {}, valid {}, test {}\n", path, with_commas(std::ssize(splits.train)),
                                       with_commas(std::ssize(splits.valid)), with_commas(std::ssize(splits.test)));
  if (path == "-") {
    say("{}", line);
  } else {
    fmt::print("{}", line);
  }
}

int split(int argc, char** argv) {
  std::string spec;
  SourceOptions source_options;
  PrepareOptions options;
  options.with_spectra = false;
  SplitFlags flags;
  CLI::App app("Divides a data set into train, valid and test, as graph numbers in a JSON file.");
  app.add_option("data", spec, "CSV or JSONL file (.gz too), TU or OGB folder, or generate:...")->required();
  app.add_option(
         "--split", flags.kind,
         "random, stratified (keeps class proportions), scaffold (molecules; OGB's rule), given (the data's own), "
         "k-fold")
      ->check(CLI::IsMember({"random", "stratified", "scaffold", "given", "k-fold"}))
      ->capture_default_str();
  app.add_option("--fractions", flags.fractions, "shares of train,valid,test")->delimiter(',')->capture_default_str();
  app.add_option("--seed", flags.seed, "random and stratified splits, k-fold")->capture_default_str();
  app.add_option("--by", flags.by, "stratified: which label column");
  app.add_option("--folds", flags.folds, "k-fold: how many")->check(CLI::Range(3, 1000))->capture_default_str();
  app.add_option("--fold", flags.fold, "k-fold: only this one, from 0 (default: a file for each, FILE-0.json, ...)")
      ->check(CLI::Range(0, 999));
  app.add_flag("--stratify", flags.stratify, "k-fold: keep class proportions");
  app.add_option("--out", flags.out, "file to write")->capture_default_str();
  app.add_option("--cache", options.cache_folder,
                 "folder for prepared data (default: $SAN_CACHE_DIR, else ~/.cache/san)");
  add_source_flags(app, source_options);
  add_on_error_flag(app, options.skip_bad_records);
  add_threads_flag(app, options.threads);
  int exit_code = 0;
  if (!parse_flags(app, argc, argv, exit_code)) return exit_code;

  SAN_CHECK(flags.kind != "k-fold" || flags.fold < flags.folds, "--fold {}: they are numbered 0..{}", flags.fold,
            flags.folds - 1);
  SAN_CHECK(flags.kind != "k-fold" || flags.fold >= 0 || flags.out != "-",
            "--out -: of several folds only one can go to standard output: say which with --fold");
  const auto source = open_source(spec, source_options);
  const Dataset data = [&] {
    ProgressBar bar("reading", "graphs");
    show(options, bar);
    return Dataset::prepare(*source, options);
  }();
  if (flags.kind == "k-fold") {
    const std::vector<double> labels = flags.stratify ? class_labels(data, flags.by) : std::vector<double>{};
    const std::filesystem::path out(flags.out);
    for (int fold = 0; fold < flags.folds; ++fold) {
      if (flags.fold >= 0 && fold != flags.fold) continue;
      const auto name = out.parent_path() / fmt::format("{}-{}{}", out.stem().string(), fold, out.extension().string());
      write_and_print(flags.fold >= 0 ? flags.out : name.string(),
                      k_fold(data.size(), flags.folds, fold, flags.seed, labels), data.size());
    }
  } else {
    write_and_print(flags.out, make_split(data, flags, options.threads), data.size());
  }
  return data.bad_records() == 0 ? kDone : kFailed;
}

int generate(int argc, char** argv) {
  std::string kind, out;
  std::optional<int> train, valid, test, patterns;
  uint64_t seed = 0;
  StreamOptions options;
  options.with_spectra = false;
  CLI::App app(
      "Writes a synthetic data set of the paper's experiments as Graph JSONL. The same seed gives the same graphs.");
  app.add_option("set", kind, "pattern, cluster or csl")
      ->required()
      ->check(CLI::IsMember({"pattern", "cluster", "csl"}));
  app.add_option("--out", out, "file to write, .gz compresses; - = standard output")->required();
  app.add_option("--train", train, "graphs to train on (default as published)");
  app.add_option("--valid", valid, "graphs to validate on");
  app.add_option("--test", test, "graphs to test on");
  app.add_option("--patterns", patterns, "pattern: different planted patterns (default 100)");
  app.add_option("--seed", seed, "which set of all possible ones")->capture_default_str();
  add_threads_flag(app, options.threads);
  int exit_code = 0;
  if (!parse_flags(app, argc, argv, exit_code)) return exit_code;

  std::string spec = fmt::format("generate:{}?seed={}", kind, seed);
  const std::pair<const char*, std::optional<int>> sizes[] = {
      {"train", train}, {"valid", valid}, {"test", test}, {"patterns", patterns}};
  for (const auto& [name, value] : sizes)
    if (value) spec += fmt::format("&{}={}", name, *value);
  const auto source = open_source(spec);
  FileWriter writer(out);
  int64_t graphs = 0;
  ProgressBar bar("generating", "graphs");
  options.progress = [&bar](const Progress& progress) { bar.update(progress.done, progress.fraction); };
  stream_graphs(
      *source, options,
      [](Streamed& item) {
        item.encoded = std::make_shared<std::string>(format_graph(item.graph) + '\n');
        item.graph = {};
      },
      [&](Streamed& item) {
        writer.write(*std::static_pointer_cast<std::string>(item.encoded));
        ++graphs;
      });
  writer.commit();
  bar.clear();
  if (out != "-") fmt::print("{}: {} graphs in {}\n", out, with_commas(graphs), per_second(graphs, bar.seconds()));
  return kDone;
}

}  // namespace

int run_data(int argc, char** argv) {
  struct Command {
    const char* name;
    const char* summary;
    int (*run)(int argc, char** argv);
  };
  static constexpr Command kCommands[] = {
      {"inspect", "what is in it: sizes, labels, features, spectra, bad records", inspect},
      {"prepare", "graphs and eigenpairs into one file, ready for training", prepare},
      {"split", "train, valid and test, written as JSON", split},
      {"generate", "the synthetic sets PATTERN, CLUSTER and CSL as Graph JSONL", generate},
  };
  const std::string name = argc > 1 ? argv[1] : "";
  for (const Command& command : kCommands) {
    if (name != command.name) continue;
    std::string title = "san data " + name;
    argv[1] = title.data();
    return command.run(argc - 1, argv + 1);
  }
  const bool help = name == "--help" || name == "-h";
  if (!name.empty() && !help) {
    say("san: unknown command 'data {}' (see san data --help)\n", printable(name));
    return kUsage;
  }
  std::FILE* out = help ? stdout : stderr;
  fmt::print(out, "usage: san data COMMAND [flags]\n\n");
  for (const Command& command : kCommands) fmt::print(out, "  {:<10} {}\n", command.name, command.summary);
  fmt::print(out, "\n`san data COMMAND --help` explains a command.\n");
  return help ? kDone : kUsage;
}

}  // namespace san::cli
