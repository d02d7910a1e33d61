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
  const std::string beside = (here.parent_path() / "data/b.csv").string(), elsewhere = "/mnt/c.csv";
  write_file(run / "config.toml", fmt::format("[data]\npath = \"{}\"\nsplit_file = \"{}\"\nid_column = \"{}\"\n",
                                              (here / "runs/a.csv").string(), beside, elsewhere));
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(here);
  collect_reproduction(read_reproduction("runs"), "kept");
  std::filesystem::current_path(before);
  EXPECT_EQ(read_file(here / "kept/optimised/seed-0/config.toml", 1 << 20),
            "[data]\npath = \"runs/a.csv\"\nsplit_file = \"../data/b.csv\"\nid_column = \"/mnt/c.csv\"\n");
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

TEST(Reproduction, PlansCannotNameOtherFolders) {
  const testing::TemporaryFolder folder;
  for (const char* name : {"../elsewhere", "a/b", "..", ""}) {
    write_plan(folder.path(), {"zinc", {{name, "optimised", {0}}}});
    EXPECT_TRUE(testing::contains(error_of([&] { read_plan(folder.path()); }), "cannot be the name of a group"))
        << name;
  }
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
