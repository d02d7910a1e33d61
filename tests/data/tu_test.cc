#include "san/data/tu.h"

#include "san/base/file.h"
#include "san/base/random.h"
#include "tests/testing.h"

namespace san {
namespace {

using testing::error_of;
using testing::TemporaryFolder;

// Three graphs: a path of 3 nodes, a single node, an edge with a self loop. Edges listed both ways.
void write_small(const TemporaryFolder& folder, const std::string& suffix = "") {
  const auto put = [&](const std::string& kind, const std::string& text) {
    write_file(folder.file("SMALL_" + kind + ".txt" + suffix), text);
  };
  put("A", "1, 2\n2, 1\n2,3\n3 ,2\n\n5,6\n6,5\n6, 6\n");
  put("graph_indicator", "1\n1\n1\n2\n3\n3\n");
  put("graph_labels", "-1\n1\n6\n");
  put("node_labels", "5, 0\n7, 0\n5, 1\n9, 0\n5, 0\n7, 0\n");
  put("edge_labels", "0\n0\n3\n3\n0\n0\n1\n");
  put("node_attributes", "0.5\n1\n-2e-1\n0\n0\n0\n\n");
}

TEST(Tu, ReadsFeaturesLabelsAndSaysHowTheyWereMapped) {
  for (const char* suffix : {"", ".gz"}) {
    TemporaryFolder folder;
    write_small(folder, suffix);
    const TuDataset set = read_tu(folder.path().string());
    EXPECT_EQ(set.name, "SMALL");
    ASSERT_EQ(set.graphs.size(), 3u);
    EXPECT_TRUE(set.classes);
    EXPECT_EQ(set.class_values, (std::vector<std::vector<int64_t>>{{-1, 1, 6}}));
    EXPECT_EQ(set.node_category_values, (std::vector<std::vector<int64_t>>{{5, 7, 9}, {0, 1}}));
    EXPECT_EQ(set.edge_category_values, (std::vector<std::vector<int64_t>>{{0, 1, 3}}));
    const Graph& path = set.graphs[0];
    EXPECT_EQ(path.id, "1");
    EXPECT_EQ(path.edges, (std::vector<Edge>{{0, 1}, {1, 0}, {1, 2}, {2, 1}}));
    EXPECT_EQ(path.node_features.categories, (std::vector<int32_t>{0, 0, 1, 0, 0, 1}));
    EXPECT_EQ(path.node_features.values, (std::vector<float>{0.5f, 1.0f, -0.2f}));
    EXPECT_EQ(path.edge_features.categories, (std::vector<int32_t>{1, 1, 3, 3}));
    EXPECT_EQ(path.graph_labels, (std::vector<double>{0}));
    EXPECT_EQ(set.graphs[1].num_nodes, 1);
    EXPECT_TRUE(set.graphs[1].edges.empty());
    EXPECT_EQ(set.graphs[2].edges, (std::vector<Edge>{{0, 1}, {1, 0}, {1, 1}}));
    EXPECT_EQ(set.graphs[2].graph_labels, (std::vector<double>{2}));
  }
}

TEST(Tu, EdgesListedOnceGetTheirReverse) {
  TemporaryFolder folder;
  write_file(folder.file("X_A.txt"), "1,2\n3,2\n3,3\n");
  write_file(folder.file("X_graph_indicator.txt"), "1\n1\n1\n");
  write_file(folder.file("X_edge_attributes.txt"), "0.5,1\n0.25,2\n0,3\n");
  write_file(folder.file("X_graph_attributes.txt"), "1.5, nan, \n");
  const TuDataset set = read_tu(folder.path().string());
  EXPECT_EQ(set.graphs[0].edges, (std::vector<Edge>{{0, 1}, {1, 0}, {2, 1}, {1, 2}, {2, 2}}));
  EXPECT_EQ(set.graphs[0].edge_features.values, (std::vector<float>{0.5, 1, 0.5, 1, 0.25, 2, 0.25, 2, 0, 3}));
  EXPECT_FALSE(set.classes);
  ASSERT_EQ(set.graphs[0].graph_labels.size(), 3u);
  EXPECT_EQ(set.graphs[0].graph_labels[0], 1.5);
  EXPECT_TRUE(std::isnan(set.graphs[0].graph_labels[1]) && std::isnan(set.graphs[0].graph_labels[2]));
  TuOptions as_listed;
  as_listed.undirected = false;
  EXPECT_EQ(read_tu(folder.path().string(), as_listed).graphs[0].edges.size(), 3u);
  TuOptions labels;
  labels.target = TuTarget::kLabels;
  EXPECT_NE(error_of([&] { read_tu(folder.path().string(), labels); }).find("no X_graph_labels.txt"),
            std::string::npos);
}

TEST(Tu, ReadsMutag) {
  SAN_NEED_SHARED(folder, "data/tu/MUTAG");
  const TuDataset set = read_tu(folder.string());
  ASSERT_EQ(set.graphs.size(), 188u);
  EXPECT_EQ(set.class_values, (std::vector<std::vector<int64_t>>{{-1, 1}}));
  EXPECT_EQ(set.node_category_values[0].size(), 7u);
  EXPECT_EQ(set.edge_category_values[0].size(), 4u);
  size_t nodes = 0, edges = 0, positive = 0;
  for (const Graph& graph : set.graphs) {
    nodes += static_cast<size_t>(graph.num_nodes);
    edges += graph.edges.size();
    positive += graph.graph_labels[0] == 1;
  }
  // The set's published statistics: 17.93 nodes and 19.79 bonds on average, 125 of 188 mutagenic.
  EXPECT_EQ(nodes, 3371u);
  EXPECT_EQ(edges, 7442u);
  EXPECT_EQ(positive, 125u);
}

TEST(Tu, SaysWhatDoesNotFitAndWhere) {
  struct Case {
    const char *file, *text, *message;
  };
  const std::vector<Case> cases = {
      {"A", "1,2\n1,4\n", "SMALL_A.txt:2: the edge joins node 1 of graph 1 and node 4 of graph 2"},
      {"A", "1,2\n1,7\n", "SMALL_A.txt:2: node 7 does not exist; nodes are 1..6"},
      {"A", "0,1\n", "SMALL_A.txt:1: node 0 does not exist"},
      {"A", "1,2,3\n", "SMALL_A.txt:1: an edge is 'source, target', not 3 numbers"},
      {"A", "1,x\n", "SMALL_A.txt:1: 'x' is not an integer"},
      {"A", "1,2\n", "SMALL_edge_labels.txt:2: more rows than the 1 edges"},
      {"graph_indicator", "1\n1\n1\n3\n3\n3\n", "graph 2 has no nodes"},
      {"graph_indicator", "1\n99999999999\n", "graph_indicator.txt:2: graph 99999999999; graphs are numbered from 1"},
      {"graph_indicator", "1\n1000000000\n", "some graphs have no node"},
      {"graph_indicator", "0\n", "graph_indicator.txt:1: graph 0"},
      {"graph_indicator", "", "graph_indicator.txt: is empty"},
      {"graph_labels", "1\n", "SMALL_graph_labels.txt: 1 rows for 3 graphs"},
      {"graph_labels", "1\n2\n3\n4\n", "SMALL_graph_labels.txt:4: more rows than the 3 graphs"},
      {"graph_labels", "1\n2.5\n3\n", "SMALL_graph_labels.txt:2: '2.5' is not an integer"},
      {"node_labels", "1\n1\n1,2\n1\n1\n1\n", "SMALL_node_labels.txt:3: 2 columns, but the first row has 1"},
      {"node_attributes", "1\n1\nnan\n1\n1\n1\n", "SMALL_node_attributes.txt:3: 'nan' is not a finite number"},
      {"node_labels", "1\n1\n1e300\n1\n1\n1\n", "is not an integer"},
      {"node_attributes", "1\n1\n1e300\n1\n1\n1\n", "too large for a feature"},
  };
  for (const Case& c : cases) {
    TemporaryFolder folder;
    write_small(folder);
    write_file(folder.file(std::string("SMALL_") + c.file + ".txt"), c.text);
    const std::string message = error_of([&] { read_tu(folder.path().string()); });
    EXPECT_NE(message.find(c.message), std::string::npos) << message << " instead of " << c.message;
  }
  TemporaryFolder empty;
  EXPECT_NE(error_of([&] { read_tu(empty.path().string()); }).find("no *_A.txt"), std::string::npos);
  write_file(empty.file("A_A.txt"), "");
  EXPECT_NE(error_of([&] { read_tu(empty.path().string()); }).find("no A_graph_indicator.txt"), std::string::npos);
  write_file(empty.file("B_A.txt"), "");
  EXPECT_NE(error_of([&] { read_tu(empty.path().string()); }).find("several TU data sets"), std::string::npos);
  EXPECT_NE(error_of([&] { read_tu("/no/such/folder"); }).find("/no/such/folder: cannot open"), std::string::npos);
}

TEST(Tu, DamagedFilesGiveErrorsOrGraphsNeverACrash) {
  Random random(5);
  const std::vector<std::string> kinds = {"A",           "graph_indicator", "graph_labels",
                                          "node_labels", "edge_labels",     "node_attributes"};
  constexpr std::string_view kAlphabet = "0123456789,.- \n\r\te";
  for (int round = 0; round < 300; ++round) {
    TemporaryFolder folder;
    write_small(folder);
    const std::string path = folder.file("SMALL_" + kinds[random.below(kinds.size())] + ".txt");
    std::string text = read_file(path, 10000);
    for (uint64_t edits = 1 + random.below(3); edits > 0 && !text.empty(); --edits) {
      const size_t at = random.below(text.size());
      if (random.chance(0.5))
        text[at] = kAlphabet[random.below(kAlphabet.size())];
      else
        text.erase(at, 1 + random.below(3));
    }
    write_file(path, text);
    try {
      for (const Graph& graph : read_tu(folder.path().string()).graphs) validate(graph);
    } catch (const Error&) {
    }
  }
}

}  // namespace
}  // namespace san
