// The paper's experiments: which data sets and variants there are, what was published, and what the run folders of
// `san reproduce` say.
//
// A folder of reproduce holds reproduce.json (the data set and every run that was ever asked for), GROUP/seed-S (ordinary run
// folders; a group is a variant, or a variant with another gamma, or what --label says) and results.md / results.html. All that
// is read of a run is config.toml, metrics.csv and result.json, so the copy that --collect makes can be read in its place.
#pragma once

#include <filesystem>
#include <limits>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "san/train/report.h"
#include "san/train/result.h"
#include "san/train/run_config.h"

namespace san {

struct Benchmark {
  std::string_view name;   // as people type it
  std::string_view title;  // as the paper writes it
  int runs = 4;            // seeds by default
  bool folds = false;      // a run is a fold, not a seed
};
std::span<const Benchmark> benchmarks();
// Throws Error naming all.
const Benchmark& benchmark_of(std::string_view name);

// A network to train. Where configs/ablation/BENCHMARK-NAME.toml or configs/NAME/BENCHMARK.toml exists, that is its configuration; else
// configs/BENCHMARK.toml and what `set` says on top of it.
struct Variant {
  std::string_view name;
  std::vector<std::string_view> set;  // as --set has them
  bool ablation = false;              // one of the bars of the ablation
};
std::span<const Variant> variants();
// Throws Error naming all.
const Variant& variant_of(std::string_view name);
// The published configuration, with the variant's changes; names no data unless it is generated.
RunConfig variant_config(const Benchmark& benchmark, const Variant& variant);

// 1e-5: shortest form, as it stands in the names of groups.
std::string gamma_text(double gamma);

// A figure of others, to stand beside ours; in the metric's own unit.
struct Published {
  std::string_view benchmark, variant;
  double mean = std::numeric_limits<double>::quiet_NaN();
  double deviation = std::numeric_limits<double>::quiet_NaN();
  int64_t parameters = 0;  // 0 = not published
  std::string_view source;
};
const Published* published_of(std::string_view benchmark, std::string_view variant);

// Options that differ between two configurations, as {name, value in a, value in b}. Limits (epochs, time), where files lie,
// what the data decides (unless `b` was given it) and what the schedule does not read do not count.
struct Difference {
  std::string name, a, b;
};
std::vector<Difference> differences(const RunConfig& a, const RunConfig& b);
// What makes `b` another run than `a`, seeds and folds aside: the differences, generated data of another kind, and more or fewer
// epochs where the learning rate is laid out for them (a cosine).
std::vector<Difference> conflicts(const RunConfig& a, const RunConfig& b);

struct ReproducedRun {
  int seed = 0;
  std::filesystem::path folder;
  std::optional<RunConfig> config;     // none: never begun
  std::vector<EpochRecord> epochs;     // of metrics.csv; only the first validation metric
  std::optional<TrainResult> result;   // none: not finished
  std::string unreadable;              // what is wrong with its files; empty: nothing
  std::optional<size_t> best() const;  // place in `epochs` of the best validation score so far
};

struct ReproducedGroup {
  std::string name;     // its folder
  std::string variant;  // of variants()
  std::vector<ReproducedRun> runs;

  size_t finished() const;
};

struct Reproduction {
  const Benchmark* benchmark = nullptr;
  std::filesystem::path folder;
  std::vector<ReproducedGroup> groups;
};

// What reproduce.json keeps.
struct ReproductionPlan {
  struct Group {
    std::string name, variant;
    std::set<int> seeds;
  };
  std::string benchmark;
  std::vector<Group> groups;
};
// Whether a group of runs can be called so: it is the name of a folder, and of elements of the page. 1 to 100 letters, digits and
// . _ + -, not beginning with a dot, and not the name of another file there.
bool is_group_name(std::string_view name);
// The plan of a folder; an empty one when it has none. Throws Error when the file is not a plan.
ReproductionPlan read_plan(const std::filesystem::path& folder);
void write_plan(const std::filesystem::path& folder, const ReproductionPlan& plan);
// The plan of a folder with the groups and seeds of `more` beside its own. Throws Error when the folder is of another data set or
// uses a group's name for another variant.
ReproductionPlan merged_plan(const std::filesystem::path& folder, const ReproductionPlan& more);

// Reads the runs; one whose files are damaged says so and stands in nobody's way. Throws Error when the folder has no plan.
Reproduction read_reproduction(const std::filesystem::path& folder);
// Copies plan, metrics, configurations and results of all begun runs, beside runs that are there already; no weights, and no names
// of this machine's folders.
void collect_reproduction(const Reproduction& reproduction, const std::filesystem::path& to);

// Mean and sample standard deviation (n - 1) of finite values; NaN where there are too few.
struct Spread {
  size_t count = 0;
  double mean = std::numeric_limits<double>::quiet_NaN();
  double deviation = std::numeric_limits<double>::quiet_NaN();
};
Spread spread_of(std::span<const double> values);

// The tables as Markdown, and the page: one self-contained file, like a run's report.
//
// Elements of the page that tests and programs may rely on: #overview (of several data sets); per data set NAME: #NAME-results, #NAME-cost (tables), #NAME-gamma (box plots), #NAME-gamma-pairs,
// #NAME-ablation (bars), #NAME-curve-GROUP, #NAME-missing, #NAME-runs.
std::string render_markdown(std::span<const Reproduction> reproductions);
std::string render_page(std::span<const Reproduction> reproductions);

}  // namespace san
