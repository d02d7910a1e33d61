// Files of a million molecules: memory must not grow with them.
#include <fstream>

#include "san/data/csv.h"
#include "tests/cli/run.h"

namespace san {
namespace {

using testing::Ran;
using testing::run;
using testing::TemporaryFolder;

// `rows` molecules: FreeSolv's smallest over and over, with three bad rows among them.
void write_molecules(const std::string& path, const std::filesystem::path& freesolv, int64_t rows) {
  std::vector<std::string> molecules;
  CsvReader reader(freesolv.string());
  const size_t smiles = reader.column("smiles");
  while (reader.next())
    if (reader[smiles].size() <= 5) molecules.emplace_back(reader[smiles]);
  ASSERT_GT(molecules.size(), 20U);
  std::ofstream out(path);
  out << "id,smiles,y\n";
  for (int64_t i = 0; i < rows; ++i) {
    const bool bad = i == 5 || i == rows / 2 || i == rows - 1;
    out << i << ',' << (bad ? "C1CC" : molecules[static_cast<size_t>(i) % molecules.size()]) << ',' << i % 7 << '\n';
  }
}

TEST(LargeFile, MillionMoleculesInConstantMemory) {
  SAN_NEED_SHARED(freesolv, "data/moleculenet/freesolv.csv.gz");
  const TemporaryFolder folder;
  constexpr int64_t kSmall = 50'000, kLarge = 1'000'000;
  write_molecules(folder.file("small.csv"), freesolv, kSmall);
  write_molecules(folder.file("large.csv"), freesolv, kLarge);
  const std::string cache = folder.file("cache");
  const auto prepare = [&](const char* name) {
    return run(folder, {"data", "prepare", folder.file(name), "--cache", cache, "--pairs", "2", "--on-error", "skip"});
  };
  const Ran small = prepare("small.csv"), large = prepare("large.csv");
  RecordProperty("small_kilobytes", static_cast<int>(small.peak_kilobytes));
  RecordProperty("large_kilobytes", static_cast<int>(large.peak_kilobytes));
  EXPECT_EQ(large.code, 1) << large.err;  // rows were skipped
  EXPECT_NE(large.out.find("999,997 graphs"), std::string::npos) << large.out << large.err;
  for (const int64_t line : {int64_t{7}, kLarge / 2 + 2, kLarge + 1})
    EXPECT_NE(large.err.find(fmt::format("large.csv:{}: 'C1CC'", line)), std::string::npos) << large.err;
  // Twenty times the rows. Were anything kept per row, even one 8-byte number, it would be 8 MB more; what does grow
  // is how much of the allocator's and the page cache's slack a longer run touches, and the table of 8 bytes per
  // 256 KiB block (some kilobytes). 48 bytes per row, as of an index kept in memory, would be 46 MB.
  EXPECT_LT(large.peak_kilobytes - small.peak_kilobytes, 32 * 1024);

  const auto inspect = [&](const char* name) {
    return run(folder, {"data", "inspect", folder.file(name), "--no-spectra"});
  };
  const Ran small_look = inspect("small.csv"), large_look = inspect("large.csv");
  EXPECT_EQ(large_look.code, 0);
  EXPECT_NE(large_look.out.find("bad records: 3"), std::string::npos) << large_look.out;
  EXPECT_LT(large_look.peak_kilobytes - small_look.peak_kilobytes, 32 * 1024);
  std::printf("prepare: %ld kB for %ld rows, %ld kB for %ld\ninspect: %ld kB, %ld kB\n", small.peak_kilobytes, kSmall,
              large.peak_kilobytes, kLarge, small_look.peak_kilobytes, large_look.peak_kilobytes);

  const Ran fatal = run(folder, {"data", "prepare", folder.file("large.csv"), "--cache", folder.file("other"),
                                 "--pairs", "2", "--on-error", "fail"});
  EXPECT_EQ(fatal.code, 1);
  EXPECT_NE(fatal.err.find("large.csv:7: 'C1CC'"), std::string::npos) << fatal.err;
}

}  // namespace
}  // namespace san
