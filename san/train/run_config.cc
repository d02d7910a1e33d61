#include "san/train/run_config.h"

#include <toml++/toml.h>
#include <algorithm>
#include <cmath>
#include <map>

#include "san/base/file.h"

namespace san {

SAN_ENUM_NAMES(SplitKind, {SplitKind::kAuto, "auto"}, {SplitKind::kRandom, "random"},
               {SplitKind::kStratified, "stratified"}, {SplitKind::kScaffold, "scaffold"}, {SplitKind::kGiven, "given"},
               {SplitKind::kKFold, "k-fold"}, {SplitKind::kFile, "file"})
SAN_ENUM_NAMES(OptimiserKind, {OptimiserKind::kAdam, "adam"}, {OptimiserKind::kAdamW, "adamw"})
SAN_ENUM_NAMES(ScheduleKind, {ScheduleKind::kPlateau, "plateau"}, {ScheduleKind::kCosine, "cosine"},
               {ScheduleKind::kConstant, "constant"})
SAN_ENUM_NAMES(PlateauOn, {PlateauOn::kLoss, "loss"}, {PlateauOn::kMetric, "metric"})
SAN_ENUM_NAMES(SignFlip, {SignFlip::kNone, "none"}, {SignFlip::kBatch, "batch"}, {SignFlip::kGraph, "graph"})
SAN_ENUM_NAMES(EngineKind, {EngineKind::kFused, "fused"}, {EngineKind::kTorch, "torch"})

namespace {

// --- one TOML value into one member; false when it is of another type ------------------------------------------------

bool read_value(const toml::node& node, bool& out) {
  const auto value = node.value_exact<bool>();
  return value && (out = *value, true);
}
bool read_value(const toml::node& node, int& out) {
  const auto value = node.value_exact<int64_t>();
  return value && *value >= INT32_MIN && *value <= INT32_MAX && (out = static_cast<int>(*value), true);
}
bool read_value(const toml::node& node, double& out) {
  if (!node.is_number()) return false;
  out = *node.value<double>();
  return true;
}
bool read_value(const toml::node& node, std::string& out) {
  const auto value = node.value_exact<std::string>();
  return value && (out = *value, true);
}
template <typename T>
bool read_value(const toml::node& node, std::vector<T>& out) {
  std::vector<T> list;
  T value{};
  if (const toml::array* array = node.as_array()) {
    for (const toml::node& item : *array) {
      if (!read_value(item, value)) return false;
      list.push_back(value);
    }
  } else {  // one value stands for a list of one
    if (!read_value(node, value)) return false;
    list.push_back(value);
  }
  out = std::move(list);
  return true;
}

// Assigns `node` to the option; throws Error when there is none of that name or the value is of another type.
void assign(RunConfig& config, const std::string& section, const std::string& key, const toml::node& node) {
  bool known = false;
  visit_run_fields(config, [&](const char* its_section, const char* name, auto& member, const char*) {
    if (section != its_section || key != name) return;
    known = true;
    const std::string full = section + "." + key;
    using T = std::remove_reference_t<decltype(member)>;
    if constexpr (std::is_enum_v<T>) {
      std::string text;
      SAN_CHECK(read_value(node, text), "{} must be a string", full);
      member = parse_enum<T>(text, full);
    } else {
      SAN_CHECK(read_value(node, member), "{} must be {}", full, kind_name<T>());
    }
    config.given.insert(full);
  });
  SAN_CHECK(known, "unknown option {}.{} (`san train --list-options` lists all)", printable(section), printable(key));
}

void assign_table(RunConfig& config, const std::string& section, const toml::table& table, const std::string& name) {
  for (const auto& [key, node] : table) {
    const std::string key_text(key.str());
    if (const toml::table* inner = node.as_table()) {
      const std::string path = section.empty() ? key_text : section + "." + key_text;
      SAN_CHECK(std::count(path.begin(), path.end(), '.') < 4, "{}:{}: unknown option {}", name,
                node.source().begin.line, printable(path));
      assign_table(config, path, *inner, name);
      continue;
    }
    try {
      assign(config, section, key_text, node);
    } catch (const Error& error) {
      fail("{}:{}: {}", name, node.source().begin.line, error.what());
    }
  }
}

// The parts of a dotted key become tables inside each other, which toml++ destroys by recursion: too many would end the process.
constexpr int64_t kMostDots = 2000;

toml::table parse(std::string_view text, const std::string& name) {
  const int64_t dots = std::count(text.begin(), text.end(), '.');
  SAN_CHECK(dots <= kMostDots, "{}: {} dots; a configuration has at most {}", name, dots, kMostDots);
  try {
    return toml::parse(text, name);
  } catch (const toml::parse_error& error) {
    fail("{}:{}: {}", name, error.source().begin.line, printable(error.description(), 200));
  }
}

std::string format_value(bool value) {
  return value ? "true" : "false";
}
std::string format_value(int value) {
  return std::to_string(value);
}
std::string format_value(double value) {
  // TOML tells floats from integers by their look.
  const std::string text = fmt::format("{}", value);
  return text.find_first_of(".en") == std::string::npos ? text + ".0" : text;
}
std::string format_value(const std::string& value) {
  std::string out = "\"";
  for (const char c : value) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned char>(c));
    } else {
      out += c;
    }
  }
  return out + '"';
}
template <typename T>
std::string format_value(const std::vector<T>& values) {
  std::string out;
  for (const T& value : values) out += (out.empty() ? "" : ", ") + format_value(value);
  return "[" + out + "]";
}
template <typename T>
requires std::is_enum_v<T> std::string format_value(T value) {
  return format_value(std::string(enum_name(value)));
}

}  // namespace

void parse_toml(RunConfig& config, std::string_view text, const std::string& name) {
  assign_table(config, "", parse(text, name), name);
}

void read_toml(RunConfig& config, const std::filesystem::path& path) {
  parse_toml(config, read_file(path, size_t{1} << 20), path.string());
}

void set_option(RunConfig& config, std::string_view assignment) {
  const size_t equals = assignment.find('=');
  SAN_CHECK(equals != std::string_view::npos, "--set {}: SECTION.KEY=VALUE is expected", printable(assignment));
  const std::string_view name = assignment.substr(0, equals), value = assignment.substr(equals + 1);
  const size_t dot = name.rfind('.');
  SAN_CHECK(dot != std::string_view::npos, "--set {}: SECTION.KEY=VALUE is expected", printable(assignment));
  SAN_CHECK(std::count(value.begin(), value.end(), '.') <= kMostDots, "--set {}: too many dots", printable(assignment));
  toml::table table;
  try {
    table = toml::parse(fmt::format("value = {}", value));
  } catch (const toml::parse_error&) {
    table.insert_or_assign("value", std::string(value));
  }
  SAN_CHECK(table.size() == 1, "--set {}: one value is expected", printable(assignment));
  assign(config, std::string(name.substr(0, dot)), std::string(name.substr(dot + 1)), *table.get("value"));
}

std::string to_toml(const RunConfig& config) {
  std::string out, current;
  visit_run_fields(config, [&](const char* section, const char* name, const auto& member, const char*) {
    if (current != section) {
      current = section;
      out += fmt::format("{}[{}]\n", out.empty() ? "" : "\n", section);
    }
    out += fmt::format("{} = {}\n", name, format_value(member));
  });
  return out;
}

std::vector<std::pair<std::string, std::string>> option_values(const RunConfig& config) {
  std::vector<std::pair<std::string, std::string>> out;
  visit_run_fields(config, [&](const char* section, const char* name, const auto& member, const char*) {
    out.emplace_back(fmt::format("{}.{}", section, name), format_value(member));
  });
  return out;
}

std::string describe_options() {
  const RunConfig defaults;
  std::string out;
  visit_run_fields(defaults, [&](const char* section, const char* name, const auto& member, const char* help) {
    out += fmt::format("{:<28} {:<16} {}\n", fmt::format("{}.{}", section, name), format_value(member), help);
  });
  return out;
}

SourceOptions source_options(const DataConfig& data) {
  SourceOptions options;
  options.format = data.format;
  options.smiles_column = data.smiles_column;
  options.target_columns = data.target_columns;
  options.split_column = data.split_column;
  options.id_column = data.id_column;
  options.featuriser = data.featuriser;
  return options;
}

void validate(const RunConfig& config) {
  const TrainConfig& t = config.train;
  const auto at_least = [](const char* name, double value, double low) {
    SAN_CHECK(std::isfinite(value) && value >= low, "train.{} = {}: a number of at least {} is expected", name, value,
              low);
  };
  SAN_CHECK(std::isfinite(t.lr) && t.lr > 0, "train.lr = {}: a number above 0 is expected", t.lr);
  at_least("min_lr", t.min_lr, 0);
  at_least("weight_decay", t.weight_decay, 0);
  at_least("patience", t.patience, 0);
  SAN_CHECK(t.factor > 0 && t.factor < 1, "train.factor = {}: a number between 0 and 1 is expected", t.factor);
  at_least("warmup_epochs", t.warmup_epochs, 0);
  at_least("batch_size", t.batch_size, 1);
  at_least("accumulate", t.accumulate, 1);
  at_least("epochs", t.epochs, 0);
  at_least("time_limit", t.time_limit, 0);
  at_least("early_stopping", t.early_stopping, 0);
  SAN_CHECK(t.average >= 0 && t.average < 1, "train.average = {}: a number from 0 to below 1 is expected", t.average);
  at_least("clip", t.clip, 0);
  at_least("eval_test_every", t.eval_test_every, 0);
  at_least("checkpoint_seconds", t.checkpoint_seconds, 0);
  const DataConfig& d = config.data;
  SAN_CHECK(d.fractions.size() == 3, "data.fractions needs three numbers: train, valid, test");
  double sum = 0;
  for (const double f : d.fractions) {
    SAN_CHECK(f >= 0 && f <= 1, "data.fractions: {} is not between 0 and 1", f);
    sum += f;
  }
  SAN_CHECK(std::abs(sum - 1) < 1e-6 && d.fractions[0] > 0,
            "data.fractions must add up to 1, with something to train on");
  SAN_CHECK(d.folds >= 3 && d.fold >= 0 && d.fold < d.folds,
            "data.fold = {} of data.folds = {}: at least 3 folds, 0 <= fold < folds", d.fold, d.folds);
  SAN_CHECK(d.split != SplitKind::kFile || !d.split_file.empty(), "data.split = file needs data.split_file");
}

}  // namespace san
