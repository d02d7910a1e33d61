// `san data` as people run it.
#include <sys/stat.h>

#include <algorithm>

#include "san/base/file.h"
#include "san/data/splits.h"
#include "tests/cli/run.h"

namespace san {
namespace {

using testing::contains;
using testing::Ran;
using testing::run;
using testing::TemporaryFolder;

TEST(DataCommand, GenerateThenPrepareThenOpen) {
  const TemporaryFolder folder;
  const std::string file = folder.file("c.jsonl.gz");
  const Ran made =
      run(folder, {"data", "generate", "cluster", "--out", file, "--train", "6", "--valid", "2", "--test", "2"});
  ASSERT_EQ(made.code, 0) << made.err;
  const Ran prepared = run(folder, {"data", "prepare", file, "--pairs", "5"});
  ASSERT_EQ(prepared.code, 0) << prepared.err;
  EXPECT_TRUE(contains(prepared.out, "10 graphs")) << prepared.out;
  EXPECT_TRUE(contains(prepared.out, "graphs/s"));
  EXPECT_TRUE(contains(prepared.out, folder.file("cache")));
  const Ran again = run(folder, {"data", "prepare", file, "--pairs", "5"});
  EXPECT_TRUE(contains(again.out, "was prepared before")) << again.out;
}

TEST(DataCommand, InspectTellsWhatIsThere) {
  const TemporaryFolder folder;
  write_file(folder.file("a.jsonl"),
             "{\"num_nodes\":3,\"edges\":[[0,1],[1,0]],\"label\":1,\"node_feat\":[0,1,5],\"split\":\"train\"}\n"
             "{\"num_nodes\":2,\"edges\":[[0,1],[1,0]],\"label\":null,\"node_feat\":[1,1]}\n"
             "oops\n");
  const Ran ran = run(folder, {"data", "inspect", folder.file("a.jsonl")});
  ASSERT_EQ(ran.code, 0) << ran.err;
  for (const char* expected :
       {"graphs: 2", "nodes 2..3", "disconnected: 1 ", "with isolated nodes: 1", "train 1", "1 labels, 1 missing",
        "highest 5", "fewer nodes than pairs: 2", "bad records: 1", "a.jsonl:3:"})
    EXPECT_TRUE(contains(ran.out, expected)) << expected << " in\n" << ran.out;
}

TEST(DataCommand, SplitWritesAFileThatReadsBack) {
  const TemporaryFolder folder;
  const std::string out = folder.file("splits.json");
  const Ran ran = run(folder, {"data", "split", "generate:csl", "--split", "stratified", "--fractions", "0.6,0.2,0.2",
                               "--seed", "3", "--out", out});
  ASSERT_EQ(ran.code, 0) << ran.err;
  const Splits splits = read_splits(out, 150);
  EXPECT_EQ(splits.train.size(), 90U);
  EXPECT_EQ(splits.valid.size(), 30U);
  const Ran folds =
      run(folder, {"data", "split", "generate:csl", "--split", "k-fold", "--folds", "5", "--stratify", "--out", out});
  ASSERT_EQ(folds.code, 0) << folds.err;
  EXPECT_EQ(read_splits(folder.file("splits-4.json"), 150).test.size(), 30U);
  EXPECT_NE(run(folder, {"data", "split", "generate:csl", "--split", "given", "--out", out}).code, 0);
}

TEST(DataCommand, LabelsMayBeginLater) {
  const TemporaryFolder folder;
  write_file(folder.file("a.jsonl"),
             "{\"num_nodes\":1,\"edges\":[]}\n{\"num_nodes\":1,\"edges\":[]}\n{\"num_nodes\":1,\"edges\":[],\"label\":["
             "5,6]}\n");
  const Ran ran = run(folder, {"data", "prepare", folder.file("a.jsonl")});
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_TRUE(contains(ran.out, "3 graphs") && contains(ran.out, "labels: 2 per graph")) << ran.out;
}

TEST(DataCommand, APipeIsReadOnceOrNotAtAll) {
  const TemporaryFolder folder;
  const std::string named = folder.file("a.jsonl"), nameless = folder.file("a");
  for (const std::string& pipe : {named, nameless}) ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const Ran unknown = run(folder, {"data", "inspect", nameless});
  EXPECT_EQ(unknown.code, 1);
  EXPECT_TRUE(contains(unknown.err, "say --format csv or --format jsonl")) << unknown.err;
  std::jthread writer([&] {
    const int fd = ::open(named.c_str(), O_RDWR);  // does not wait for a reader, and is there when it comes
    static_cast<void>(::write(fd, "{\"num_nodes\":1,\"edges\":[]}\n", 28));
    std::this_thread::sleep_for(std::chrono::seconds(3));
    ::close(fd);
  });
  const Ran prepared = run(folder, {"data", "prepare", named});
  EXPECT_EQ(prepared.code, 1);
  EXPECT_TRUE(contains(prepared.err, "a pipe cannot be prepared")) << prepared.err;
}

TEST(DataCommand, MistakesAreOneLine) {
  const TemporaryFolder folder;
  write_file(folder.file("empty.jsonl"), "\n");
  for (const auto& arguments :
       std::vector<std::vector<std::string>>{{"data", "prepare", folder.file("absent")},
                                             {"data", "prepare"},
                                             {"data", "unknown"},
                                             {"data", "prepare", "-"},
                                             {"data", "split", "generate:csl", "--split", "k-fold", "--out", "-"},
                                             {"data", "split", "generate:csl", "--split", "k-fold", "--fold", "-5"},
                                             {"spectrum", folder.file("empty.jsonl")},
                                             {"data", "generate", "csl", "--train", "3", "--out", "-"}}) {
    const Ran ran = run(folder, arguments);
    EXPECT_NE(ran.code, 0);
    EXPECT_EQ(std::count(ran.err.begin(), ran.err.end(), '\n'), 1) << ran.err;
    EXPECT_TRUE(ran.err.starts_with("san: ")) << ran.err;
  }
}

}  // namespace
}  // namespace san
