// The results of `san reproduce` as tables and figures.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>

#include "san/base/error.h"
#include "san/train/charts.h"
#include "san/train/metrics.h"
#include "san/train/page.h"
#include "san/train/reproduction.h"

namespace san {
namespace {

using charts::escape;
using charts::grouped;
using charts::number;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr const char* kDash = "\u2013";
constexpr const char* kOwnRule = "its own rule";
constexpr const char *kBudgetMark = " *", *kChangedMark = " \u2020";

template <typename... Args>
void add(std::string& out, fmt::format_string<Args...> format, Args&&... args) {
  fmt::format_to(std::back_inserter(out), format, std::forward<Args>(args)...);
}

// --- numbers of a run and of a group

double value_of(const std::vector<std::pair<std::string, double>>& metrics, const std::string& name) {
  for (const auto& [key, value] : metrics) {
    if (key == name) return value;
  }
  return metrics.empty() ? kNan : metrics[0].second;
}

double test_of(const ReproducedRun& run) {
  return run.result ? value_of(run.result->test_metrics, run.result->metric) : kNan;
}
double batch_means_of(const ReproducedRun& run) {
  return run.result ? value_of(run.result->published_metrics, run.result->metric) : kNan;
}
double valid_of(const ReproducedRun& run) {
  if (run.result) return run.result->best_valid;
  const std::optional<size_t> best = run.best();
  return best ? run.epochs[*best].valid_metrics[0].second : kNan;
}
double seconds_of(const ReproducedRun& run) {
  return run.result ? run.result->seconds : run.epochs.empty() ? kNan : run.epochs.back().seconds;
}

template <typename Get>
std::vector<double> finished_values(const ReproducedGroup& group, Get get) {
  std::vector<double> out;
  for (const ReproducedRun& run : group.runs) {
    if (run.result) out.push_back(get(run));
  }
  return out;
}

std::string or_dash(double value, const std::string& text) {
  return std::isnan(value) ? kDash : text;
}

// "0.1391 ± 0.0060": as many decimals in both.
std::string with_deviation(double mean, double deviation) {
  if (std::isnan(mean)) return kDash;
  const std::string text = number(mean);
  if (std::isnan(deviation)) return text;
  const size_t dot = text.find('.');
  return fmt::format("{} \u00b1 {:.{}f}", text, deviation, dot == std::string::npos ? 0 : text.size() - dot - 1);
}
std::string with_deviation(const Spread& spread) {
  return with_deviation(spread.mean, spread.deviation);
}

// "+0.021 ± 0.006": as many decimals as the deviation deserves. A difference may be next to nothing.
std::string difference_text(const Spread& spread) {
  if (spread.mean == 0 && spread.deviation == 0) return "0 \u00b1 0";
  const double scale = spread.deviation > 0 ? spread.deviation : std::max(std::abs(spread.mean), 1e-6);
  const int decimals = std::clamp(1 - static_cast<int>(std::floor(std::log10(scale))), 0, 8);
  return fmt::format("{:+.{}f} \u00b1 {:.{}f}", spread.mean, decimals, spread.deviation, decimals);
}

// What the runs of a benchmark are measured by; empty before any epoch.
std::string metric_of(const Reproduction& reproduction) {
  for (const ReproducedGroup& group : reproduction.groups) {
    for (const ReproducedRun& run : group.runs) {
      if (run.result && !run.result->metric.empty()) return run.result->metric;
      if (run.result && !run.result->test_metrics.empty()) return run.result->test_metrics[0].first;
      if (!run.epochs.empty() && !run.epochs[0].valid_metrics.empty()) return run.epochs[0].valid_metrics[0].first;
    }
  }
  return {};
}

const RunConfig* config_of(const ReproducedGroup& group) {
  for (const ReproducedRun& run : group.runs) {
    if (run.config) return &*run.config;
  }
  return nullptr;
}

// Whether the group is its variant, not one with another gamma or label.
bool is_plain(const ReproducedGroup& group) {
  return group.name == group.variant;
}

// What the group was trained with that its variant's configuration does not say.
std::vector<Difference> changes_of(const Reproduction& r, const ReproducedGroup& group) {
  const RunConfig* config = config_of(group);
  if (config == nullptr) return {};
  const RunConfig own = variant_config(*r.benchmark, variant_of(group.variant));
  std::vector<Difference> out = differences(*config, own);
  const auto generated = [](const RunConfig& c) { return c.data.path.starts_with("generate:"); };
  if (generated(*config) && generated(own) && config->data.path != own.data.path) {
    out.push_back({"data.path", config->data.path, own.data.path});
  }
  // Which fold it is, and how the folds are named, is no change.
  std::erase_if(out, [&](const Difference& d) {
    return d.name == "train.seed" || d.name == "data.fold" || (r.benchmark->folds && d.name == "data.split");
  });
  return out;
}

// "its own rule", "stopped by budget (2 h)", "stopped by budget (30 epochs)". Epochs that the configuration itself names are the
// rule; only fewer are a budget.
std::string ending_of(const Reproduction& r, const ReproducedGroup& group, const ReproducedRun& run) {
  if (!run.unreadable.empty()) return "unreadable: " + run.unreadable;
  if (!run.config) return "not begun";
  if (!run.result) return fmt::format("under way, {} epochs done", run.epochs.size());
  if (run.result->stopped == "time") {
    return fmt::format("stopped by budget ({})", page::duration(run.config->train.time_limit * 3600));
  }
  const int64_t epochs = run.result->epochs;  // its limit may have been higher once
  const bool budget = epochs < variant_config(*r.benchmark, variant_of(group.variant)).train.epochs;
  if (run.result->stopped == "rule" || !budget) return kOwnRule;
  return fmt::format("stopped by budget ({} epochs)", grouped(epochs));
}

std::string endings_of(const Reproduction& r, const ReproducedGroup& group) {
  std::map<std::string, int> counts;
  for (const ReproducedRun& run : group.runs) {
    if (run.result) ++counts[ending_of(r, group, run)];
  }
  std::string out;
  for (const auto& [ending, count] : counts) {
    add(out, "{}{}", out.empty() ? "" : "; ", counts.size() == 1 ? ending : fmt::format("{} \u00d7 {}", count, ending));
  }
  return out.empty() ? kDash : out;
}

std::string run_word(const Reproduction& reproduction) {
  return reproduction.benchmark->folds ? "fold" : "seed";
}

// --- tables

struct Table {
  std::string id, title;
  std::vector<std::string> head;
  std::vector<std::vector<std::string>> rows;
};

// A gamma is in the group's name already; other changes are named below the table.
std::string name_in_table(const Reproduction& r, const ReproducedGroup& group) {
  const bool mixed = std::any_of(group.runs.begin(), group.runs.end(), [&](const ReproducedRun& run) {
    return run.config && !conflicts(*run.config, *config_of(group)).empty();
  });
  if (mixed) return group.name + " (not trained alike)";
  const std::vector<Difference> changes = changes_of(r, group);
  const bool named = std::all_of(changes.begin(), changes.end(), [&](const Difference& change) {
    return change.name == "model.gamma" && group.name.find("-gamma-") != std::string::npos;
  });
  return named ? group.name : group.name + " (changed)";
}

// The score of the finished runs; says so when some of them have none, as after training diverged.
template <typename Get>
std::string score_of(const ReproducedGroup& group, Get get) {
  const Spread spread = spread_of(finished_values(group, get));
  const std::string text = with_deviation(spread);
  const bool all = spread.count == 0 || spread.count == group.finished();
  return all ? text : fmt::format("{} ({} of {} have a score)", text, spread.count, group.finished());
}

const Published* published_beside(const Reproduction& r, const ReproducedGroup& group) {
  return is_plain(group) ? published_of(r.benchmark->name, group.variant) : nullptr;
}

Table results_table(const Reproduction& r) {
  Table table{fmt::format("{}-results", r.benchmark->name),
              fmt::format("{}: ours beside the published figures", r.benchmark->title),
              {"network", run_word(r) + "s done", "test " + page::title_of(metric_of(r)), "batch means", "published",
               "validation", "ended by"},
              {}};
  // What any network is measured by stands there also while the paper's own was not trained.
  const Published* tuned = published_of(r.benchmark->name, "optimised");
  const bool trained = std::any_of(r.groups.begin(), r.groups.end(), [](const ReproducedGroup& group) {
    return is_plain(group) && group.name == "optimised";
  });
  if (tuned != nullptr && !trained) {
    table.rows.push_back(
        {"the paper's", kDash, kDash, kDash, with_deviation(tuned->mean, tuned->deviation), kDash, kDash});
  }
  for (const ReproducedGroup& group : r.groups) {
    const Published* published = published_beside(r, group);
    table.rows.push_back({name_in_table(r, group), fmt::format("{} of {}", group.finished(), group.runs.size()),
                          score_of(group, test_of), score_of(group, batch_means_of),
                          published ? with_deviation(published->mean, published->deviation) : kDash,
                          score_of(group, valid_of), endings_of(r, group)});
  }
  return table;
}

// Whether every finished run of a group ended by its own rule.
bool by_own_rule(const Reproduction& r, const ReproducedGroup& group) {
  return std::all_of(group.runs.begin(), group.runs.end(),
                     [&](const ReproducedRun& run) { return !run.result || ending_of(r, group, run) == kOwnRule; });
}

// A row per data set, where there are several, and a column per variant that was trained on any of them; no rows when there is none.
// marks_of() explains its marks.
Table overview_table(std::span<const Reproduction> reproductions) {
  Table table{"overview", "All of it at a glance", {"data set", "test score", "the paper's best"}, {}};
  std::vector<std::string_view> names;
  for (const Variant& variant : variants()) {
    const bool trained = std::any_of(reproductions.begin(), reproductions.end(), [&](const Reproduction& r) {
      return std::any_of(r.groups.begin(), r.groups.end(), [&](const ReproducedGroup& group) {
        return is_plain(group) && group.name == variant.name && group.finished() > 0;
      });
    });
    if (!trained) continue;
    names.push_back(variant.name);
    table.head.emplace_back(variant.name);
  }
  if (names.empty() || reproductions.size() < 2) return table;
  for (const Reproduction& r : reproductions) {
    const Published* published = published_of(r.benchmark->name, "optimised");  // what any network is measured by
    std::vector<std::string> row = {std::string(r.benchmark->title), page::title_of(metric_of(r)),
                                    published ? with_deviation(published->mean, published->deviation) : kDash};
    for (const std::string_view name : names) {
      std::string cell = kDash;
      for (const ReproducedGroup& group : r.groups) {
        if (!is_plain(group) || group.name != name || group.finished() == 0) continue;
        cell = score_of(group, test_of);
        if (!by_own_rule(r, group)) cell += kBudgetMark;
        if (name_in_table(r, group) != group.name) cell += kChangedMark;
      }
      row.push_back(std::move(cell));
    }
    table.rows.push_back(std::move(row));
  }
  return table;
}

// What the marks in a table mean; empty where it has none.
std::string marks_of(const Table& table) {
  std::string out;
  for (const auto& [mark, meaning] : {std::pair{kBudgetMark, "ended by a limit of time or epochs, not by its own rule"},
                                      {kChangedMark, "trained with other options than the variant's, named below"}}) {
    const bool used = std::any_of(table.rows.begin(), table.rows.end(), [&](const auto& row) {
      return std::any_of(row.begin(), row.end(), [&](const std::string& cell) { return cell.find(mark) != cell.npos; });
    });
    if (used) add(out, "{}{}: {}.", out.empty() ? "" : " ", std::string_view(mark).substr(1), meaning);
  }
  return out;
}

Table cost_table(const Reproduction& r) {
  Table table{fmt::format("{}-cost", r.benchmark->name),
              "What it took",
              {"network", "training graphs", "epochs per run", "time per run", "time of all", "graphs/s", "parameters",
               "published parameters"},
              {}};
  for (const ReproducedGroup& group : r.groups) {
    const Published* published = published_beside(r, group);
    const Spread seconds = spread_of(finished_values(group, seconds_of));
    const Spread epochs = spread_of(
        finished_values(group, [](const ReproducedRun& run) { return static_cast<double>(run.result->epochs); }));
    const Spread rate =
        spread_of(finished_values(group, [](const ReproducedRun& run) { return run.result->graphs_per_second; }));
    int64_t parameters = 0, graphs = 0;
    for (const ReproducedRun& run : group.runs) {
      if (!run.result) continue;
      parameters = run.result->parameters;
      graphs = run.result->train_graphs;
    }
    table.rows.push_back({name_in_table(r, group), graphs > 0 ? grouped(graphs) : kDash,
                          or_dash(epochs.mean, fmt::format("{:.0f}", epochs.mean)),
                          or_dash(seconds.mean, page::duration(seconds.mean)),
                          or_dash(seconds.mean, page::duration(seconds.mean * static_cast<double>(seconds.count))),
                          or_dash(rate.mean, number(rate.mean, 3)), parameters > 0 ? grouped(parameters) : kDash,
                          published && published->parameters > 0 ? grouped(published->parameters) : kDash});
  }
  return table;
}

Table runs_table(const Reproduction& r) {
  Table table{fmt::format("{}-runs", r.benchmark->name),
              "Every run",
              {"run", "test", "batch means", "validation", "best epoch", "epochs", "time", "graphs/s", "state"},
              {}};
  for (const ReproducedGroup& group : r.groups) {
    for (const ReproducedRun& run : group.runs) {
      const std::optional<size_t> best = run.best();
      table.rows.push_back(
          {fmt::format("{}, {} {}", group.name, run_word(r), run.seed), or_dash(test_of(run), number(test_of(run))),
           or_dash(batch_means_of(run), number(batch_means_of(run))), or_dash(valid_of(run), number(valid_of(run))),
           run.result && run.result->best_epoch > 0 ? std::to_string(run.result->best_epoch)
           : best                                   ? std::to_string(run.epochs[*best].epoch)
                                                    : kDash,
           std::to_string(run.epochs.size()), or_dash(seconds_of(run), page::duration(seconds_of(run))),
           run.result ? or_dash(run.result->graphs_per_second, number(run.result->graphs_per_second, 3)) : kDash,
           ending_of(r, group, run)});
    }
  }
  return table;
}

// Networks with full attention that differ by their gamma alone.
struct Sweep {
  std::string name;  // the variant's, or a label
  std::map<double, const ReproducedGroup*> by_gamma;
};

// Those of several gammas, in the order in which they were asked for.
std::vector<Sweep> sweeps_of(const Reproduction& r) {
  std::vector<Sweep> out;
  for (const ReproducedGroup& group : r.groups) {
    const RunConfig* config = config_of(group);
    if (config == nullptr || !config->model.full()) continue;
    std::string name = group.name;
    const std::string ending = "-gamma-" + gamma_text(config->model.gamma);
    if (name.ends_with(ending)) name.resize(name.size() - ending.size());
    auto sweep = std::find_if(out.begin(), out.end(), [&](const Sweep& other) { return other.name == name; });
    if (sweep == out.end()) sweep = out.insert(out.end(), {name, {}});
    sweep->by_gamma[config->model.gamma] = &group;
  }
  std::erase_if(out, [](const Sweep& sweep) { return sweep.by_gamma.size() < 2; });
  return out;
}

// The network with the same LPE that attends to real edges only, as with gamma = 0; null: not trained.
const ReproducedGroup* sparse_beside(const Reproduction& r, const Sweep& sweep) {
  const ReproducedGroup& full = *sweep.by_gamma.begin()->second;
  if (sweep.name != full.variant) return nullptr;  // a label stands for options of its own
  for (const ReproducedGroup& group : r.groups) {
    const RunConfig* config = config_of(group);
    if (config && is_plain(group) && !config->model.full() && variant_of(group.variant).ablation &&
        config->model.lpe.kind == config_of(full)->model.lpe.kind) {
      return &group;
    }
  }
  return nullptr;
}

// Runs with the same seed share initial weights and the order of graphs, so that much of their luck is the same: their differences
// say more than those of means over seeds. Two gammas a row, sparse attention for 0; no rows when no two of them share two seeds.
Table gamma_pairs_table(const Reproduction& r) {
  const std::string title = page::title_of(metric_of(r));
  const double sign = larger_is_better(metric_of(r)) ? 1 : -1;
  Table table{fmt::format("{}-gamma-pairs", r.benchmark->name),
              fmt::format("From one gamma to another, {} by {}", run_word(r), run_word(r)),
              {"network", "gamma", run_word(r) + "s of both", "validation " + title + ", difference", "better in",
               "test " + title + ", difference", "better in"},
              {}};
  for (const Sweep& sweep : sweeps_of(r)) {
    auto by_gamma = sweep.by_gamma;
    const ReproducedGroup* sparse = sparse_beside(r, sweep);
    if (sparse != nullptr) by_gamma.emplace(0.0, sparse);
    const auto name_of = [&](const auto& entry) { return entry.second == sparse ? "sparse" : gamma_text(entry.first); };
    for (auto from = by_gamma.begin(); from != by_gamma.end(); ++from) {
      for (auto to = std::next(from); to != by_gamma.end(); ++to) {
        std::vector<double> valid, test;
        for (const ReproducedRun& a : from->second->runs) {
          for (const ReproducedRun& b : to->second->runs) {
            if (a.seed != b.seed || !a.result || !b.result) continue;
            const double by_valid = valid_of(b) - valid_of(a), by_test = test_of(b) - test_of(a);
            if (!std::isfinite(by_valid) || !std::isfinite(by_test)) continue;
            valid.push_back(by_valid);
            test.push_back(by_test);
          }
        }
        if (valid.size() < 2) continue;
        std::vector<std::string> row = {sweep.name, fmt::format("{} \u2192 {}", name_of(*from), name_of(*to)),
                                        std::to_string(valid.size())};
        for (const auto* differences : {&valid, &test}) {
          const Spread spread = spread_of(*differences);
          row.push_back(difference_text(spread));
          row.push_back(fmt::format("{} of {}",
                                    std::count_if(differences->begin(), differences->end(),
                                                  [&](double difference) { return sign * difference > 0; }),
                                    differences->size()));
        }
        table.rows.push_back(std::move(row));
      }
    }
  }
  return table;
}

// What the tables do not say by themselves, a sentence each.
std::vector<std::string> remarks(const Reproduction& r) {
  std::vector<std::string> out = {fmt::format(
      "Test scores are those of the weights with the best validation score; mean and sample standard deviation "
      "over the finished {}s. Batch means: the same predictions scored as the published program does, batch by "
      "batch. Graphs/s: training graphs per second of the whole run, validation included.",
      run_word(r))};
  std::string machines;
  for (const ReproducedGroup& group : r.groups) {
    std::string changes;
    for (const Difference& d : changes_of(r, group)) {
      add(changes, "{}{} = {} (instead of {})", changes.empty() ? "" : ", ", d.name, d.a, d.b);
    }
    if (!changes.empty()) out.push_back(fmt::format("{}: {}.", group.name, changes));
    for (const ReproducedRun& run : group.runs) {
      const std::vector<Difference> others =
          run.config ? conflicts(*run.config, *config_of(group)) : std::vector<Difference>{};
      if (others.empty()) continue;
      out.push_back(fmt::format("{}, {} {} was not trained as the others: {} = {} (instead of {}).", group.name,
                                run_word(r), run.seed, others[0].name, others[0].a, others[0].b));
    }
    for (const ReproducedRun& run : group.runs) {
      if (!run.result || machines.find(run.result->machine) != std::string::npos) continue;
      machines += (machines.empty() ? "" : "; ") + run.result->machine;
    }
    const Published* published = published_beside(r, group);
    if (published != nullptr && !std::isnan(published->mean)) {
      out.push_back(fmt::format("Published figure of {}: {}.", group.name, published->source));
    }
  }
  if (!machines.empty()) out.push_back("Machine: " + machines + ".");
  return out;
}

// Runs that were asked for and are not finished.
std::vector<std::string> missing(const Reproduction& r) {
  std::vector<std::string> out;
  for (const ReproducedGroup& group : r.groups) {
    for (const ReproducedRun& run : group.runs) {
      if (!run.result)
        out.push_back(fmt::format("{}, {} {}: {}", group.name, run_word(r), run.seed, ending_of(r, group, run)));
    }
  }
  return out;
}

// A text that may hold anything, for it comes from files, as Markdown shows it: on one line, no tag, no link, no cell of its own.
std::string markdown(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '&') {
      out += "&amp;";
    } else if (c == '<') {
      out += "&lt;";
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      out += ' ';
    } else {
      if (std::string_view("|\\[`").find(c) != std::string_view::npos) out += '\\';
      out += c;
    }
  }
  return out;
}

std::string markdown(const Table& table) {
  std::string out;
  const auto row = [&](const std::vector<std::string>& cells) {
    for (const std::string& cell : cells) add(out, "| {} ", markdown(cell));
    out += "|\n";
  };
  row(table.head);
  for (size_t i = 0; i < table.head.size(); ++i) out += i == 0 ? "|---" : "|---:";
  out += "|\n";
  for (const auto& cells : table.rows) row(cells);
  return out;
}

std::string card(const Table& table) {
  return fmt::format("<section class=\"card wide results\"><div class=\"head\"><h3>{}</h3></div>{}</section>\n",
                     escape(table.title), page::table(table.id, table.head, table.rows));
}

// --- figures

// Test scores by gamma.
std::string gamma_figures(const Reproduction& r) {
  std::string out;
  for (const Sweep& sweep : sweeps_of(r)) {
    std::vector<charts::Category> categories;
    for (const auto& [gamma, group] : sweep.by_gamma) {
      categories.push_back({gamma_text(gamma), "c0", finished_values(*group, test_of)});
    }
    // gamma = 0 is sparse attention: the dotted line of the paper's figure.
    std::vector<charts::Level> levels;
    if (const ReproducedGroup* sparse = sparse_beside(r, sweep)) {
      const Spread spread = spread_of(finished_values(*sparse, test_of));
      if (spread.count > 0) levels.push_back({"sparse attention", spread.mean});
    }
    out += page::figure(
        fmt::format("Test {} by gamma, {}", page::title_of(metric_of(r)), sweep.name), {},
        charts::category_chart(
            fmt::format("{}-gamma{}", r.benchmark->name, out.empty() ? "" : fmt::format("-{}", sweep.name)),
            "Test score by gamma", "gamma", "", categories, charts::CategoryStyle::kBoxes, levels),
        fmt::format("A dot per {}; boxes (quartiles, whiskers to the extremes) from four on; the number is the median.",
                    run_word(r)));
  }
  return out;
}

std::string ablation_figure(const Reproduction& r) {
  std::vector<charts::Category> categories;
  bool any = false;
  for (const Variant& variant : variants()) {
    if (!variant.ablation) continue;
    for (const ReproducedGroup& group : r.groups) {
      const RunConfig* config = config_of(group);
      if (group.variant != variant.name || !is_plain(group) || config == nullptr) continue;
      const LpeKind lpe = config->model.lpe.kind;
      categories.push_back({fmt::format("{}\n{}", config->model.full() ? "full" : "sparse",
                                        lpe == LpeKind::kNone ? "no LPE" : fmt::format("{} LPE", enum_name(lpe))),
                            lpe == LpeKind::kNone   ? "c7"
                            : lpe == LpeKind::kNode ? "c0"
                                                    : "c2",
                            finished_values(group, test_of)});
      any = any || group.finished() > 0;
    }
  }
  if (!any) return {};
  return page::figure(
      fmt::format("Ablation: test {} by attention and LPE", page::title_of(metric_of(r))), {},
      charts::category_chart(fmt::format("{}-ablation", r.benchmark->name), "Ablation", "", "", categories,
                             charts::CategoryStyle::kBars, {}),
      fmt::format("Mean, sample standard deviation, a dot per {}; {} is better. The axis may begin above 0.",
                  run_word(r), larger_is_better(metric_of(r)) ? "higher" : "lower"));
}

std::string curve_figure(const Reproduction& r, const ReproducedGroup& group) {
  charts::EpochChart chart;
  chart.id = fmt::format("{}-curve-{}", r.benchmark->name, group.name);
  chart.title = group.name + ", validation by epoch";
  size_t longest = 0;
  for (const ReproducedRun& run : group.runs) longest = std::max(longest, run.epochs.size());
  if (longest == 0) return {};
  for (size_t i = 0; i < longest; ++i) chart.epochs.push_back(static_cast<double>(i + 1));
  std::vector<std::pair<std::string, std::string>> legend;
  for (const ReproducedRun& run : group.runs) {
    if (run.epochs.empty()) continue;
    std::vector<double> values(longest, kNan);
    for (size_t i = 0; i < run.epochs.size(); ++i) {
      if (!run.epochs[i].valid_metrics.empty()) values[i] = run.epochs[i].valid_metrics[0].second;
    }
    const std::string css = fmt::format("c{}", run.seed % 12);
    legend.emplace_back(css, fmt::format("{} {}", run_word(r), run.seed));
    chart.series.push_back({std::to_string(run.seed), css, std::move(values)});
  }
  const std::string metric = metric_of(r);
  return page::figure(fmt::format("{}: validation {}", group.name, page::title_of(metric)), legend,
                      charts::epoch_chart(chart, !larger_is_better(metric)));
}

std::string section(const Reproduction& r) {
  std::string out = fmt::format("<h2>{}</h2>\n", escape(r.benchmark->title));
  const std::vector<std::string> absent = missing(r);
  if (!absent.empty()) {
    add(out, "<section class=\"card\" id=\"{}-missing\"><h3>Not finished: {} of the runs asked for</h3>\n<ul>",
        r.benchmark->name, absent.size());
    for (const std::string& run : absent) add(out, "<li>{}</li>\n", escape(run));
    out += "</ul></section>\n";
  }
  out += "<div class=\"grid below\">\n" + card(results_table(r)) + card(cost_table(r));
  const Table gammas = gamma_pairs_table(r);
  out += gamma_figures(r) + ablation_figure(r) + (gammas.rows.empty() ? "" : card(gammas));
  for (const ReproducedGroup& group : r.groups) out += curve_figure(r, group);
  out += card(runs_table(r)) + "</div>\n";
  for (const std::string& remark : remarks(r)) add(out, "<p class=\"note\">{}</p>\n", escape(remark));
  return out;
}

// The paper's network, or the first that has a result.
const ReproducedGroup* main_group(const Reproduction& r) {
  const ReproducedGroup* found = nullptr;
  for (const ReproducedGroup& group : r.groups) {
    if (group.finished() == 0) continue;
    if (group.name == "optimised" && is_plain(group)) return &group;
    if (found == nullptr) found = &group;
  }
  return found;
}

// The score of the paper's network, or of the first that has one, and the published figure.
std::string tiles(const Reproduction& r) {
  const ReproducedGroup* group = main_group(r);
  if (group == nullptr) return {};
  std::string name =
      fmt::format("{}: test {}, {}", r.benchmark->title, page::title_of(metric_of(r)), name_in_table(r, *group));
  if (!by_own_rule(r, *group)) name += ", ended by a limit";
  std::string out = page::tile(name, score_of(*group, test_of));
  const Published* published = published_of(r.benchmark->name, "optimised");  // what any network is measured by
  if (published != nullptr && !std::isnan(published->mean)) {
    out += page::tile(fmt::format("{}: published", r.benchmark->title),
                      with_deviation(published->mean, published->deviation));
  }
  return out;
}

}  // namespace

std::string render_markdown(std::span<const Reproduction> reproductions) {
  std::string out = "# Results of `san reproduce`\n";
  if (const Table overview = overview_table(reproductions); !overview.rows.empty()) {
    add(out, "\n{}", markdown(overview));
    if (const std::string marks = marks_of(overview); !marks.empty()) add(out, "\n{}\n", marks);
  }
  for (const Reproduction& r : reproductions) {
    const Table results = results_table(r), gammas = gamma_pairs_table(r), cost = cost_table(r), runs = runs_table(r);
    add(out, "\n## {}\n\n{}\n", results.title, markdown(results));
    for (const std::string& remark : remarks(r)) add(out, "- {}\n", markdown(remark));
    for (const Table* table : {&gammas, &cost, &runs}) {
      if (!table->rows.empty()) add(out, "\n### {}\n\n{}", table->title, markdown(*table));
    }
    const std::vector<std::string> absent = missing(r);
    if (!absent.empty()) out += "\nNot finished:\n\n";
    for (const std::string& run : absent) add(out, "- {}\n", markdown(run));
  }
  return out;
}

std::string render_page(std::span<const Reproduction> reproductions) {
  std::string title = "Reproduced", summary, sections;
  for (const Reproduction& r : reproductions) sections += section(r);
  if (const Table overview = overview_table(reproductions); !overview.rows.empty()) {
    summary = "<div class=\"grid below\">\n" + card(overview) + "</div>\n";
    if (const std::string marks = marks_of(overview); !marks.empty()) {
      add(summary, "<p class=\"note\">{}</p>\n", escape(marks));
    }
  } else if (reproductions.size() == 1) {
    title = fmt::format("{}, reproduced", reproductions[0].benchmark->title);
    summary = fmt::format("<div class=\"tiles\">\n{}</div>\n", tiles(reproductions[0]));
  }
  return page::document(
      title,
      fmt::format("<header>\n<p class=\"kicker\">san reproduce</p>\n<h1>{}</h1>\n{}</header>\n<main>\n{}</main>\n",
                  escape(title), summary, sections));
}

}  // namespace san
