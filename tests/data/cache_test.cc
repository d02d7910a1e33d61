#include "san/data/cache.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstring>
#include <fstream>
#include <thread>

#include "san/base/file.h"
#include "san/base/random.h"
#include "san/data/dataset.h"
#include "san/graph/generators.h"
#include "tests/data/fake_source.h"
#include "tests/mutation.h"
#include "tests/testing.h"

namespace san {
namespace {

using testing::error_of;
using testing::FakeSource;
using testing::TemporaryFolder;

// Graphs that use every field: widths of 1, 2 and 4 bytes, features of both kinds, missing labels.
std::vector<Graph> various_graphs(int count = 40) {
  std::vector<Graph> graphs;
  for (int i = 0; i < count; ++i) {
    Graph graph = make_random_graph(5 + 17 * i, 3.0 / (5 + 17 * i), static_cast<uint64_t>(i));
    graph.id = fmt::format("graph-{}", i);
    graph.split = i % 3 == 0 ? "train" : i % 3 == 1 ? "test" : "";
    graph.smiles = i % 2 == 0 ? "CCO" : "";
    graph.graph_labels = {i * 0.25, i % 4 == 0 ? std::nan("") : -1.0};
    graph.node_features = {2, 1, {}, {}};
    for (int node = 0; node < graph.num_nodes; ++node) {
      graph.node_features.categories.push_back(node % 7);
      graph.node_features.categories.push_back(i == 3 ? 70'000 : i == 4 ? 300 : 1);
      graph.node_features.values.push_back(0.5F * static_cast<float>(node));
    }
    graph.edge_features = {1, 0, std::vector<int32_t>(graph.edges.size(), 1 + i % 3), {}};
    graphs.push_back(std::move(graph));
  }
  Graph& given = graphs[static_cast<size_t>(count) / 2];
  given.eigenpairs = Eigenpairs{1, {0.5F}, std::vector<float>(static_cast<size_t>(given.num_nodes), 0.25F)};
  return graphs;
}

PrepareOptions options_for(const TemporaryFolder& folder) {
  PrepareOptions options;
  options.cache_folder = folder.path().string();
  options.spectral.num_pairs = 4;
  return options;
}

Dataset prepare(const std::vector<Graph>& graphs, const PrepareOptions& options) {
  FakeSource source(graphs);
  return Dataset::prepare(source, options);
}

void expect_holds(const Dataset& data, const std::vector<Graph>& graphs, const SpectrumOptions& spectral) {
  ASSERT_EQ(data.size(), static_cast<int64_t>(graphs.size()));
  for (size_t i = 0; i < graphs.size(); ++i) {
    Graph expected = graphs[i];
    if (!expected.eigenpairs) expected.eigenpairs = to_eigenpairs(compute_spectrum(expected, spectral));
    const Graph got = data.graph(static_cast<int64_t>(i));
    EXPECT_TRUE(got == expected) << "graph " << i;
    EXPECT_EQ(got.smiles, expected.smiles);
    EXPECT_EQ(data.smiles(static_cast<int64_t>(i)), expected.smiles);
    EXPECT_EQ(data.num_nodes(static_cast<int64_t>(i)), expected.num_nodes);
    EXPECT_EQ(data.split(static_cast<int64_t>(i)), expected.split);
  }
}

void write_bytes(const std::string& path, std::string_view bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

std::vector<std::string> names_in(const TemporaryFolder& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) names.push_back(entry.path().filename());
  return names;
}

// Runs `child` in a process of its own and returns its exit code.
template <typename Child>
pid_t start(Child child) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    int code = 99;
    try {
      code = child();
    } catch (...) {
    }
    ::_exit(code);
  }
  return pid;
}
int exit_code(pid_t pid) {
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(Cache, GivesBackEveryGraphWithItsEigenpairs) {
  const TemporaryFolder folder;
  const auto graphs = various_graphs();
  const PrepareOptions options = options_for(folder);
  const Dataset built = prepare(graphs, options);
  EXPECT_TRUE(built.built());
  expect_holds(built, graphs, options.spectral);

  const Dataset opened = prepare(graphs, options);
  EXPECT_FALSE(opened.built());
  EXPECT_EQ(opened.path(), built.path());
  expect_holds(opened, graphs, options.spectral);
  EXPECT_EQ(opened.label_columns(), 2);
  EXPECT_EQ(opened.labels()[2 * 7], 7 * 0.25);
  EXPECT_TRUE(std::isnan(opened.labels()[2 * 8 + 1]));
  EXPECT_EQ(opened.node_category_sizes(), (std::vector<int32_t>{7, 70'001}));
  EXPECT_EQ(opened.edge_category_sizes(), (std::vector<int32_t>{4}));
  EXPECT_EQ(opened.node_value_columns(), 1);
  EXPECT_EQ(opened.max_nodes(), 5 + 17 * 39);
}

TEST(Cache, OpeningConvertsNothing) {
  const TemporaryFolder folder;
  const auto graphs = various_graphs(5);
  prepare(graphs, options_for(folder));
  FakeSource source(graphs);
  Dataset::prepare(source, options_for(folder));
  EXPECT_EQ(source.converted, 0);
}

TEST(Cache, InMemoryDataSetHoldsTheSame) {
  const auto graphs = various_graphs(8);
  SpectrumOptions spectral;
  spectral.num_pairs = 3;
  const Dataset data = Dataset::from_graphs(graphs, {"a", "b"}, spectral);
  expect_holds(data, graphs, spectral);
  EXPECT_EQ(data.targets(), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(data.path(), "");
}

TEST(Cache, ThreadCountDoesNotChangeTheFile) {
  const TemporaryFolder one, three;
  const auto graphs = various_graphs();
  PrepareOptions options = options_for(one);
  options.threads = 1;
  const std::string single = read_file(prepare(graphs, options).path(), 1 << 26);
  options = options_for(three);
  options.threads = 3;
  EXPECT_EQ(single, read_file(prepare(graphs, options).path(), 1 << 26));
}

TEST(Cache, EveryOptionThatShapesGraphsMakesAnotherFile) {
  const TemporaryFolder folder;
  const auto graphs = various_graphs(3);
  std::set<std::string> paths;
  PrepareOptions options = options_for(folder);
  paths.insert(prepare(graphs, options).path());
  options.spectral.num_pairs = 5;
  paths.insert(prepare(graphs, options).path());
  options.spectral.laplacian = Laplacian::kCombinatorial;
  paths.insert(prepare(graphs, options).path());
  options.spectral.norm = EigenvectorNorm::kNode;
  paths.insert(prepare(graphs, options).path());
  options.with_spectra = false;
  paths.insert(prepare(graphs, options).path());
  FakeSource other(graphs, "other content");
  paths.insert(Dataset::prepare(other, options).path());
  EXPECT_EQ(paths.size(), 6U);
}

TEST(Cache, EveryBitIsUnderAChecksum) {
  const TemporaryFolder folder;
  const auto graphs = various_graphs(12);
  const std::string path = folder.file("x.san"), key(32, 'k');
  {
    cache::Writer writer(path, key);
    for (const Graph& graph : graphs) writer.add(cache::encode(graph), "here");
    writer.finish({});
  }
  std::string problem;
  const auto file = cache::File::open(path, key, problem);
  ASSERT_TRUE(file) << problem;
  const cache::Sections sections = file->sections();
  const std::string bytes = read_file(path, 1 << 26);

  std::vector<size_t> places;
  for (size_t i = 0; i < cache::kHeaderBytes; ++i) places.push_back(i);
  Random random(testing::mutation_seed(), 7);
  for (const cache::Section& section : {sections.records, sections.offsets, sections.nodes, sections.labels,
                                        sections.splits, sections.metadata, sections.blocks}) {
    ASSERT_GT(section.size, 0U);
    places.push_back(section.offset);
    places.push_back(section.offset + section.size - 1);
    for (int i = 0; i < 40; ++i) places.push_back(section.offset + random.below(section.size));
  }
  for (int i = 0; i < 200; ++i) places.push_back(random.below(bytes.size()));
  for (const size_t place : places) {
    std::string damaged = bytes;
    damaged[place] = static_cast<char>(damaged[place] ^ (1 << random.range(0, 8)));
    write_bytes(path, damaged);
    EXPECT_FALSE(cache::File::open(path, key, problem)) << "byte " << place;
    EXPECT_FALSE(problem.empty());
  }
}

TEST(Cache, TruncationAnywhereIsNoticed) {
  const TemporaryFolder folder;
  const std::string path = folder.file("x.san"), key(32, 'k');
  {
    cache::Writer writer(path, key);
    for (const Graph& graph : various_graphs(6)) writer.add(cache::encode(graph), "here");
    writer.finish({});
  }
  std::string problem;
  const cache::Sections sections = cache::File::open(path, key, problem)->sections();
  const std::string bytes = read_file(path, 1 << 26);
  std::vector<size_t> ends = {0, 1, cache::kHeaderBytes - 1, cache::kHeaderBytes, bytes.size() - 1};
  for (const cache::Section& section : {sections.records, sections.offsets, sections.nodes, sections.labels,
                                        sections.splits, sections.metadata, sections.blocks}) {
    for (const size_t at : {section.offset, section.offset + section.size}) {
      for (const size_t end : {at - 1, at, at + 1})
        if (end < bytes.size()) ends.push_back(end);
    }
  }
  for (const size_t end : ends) {
    write_bytes(path, std::string_view(bytes).substr(0, end));
    EXPECT_FALSE(cache::File::open(path, key, problem)) << end;
  }
  write_bytes(path, bytes + "x");
  EXPECT_FALSE(cache::File::open(path, key, problem)) << "a byte too many";
}

TEST(Cache, DamagedFileIsBuiltAnewAndSaysWhy) {
  const TemporaryFolder folder;
  const auto graphs = various_graphs();
  const PrepareOptions options = options_for(folder);
  const std::string path = prepare(graphs, options).path();
  const std::string bytes = read_file(path, 1 << 26);
  Random random(testing::mutation_seed(), 8);
  for (int i = 0; i < 20; ++i) {
    std::string damaged = bytes;
    if (i % 2 == 0) {
      damaged.resize(random.below(bytes.size()));
    } else {
      const size_t place = random.below(bytes.size());
      damaged[place] = static_cast<char>(~damaged[place]);
    }
    write_bytes(path, damaged);
    const Dataset data = prepare(graphs, options);
    EXPECT_TRUE(data.built());
    EXPECT_NE(data.rebuilt_because(), "");
    expect_holds(data, graphs, options.spectral);
    EXPECT_EQ(read_file(path, 1 << 26), bytes);
  }
}

TEST(Cache, OtherVersionOrKeyIsRefused) {
  const TemporaryFolder folder;
  const std::string path = folder.file("x.san"), key(32, 'k');
  {
    cache::Writer writer(path, key);
    writer.add(cache::encode(make_path(3)), "here");
    writer.finish({});
  }
  std::string problem;
  EXPECT_FALSE(cache::File::open(path, std::string(32, 'j'), problem));
  EXPECT_NE(problem.find("other data or options"), std::string::npos) << problem;
  std::string bytes = read_file(path, 1 << 20);
  bytes[8] = static_cast<char>(cache::kVersion + 1);
  write_bytes(path, bytes);
  EXPECT_FALSE(cache::File::open(path, key, problem));
  EXPECT_NE(problem.find("version"), std::string::npos) << problem;
}

TEST(Cache, DamageInALargeFileIsNoticedWhenTheGraphIsRead) {
  const TemporaryFolder folder;
  // 24 graphs of 4 MB: more than is checked at opening.
  std::vector<Graph> graphs;
  for (int i = 0; i < 24; ++i) {
    Graph graph = make_path(1000);
    graph.node_features = {0, 1000, {}, std::vector<float>(1'000'000, static_cast<float>(i))};
    graphs.push_back(std::move(graph));
  }
  PrepareOptions options = options_for(folder);
  options.with_spectra = false;
  const std::string path = prepare(graphs, options).path();
  ASSERT_GT(std::filesystem::file_size(path), static_cast<uintmax_t>(cache::kCheckAllBelow));
  {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(std::filesystem::file_size(path) / 2));
    file.put('!');
  }
  const Dataset damaged = prepare(graphs, options);
  EXPECT_FALSE(damaged.built());
  EXPECT_TRUE(damaged.graph(0) == graphs[0]);
  const std::string message = error_of([&] {
    for (int64_t i = 0; i < damaged.size(); ++i) damaged.graph(i);
  });
  EXPECT_NE(message.find("run again"), std::string::npos) << message;
  EXPECT_FALSE(std::filesystem::exists(path));
  const Dataset again = prepare(graphs, options);
  EXPECT_TRUE(again.built());
  for (int64_t i = 0; i < again.size(); ++i) EXPECT_TRUE(again.graph(i) == graphs[static_cast<size_t>(i)]);
}

TEST(Cache, KilledWriterLeavesNothingThatCountsAndIsTidiedUp) {
  const TemporaryFolder folder;
  const auto graphs = various_graphs(600);
  PrepareOptions options = options_for(folder);
  options.with_spectra = false;
  const pid_t pid = start([&] {
    FakeSource source(graphs);
    source.before_next = [](int64_t index) {
      if (index == 590) ::pause();  // the first 512 are on their way to the disk
    };
    Dataset::prepare(source, options);
    return 0;
  });
  const auto partial = [&] {
    for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
      std::error_code ignored;
      if (entry.path().string().find(".tmp") != std::string::npos && entry.file_size(ignored) > 4 * cache::kBlock)
        return true;
    }
    return false;
  };
  while (!partial() && ::waitpid(pid, nullptr, WNOHANG) == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  ::kill(pid, SIGKILL);
  exit_code(pid);
  auto names = names_in(folder);
  ASSERT_EQ(names.size(), 1U);
  EXPECT_NE(names[0].find(".tmp"), std::string::npos);

  const Dataset data = prepare(graphs, options);
  EXPECT_TRUE(data.built());
  EXPECT_TRUE(data.graph(599) == graphs[599]);
  names = names_in(folder);
  ASSERT_EQ(names.size(), 1U);
  EXPECT_EQ(names[0].find(".tmp"), std::string::npos);
}

TEST(Cache, TemporaryOfALivingWriterIsLeftAlone) {
  const TemporaryFolder folder;
  const std::string key(32, 'k');
  cache::Writer first(folder.file("x.san"), key);
  first.add(cache::encode(make_path(3)), "here");
  cache::Writer second(folder.file("x.san"), key);
  second.add(cache::encode(make_path(3)), "here");
  second.finish({});
  first.finish({});
  std::string problem;
  EXPECT_TRUE(cache::File::open(folder.file("x.san"), key, problem)) << problem;
  EXPECT_EQ(names_in(folder).size(), 1U);
}

TEST(Cache, AbandonedWriterRemovesItsTemporary) {
  const TemporaryFolder folder;
  { cache::Writer writer(folder.file("x.san"), "k"); }
  EXPECT_TRUE(names_in(folder).empty());
}

TEST(Cache, TwoProcessesMayBuildTheSameAtOnce) {
  const TemporaryFolder folder;
  const auto graphs = various_graphs();
  const PrepareOptions options = options_for(folder);
  for (int round = 0; round < 5; ++round) {
    const auto build = [&] {
      const Dataset data = prepare(graphs, options);
      for (int64_t i = 0; i < data.size(); ++i) {
        if (data.graph(i).edges != graphs[static_cast<size_t>(i)].edges) return 1;
      }
      return 0;
    };
    const pid_t a = start(build), b = start(build), c = start(build);
    EXPECT_EQ(exit_code(a), 0);
    EXPECT_EQ(exit_code(b), 0);
    EXPECT_EQ(exit_code(c), 0);
    ASSERT_EQ(names_in(folder).size(), 1U);
    std::filesystem::remove(folder.path() / names_in(folder)[0]);
  }
}

TEST(Cache, FullDiskIsAnErrorAndLeavesNothing) {
  const TemporaryFolder folder;
  // A limit on file size stands in for a full disk: write() fails the same way.
  const pid_t pid = start([&] {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{1 << 20, 1 << 20};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    PrepareOptions options = options_for(folder);
    options.with_spectra = false;
    try {
      prepare(various_graphs(600), options);
    } catch (const Error& error) {
      return std::string_view(error.what()).find("cannot write") != std::string_view::npos ? 0 : 2;
    }
    return 1;
  });
  EXPECT_EQ(exit_code(pid), 0);
  EXPECT_TRUE(names_in(folder).empty());
}

TEST(Cache, BadRecordsAreSkippedAndRememberedOrFatal) {
  const TemporaryFolder folder;
  auto graphs = various_graphs(20);
  graphs[3].id = "bad";
  graphs[11].id = "bad";
  graphs[12].node_features = {};        // other columns than those before
  graphs[13].graph_labels = {1, 2, 3};  // other labels than those before
  graphs[14].graph_labels = {};         // none: missing
  PrepareOptions options = options_for(folder);
  EXPECT_NE(error_of([&] { prepare(graphs, options); }).find("fake:4: a bad graph"), std::string::npos);
  EXPECT_TRUE(names_in(folder).empty());

  std::vector<std::string> seen;
  options.skip_bad_records = true;
  options.on_bad_record = [&](const std::string& message) { seen.push_back(message); };
  for (const bool built : {true, false}) {
    seen.clear();
    const Dataset data = prepare(graphs, options);
    EXPECT_EQ(data.built(), built);
    EXPECT_EQ(data.size(), 16);
    EXPECT_EQ(data.bad_records(), 4);
    ASSERT_EQ(seen.size(), 4U);
    EXPECT_NE(seen[0].find("fake:4"), std::string::npos);
    EXPECT_NE(seen[2].find("fake:13"), std::string::npos) << seen[2];
    EXPECT_NE(seen[3].find("3 labels"), std::string::npos) << seen[3];
    EXPECT_EQ(data.graph(3).id, "graph-4");
    EXPECT_TRUE(std::isnan(data.graph(10).graph_labels.at(1)));
  }
  options.skip_bad_records = false;
  EXPECT_NE(error_of([&] { prepare(graphs, options); }).find("fake:4"), std::string::npos);
}

TEST(Cache, NodeLabelsAndManyGraphsSpillToDisk) {
  const TemporaryFolder folder;
  // 200,000 graphs: the index is put aside in files while the records are written.
  std::vector<Graph> graphs;
  for (int i = 0; i < 200'000; ++i) {
    Graph graph = make_path(1 + i % 3);
    graph.node_labels.assign(static_cast<size_t>(graph.num_nodes), i);
    graphs.push_back(std::move(graph));
  }
  PrepareOptions options = options_for(folder);
  options.with_spectra = false;
  const Dataset data = prepare(graphs, options);
  ASSERT_EQ(data.size(), 200'000);
  EXPECT_TRUE(data.node_labels());
  EXPECT_TRUE(data.labels().empty());
  for (int64_t i = 0; i < data.size(); i += 997) EXPECT_TRUE(data.graph(i) == graphs[static_cast<size_t>(i)]);
}

TEST(Cache, EmptySourceIsAnError) {
  const TemporaryFolder folder;
  EXPECT_NE(error_of([&] { prepare({}, options_for(folder)); }).find("no graph"), std::string::npos);
}

TEST(Cache, ChangedLargeInputIsNoticed) {
  const TemporaryFolder folder;
  const std::string path = folder.file("large");
  write_bytes(path, std::string(FileFingerprints::kRememberFrom, 'a'));
  const FileFingerprints files(folder.path().string());
  const std::string before = files.of(path);
  EXPECT_EQ(before, FileFingerprints().of(path));
  {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(12345);
    file.put('b');
  }
  EXPECT_NE(files.of(path), before);
}

}  // namespace
}  // namespace san
