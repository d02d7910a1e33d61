#include "san/data/ogb.h"

#include "san/base/file.h"
#include "tests/testing.h"

namespace san {
namespace {

using testing::error_of;
using testing::TemporaryFolder;

// Three graphs: no edges, one edge, a self loop. Two tasks.
class Small {
 public:
  Small() {
    for (const char* below : {"raw", "split/scaffold", "mapping"})
      std::filesystem::create_directories(folder_.path() / below);
    put("raw/num-node-list.csv", "1\n2\n1\n");
    put("raw/num-edge-list.csv.gz", "0\n1\n1\n");
    put("raw/edge.csv.gz", "0,1\n0,0\n");
    put("raw/node-feat.csv.gz", "1,2\n3,4\n5,6\n7,8\n");
    put("raw/edge-feat.csv.gz", "0.5\n1\n");
    put("raw/graph-label.csv.gz", "0,1.5\nnan,\n1,-2\n");
    put("split/scaffold/train.csv.gz", "0\n2\n");
    put("split/scaffold/valid.csv.gz", "1\n");
    put("split/scaffold/test.csv.gz", "");
    put("mapping/mol.csv.gz", "y,smiles,mol_id\n0,C,m0\n0,\"CC\",m1\n0,CCC,m2\n");
  }
  void put(const std::string& name, const std::string& text) const { write_file(folder_.path() / name, text); }
  void remove(const std::string& name) const { std::filesystem::remove_all(folder_.path() / name); }
  std::string path() const { return folder_.path().string(); }
  std::vector<Graph> graphs(const OgbOptions& options = {}) const {
    OgbReader reader(path(), options);
    std::vector<Graph> out;
    for (Graph graph; reader.next(graph);) out.push_back(graph);
    return out;
  }

 private:
  TemporaryFolder folder_;
};

TEST(Ogb, ReadsFeaturesLabelsSplitAndAddsInverseEdges) {
  const Small small;
  const auto graphs = small.graphs();
  ASSERT_EQ(graphs.size(), 3u);
  EXPECT_EQ(graphs[0].node_features.categories, (std::vector<int32_t>{1, 2}));
  EXPECT_EQ(graphs[0].edge_features.value_columns, 1);  // though it has no edge
  EXPECT_EQ(graphs[1].edges, (std::vector<Edge>{{0, 1}, {1, 0}}));
  EXPECT_EQ(graphs[1].edge_features.values, (std::vector<float>{0.5, 0.5}));
  EXPECT_EQ(graphs[2].edges, (std::vector<Edge>{{0, 0}, {0, 0}}));
  EXPECT_EQ(graphs[0].graph_labels, (std::vector<double>{0, 1.5}));
  EXPECT_TRUE(std::isnan(graphs[1].graph_labels[0]) && std::isnan(graphs[1].graph_labels[1]));
  EXPECT_EQ(graphs[0].split + graphs[1].split + graphs[2].split, "trainvalidtrain");
  EXPECT_EQ(graphs[2].id, "2");

  OgbOptions options;
  options.add_inverse = false;
  options.id_column = "smiles";
  options.split = "scaffold";
  EXPECT_EQ(small.graphs(options)[1].edges, (std::vector<Edge>{{0, 1}}));
  EXPECT_EQ(small.graphs(options)[1].id, "CC");
  small.remove("split");
  small.remove("mapping");
  small.remove("raw/node-feat.csv.gz");
  small.remove("raw/edge-feat.csv.gz");
  EXPECT_EQ(small.graphs()[1].split, "");
  EXPECT_TRUE(small.graphs()[1].node_features.empty());
}

TEST(Ogb, OneTaskWithAMissingLabelIsAnEmptyLine) {
  const Small small;
  small.put("raw/graph-label.csv.gz", "1\n\n0\n");
  const auto graphs = small.graphs();
  EXPECT_EQ(graphs[0].graph_labels[0], 1);
  EXPECT_TRUE(std::isnan(graphs[1].graph_labels[0]));
  EXPECT_EQ(graphs[2].graph_labels[0], 0);
}

TEST(Ogb, ReadsTheMolhivSample) {
  SAN_NEED_SHARED(folder, "data/ogb-layout/ogbg_molhiv_sample");
  OgbOptions options;
  options.id_column = "mol_id";
  OgbReader reader(folder.string(), options);
  EXPECT_EQ(reader.split_kind(), "scaffold");
  std::map<std::string, int> parts;
  int count = 0;
  for (Graph graph; reader.next(graph); ++count) {
    ++parts[graph.split];
    EXPECT_EQ(graph.node_features.category_columns, 9);
    EXPECT_EQ(graph.edge_features.category_columns, 3);
    EXPECT_EQ(graph.graph_labels.size(), 1u);
    if (count == 0) {
      EXPECT_EQ(graph.id, "m0");
      EXPECT_EQ(graph.num_nodes, 19);
      EXPECT_EQ(graph.edges.size(), 40u);
    }
  }
  EXPECT_EQ(count, 600);
  EXPECT_EQ(parts, (std::map<std::string, int>{{"train", 400}, {"valid", 100}, {"test", 100}}));
  EXPECT_EQ(reader.bytes_read(), reader.bytes_total());
}

TEST(Ogb, SaysWhatDoesNotFitAndWhere) {
  struct Case {
    const char *file, *text, *message;
  };
  const std::vector<Case> cases = {
      {"raw/edge.csv.gz", "0,1\n", "edge.csv.gz: ends in graph 2, after 0 of its 1 edges"},
      {"raw/edge.csv.gz", "0,2\n0,0\n", "edge.csv.gz:1: node 2 in graph 1, which has nodes 0..1"},
      {"raw/edge.csv.gz", "0,1\n0,0\n0,0\n", "edge.csv.gz:3: more rows than the 3 graphs"},
      {"raw/edge.csv.gz", "0,x\n0,0\n", "edge.csv.gz:1: 'x' is not an integer"},
      {"raw/num-edge-list.csv.gz", "0\n1\n", "num-edge-list.csv.gz: ends after 2 graphs"},
      {"raw/num-edge-list.csv.gz", "0\n99999999999\n1\n", "num-edge-list.csv.gz:2: 99999999999 edges in one graph"},
      {"raw/num-node-list.csv", "1\n99999999999\n1\n", "num-node-list.csv:2: 99999999999 nodes in one graph"},
      {"raw/num-node-list.csv", "0\n2\n1\n", "num-node-list.csv:1: a graph without nodes"},
      {"raw/num-node-list.csv", "", "is empty"},
      {"raw/num-node-list.csv", "1\n", "more rows than the 1 graphs"},
      {"raw/node-feat.csv.gz", "1,2\n3,4\n5,6\n", "node-feat.csv.gz: ends in graph 2, after 0 of its 1 nodes"},
      {"raw/node-feat.csv.gz", "1,2\n3,-4\n5,6\n7,8\n", "node-feat.csv.gz:2: -4 is not a category"},
      {"raw/node-feat.csv.gz", "1,2\n3\n5,6\n7,8\n", "node-feat.csv.gz:2: 1 columns, but the first row has 2"},
      {"raw/node-feat.csv.gz", "1,2\n3,0.5\n5,6\n7,8\n", "node-feat.csv.gz:2: '0.5' is not an integer"},
      {"raw/edge-feat.csv.gz", "0.5\n", "edge-feat.csv.gz: ends in graph 2"},
      {"raw/graph-label.csv.gz", "0,1\n", "graph-label.csv.gz: ends after 1 graphs"},
      {"raw/graph-label.csv.gz", "0,1\n1,x\n1,1\n", "graph-label.csv.gz:2: 'x' is not a finite number"},
      {"split/scaffold/test.csv.gz", "1\n", "test.csv.gz:1: graph 1 is in the split twice"},
      {"split/scaffold/test.csv.gz", "7\n", "names graph 7, but there are only 3"},
      {"split/scaffold/test.csv.gz", "99999999999999\n", "expected one graph number"},
  };
  for (const Case& c : cases) {
    const Small small;
    small.put(c.file, c.text);
    const std::string message = error_of([&] { small.graphs(); });
    EXPECT_NE(message.find(c.message), std::string::npos) << message << " instead of " << c.message;
  }
  const Small small;
  OgbOptions options;
  options.split = "random";
  EXPECT_NE(error_of([&] { small.graphs(options); }).find("no split is called 'random'; there is scaffold"),
            std::string::npos);
  options = {};
  options.id_column = "smile";
  EXPECT_NE(error_of([&] { small.graphs(options); }).find("did you mean 'smiles'"), std::string::npos);
  std::filesystem::create_directories(small.path() + "/split/random");
  EXPECT_NE(error_of([&] { small.graphs(); }).find("choose one of random, scaffold"), std::string::npos);
  small.remove("raw");
  EXPECT_NE(error_of([&] { small.graphs(); }).find("not an OGB folder"), std::string::npos);
}

}  // namespace
}  // namespace san
