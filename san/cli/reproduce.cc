// san reproduce: the paper's experiments, run after run, in pieces if need be; tables and a page of what there is.
#include <ATen/Parallel.h>

#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>

#include "san/base/file.h"
#include "san/base/parallel.h"
#include "san/cli/commands.h"
#include "san/cli/main.h"
#include "san/cli/progress.h"
#include "san/cli/training.h"
#include "san/data/csv.h"
#include "san/graph/jsonl.h"
#include "san/train/reproduction.h"

namespace san::cli {
namespace {

namespace fs = std::filesystem;

struct Options {
  std::string benchmark, data, out, seeds, time_limit, label, collect;
  std::vector<std::string> variants = {"optimised"}, set;
  std::vector<double> gammas;
  int epochs = -1, threads = 0;
  bool quiet = false, report_only = false;
};

// Runs that differ in their seed alone.
struct Group {
  std::string name;
  const Variant* variant = nullptr;
  RunConfig config;
};

double parse_hours(const std::string& text) {
  static const std::map<std::string, double> kUnits = {{"", 1},          {"h", 1},       {"d", 24},
                                                       {"min", 1. / 60}, {"m", 1. / 60}, {"s", 1. / 3600}};
  double value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  const auto unit = kUnits.find(std::string(end, text.data() + text.size()));
  SAN_CHECK(status == std::errc{} && unit != kUnits.end() && std::isfinite(value) && value > 0,
            "--time-limit {}: a time is expected, as 2h, 30min or 90s (a number alone: hours)", printable(text));
  return value * unit->second;
}

// "4": 0 to 3; "2-3": 2 and 3.
std::set<int> parse_seeds(const std::string& text, const Benchmark& benchmark) {
  const auto number = [&](std::string_view part) {
    int value = -1;
    const auto [end, status] = std::from_chars(part.data(), part.data() + part.size(), value);
    SAN_CHECK(status == std::errc{} && end == part.data() + part.size() && value >= 0 && value < 10000,
              "--seeds {}: a number of seeds or a range like 2-3 is expected", printable(text));
    return value;
  };
  const size_t dash = text.find('-');
  const int first = dash == std::string::npos ? 0 : number(std::string_view(text).substr(0, dash));
  const int last = text.empty()                ? benchmark.runs - 1
                   : dash == std::string::npos ? number(text) - 1
                                               : number(std::string_view(text).substr(dash + 1));
  SAN_CHECK(first <= last, "--seeds {}: that is none", printable(text));
  SAN_CHECK(!benchmark.folds || last < benchmark.runs, "--seeds {}: {} has {} folds, 0 to {}", printable(text),
            benchmark.title, benchmark.runs, benchmark.runs - 1);
  std::set<int> out;
  for (int seed = first; seed <= last; ++seed) out.insert(seed);
  return out;
}

// Before anything is prepared for it.
void check_writable(const fs::path& folder) {
  std::error_code ignored;
  fs::path there = fs::absolute(folder).lexically_normal();
  while (!fs::exists(there, ignored) && there.has_relative_path()) there = there.parent_path();
  SAN_CHECK(fs::is_directory(there, ignored), "{}: is not a folder", there.string());
  SAN_CHECK(::access(there.c_str(), W_OK | X_OK) == 0, "{}: cannot write: {}", there.string(), std::strerror(errno));
}

void make_folder(const fs::path& folder) {
  std::error_code failure;
  fs::create_directories(folder, failure);
  SAN_CHECK(fs::is_directory(folder), "{}: cannot make the folder: {}", folder.string(), failure.message());
}

// --- data ------------------------------------------------------------------------------------------------------------

// FOLDER/NAME.csv or .csv.gz; empty when there is none.
std::string find_csv(const fs::path& folder, const std::string& name) {
  for (const char* end : {".csv", ".csv.gz"}) {
    if (fs::exists(folder / (name + end))) return (folder / (name + end)).string();
  }
  return {};
}

int parse_int(std::string_view text, const CsvReader& reader) {
  int value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  SAN_CHECK(status == std::errc{} && end == text.data() + text.size() && value >= 0, "{}: '{}' is not a whole number",
            reader.where(), printable(text));
  return value;
}

// The split of a fold; its number takes the place of the #. Another file, which a person named, stays as it is.
constexpr const char* kFoldFile = "fold-#.json";
fs::path fold_file(const fs::path& pattern, int fold) {
  return pattern.filename() == kFoldFile ? pattern.parent_path() / fmt::format("fold-{}.json", fold) : pattern;
}

// CSL as it is handed round (a list of edges per graph, a list of graphs per fold) -> Graph JSONL and split files in `to`.
void convert_csl(const std::string& graphs_file, const std::string& folds_file, const Benchmark& benchmark,
                 const fs::path& to) {
  make_folder(to);
  CsvReader graphs(graphs_file);
  const size_t number = graphs.column("graph"), label = graphs.column("label"), nodes = graphs.column("num_nodes"),
               edges = graphs.column("edges");
  std::string text;
  int64_t count = 0;
  for (; graphs.next(); ++count) {
    SAN_CHECK(parse_int(graphs[number], graphs) == count, "{}: graphs must be numbered 0, 1, 2, ...", graphs.where());
    Graph graph;
    graph.id = fmt::format("csl-{}", count);
    graph.num_nodes = parse_int(graphs[nodes], graphs);
    graph.graph_labels = {static_cast<double>(parse_int(graphs[label], graphs))};
    for (std::string_view rest = graphs[edges]; !rest.empty();) {
      const size_t end = std::min(rest.find(' '), rest.size()), dash = rest.find('-');
      SAN_CHECK(dash < end, "{}: '{}' is not an edge", graphs.where(), printable(rest.substr(0, end)));
      const int a = parse_int(rest.substr(0, dash), graphs),
                b = parse_int(rest.substr(dash + 1, end - dash - 1), graphs);
      graph.edges.push_back({a, b});
      graph.edges.push_back({b, a});
      rest.remove_prefix(std::min(end + 1, rest.size()));
    }
    text += format_graph(graph) + "\n";
  }
  write_file(to / "csl.jsonl", text);
  std::vector<Splits> folds(static_cast<size_t>(benchmark.runs));
  CsvReader rows(folds_file);
  const size_t fold = rows.column("fold"), split = rows.column("split"), graph = rows.column("graph");
  while (rows.next()) {
    const int which = parse_int(rows[fold], rows);
    SAN_CHECK(which < benchmark.runs, "{}: fold {} of {}", rows.where(), which, benchmark.runs);
    Splits& s = folds[static_cast<size_t>(which)];
    const std::string_view part = rows[split];
    std::vector<int64_t>* to_part = part == "train"                    ? &s.train
                                    : part == "val" || part == "valid" ? &s.valid
                                    : part == "test"                   ? &s.test
                                                                       : nullptr;
    SAN_CHECK(to_part != nullptr, "{}: '{}' is neither train, val nor test", rows.where(), printable(part));
    to_part->push_back(parse_int(rows[graph], rows));
  }
  for (size_t i = 0; i < folds.size(); ++i) {
    for (auto* part : {&folds[i].train, &folds[i].valid, &folds[i].test}) std::sort(part->begin(), part->end());
    validate(folds[i], count);
    write_splits(fold_file(to / kFoldFile, static_cast<int>(i)), folds[i]);
  }
}

// Says in the configuration where the data is: files of the benchmark's usual names in a folder, or whatever --data of `san train`
// takes. `converted`: where files go that have to be written first.
void name_data(RunConfig& run, const Benchmark& benchmark, const std::string& data, const fs::path& converted) {
  const std::string_view name = benchmark.name;
  DataConfig& config = run.data;
  const bool own_targets = run.is_given("data.target_columns"), own_folds = run.is_given("data.split_file");
  if (data.empty()) {
    if (name == "csl" && config.path.empty()) config.path = "generate:csl";
    SAN_CHECK(!config.path.empty(), "--data is missing: {} is not generated; name the folder or file that holds it",
              benchmark.title);
    return;
  }
  config.path = data;
  if (!fs::is_directory(data)) return;
  if (name == "zinc") {
    const std::string train = find_csv(data, "zinc12k_train"), valid = find_csv(data, "zinc12k_val"),
                      test = find_csv(data, "zinc12k_test");
    SAN_CHECK(!train.empty() && !valid.empty() && !test.empty(),
              "{}: ZINC is not here: zinc12k_train, zinc12k_val and zinc12k_test (.csv or .csv.gz) are expected", data);
    config.path = fmt::format("train={},valid={},test={}", train, valid, test);
    if (!own_targets) config.target_columns = {"label"};
  } else if (name == "csl") {
    const std::string graphs = find_csv(data, "csl"), folds = find_csv(data, "csl_folds");
    SAN_CHECK(!graphs.empty() && !folds.empty(),
              "{}: CSL is not here: csl and csl_folds (.csv or .csv.gz) are expected", data);
    convert_csl(graphs, folds, benchmark, converted);
    config.path = (converted / "csl.jsonl").string();
    if (own_folds) return;
    config.split = SplitKind::kFile;
    config.split_file = (converted / kFoldFile).string();
  } else if (!fs::exists(fs::path(data) / "raw")) {
    const std::string file = find_csv(data, std::string(name));
    SAN_CHECK(!file.empty(), "{}: {} is not here: {}.csv, {}.csv.gz or OGB's folder raw/ is expected", data,
              benchmark.title, name, name);
    config.path = file;
    if (name == "molhiv" && !own_targets) config.target_columns = {"label"};
  }
}

// --- runs ------------------------------------------------------------------------------------------------------------

std::vector<Group> make_groups(const Options& options, const Benchmark& benchmark) {
  std::vector<Group> groups;
  const auto add = [&](const Variant& variant, std::optional<double> gamma) {
    Group group;
    group.variant = &variant;
    group.config = variant_config(benchmark, variant);
    const double published = group.config.model.gamma;
    if (gamma) set_option(group.config, fmt::format("model.gamma={}", *gamma));
    for (const std::string& assignment : options.set) {
      SAN_CHECK(!assignment.starts_with("train.seed") && !assignment.starts_with("data.fold="),
                "--set {}: --seeds says which are trained", assignment);
      const auto either = [&](bool flag, const char* flag_name, const char* option) {
        SAN_CHECK(!flag || !assignment.starts_with(option), "{} and --set {}: one of the two", flag_name, assignment);
      };
      either(gamma.has_value(), "--gamma", "model.gamma=");
      either(options.epochs >= 0, "--epochs", "train.epochs=");
      either(!options.time_limit.empty(), "--time-limit", "train.time_limit=");
      either(!options.data.empty(), "--data", "data.path=");
      set_option(group.config, assignment);
    }
    if (options.epochs >= 0) set_option(group.config, fmt::format("train.epochs={}", options.epochs));
    if (!options.time_limit.empty()) {
      set_option(group.config, fmt::format("train.time_limit={}", parse_hours(options.time_limit)));
    }
    SAN_CHECK(!gamma || group.config.model.full(),
              "--gamma: {} attends to real edges only, so gamma means nothing to it", variant.name);
    group.name = options.label.empty() ? variant.name : options.label;
    if (gamma && *gamma != published) group.name += "-gamma-" + gamma_text(*gamma);
    SAN_CHECK(is_group_name(group.name), "--label {}: too long with its gamma", printable(options.label));
    const DataConfig& data = group.config.data;
    SAN_CHECK(!benchmark.folds || data.split == SplitKind::kFile ||
                  (data.split == SplitKind::kKFold && data.folds == benchmark.runs),
              "{} has {} folds: --set data.split and data.folds cannot be others", benchmark.title, benchmark.runs);
    validate(group.config);
    validate_widths(group.config.model);
    const bool twice =
        std::any_of(groups.begin(), groups.end(), [&](const Group& other) { return other.name == group.name; });
    SAN_CHECK(!twice, "'{}' is asked for twice", group.name);
    groups.push_back(std::move(group));
  };
  for (const std::string& name : options.variants) {
    const Variant& variant = variant_of(name);
    if (options.gammas.empty()) add(variant, {});
    for (const double gamma : options.gammas) {
      SAN_CHECK(std::isfinite(gamma) && gamma >= 0, "--gamma {}: a number of at least 0 is expected", gamma);
      add(variant, std::abs(gamma));  // -0 is 0
    }
  }
  return groups;
}

// What was asked for in this folder before, and now.
ReproductionPlan extended_plan(const fs::path& out, const Benchmark& benchmark, const std::vector<Group>& groups,
                               const std::set<int>& seeds) {
  ReproductionPlan asked{std::string(benchmark.name), {}};
  for (const Group& group : groups) asked.groups.push_back({group.name, std::string(group.variant->name), seeds});
  return merged_plan(out, asked);
}

enum class Todo { kBegin, kResume, kNothing };

bool is_begun(const fs::path& folder) {
  std::error_code ignored;  // what cannot be looked at fails when it is that run's turn
  return fs::exists(folder / "result.json", ignored) || has_checkpoint(folder);
}

// Throws Error when a run of the group was trained with another configuration: a mean over both would mean nothing.
void check_runs_there(const fs::path& group, const RunConfig& config) {
  std::error_code failure;
  for (const fs::directory_entry& entry : fs::directory_iterator(group, failure)) {
    const fs::path& folder = entry.path();
    if (!folder.filename().string().starts_with("seed-") || !is_begun(folder)) continue;
    RunConfig there;
    try {
      read_toml(there, folder / "config.toml");
    } catch (const Error&) {
      continue;  // todo_of() says so when it is that run's turn
    }
    const std::vector<Difference> changed = conflicts(there, config);
    SAN_CHECK(changed.empty(), "{}: was trained with {} = {}, now {} is asked for; choose another --out or --label",
              folder.string(), changed[0].name, changed[0].a, changed[0].b);
  }
}

// What a run folder still needs.
Todo todo_of(const fs::path& folder, const RunConfig& config) {
  if (!is_begun(folder)) return Todo::kBegin;
  RunConfig there;
  read_toml(there, folder / "config.toml");  // refuses a damaged one
  if (!fs::exists(folder / "result.json")) return Todo::kResume;
  const TrainResult result = read_result(folder / "result.json");
  const TrainConfig& train = config.train;
  const bool more_epochs = train.epochs > result.epochs;
  const bool more_time = train.time_limit == 0 || train.time_limit * 3600 > result.seconds;
  if (result.stopped == "rule" || !more_epochs || !more_time) return Todo::kNothing;
  SAN_CHECK(has_checkpoint(folder), "{}: its checkpoint is gone, so that it cannot go on to a higher limit",
            folder.string());
  return Todo::kResume;
}

void write_pages(const fs::path& out, std::span<const Reproduction> reproductions) {
  write_file(out / "results.md", render_markdown(reproductions));
  write_file(out / "results.html", render_page(reproductions));
}

enum class Outcome { kDone, kSomeFailed, kStopped };

// `write_down` notes in `out` what is being trained: not before its data could be read. A run that fails leaves the others alone.
Outcome train_group(const Group& group, const Options& options, const Benchmark& benchmark, const std::set<int>& seeds,
                    const std::string& command, const fs::path& out, const std::function<void()>& write_down) {
  check_runs_there(out / group.name, group.config);
  std::optional<Dataset> data;
  Outcome outcome = Outcome::kDone;
  for (const int seed : seeds) {
    const fs::path folder = out / group.name / fmt::format("seed-{}", seed);
    const auto failed = [&](const Error& error) {
      const std::string message = error.what();
      say("san: {}{}\n", message.starts_with(folder.string()) ? "" : folder.string() + ": ", message);
      outcome = Outcome::kSomeFailed;
    };
    RunConfig config = group.config;
    config.train.seed = seed;
    if (benchmark.folds && config.data.split == SplitKind::kFile) {
      config.data.split_file = fold_file(config.data.split_file, seed).string();
    } else if (benchmark.folds) {
      config.data.fold = seed;
    }
    Todo todo = Todo::kNothing;
    try {
      check_runs_there(out / group.name, group.config);  // again: another process may share the folder
      todo = todo_of(folder, config);
    } catch (const Error& error) {
      failed(error);
      continue;
    }
    if (!options.quiet) {
      say("{}: {}\n", folder.string(),
          todo == Todo::kNothing ? "done before"
          : todo == Todo::kBegin ? "beginning"
                                 : "going on");
    }
    if (todo == Todo::kNothing) continue;
    if (!data && !stop_requested()) data = prepare_data(config, options.threads, options.quiet);
    if (stop_requested()) return Outcome::kStopped;
    write_down();
    try {
      const TrainResult result = train_one(config, *data, folder, todo == Todo::kResume, command, options.quiet);
      if (result.interrupted) return Outcome::kStopped;
      fmt::print("{}, {} {}: ", group.name, benchmark.folds ? "fold" : "seed", seed);
      print_result(result, folder);
    } catch (const Error& error) {
      failed(error);
    }
    write_pages(out, std::vector{read_reproduction(out)});
  }
  return outcome;
}

Outcome train_all(Options options, const Benchmark& benchmark, const std::string& command, const fs::path& out) {
  if (!options.label.empty()) {
    SAN_CHECK(
        is_group_name(options.label),
        "--label {}: 1 to 100 letters, digits and . _ + - are expected, not beginning with a dot and not the name "
        "of a file there",
        printable(options.label));
    SAN_CHECK(options.variants.size() == 1, "--label goes with one --variant");
    const auto other = std::find_if(variants().begin(), variants().end(), [&](const Variant& variant) {
      return variant.name == options.label && variant.name != options.variants[0];
    });
    SAN_CHECK(other == variants().end(), "--label {}: that is another variant's name; choose another", options.label);
  }
  const std::set<int> seeds = parse_seeds(options.seeds, benchmark);
  std::vector<Group> groups = make_groups(options, benchmark);
  // Read anew each time: another process may share the folder.
  const auto write_down = [&] {
    const ReproductionPlan plan = extended_plan(out, benchmark, groups, seeds);
    make_folder(out);
    write_plan(out, plan);
  };
  extended_plan(out, benchmark, groups, seeds);  // refuses a folder of another data set
  check_writable(out);
  for (Group& group : groups) name_data(group.config, benchmark, options.data, out / "data");
  if (options.threads == 0) options.threads = available_threads();
  at::set_num_threads(options.threads);
  stop_on_signals();
  Outcome outcome = Outcome::kDone;
  for (const Group& group : groups) {
    const Outcome of_group = train_group(group, options, benchmark, seeds, command, out, write_down);
    // Again: a process that began at the same moment may have written its plan over ours.
    if (fs::exists(out)) write_down();
    outcome = std::max(outcome, of_group);
    if (outcome == Outcome::kStopped) break;
  }
  return outcome;
}

// The runs in a folder; of "all": in the folders of the data sets below it.
std::vector<Reproduction> read_results(const fs::path& out, const std::string& name) {
  std::vector<Reproduction> found;
  for (const Benchmark& benchmark : benchmarks()) {
    if (name == "all" && fs::exists(out / benchmark.name / "reproduce.json")) {
      found.push_back(read_reproduction(out / benchmark.name));
      SAN_CHECK(found.back().benchmark == &benchmark, "{}: holds runs of {}, not of {}",
                (out / benchmark.name).string(), found.back().benchmark->name, benchmark.name);
    }
  }
  SAN_CHECK(name != "all" || !found.empty(), "{}: no runs of `san reproduce` below it", out.string());
  if (name != "all") {
    found.push_back(read_reproduction(out));
    SAN_CHECK(found[0].benchmark->name == name, "{}: holds runs of {}, not of {}", out.string(),
              found[0].benchmark->name, name);
  }
  return found;
}

}  // namespace

int run_reproduce(int argc, char** argv) {
  const std::string command = command_line(argc, argv);
  Options options;
  CLI::App app(
      "Trains the paper's networks and sets the results beside the published ones.\n\n"
      "  san reproduce zinc --data ../shared/data/zinc\n"
      "  san reproduce cluster --variant sparse-none,sparse-node,full-none,full-node --time-limit 2h\n"
      "  san reproduce zinc --variant full-node --gamma 1e-7,1e-5,1e-3,1e-1 --data ../shared/data/zinc\n"
      "  san reproduce zinc --report-only\n\n"
      "Every run is an ordinary run of `san train`. Stop it at any moment; the same command goes on: finished runs\n"
      "are skipped, an interrupted one is resumed. Higher limits let finished runs go on, except that a cosine is\n"
      "laid out for its epochs. A run that fails leaves the others alone.");
  app.add_option("dataset", options.benchmark,
                 "zinc, pattern, cluster, molhiv, molpcba or csl; with --report-only also all")
      ->required();
  constexpr const char* kWhat = "What to train";
  app.add_option(
         "--variant", options.variants,
         "optimised, sparse-none, sparse-node, full-none, full-node, edge, edge-sparse, improved; several with commas")
      ->delimiter(',')
      ->group(kWhat);
  app.add_option("--gamma", options.gammas, "weights of added pairs, a group of runs each")
      ->delimiter(',')
      ->group(kWhat);
  app.add_option("--seeds", options.seeds, "how many, or which: 4 (0 to 3) or 2-3 [4; csl: its 5 folds]")->group(kWhat);
  app.add_option("--data", options.data, "folder or file of the data set [pattern, cluster, csl: generated]")
      ->group(kWhat);
  app.add_option("--set", options.set, "any option on top: --set train.lr=1e-3 (see san train --list-options)")
      ->group(kWhat);
  app.add_option("--label", options.label, "name of the group of runs, in the place of the variant's")->group(kWhat);
  constexpr const char* kBudget = "Budget";
  app.add_option("--time-limit", options.time_limit, "per run: 2h, 30min, 90s [none: to the stopping rule]")
      ->group(kBudget);
  app.add_option("--epochs", options.epochs, "at most so many per run")->check(CLI::Range(0, 1000000))->group(kBudget);
  app.add_option("--threads", options.threads, "threads; 0 = all cores")->check(CLI::Range(0, 1024))->group(kBudget);
  constexpr const char* kResults = "Results";
  app.add_option("--out", options.out, "folder of the runs, results.md and results.html [runs/reproduce/DATASET]")
      ->group(kResults);
  app.add_flag("--report-only", options.report_only, "write the results of what is there; train nothing")
      ->group(kResults);
  app.add_option("--collect", options.collect, "copy metrics, configuration and result of each run to DIR/DATASET")
      ->group(kResults);
  app.add_flag("--quiet", options.quiet, "only the results")->group(kResults);
  int exit_code = 0;
  if (!parse_flags(app, argc, argv, exit_code)) return exit_code;

  if (options.report_only) {
    for (const char* name :
         {"--variant", "--gamma", "--seeds", "--data", "--set", "--label", "--time-limit", "--epochs"}) {
      SAN_CHECK(app.count(name) == 0, "{} says what to train, and --report-only trains nothing", name);
    }
  }
  const bool all = options.benchmark == "all";
  if (!all) benchmark_of(options.benchmark);  // refuses unknown ones
  SAN_CHECK(!all || options.report_only, "all: goes with --report-only; train one data set after the other");
  fs::path out = options.out;
  if (options.out.empty()) out = all ? fs::path("runs/reproduce") : fs::path("runs/reproduce") / options.benchmark;
  Outcome outcome = Outcome::kDone;
  if (!options.report_only) outcome = train_all(options, benchmark_of(options.benchmark), command, out);
  if (outcome == Outcome::kStopped && !fs::exists(out / "reproduce.json")) {
    say("\nsan: stopped before anything was trained\n");
    return kFailed;
  }
  const std::vector<Reproduction> reproductions = read_results(out, options.benchmark);
  write_pages(out, reproductions);
  for (const Reproduction& reproduction : reproductions) {
    if (options.collect.empty()) break;
    collect_reproduction(reproduction, fs::path(options.collect) / reproduction.benchmark->name);
  }
  fmt::print("{}results: {}, {}\n", outcome == Outcome::kDone ? "" : "so far, ", (out / "results.md").string(),
             (out / "results.html").string());
  if (outcome == Outcome::kDone) return kDone;
  say("\nsan: {}: {}\n",
      outcome == Outcome::kStopped ? "stopped; go on with" : "some runs failed, the others are done; try again with",
      command);
  return kFailed;
}

}  // namespace san::cli
