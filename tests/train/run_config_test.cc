#include "san/train/run_config.h"

#include <map>

#include "san/base/file.h"
#include "tests/testing.h"

namespace san {
namespace {

using testing::error_of;

TEST(RunConfig, EveryPublishedConfigurationReadsAndHasItsParameters) {
  // Section 7 of the specification. The OGB sets have one chirality value more than the published nets (5 rows instead of 4,
  // of width d - k or d), and MolHIV with node LPE lacks the published net's unused embedding of width d.
  const std::map<std::string, int64_t> published = {
      {"zinc", 454753},
      {"improved/zinc", 480961},  // ours; the data adds the map of the walks' features, where there are some
      {"improved/pattern", 317622},
      {"improved/cluster", 453762},
      {"improved/molhiv", 165265},
      {"pattern", 520518},
      {"cluster", 519186},
      {"molhiv", 714769 - 64 + 48},
      {"molpcba", 5885044 + 288},
      {"ablation/zinc-full-node", 508577},
      {"ablation/zinc-full-none", 471361},
      {"ablation/zinc-sparse-node", 494865},
      {"ablation/zinc-sparse-none", 511201},
      {"ablation/pattern-full-node", 507202},
      {"ablation/pattern-full-none", 469142},
      {"ablation/pattern-sparse-node", 493340},
      {"ablation/pattern-sparse-none", 508634},
      {"ablation/cluster-full-node", 519186},
      {"ablation/cluster-full-none", 450498},
      {"ablation/cluster-sparse-node", 530036},
      {"ablation/cluster-sparse-none", 461348},
      {"ablation/molhiv-full-node", 528265 - 72 + 56},
      {"ablation/molhiv-full-none", 483601 + 80},
      {"ablation/molhiv-sparse-node", 503265 - 80 + 64},
      {"ablation/molhiv-sparse-none", 525985 + 96},
  };
  const std::filesystem::path folder = std::filesystem::path(SAN_SOURCE_DIR) / "configs";
  const std::map<std::string, int> outputs = {{"pattern", 2}, {"cluster", 6}, {"molpcba", 128}};
  size_t files = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
    files += entry.path().extension() == ".toml" && entry.path().stem() != "csl";  // CSL is ours, not the paper's
  EXPECT_EQ(files, published.size());
  for (const auto& [name, parameters] : published) {
    RunConfig config;
    read_toml(config, folder / (name + ".toml"));
    validate(config);
    // The data decides these two.
    for (const auto& [set, count] : outputs) {
      if (name.find(set) != std::string::npos) config.model.outputs = count;
    }
    EXPECT_EQ(parameter_count(config.model), parameters) << name;
  }
}

TEST(RunConfig, TheResolvedFileReadsBackToTheSame) {
  RunConfig config;
  set_option(config, "model.gamma=1e-7");
  set_option(config, "data.target_columns=[\"a \\\"b\\\"\", \"c\"]");
  set_option(config, "data.path=some file.csv");
  set_option(config, "train.lr=1");
  set_option(config, "model.readout=max");
  EXPECT_EQ(config.data.path, "some file.csv");
  RunConfig again;
  parse_toml(again, to_toml(config), "config.toml");
  EXPECT_EQ(to_toml(again), to_toml(config));
  EXPECT_EQ(again.data.target_columns, (std::vector<std::string>{"a \"b\"", "c"}));
  EXPECT_TRUE(config.is_given("model.gamma"));
  EXPECT_FALSE(config.is_given("model.layers"));
}

TEST(RunConfig, ErrorsNameFileLineAndOption) {
  RunConfig config;
  const auto error = [&](const std::string& text) { return error_of([&] { parse_toml(config, text, "c.toml"); }); };
  EXPECT_EQ(error("[model]\ngamma = \"big\"\n"), "c.toml:2: model.gamma must be a number");
  EXPECT_NE(error("[model]\n\nlayer = 3\n").find("c.toml:3: unknown option model.layer"), std::string::npos);
  EXPECT_NE(error("[model\n").find("c.toml:1: "), std::string::npos);
  EXPECT_NE(error("[model.lpe]\nkind = \"neither\"\n").find("one of none, node, edge, both"), std::string::npos);
  EXPECT_NE(error("[train]\nepochs = 1.5\n").find("train.epochs must be a whole number"), std::string::npos);
  EXPECT_NE(error_of([&] { set_option(config, "gamma=1"); }).find("SECTION.KEY=VALUE"), std::string::npos);
  // A table inside a table inside a table ...
  for (const int parts : {6, 1900, 500000}) {
    std::string key = "a";
    for (int i = 1; i < parts; ++i) key += ".a";
    const std::string what = error(key + " = 1\n");
    EXPECT_TRUE(what.starts_with("c.toml:") && what.size() < 300) << what;
    EXPECT_FALSE(error_of([&] { set_option(config, "model.gamma={" + key + "=1}"); }).empty());
  }
  config.train.factor = 2;
  EXPECT_NE(error_of([&] { validate(config); }).find("train.factor = 2"), std::string::npos);
}

}  // namespace
}  // namespace san
