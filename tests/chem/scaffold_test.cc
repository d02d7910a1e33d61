// Scaffolds against recorded scaffold splits.
#include <map>

#include "san/chem/molecule.h"
#include "san/data/csv.h"
#include "tests/testing.h"

namespace san {
namespace {

// OGB's rule: groups of one scaffold by (size, first index), largest first; a group goes to train while that
// stays within 80 %, else to valid while both stay within 90 %, else to test.
void expect_recorded_split(const std::string& path) {
  CsvReader rows(path);
  const size_t smiles = rows.column("smiles"), split = rows.column("split");
  std::map<std::string, std::vector<size_t>> groups;
  std::vector<std::string> recorded;
  while (rows.next()) {
    std::string error;
    const auto scaffold = murcko_scaffold(rows[smiles], error);
    ASSERT_TRUE(scaffold) << rows.where() << " " << error;
    groups[*scaffold].push_back(recorded.size());
    recorded.emplace_back(rows[split]);
  }
  std::vector<std::vector<size_t>> ordered;
  for (auto& [scaffold, members] : groups) ordered.push_back(std::move(members));
  std::sort(ordered.begin(), ordered.end(), [](const auto& a, const auto& b) {
    return std::pair(a.size(), a.front()) > std::pair(b.size(), b.front());
  });
  const double n = static_cast<double>(recorded.size());
  size_t train = 0, valid = 0, wrong = 0;
  for (const auto& members : ordered) {
    const char* part = "test";
    if (static_cast<double>(train + members.size()) <= 0.8 * n) {
      part = "train";
      train += members.size();
    } else if (static_cast<double>(train + valid + members.size()) <= 0.9 * n) {
      part = "valid";
      valid += members.size();
    }
    for (const size_t index : members) wrong += recorded[index] != part;
  }
  EXPECT_EQ(wrong, 0u) << path << ", of " << recorded.size();
}

TEST(Scaffold, RuleGivesTheRecordedSplitOfMolhiv) {
  SAN_NEED_SHARED(folder, "data/ogbg-molhiv");
  expect_recorded_split((folder / "molhiv.csv.gz").string());
}

TEST(Scaffold, RuleGivesTheRecordedSplitsOfMoleculeNet) {
  SAN_NEED_SHARED(folder, "data/moleculenet");
  for (const char* name : {"bbbp", "clintox", "esol", "freesolv", "lipophilicity", "tox21"})
    expect_recorded_split((folder / fmt::format("{}.csv.gz", name)).string());
}

}  // namespace
}  // namespace san
