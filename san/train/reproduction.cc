#include "san/train/reproduction.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "san/base/error.h"
#include "san/base/file.h"
#include "san/data/csv.h"
#include "san/train/metrics.h"
#include "san/train/published_configs.h"

namespace san {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array kBenchmarks = {
    Benchmark{"zinc", "ZINC"},     Benchmark{"pattern", "PATTERN"}, Benchmark{"cluster", "CLUSTER"},
    Benchmark{"molhiv", "MolHIV"}, Benchmark{"molpcba", "MolPCBA"}, Benchmark{"csl", "CSL", 5, true},
};

// Figures of the paper (Kreuzer, Beaini, Hamilton, Letourneau, Tossou: Rethinking Graph Transformers with Spectral Attention,
// NeurIPS 2021): scores of its comparison of tuned models, parameters of its ablation. The scores of the ablation and of the
// gamma sweep are known to us only as pictures, so that they do not stand here.
constexpr std::string_view kTuned =
    "Kreuzer et al. 2021, comparison of the tuned models, four seeds (MolHIV: ten runs)";
constexpr std::string_view kAblation = "Kreuzer et al. 2021, parameters of the ablation study";
constexpr std::string_view kBound = "chance for 10 classes: a network that 1-WL bounds cannot tell them apart";
constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
constexpr std::array kPublished = {
    Published{"zinc", "optimised", 0.139, 0.006, 454753, kTuned},
    Published{"zinc", "full-node", kNone, kNone, 508577, kAblation},
    Published{"zinc", "full-none", kNone, kNone, 471361, kAblation},
    Published{"zinc", "sparse-node", kNone, kNone, 494865, kAblation},
    Published{"zinc", "sparse-none", kNone, kNone, 511201, kAblation},
    Published{"pattern", "optimised", 86.581, 0.037, 520518, kTuned},
    Published{"pattern", "full-node", kNone, kNone, 507202, kAblation},
    Published{"pattern", "full-none", kNone, kNone, 469142, kAblation},
    Published{"pattern", "sparse-node", kNone, kNone, 493340, kAblation},
    Published{"pattern", "sparse-none", kNone, kNone, 508634, kAblation},
    Published{"cluster", "optimised", 76.691, 0.650, 519186, kTuned},
    Published{"cluster", "full-node", kNone, kNone, 519186, kAblation},
    Published{"cluster", "full-none", kNone, kNone, 450498, kAblation},
    Published{"cluster", "sparse-node", kNone, kNone, 530036, kAblation},
    Published{"cluster", "sparse-none", kNone, kNone, 461348, kAblation},
    Published{"molhiv", "optimised", 0.7785, 0.0025, 714769, kTuned},
    Published{"molhiv", "full-node", kNone, kNone, 528265, kAblation},
    Published{"molhiv", "full-none", kNone, kNone, 483601, kAblation},
    Published{"molhiv", "sparse-node", kNone, kNone, 503265, kAblation},
    Published{"molhiv", "sparse-none", kNone, kNone, 525985, kAblation},
    Published{"molpcba", "optimised", 0.2765, 0.0042, 5885044, kTuned},
    Published{"csl", "sparse-none", 0.1, kNone, 0, kBound},
    Published{"csl", "full-none", 0.1, kNone, 0, kBound},
};

// "a, b and c" of a table's names.
template <typename Table>
std::string names_of(const Table& table) {
  std::string out;
  for (size_t i = 0; i < std::size(table); ++i) {
    out += fmt::format("{}{}", i == 0 ? "" : i + 1 == std::size(table) ? " and " : ", ", table[i].name);
  }
  return out;
}

const PublishedConfig* config_file(const std::string& name) {
  for (const PublishedConfig& config : published_configs()) {
    if (config.name == name) return &config;
  }
  return nullptr;
}

double parse_number(std::string_view text) {
  double value = kNone;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

constexpr size_t kMostEpochs = 1000000;  // as --epochs has it; a small compressed file may hold any number
constexpr int kMostSeeds = 10000;        // as --seeds has it

// What cannot be looked at is not there.
bool there(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

std::vector<EpochRecord> read_metrics(const std::filesystem::path& path) {
  CsvReader reader(path.string());
  const std::vector<std::string>& header = reader.header();
  std::optional<size_t> valid;
  for (size_t i = 0; i < header.size() && !valid; ++i) {
    if (header[i].starts_with("valid_") && header[i] != "valid_loss") valid = i;
  }
  const size_t epoch = reader.column("epoch"), seconds = reader.column("seconds"), rate = reader.column("lr"),
               train_loss = reader.column("train_loss"), valid_loss = reader.column("valid_loss");
  std::vector<EpochRecord> out;
  while (reader.next()) {
    EpochRecord record;
    const double number = parse_number(reader[epoch]);
    SAN_CHECK(number >= 1 && number <= 1e9, "{}: '{}' is not an epoch", reader.where(), printable(reader[epoch]));
    record.epoch = static_cast<int64_t>(number);
    record.seconds = parse_number(reader[seconds]);
    record.learning_rate = parse_number(reader[rate]);
    record.train_loss = parse_number(reader[train_loss]);
    record.valid_loss = parse_number(reader[valid_loss]);
    if (valid) record.valid_metrics.emplace_back(header[*valid].substr(6), parse_number(reader[*valid]));
    SAN_CHECK(out.size() < kMostEpochs, "{}: more than {} epochs", reader.where(), kMostEpochs);
    out.push_back(std::move(record));
  }
  return out;
}

}  // namespace

std::span<const Benchmark> benchmarks() {
  return kBenchmarks;
}

const Benchmark& benchmark_of(std::string_view name) {
  for (const Benchmark& benchmark : kBenchmarks) {
    if (benchmark.name == name) return benchmark;
  }
  fail("unknown data set '{}'; there are {}", printable(name), names_of(kBenchmarks));
}

std::span<const Variant> variants() {
  static const std::vector<Variant> kVariants = {
      {"optimised", {}},
      {"sparse-none", {"model.attention=sparse", "model.lpe.kind=none"}, true},
      {"sparse-node", {"model.attention=sparse", "model.lpe.kind=node"}, true},
      {"full-none", {"model.attention=full", "model.lpe.kind=none"}, true},
      {"full-node", {"model.attention=full", "model.lpe.kind=node"}, true},
      {"edge", {"model.attention=full", "model.lpe.kind=edge"}, true},
      {"edge-sparse", {"model.attention=sparse", "model.lpe.kind=edge"}, true},
      // Beyond the paper (docs/RESULTS.md): what the files of configs/improved have in common; data sets without one get this alone.
      {"improved",
       {"model.lpe.ff_dim=64", "model.lpe.init=independent", "train.sign_flip=graph", "train.optimiser=adamw",
        "train.schedule=cosine", "train.min_lr=1e-6"}},
  };
  return kVariants;
}

const Variant& variant_of(std::string_view name) {
  for (const Variant& variant : variants()) {
    if (variant.name == name) return variant;
  }
  fail("unknown variant '{}'; there are {}", printable(name), names_of(variants()));
}

RunConfig variant_config(const Benchmark& benchmark, const Variant& variant) {
  RunConfig config;
  for (const std::string& name : {fmt::format("ablation/{}-{}.toml", benchmark.name, variant.name),
                                  fmt::format("{}/{}.toml", variant.name, benchmark.name)}) {
    const PublishedConfig* own = config_file(name);
    if (own == nullptr) continue;
    parse_toml(config, own->text, fmt::format("configs/{}", own->name));
    return config;
  }
  const PublishedConfig* base = config_file(fmt::format("{}.toml", benchmark.name));
  SAN_CHECK(base != nullptr, "this program has no configuration of {}", benchmark.name);
  parse_toml(config, base->text, fmt::format("configs/{}", base->name));
  for (const std::string_view assignment : variant.set) set_option(config, assignment);
  return config;
}

std::string gamma_text(double gamma) {
  std::string text;
  for (int digits = 0; digits < 17; ++digits) {
    text = fmt::format("{:.{}e}", gamma, digits);
    if (parse_number(text) == gamma) break;
  }
  const size_t e = text.find('e');
  const int exponent = std::stoi(text.substr(e + 1));
  return exponent == 0 ? text.substr(0, e) : fmt::format("{}e{}", text.substr(0, e), exponent);
}

const Published* published_of(std::string_view benchmark, std::string_view variant) {
  for (const Published& published : kPublished) {
    if (published.benchmark == benchmark && published.variant == variant) return &published;
  }
  return nullptr;
}

std::vector<Difference> differences(const RunConfig& a, const RunConfig& b) {
  constexpr std::string_view kAside[] = {"train.epochs",    "train.time_limit", "data.path",
                                         "data.split_file", "data.format",      "train.checkpoint_seconds"};
  constexpr std::string_view kByData[] = {"model.node_tables", "model.node_values", "model.edge_tables",
                                          "model.edge_values", "model.outputs",     "model.readout",
                                          "train.loss"};
  constexpr std::string_view kOfPlateau[] = {"train.patience", "train.factor", "train.plateau_on"};
  const bool plateau = a.train.schedule == ScheduleKind::kPlateau || b.train.schedule == ScheduleKind::kPlateau;
  const auto among = [](const auto& names, const std::string& name) {
    return std::find(std::begin(names), std::end(names), name) != std::end(names);
  };
  std::vector<Difference> out;
  const auto ours = option_values(a), theirs = option_values(b);
  for (size_t i = 0; i < ours.size(); ++i) {
    const auto& [name, value] = ours[i];
    // Who names no targets takes those of the data.
    const bool targets =
        name == "data.target_columns" && (a.data.target_columns.empty() || b.data.target_columns.empty());
    if (value == theirs[i].second || among(kAside, name) || targets || (among(kByData, name) && !b.is_given(name)) ||
        (among(kOfPlateau, name) && !plateau)) {
      continue;
    }
    out.push_back({name, value, theirs[i].second});
  }
  return out;
}

std::vector<Difference> conflicts(const RunConfig& a, const RunConfig& b) {
  std::vector<Difference> out = differences(a, b);
  std::erase_if(out, [](const Difference& d) { return d.name == "train.seed" || d.name == "data.fold"; });
  const bool generated = a.data.path.starts_with("generate:") || b.data.path.starts_with("generate:");
  if (generated && a.data.path != b.data.path) out.push_back({"data.path", a.data.path, b.data.path});
  const bool cosine = a.train.schedule == ScheduleKind::kCosine || b.train.schedule == ScheduleKind::kCosine;
  if (cosine && a.train.epochs != b.train.epochs) {
    out.push_back({"train.epochs", std::to_string(a.train.epochs), std::to_string(b.train.epochs)});
  }
  return out;
}

std::optional<size_t> ReproducedRun::best() const {
  std::optional<size_t> best;
  for (size_t i = 0; i < epochs.size(); ++i) {
    if (epochs[i].valid_metrics.empty() || !std::isfinite(epochs[i].valid_metrics[0].second)) continue;
    const auto& [metric, value] = epochs[i].valid_metrics[0];
    const double held = best ? epochs[*best].valid_metrics[0].second : value;
    if (!best || (larger_is_better(metric) ? value > held : value < held)) best = i;
  }
  return best;
}

size_t ReproducedGroup::finished() const {
  return static_cast<size_t>(
      std::count_if(runs.begin(), runs.end(), [](const ReproducedRun& run) { return run.result.has_value(); }));
}

bool is_group_name(std::string_view name) {
  constexpr std::string_view kCharacters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._+-";
  constexpr std::string_view kTaken[] = {"data", "reproduce.json", "results.md", "results.html"};
  return !name.empty() && name.size() <= 100 && name.find_first_not_of(kCharacters) == std::string_view::npos &&
         !name.starts_with('.') && std::find(std::begin(kTaken), std::end(kTaken), name) == std::end(kTaken);
}

ReproductionPlan read_plan(const std::filesystem::path& folder) {
  ReproductionPlan plan;
  const std::filesystem::path path = folder / "reproduce.json";
  if (!there(path)) return plan;
  const std::string text = read_file(path, size_t{1} << 20);
  try {
    const Json json = Json::parse(text);
    plan.benchmark = benchmark_of(json.at("benchmark").get<std::string>()).name;
    for (const Json& group : json.at("groups")) {
      const std::string name = group.at("name");
      SAN_CHECK(is_group_name(name), "'{}' cannot be the name of a group of runs", printable(name));
      const bool twice = std::any_of(plan.groups.begin(), plan.groups.end(),
                                     [&](const ReproductionPlan::Group& other) { return other.name == name; });
      SAN_CHECK(!twice, "'{}' stands there twice", name);
      std::set<int> seeds;
      for (const auto seed : group.at("seeds").get<std::vector<int64_t>>()) {
        SAN_CHECK(seed >= 0 && seed < kMostSeeds, "'{}' has a seed {}; 0 to {} are expected", name, seed,
                  kMostSeeds - 1);
        seeds.insert(static_cast<int>(seed));
      }
      plan.groups.push_back({name, std::string(variant_of(group.at("variant").get<std::string>()).name), seeds});
    }
  } catch (const nlohmann::json::exception& error) {
    fail("{}: not a plan of `san reproduce`: {}", path.string(), printable(error.what(), 200));
  } catch (const Error& error) {
    fail("{}: {}", path.string(), error.what());
  }
  return plan;
}

void write_plan(const std::filesystem::path& folder, const ReproductionPlan& plan) {
  Json groups = Json::array();
  for (const ReproductionPlan::Group& group : plan.groups) {
    groups.push_back({{"name", group.name}, {"variant", group.variant}, {"seeds", group.seeds}});
  }
  const Json json = {{"benchmark", plan.benchmark}, {"groups", groups}};
  write_file(folder / "reproduce.json", json.dump(1) + "\n");
}

ReproductionPlan merged_plan(const std::filesystem::path& folder, const ReproductionPlan& more) {
  ReproductionPlan plan = read_plan(folder);
  SAN_CHECK(plan.benchmark.empty() || plan.benchmark == more.benchmark,
            "{}: holds runs of {}, not of {}; choose another folder", folder.string(), plan.benchmark, more.benchmark);
  plan.benchmark = more.benchmark;
  for (const ReproductionPlan::Group& group : more.groups) {
    auto known = std::find_if(plan.groups.begin(), plan.groups.end(),
                              [&](const ReproductionPlan::Group& other) { return other.name == group.name; });
    if (known == plan.groups.end()) known = plan.groups.insert(plan.groups.end(), {group.name, group.variant, {}});
    SAN_CHECK(known->variant == group.variant, "{}: '{}' is of variant {} there; choose another --label",
              folder.string(), group.name, known->variant);
    known->seeds.insert(group.seeds.begin(), group.seeds.end());
  }
  return plan;
}

namespace {

void read_run(ReproducedRun& run) {
  try {
    if (there(run.folder / "config.toml")) {
      RunConfig config;
      read_toml(config, run.folder / "config.toml");
      validate(config);
      SAN_CHECK(std::isfinite(config.model.gamma) && config.model.gamma >= 0, "model.gamma = {}", config.model.gamma);
      run.config = std::move(config);
    }
    if (there(run.folder / "metrics.csv")) run.epochs = read_metrics(run.folder / "metrics.csv");
    if (there(run.folder / "result.json")) {
      SAN_CHECK(run.config.has_value(), "{}: has a result, but no config.toml", run.folder.string());
      run.result = read_result(run.folder / "result.json");
    }
  } catch (const Error& error) {
    run.unreadable = error.what();
    run.epochs.clear();
  }
}

}  // namespace

Reproduction read_reproduction(const std::filesystem::path& folder) {
  const ReproductionPlan plan = read_plan(folder);
  SAN_CHECK(!plan.benchmark.empty(), "{}: no runs of `san reproduce` here (no reproduce.json)", folder.string());
  Reproduction out;
  out.benchmark = &benchmark_of(plan.benchmark);
  out.folder = folder;
  for (const ReproductionPlan::Group& group : plan.groups) {
    ReproducedGroup read;
    read.name = group.name;
    read.variant = group.variant;
    for (const int seed : group.seeds) {
      ReproducedRun run;
      run.seed = seed;
      run.folder = folder / group.name / fmt::format("seed-{}", seed);
      read_run(run);
      read.runs.push_back(std::move(run));
    }
    out.groups.push_back(std::move(read));
  }
  return out;
}

namespace {

// Copies are read on other machines: folders below the present one, and beside it, are named as seen from here.
std::string without_own_folders(std::string text) {
  const std::filesystem::path here = std::filesystem::current_path(), above = here.parent_path();
  const auto replace = [&](const std::filesystem::path& folder, std::string_view by) {
    if (!folder.has_relative_path()) return;  // the root is everybody's
    const std::string from = folder.string() + '/';
    for (size_t at = 0; (at = text.find(from, at)) != std::string::npos;) {
      // /tmp/ is not a folder of its own in /mnt/tmp/.
      const bool begins = at == 0 || std::string_view(" \t\n\"'=,:").find(text[at - 1]) != std::string_view::npos;
      if (begins) text.replace(at, from.size(), by);
      at += begins ? by.size() : from.size();
    }
  };
  replace(here, "");
  replace(above, "../");
  return text;
}

// Of a result that may be absent or damaged: then -1.
int64_t epochs_of(const std::filesystem::path& result) {
  try {
    return there(result) ? read_result(result).epochs : -1;
  } catch (const Error&) {
    return -1;
  }
}

}  // namespace

void collect_reproduction(const Reproduction& reproduction, const std::filesystem::path& to) {
  std::error_code failure;
  SAN_CHECK(!std::filesystem::equivalent(to, reproduction.folder, failure),
            "{}: the runs are there; collect them elsewhere", to.string());
  const ReproductionPlan plan = merged_plan(to, read_plan(reproduction.folder));
  for (const ReproducedGroup& group : reproduction.groups) {
    for (const ReproducedRun& run : group.runs) {
      const std::filesystem::path folder = to / group.name / run.folder.filename();
      if (!there(run.folder / "config.toml")) continue;  // never begun here; perhaps on another machine
      if (!run.result && epochs_of(folder / "result.json") > std::ssize(run.epochs)) {
        continue;  // not as far here as it came elsewhere
      }
      for (const char* name : {"config.toml", "metrics.csv", "result.json"}) {
        if (!there(run.folder / name)) {  // not finished any more: its limits were raised
          std::filesystem::remove(folder / name, failure);
          continue;
        }
        std::filesystem::create_directories(folder, failure);
        SAN_CHECK(!failure, "{}: cannot make the folder: {}", folder.string(), failure.message());
        write_file(folder / name, without_own_folders(read_file(run.folder / name, size_t{1} << 26)));
      }
    }
  }
  std::filesystem::create_directories(to, failure);
  write_plan(to, plan);
}

Spread spread_of(std::span<const double> values) {
  Spread out;
  double sum = 0;
  for (const double value : values) {
    if (!std::isfinite(value)) continue;
    sum += value;
    ++out.count;
  }
  if (out.count == 0) return out;
  out.mean = sum / static_cast<double>(out.count);
  double squares = 0;
  for (const double value : values) {
    if (std::isfinite(value)) squares += (value - out.mean) * (value - out.mean);
  }
  if (out.count > 1) out.deviation = std::sqrt(squares / static_cast<double>(out.count - 1));
  return out;
}

}  // namespace san
