#include "san/data/source.h"

#include <fcntl.h>
#include <unistd.h>

#include <cmath>

#include "san/base/file.h"
#include "san/data/stream.h"
#include "san/graph/generators.h"
#include "san/graph/jsonl.h"
#include "tests/testing.h"

namespace san {
namespace {

using testing::error_of;
using testing::TemporaryFolder;

struct Read {
  std::vector<Graph> graphs;
  std::vector<std::string> bad;
};

Read read_all(GraphSource& source) {
  Read out;
  StreamOptions options;
  options.with_spectra = false;
  options.skip_bad_records = true;
  options.threads = 2;
  options.on_bad_record = [&](const std::string& message) { out.bad.push_back(message); };
  const int64_t bad = stream_graphs(source, options, {}, [&](Streamed& item) { out.graphs.push_back(item.graph); });
  EXPECT_EQ(bad, std::ssize(out.bad));
  return out;
}

Read read_all(const std::string& spec, const SourceOptions& options = {}) {
  return read_all(*open_source(spec, options));
}

std::string fingerprint(const std::string& spec, const SourceOptions& options = {}) {
  return open_source(spec, options)->fingerprint(FileFingerprints());
}

TEST(Source, JsonlByNameByContentAndGzipped) {
  const TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 1500; ++i) {
    Graph graph = make_path(1 + i % 9);
    graph.id = fmt::format("p{}", i);
    text += format_graph(graph) + "\n\n";
  }
  for (const char* name : {"a.jsonl", "a.jsonl.gz", "a.ndjson", "noname"}) {
    write_file(folder.file(name), text);
    if (std::string_view(name).ends_with(".gz")) {
      FileWriter writer(folder.file(name));
      writer.write(text);
      writer.commit();
    }
    const Read read = read_all(folder.file(name));
    ASSERT_EQ(read.graphs.size(), 1500U) << name;
    EXPECT_TRUE(read.bad.empty());
    for (size_t i = 0; i < 1500; ++i) EXPECT_EQ(read.graphs[i].id, fmt::format("p{}", i));
  }
}

TEST(Source, BadJsonlLinesAreReportedByLineAndTheRestIsRead) {
  const TemporaryFolder folder;
  write_file(folder.file("a.jsonl"),
             "{\"num_nodes\":1,\"edges\":[]}\n{\"num_nodes\":1,\"edges\":[[0,5]]}\nnonsense\n{\"num_nodes\":2,"
             "\"edges\":[]}\n");
  const Read read = read_all(folder.file("a.jsonl"));
  ASSERT_EQ(read.graphs.size(), 2U);
  EXPECT_EQ(read.graphs[1].id, "3");  // bad lines count
  ASSERT_EQ(read.bad.size(), 2U);
  EXPECT_NE(read.bad[0].find("a.jsonl:2:"), std::string::npos) << read.bad[0];
  EXPECT_NE(read.bad[1].find("a.jsonl:3:"), std::string::npos) << read.bad[1];
}

TEST(Source, WhatCannotBeReadSaysWhy) {
  const TemporaryFolder folder;
  EXPECT_NE(error_of([&] { open_source(folder.file("absent.csv")); }).find("no such file"), std::string::npos);
  EXPECT_NE(error_of([&] { open_source(folder.path().string()); }).find("neither in the TU format"), std::string::npos);
  EXPECT_NE(error_of([&] { open_source(""); }).find("no data"), std::string::npos);
  write_file(folder.file("what"), "hello, world\n");
  EXPECT_NE(error_of([&] { open_source(folder.file("what")); }).find("--format"), std::string::npos);
  write_file(folder.file("empty"), "");
  EXPECT_NE(error_of([&] { open_source(folder.file("empty")); }).find("empty"), std::string::npos);
  SourceOptions options;
  options.format = "xml";
  EXPECT_NE(error_of([&] { open_source(folder.file("what"), options); }).find("unknown format"), std::string::npos);
  write_file(folder.file("csv.jsonl"), "smiles,label\nC,1\n");
  EXPECT_NE(error_of([&] { read_all(folder.file("csv.jsonl")); }).find("not Graph JSONL"), std::string::npos);
}

TEST(Source, GeneratedSetsTakeOptions) {
  const Read cluster = read_all("generate:cluster?train=3&valid=2&test=1&seed=4");
  ASSERT_EQ(cluster.graphs.size(), 6U);
  ClusterOptions options{4, 3, 2, 1};
  for (int i = 0; i < 6; ++i) EXPECT_TRUE(cluster.graphs[static_cast<size_t>(i)] == make_cluster(options, i));
  EXPECT_EQ(cluster.graphs[3].split, "valid");
  EXPECT_EQ(read_all("generate:pattern?train=4&valid=2&test=2&patterns=2").graphs.size(), 8U);
  EXPECT_EQ(read_all("generate:csl").graphs.size(), 150U);
  EXPECT_NE(error_of([] { open_source("generate:clutser"); }).find("generate:cluster"), std::string::npos);
  EXPECT_NE(error_of([] { open_source("generate:csl?train=3"); }).find("unknown option 'train'"), std::string::npos);
  EXPECT_NE(error_of([] { open_source("generate:cluster?train=x"); }).find("whole number"), std::string::npos);
  EXPECT_NE(fingerprint("generate:csl?seed=1"), fingerprint("generate:csl?seed=2"));
  EXPECT_EQ(fingerprint("generate:cluster?seed=1&train=5"), fingerprint("generate:cluster?train=5&seed=1"));
}

TEST(Source, TuFolderOfOthersLoads) {
  SAN_NEED_SHARED(folder, "data/tu/MUTAG");
  const Read read = read_all(folder.string());
  ASSERT_EQ(read.graphs.size(), 188U);
  EXPECT_TRUE(read.bad.empty());
  int64_t positive = 0;
  for (const Graph& graph : read.graphs) positive += graph.graph_labels.at(0) == 1;
  EXPECT_EQ(positive, 125);
}

TEST(Source, OgbFolderLoadsWithSplitAndSmiles) {
  SAN_NEED_SHARED(folder, "data/ogb-layout/ogbg_molhiv_sample");
  const Read read = read_all(folder.string());
  ASSERT_EQ(read.graphs.size(), 600U);
  int64_t train = 0;
  for (const Graph& graph : read.graphs) train += graph.split == "train";
  EXPECT_EQ(train, 400);
  EXPECT_EQ(read.graphs[0].smiles, "CCC1=[O+][Cu-3]2([O+]=C(CC)C1)[O+]=C(CC)CC(CC)=[O+]2");
  EXPECT_EQ(read.graphs[0].node_features.category_columns, 9);
}

TEST(Source, FingerprintFollowsContentNotName) {
  const TemporaryFolder folder;
  const std::string line = "{\"num_nodes\":1,\"edges\":[]}\n";
  write_file(folder.file("a.jsonl"), line);
  write_file(folder.file("b.jsonl"), line);
  write_file(folder.file("c.jsonl"), line + line);
  EXPECT_EQ(fingerprint(folder.file("a.jsonl")), fingerprint(folder.file("b.jsonl")));
  EXPECT_NE(fingerprint(folder.file("a.jsonl")), fingerprint(folder.file("c.jsonl")));
}

TEST(Source, PartsOfOneSetGetTheirSplits) {
  const TemporaryFolder folder;
  write_file(folder.file("a.jsonl"), "{\"num_nodes\":1,\"edges\":[]}\nbad\n{\"num_nodes\":2,\"edges\":[]}\n");
  write_file(folder.file("b,valid=.jsonl"), "{\"num_nodes\":3,\"edges\":[],\"split\":\"train\"}\n");
  const std::string spec = "train=" + folder.file("a.jsonl") + ",test=" + folder.file("b,valid=.jsonl");
  // The second name holds ",valid=": the spec is cut there, and says so.
  EXPECT_NE(error_of([&] { open_source(spec); }).find("no such file"), std::string::npos);
  std::filesystem::rename(folder.file("b,valid=.jsonl"), folder.file("b,c.jsonl"));
  const Read read = read_all("train=" + folder.file("a.jsonl") + ",test=" + folder.file("b,c.jsonl"));
  ASSERT_EQ(read.graphs.size(), 3U);
  EXPECT_EQ(read.graphs[0].split, "train");
  EXPECT_EQ(read.graphs[2].split, "test");
  EXPECT_EQ(read.graphs[2].num_nodes, 3);
  ASSERT_EQ(read.bad.size(), 1U);
  EXPECT_NE(read.bad[0].find("a.jsonl:2:"), std::string::npos);
  EXPECT_NE(error_of([&] { open_source("train=x,train=y"); }).find("twice"), std::string::npos);
}

TEST(Source, FirstBadRecordInInputOrderIsTheError) {
  const TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 400; ++i) text += i % 100 == 99 ? "bad\n" : "{\"num_nodes\":1,\"edges\":[]}\n";
  write_file(folder.file("a.jsonl"), text);
  StreamOptions options;
  options.threads = 2;
  const auto source = open_source(folder.file("a.jsonl"));
  int64_t taken = 0;
  const std::string message = error_of([&] { stream_graphs(*source, options, {}, [&](Streamed&) { ++taken; }); });
  EXPECT_NE(message.find("a.jsonl:100:"), std::string::npos) << message;
  EXPECT_EQ(taken, 99);
}

#ifdef SAN_WITH_RDKIT

// Puts a file in place of standard input.
class Stdin {
 public:
  explicit Stdin(const std::string& path) : saved_(::dup(STDIN_FILENO)) {
    const int fd = ::open(path.c_str(), O_RDONLY);
    ::dup2(fd, STDIN_FILENO);
    ::close(fd);
  }
  ~Stdin() {
    ::dup2(saved_, STDIN_FILENO);
    ::close(saved_);
  }

 private:
  int saved_;
};

TEST(CsvSource, FindsTargetsIdsAndSplitsByItself) {
  const TemporaryFolder folder;
  write_file(folder.file("a.csv"),
             "mol_id,Smiles,split,logS,note,active,empty\n"
             "7,CCO,train,-0.5,\"good, so\",1,\n"
             "8,c1ccccc1 ,test,NA,bad,0,\n"
             "9,CC,valid,,bad,nan,\n");
  const auto source = open_source(folder.file("a.csv"));
  EXPECT_EQ(source->targets(), (std::vector<std::string>{"logS", "active"}));
  const Read read = read_all(*source);
  ASSERT_EQ(read.graphs.size(), 3U);
  EXPECT_EQ(read.graphs[0].id, "7");
  EXPECT_EQ(read.graphs[1].split, "test");
  EXPECT_EQ(read.graphs[1].smiles, "c1ccccc1");
  EXPECT_EQ(read.graphs[0].graph_labels, (std::vector<double>{-0.5, 1}));
  EXPECT_TRUE(std::isnan(read.graphs[1].graph_labels[0]));
  EXPECT_TRUE(std::isnan(read.graphs[2].graph_labels[0]));
  EXPECT_TRUE(std::isnan(read.graphs[2].graph_labels[1]));
  EXPECT_EQ(read.graphs[1].num_nodes, 6);
}

TEST(CsvSource, BadRowsNameLineAndColumn) {
  const TemporaryFolder folder;
  write_file(folder.file("a.csv"), "smiles,y\nCCO,1\nC1CC,2\nCC,high\nCC,1,2\n,5\nC,inf\nCN,3\n");
  SourceOptions options;
  options.target_columns = {"y"};
  const Read read = read_all(folder.file("a.csv"), options);
  EXPECT_EQ(read.graphs.size(), 2U);
  ASSERT_EQ(read.bad.size(), 5U);
  EXPECT_NE(read.bad[0].find("a.csv:3: 'C1CC'"), std::string::npos) << read.bad[0];
  EXPECT_NE(read.bad[1].find("a.csv:4: column 'y': 'high' is not a number"), std::string::npos) << read.bad[1];
  EXPECT_NE(read.bad[2].find("a.csv:5:"), std::string::npos) << read.bad[2];
  EXPECT_NE(read.bad[3].find("a.csv:6:"), std::string::npos) << read.bad[3];
  EXPECT_NE(read.bad[4].find("'inf' is not a number"), std::string::npos) << read.bad[4];
  options.labels_required = false;
  options.target_columns = {"y", "absent"};
  EXPECT_EQ(read_all(folder.file("a.csv"), options).graphs.size(), 4U);
}

TEST(CsvSource, ColumnsThatAreNotThereAreNamed) {
  const TemporaryFolder folder;
  write_file(folder.file("a.csv"), "smile,y\nCCO,1\n");
  EXPECT_NE(error_of([&] { open_source(folder.file("a.csv")); }).find("'smile'"), std::string::npos);
  SourceOptions options;
  options.smiles_column = "smile";
  options.target_columns = {"z"};
  EXPECT_NE(error_of([&] { open_source(folder.file("a.csv"), options); }).find("'z'"), std::string::npos);
}

TEST(CsvSource, RowsReadToFindTargetsAreNotLost) {
  const TemporaryFolder folder;
  std::string text = "smiles,y\n";
  for (int i = 0; i < 2500; ++i) text += fmt::format("C,{}\n", i);
  write_file(folder.file("a.csv"), text);
  const Read read = read_all(folder.file("a.csv"));
  ASSERT_EQ(read.graphs.size(), 2500U);
  for (size_t i = 0; i < 2500; ++i) EXPECT_EQ(read.graphs[i].graph_labels.at(0), static_cast<double>(i));
}

TEST(CsvSource, StandardInputIsReadButNotPrepared) {
  const TemporaryFolder folder;
  write_file(folder.file("in"), "smiles,y\nCCO,1\nCC,2\n");
  const Stdin input(folder.file("in"));
  SourceOptions options;
  options.format = "csv";
  const auto source = open_source("-", options);
  EXPECT_NE(error_of([&] { source->fingerprint(FileFingerprints()); }).find("standard input"), std::string::npos);
  EXPECT_EQ(read_all(*source).graphs.size(), 2U);
}

TEST(CsvSource, FeaturiserAndTargetsAreInTheFingerprint) {
  const TemporaryFolder folder;
  write_file(folder.file("a.csv"), "smiles,y,z\nCCO,1,2\n");
  SourceOptions options;
  const std::string ogb = fingerprint(folder.file("a.csv"), options);
  options.featuriser = "zinc";
  EXPECT_NE(fingerprint(folder.file("a.csv"), options), ogb);
  options.featuriser = "ogb";
  options.target_columns = {"y"};
  EXPECT_NE(fingerprint(folder.file("a.csv"), options), ogb);
  options.target_columns = {"y", "z"};
  EXPECT_EQ(fingerprint(folder.file("a.csv"), options), ogb);
}

#else

TEST(CsvSource, WithoutRdkitSaysSo) {
  const TemporaryFolder folder;
  write_file(folder.file("a.csv"), "smiles,y\nCCO,1\n");
  EXPECT_NE(error_of([&] { open_source(folder.file("a.csv")); }).find("without RDKit"), std::string::npos);
}

#endif

}  // namespace
}  // namespace san
