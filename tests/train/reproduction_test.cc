// What `san reproduce` knows before it trains, and its arithmetic.
#include "san/train/reproduction.h"

#include <cmath>

#include "san/base/file.h"
#include "tests/testing.h"

namespace san {
namespace {

using testing::error_of;

TEST(Reproduction, EveryVariantOfEveryDataSetHasAConfiguration) {
  for (const Benchmark& benchmark : benchmarks()) {
    for (const Variant& variant : variants()) {
      SCOPED_TRACE(fmt::format("{} {}", benchmark.name, variant.name));
      const RunConfig config = variant_config(benchmark, variant);
      validate(config);
      validate_widths(config.model);
      EXPECT_TRUE(config.is_given("data.task"));
      RunConfig changed = config;  // also where a file of configs/ablation stands for the list of changes
      for (const std::string_view assignment : variant.set) set_option(changed, assignment);
      EXPECT_TRUE(differences(config, changed).empty());
    }
  }
}

TEST(Reproduction, PublishedParametersAreThoseOfTheConfigurations) {
  for (const char* name : {"zinc", "pattern", "cluster"}) {  // the OGB sets have one chirality value more today
    for (const Variant& variant : variants()) {
      const Published* published = published_of(name, variant.name);
      if (published == nullptr) continue;
      SCOPED_TRACE(fmt::format("{} {}", name, variant.name));
      RunConfig config = variant_config(benchmark_of(name), variant);
      config.model.outputs = std::string_view(name) == "pattern" ? 2 : std::string_view(name) == "cluster" ? 6 : 1;
      EXPECT_EQ(parameter_count(config.model), published->parameters);
    }
  }
  ASSERT_NE(published_of("zinc", "optimised"), nullptr);
  EXPECT_EQ(published_of("zinc", "edge"), nullptr);
}

TEST(Reproduction, DifferencesAreOptionsThatChangeWhatIsLearnt) {
  const RunConfig published = variant_config(benchmark_of("zinc"), variant_of("optimised"));
  RunConfig other = published;
  set_option(other, "train.epochs=3");
  set_option(other, "train.time_limit=0.5");
  set_option(other, "data.path=elsewhere.csv");
  other.model.outputs = 7;  // the data's choice: nobody gave it
  EXPECT_TRUE(differences(other, published).empty());
  set_option(other, "model.gamma=0.5");
  const std::vector<Difference> found = differences(other, published);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].name, "model.gamma");
  EXPECT_EQ(found[0].a, "0.5");

  // Patience means something to the plateau schedule only.
  other = published;
  set_option(other, "train.patience=7");
  EXPECT_EQ(differences(other, published).size(), 1U);
  RunConfig cosine = published;
  for (RunConfig* config : {&other, &cosine}) set_option(*config, "train.schedule=cosine");
  EXPECT_TRUE(differences(other, cosine).empty());
}

TEST(Reproduction, RunsOfOneGroupDifferInTheirSeedAlone) {
  const RunConfig first = variant_config(benchmark_of("cluster"), variant_of("optimised"));
  const auto found = [&](const char* assignment) {
    RunConfig other = first;
    set_option(other, assignment);
    return conflicts(first, other);
  };
  EXPECT_TRUE(found("train.seed=3").empty());
  EXPECT_TRUE(found("data.fold=3").empty());
  EXPECT_TRUE(found("train.epochs=3").empty());  // a plateau goes on when its limit is raised
  EXPECT_EQ(found("train.lr=0.5").size(), 1U);
  EXPECT_EQ(found("data.path=\"generate:cluster?train=8\"").size(), 1U);  // not a place: other graphs
  RunConfig cosine = first, longer = first;
  for (RunConfig* config : {&cosine, &longer}) set_option(*config, "train.schedule=cosine");
  set_option(longer, "train.epochs=7");
  ASSERT_EQ(conflicts(cosine, longer).size(), 1U);
  EXPECT_EQ(conflicts(cosine, longer)[0].name, "train.epochs");
}

TEST(Reproduction, GroupsHaveNamesThatAFolderCanHave) {
  for (const char* name : {"optimised", "full-node-gamma-1e-3", "try_2", "a.b+c"})
    EXPECT_TRUE(is_group_name(name)) << name;
  for (const std::string& name :
       {std::string(), std::string("."), std::string(".x"), std::string("a b"), std::string("a\nb"),
        std::string("\xff"), std::string("results.md"), std::string("data"), std::string(101, 'x')}) {
    EXPECT_FALSE(is_group_name(name)) << name;
  }
}

TEST(Reproduction, ADamagedRunSaysSoAndStandsInNobodysWay) {
  const testing::TemporaryFolder folder;
  const std::filesystem::path& out = folder.path();
  write_plan(out, {"zinc", {{"optimised", "optimised", {0, 1, 2, 3, 4}}}});
  const auto seed = [&](int number) { return out / fmt::format("optimised/seed-{}", number); };
  for (int i = 0; i < 5; ++i) std::filesystem::create_directories(seed(i));
  const std::string config = to_toml(variant_config(benchmark_of("zinc"), variant_of("optimised")));
  for (const int i : {0, 1, 2, 4}) write_file(seed(i) / "config.toml", config);
  TrainResult good;
  good.stopped = "rule";
  good.metric = "mae";
  good.best_epoch = good.epochs = 1;
  good.best_valid = 0.5;
  good.test_metrics = {{"mae", 0.25}};
  write_result(seed(0) / "result.json", good);
  write_file(seed(1) / "result.json", "{\"stopped\": ");
  write_file(seed(2) / "metrics.csv", "epoch,seconds,lr,train_loss,valid_loss\nsoon,1,1,1,1\n");
  write_result(seed(3) / "result.json", good);  // no config.toml
  good.test_metrics = {{"mae", std::nan("")}};
  write_result(seed(4) / "result.json", good);
  const std::string text = render_markdown(std::vector{read_reproduction(out)});
  EXPECT_TRUE(testing::contains(text, "| 2 of 5 | 0.2500 (1 of 2 have a score) |")) << text;
  EXPECT_TRUE(testing::contains(text, "seed 1: unreadable: ")) << text;
  EXPECT_TRUE(testing::contains(text, "seed 2: unreadable: ")) << text;
  EXPECT_TRUE(testing::contains(text, "metrics.csv:2: 'soon' is not an epoch")) << text;
  EXPECT_TRUE(testing::contains(text, "seed 3: unreadable: ")) << text;
  EXPECT_FALSE(render_page(std::vector{read_reproduction(out)}).empty());
}

TEST(Reproduction, SeveralDataSetsBeginWithAnOverview) {
  const testing::TemporaryFolder folder;
  const auto finished = [&](const char* benchmark, const char* group, const char* variant, const char* assignment,
                            const char* stopped, const char* metric, double test) {
    const std::filesystem::path out = folder.path() / benchmark, run = out / group / "seed-0";
    std::filesystem::create_directories(run);
    write_plan(out, merged_plan(out, {benchmark, {{group, variant, {0}}}}));
    RunConfig config = variant_config(benchmark_of(benchmark), variant_of(variant));
    if (*assignment != 0) set_option(config, assignment);
    write_file(run / "config.toml", to_toml(config));
    TrainResult result;
    result.stopped = stopped;
    result.metric = metric;
    result.best_epoch = result.epochs = 3;
    result.test_metrics = {{metric, test}};
    write_result(run / "result.json", result);
  };
  finished("zinc", "optimised", "optimised", "", "rule", "mae", 0.25);
  finished("zinc", "improved", "improved", "train.lr=0.5", "rule", "mae", 0.125);
  finished("zinc", "other", "edge", "", "rule", "mae", 0.5);  // a label: in its own table only
  finished("csl", "optimised", "optimised", "train.time_limit=2", "time", "accuracy", 0.75);
  const std::vector<Reproduction> both = {read_reproduction(folder.path() / "zinc"),
                                          read_reproduction(folder.path() / "csl")};
  const std::string text = render_markdown(both);
  EXPECT_TRUE(testing::contains(text, "| data set | test score | the paper's best | optimised | improved |\n")) << text;
  EXPECT_TRUE(testing::contains(text, "| ZINC | MAE | 0.1390 \u00b1 0.0060 | 0.2500 | 0.1250 \u2020 |\n")) << text;
  EXPECT_TRUE(testing::contains(text, "| CSL | accuracy | \u2013 | 0.7500 * | \u2013 |\n")) << text;
  EXPECT_TRUE(testing::contains(text, "*: ended by a limit")) << text;
  EXPECT_TRUE(testing::contains(text, "\u2020: trained with other options")) << text;
  EXPECT_TRUE(testing::contains(render_page(both), "id=\"overview\""));
  // One data set has no need of it.
  EXPECT_FALSE(testing::contains(render_markdown(std::span(both).first(1)), "| data set |"));
  EXPECT_FALSE(testing::contains(render_page(std::span(both).first(1)), "id=\"overview\""));
  EXPECT_TRUE(testing::contains(render_page(std::span(both).last(1)), "optimised, ended by a limit"));
}

TEST(Reproduction, SpreadIsMeanAndSampleDeviationOfFiniteValues) {
  const double nan = std::nan("");
  const std::vector<double> values = {1, 2, nan, 6};
  const Spread spread = spread_of(values);
  EXPECT_EQ(spread.count, 3U);
  EXPECT_DOUBLE_EQ(spread.mean, 3);
  EXPECT_DOUBLE_EQ(spread.deviation, std::sqrt(7.0));
  EXPECT_TRUE(std::isnan(spread_of(std::vector<double>{4}).deviation));
  EXPECT_TRUE(std::isnan(spread_of({}).mean));
}

TEST(Reproduction, GammasHaveShortNames) {
  for (const auto& [gamma, text] :
       {std::pair{1e-5, "1e-5"}, {0.1, "1e-1"}, {2.5e-3, "2.5e-3"}, {1.0, "1"}, {0.0, "0"}}) {
    EXPECT_EQ(gamma_text(gamma), text);
  }
}

TEST(Reproduction, CopiesDoNotNameTheMachinesFolders) {
  const testing::TemporaryFolder folder;
  const std::filesystem::path here = std::filesystem::canonical(folder.path()) / "project",
                              run = here / "runs/optimised/seed-0";
  std::filesystem::create_directories(run);
  write_plan(here / "runs", {"csl", {{"optimised", "optimised", {0}}}});
  const std::string beside = (here.parent_path() / "data/b.csv").string(),
                    elsewhere = "/mnt" + here.string() + "/c.csv";  // the same name further down
  write_file(run / "config.toml", fmt::format("[data]\npath = \"{}\"\nsplit_file = \"{}\"\nid_column = \"{}\"\n",
                                              (here / "runs/a.csv").string(), beside, elsewhere));
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(here);
  collect_reproduction(read_reproduction("runs"), "kept");
  std::filesystem::current_path(before);
  EXPECT_EQ(
      read_file(here / "kept/optimised/seed-0/config.toml", 1 << 20),
      fmt::format("[data]\npath = \"runs/a.csv\"\nsplit_file = \"../data/b.csv\"\nid_column = \"{}\"\n", elsewhere));
}

TEST(Reproduction, CopiesGoBesideWhatIsThere) {
  const testing::TemporaryFolder folder;
  const std::filesystem::path kept = folder.path() / "kept", runs = folder.path() / "runs";
  for (const auto& path : {kept, runs}) std::filesystem::create_directories(path);
  write_plan(kept, {"zinc", {{"improved", "improved", {0}}, {"optimised", "optimised", {1}}}});
  write_plan(runs, {"zinc", {{"optimised", "optimised", {0, 2}}}});
  collect_reproduction(read_reproduction(runs), kept);
  const ReproductionPlan plan = read_plan(kept);
  ASSERT_EQ(plan.groups.size(), 2u);
  EXPECT_EQ(plan.groups[0].name, "improved");
  EXPECT_EQ(plan.groups[1].seeds, (std::set<int>{0, 1, 2}));
  write_plan(runs, {"csl", {{"optimised", "optimised", {0}}}});
  EXPECT_TRUE(testing::contains(error_of([&] { collect_reproduction(read_reproduction(runs), kept); }),
                                "holds runs of zinc, not of csl"));
}

TEST(Reproduction, ACopyOfARunThatGoesOnIsNotFinishedEither) {
  const testing::TemporaryFolder folder;
  const std::filesystem::path runs = folder.path() / "runs", kept = folder.path() / "kept",
                              run = runs / "optimised/seed-0", copy = kept / "optimised/seed-0";
  std::filesystem::create_directories(run);
  write_plan(runs, {"zinc", {{"optimised", "optimised", {0}}}});
  write_file(run / "config.toml", to_toml(variant_config(benchmark_of("zinc"), variant_of("optimised"))));
  write_result(run / "result.json", TrainResult{});
  collect_reproduction(read_reproduction(runs), kept);
  EXPECT_TRUE(std::filesystem::exists(copy / "result.json"));
  std::filesystem::remove(run / "result.json");
  collect_reproduction(read_reproduction(runs), kept);
  EXPECT_FALSE(std::filesystem::exists(copy / "result.json"));
  EXPECT_TRUE(std::filesystem::exists(copy / "config.toml"));
  // A run that this folder never began may come from another machine: it stays.
  std::filesystem::remove_all(run);
  collect_reproduction(read_reproduction(runs), kept);
  EXPECT_TRUE(std::filesystem::exists(copy / "config.toml"));
}

TEST(Reproduction, PlansCannotNameOtherFolders) {
  const testing::TemporaryFolder folder;
  for (const char* name : {"../elsewhere", "a/b", "..", ""}) {
    write_plan(folder.path(), {"zinc", {{name, "optimised", {0}}}});
    EXPECT_TRUE(testing::contains(error_of([&] { read_plan(folder.path()); }), "cannot be the name of a group"))
        << name;
  }
}

TEST(Reproduction, PlansThatMakeNoSenseAreRefusedByName) {
  const testing::TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "reproduce.json";
  const auto error = [&](const std::string& benchmark, const std::string& groups) {
    write_file(path, fmt::format(R"({{"benchmark": "{}", "groups": [{}]}})", benchmark, groups));
    const std::string what = error_of([&] { read_plan(folder.path()); });
    EXPECT_TRUE(what.starts_with(path.string() + ": ")) << what;
    EXPECT_EQ(what.find_first_of("\n\x1b"), std::string::npos) << what;
    return what;
  };
  const std::string good = R"({"name": "a", "variant": "edge", "seeds": [0, 9999]})";
  write_file(path, fmt::format(R"({{"benchmark": "zinc", "groups": [{}]}})", good));
  EXPECT_EQ(read_plan(folder.path()).groups.size(), 1U);
  EXPECT_TRUE(testing::contains(error("zinc", good + "," + good), "twice"));
  EXPECT_TRUE(testing::contains(error(R"(zinc\n\u001b[2J)", good), "unknown data set"));
  EXPECT_TRUE(testing::contains(error("zinc", R"({"name": "a", "variant": "dense", "seeds": []})"), "unknown variant"));
  EXPECT_TRUE(
      testing::contains(error("zinc", R"({"name": "a", "variant": "edge", "seeds": [4294967296]})"), "seed 4294"));
  EXPECT_TRUE(testing::contains(error("zinc", R"({"name": "a", "variant": "edge", "seeds": [-1]})"), "seed -1"));
  EXPECT_TRUE(testing::contains(error("zinc", R"({"name": "a", "variant": "edge", "seeds": "all"})"), "not a plan"));
}

TEST(Reproduction, WhatFilesSayDoesNotBecomeMarkdownOrAnError) {
  const testing::TemporaryFolder folder;
  const std::filesystem::path& out = folder.path();
  write_plan(out, {"zinc", {{"optimised", "optimised", {0, 1}}}});
  for (const int seed : {0, 1}) {
    const std::filesystem::path run = out / fmt::format("optimised/seed-{}", seed);
    std::filesystem::create_directories(run);
    std::string config = to_toml(variant_config(benchmark_of("zinc"), variant_of("optimised")));
    if (seed == 1) config.replace(config.find("gamma = "), 8, "gamma = nan # ");
    write_file(run / "config.toml", config);
    TrainResult result;
    result.stopped = "rule";
    result.metric = "m<b>|e\\|";
    result.best_epoch = result.epochs = 1;
    result.test_metrics = {{result.metric, 0.25}};
    result.machine = "x\n\n# Mine\n\n<img src=y> [a](b) &lt;";
    write_result(run / "result.json", result);
  }
  const std::string text = render_markdown(std::vector{read_reproduction(out)});
  EXPECT_TRUE(testing::contains(text, "Machine: x  # Mine  &lt;img src=y> \\[a](b) &amp;lt;.")) << text;
  EXPECT_TRUE(testing::contains(text, "| test m&lt;b>\\|e\\\\\\| |")) << text;
  EXPECT_EQ(text.find('<'), std::string::npos) << text;
  EXPECT_TRUE(testing::contains(text, "seed 1: unreadable: model.gamma = nan")) << text;
  EXPECT_FALSE(testing::contains(render_page(std::vector{read_reproduction(out)}), "<img"));
}

TEST(Reproduction, OtherDataIsAChange) {
  const testing::TemporaryFolder folder;
  const std::filesystem::path& out = folder.path();
  const auto text_with = [&](std::initializer_list<const char*> assignments) {
    RunConfig config = variant_config(benchmark_of("cluster"), variant_of("optimised"));
    for (const char* assignment : assignments) set_option(config, assignment);
    std::filesystem::create_directories(out / "optimised/seed-0");
    write_plan(out, {"cluster", {{"optimised", "optimised", {0}}}});
    write_file(out / "optimised/seed-0/config.toml", to_toml(config));
    return render_markdown(std::vector{read_reproduction(out)});
  };
  EXPECT_FALSE(testing::contains(text_with({}), "(changed)"));
  EXPECT_FALSE(testing::contains(text_with({"data.path=elsewhere.jsonl", "train.seed=3"}), "(changed)"));
  EXPECT_TRUE(testing::contains(text_with({"data.path=generate:cluster?train=8"}), "optimised (changed)"));
  EXPECT_TRUE(testing::contains(text_with({"data.split=random"}), "data.split = \"random\" (instead of \"given\")"));
  RunConfig one, other;
  set_option(one, "data.target_columns=[\"logP\"]");
  EXPECT_TRUE(conflicts(one, other).empty());  // those of the data
  set_option(other, "data.target_columns=[\"tpsa\"]");
  EXPECT_EQ(conflicts(one, other).size(), 1U);
}

TEST(Reproduction, SaysWhichNamesThereAre) {
  EXPECT_EQ(error_of([] { benchmark_of("qm9"); }),
            "unknown data set 'qm9'; there are zinc, pattern, cluster, molhiv, molpcba and csl");
  EXPECT_TRUE(error_of([] { variant_of("dense"); }).starts_with("unknown variant 'dense'; there are optimised, "));
  const testing::TemporaryFolder folder;
  EXPECT_TRUE(
      testing::contains(error_of([&] { read_reproduction(folder.path()); }), "no runs of `san reproduce` here"));
}

}  // namespace
}  // namespace san
