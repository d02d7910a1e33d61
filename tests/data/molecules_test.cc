// Real molecule sets through the whole of data/: file, graphs, cache, scaffold split.
#include <cmath>

#include "san/data/dataset.h"
#include "san/data/splits.h"
#include "tests/testing.h"

namespace san {
namespace {

using testing::TemporaryFolder;

Dataset prepare(const std::string& spec, const SourceOptions& source_options, const TemporaryFolder& folder) {
  const auto source = open_source(spec, source_options);
  PrepareOptions options;
  options.cache_folder = folder.path().string();
  options.with_spectra = false;
  return Dataset::prepare(*source, options);
}

std::vector<std::string> words_of(const Dataset& data) {
  std::vector<std::string> words;
  for (int64_t i = 0; i < data.size(); ++i) words.push_back(data.split(i));
  return words;
}

void expect_scaffold_split_is_the_recorded_one(const Dataset& data) {
  const Splits made = scaffold_split(dataset_scaffolds(data), {}), recorded = given_split(words_of(data));
  EXPECT_EQ(made.train, recorded.train);
  EXPECT_EQ(made.valid, recorded.valid);
  EXPECT_EQ(made.test, recorded.test);
}

TEST(MoleculeNet, EverySetLoadsByItsColumnsAndSplitsAsRecorded) {
  SAN_NEED_SHARED(data_folder, "data/moleculenet");
  struct Set {
    const char* name;
    int64_t size;
    std::vector<std::string> targets;
    int64_t missing;
  };
  const std::vector<Set> sets = {
      {"bbbp", 2039, {"p_np"}, 0},
      {"clintox", 1478, {"FDA_APPROVED", "CT_TOX"}, 0},
      {"esol", 1128, {"measured log solubility in mols per litre"}, 0},
      {"freesolv", 642, {"expt"}, 0},
      {"lipophilicity", 4200, {"exp"}, 0},
      {"tox21",
       7831,
       {"NR-AR", "NR-AR-LBD", "NR-AhR", "NR-Aromatase", "NR-ER", "NR-ER-LBD", "NR-PPAR-gamma", "SR-ARE", "SR-ATAD5",
        "SR-HSE", "SR-MMP", "SR-p53"},
       16026},
  };
  const TemporaryFolder folder;
  for (const Set& set : sets) {
    SCOPED_TRACE(set.name);
    SourceOptions options;
    options.smiles_column = "smiles";
    options.target_columns = set.targets;
    const std::string path = (data_folder / fmt::format("{}.csv.gz", set.name)).string();
    const Dataset data = prepare(path, options, folder);
    EXPECT_EQ(data.size(), set.size);
    EXPECT_EQ(data.targets(), set.targets);
    const auto labels = data.labels();
    EXPECT_EQ(std::count_if(labels.begin(), labels.end(), [](double label) { return std::isnan(label); }), set.missing);
    // The same columns are found without being named.
    EXPECT_EQ(open_source(path)->targets(), set.targets);
    expect_scaffold_split_is_the_recorded_one(data);
  }
}

TEST(Molhiv, ScaffoldSplitFromTheCacheEqualsTheRecordedOne) {
  SAN_NEED_SHARED(data_folder, "data/ogbg-molhiv");
  const TemporaryFolder folder;
  SourceOptions options;
  options.target_columns = {"label"};
  const Dataset data = prepare((data_folder / "molhiv.csv.gz").string(), options, folder);
  ASSERT_EQ(data.size(), 41127);
  EXPECT_EQ(data.bad_records(), 0);
  expect_scaffold_split_is_the_recorded_one(data);
}

}  // namespace
}  // namespace san
