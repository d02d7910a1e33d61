#include "san/graph/jsonl.h"

#include <bit>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <vector>

#include "san/base/file.h"
#include "san/base/random.h"
#include "san/graph/generators.h"
#include "tests/mutation.h"
#include "tests/testing.h"

namespace san {
namespace {

using testing::error_of;
using testing::TemporaryFolder;

Graph parse(const std::string& json) {
  return parse_graph(json, "f:1", 0);
}

const char* const kFull =
    R"({"id": "g1", "num_nodes": 3, "edges": [[0,1],[1,0],[1,2],[2,1]], "node_feat": [[5],[0],[7]], )"
    R"("edge_feat": [[1],[1],[2],[2]], "edge_attr": [0.5, 1, -2e-3, 4], "label": [0.25, null], "split": "train", )"
    R"("eigvals": [0, 1.0, 2.0], "eigvecs": [[0.5,0.7,-0.5],[0.7,0.0,0.7],[0.5,-0.7,-0.5]]})";

TEST(ParseGraph, ReadsEveryKey) {
  const Graph graph = parse(kFull);
  EXPECT_EQ(graph.id, "g1");
  EXPECT_EQ(graph.split, "train");
  EXPECT_EQ(graph.num_nodes, 3);
  EXPECT_EQ(graph.edges, (std::vector<Edge>{{0, 1}, {1, 0}, {1, 2}, {2, 1}}));
  EXPECT_EQ(graph.node_features, (Features{1, 0, {5, 0, 7}, {}}));
  EXPECT_EQ(graph.edge_features, (Features{1, 1, {1, 1, 2, 2}, {0.5f, 1.0f, -2e-3f, 4.0f}}));
  ASSERT_EQ(graph.graph_labels.size(), 2u);
  EXPECT_EQ(graph.graph_labels[0], 0.25);
  EXPECT_TRUE(std::isnan(graph.graph_labels[1]));
  ASSERT_TRUE(graph.eigenpairs);
  EXPECT_EQ(graph.eigenpairs->count, 3);
  EXPECT_EQ(graph.eigenpairs->values, (std::vector<float>{0, 1, 2}));
  EXPECT_EQ(graph.eigenpairs->vectors, (std::vector<float>{0.5f, 0.7f, -0.5f, 0.7f, 0, 0.7f, 0.5f, -0.7f, -0.5f}));
}

TEST(ParseGraph, TheOrderOfKeysDoesNotMatter) {
  EXPECT_EQ(
      parse(
          R"({"eigvecs": [[0.5,0.7,-0.5],[0.7,0.0,0.7],[0.5,-0.7,-0.5]], "eigvals": [0, 1, 2], "label": [0.25, null],
 "edge_attr": [[0.5], [1], [-0.002], [4]], "edge_feat": [1,1,2,2], "node_feat": [5,0,7], "split": "train",
 "edges": [[0,1],[1,0],[1,2],[2,1]], "undirected": false, "num_nodes": 3, "id": "g1"})"),
      parse(kFull));
}

TEST(ParseGraph, AGraphWithoutIdIsNamedByItsNumber) {
  EXPECT_EQ(parse_graph(R"({"num_nodes":1,"edges":[]})", "", 17).id, "17");
  EXPECT_EQ(parse(R"({"id":-3,"num_nodes":1,"edges":[]})").id, "-3");
  EXPECT_EQ(parse(R"({"id":"","num_nodes":1,"edges":[]})").id, "");
  EXPECT_EQ(parse("{\"id\":\"h\xC3\xA9\\u00e9\",\"num_nodes\":1,\"edges\":[]}").id, "h\xC3\xA9\xC3\xA9");
}

TEST(ParseGraph, UndirectedListsEachReverseRightAfterItsEdgeAndALoopOnce) {
  const Graph graph = parse(R"({"num_nodes":3,"undirected":true,"edges":[[2,0],[1,1],[0,1]],
    "edge_feat":[[1,4],[2,5],[3,6]],"edge_attr":[0.5,1.5,2.5]})");
  EXPECT_EQ(graph.edges, (std::vector<Edge>{{2, 0}, {0, 2}, {1, 1}, {0, 1}, {1, 0}}));
  EXPECT_EQ(graph.edge_features.categories, (std::vector<int32_t>{1, 4, 1, 4, 2, 5, 3, 6, 3, 6}));
  EXPECT_EQ(graph.edge_features.values, (std::vector<float>{0.5f, 0.5f, 1.5f, 2.5f, 2.5f}));
}

TEST(ParseGraph, DirectedGraphsMayRepeatEdgesAndHaveLoops) {
  EXPECT_EQ(parse(R"({"num_nodes":2,"edges":[[0,1],[0,1],[1,1]]})").edges.size(), 3u);
}

TEST(ParseGraph, OneNumberWithAPointMakesAllFeaturesReal) {
  const std::string head = R"({"num_nodes":2,"edges":[],"node_feat":)";
  EXPECT_EQ(parse(head + "[1,2]}").node_features, (Features{1, 0, {1, 2}, {}}));
  EXPECT_EQ(parse(head + "[1,2.0]}").node_features, (Features{0, 1, {}, {1, 2}}));
  EXPECT_EQ(parse(head + "[[1,2],[3,1e1]]}").node_features, (Features{0, 2, {}, {1, 2, 3, 10}}));
  EXPECT_EQ(parse(head + "[-1,0.5]}").node_features, (Features{0, 1, {}, {-1, 0.5f}}));
  EXPECT_EQ(parse(head + "[3000000000,0.5]}").node_features, (Features{0, 1, {}, {3e9f, 0.5f}}));
  EXPECT_EQ(parse(head + "[123456789012345678901234567890,0.5]}").node_features.values[0],
            123456789012345678901234567890.0f);
  EXPECT_EQ(parse(R"({"num_nodes":2,"edges":[],"node_attr":[1,-2]})").node_features, (Features{0, 1, {}, {1, -2}}));
}

TEST(ParseGraph, RealNumbersAreTheNearestFloatsOfTheirText) {
  const auto value = [](const std::string& text) {
    return parse(R"({"num_nodes":1,"edges":[],"node_attr":[)" + text + "]}").node_features.values[0];
  };
  // Just above the middle between 1 and the next float; the nearest double is the middle itself, which a
  // second rounding would take down to 1.
  EXPECT_EQ(value("1.00000005960464477540"), std::nextafter(1.0f, 2.0f));
  EXPECT_EQ(value("1.000000059604644775390625"), 1.0f);  // the middle: to even
  EXPECT_EQ(value("3.4028235e38"), std::numeric_limits<float>::max());
  EXPECT_EQ(value("1e-45"), std::numeric_limits<float>::denorm_min());
  EXPECT_EQ(value("1e-60"), 0.0f);
  EXPECT_EQ(value("1e-400"), 0.0f);
  EXPECT_TRUE(std::signbit(value("-0.0")));
}

struct Bad {
  std::string json, message;
};

std::string repeated(const std::string& text, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += text;
  return out;
}

TEST(ParseGraph, SaysInOneLineWhatIsWrong) {
  const std::string head = R"({"num_nodes":2,"edges":[[0,1]])";
  const std::vector<Bad> cases{
      // not JSON, or not one object
      {"", "empty"},
      {"  ", "empty"},
      {"{", "not valid JSON"},
      {"null", "one JSON object, not null"},
      {"7", "one JSON object"},
      {"\"x\"", "one JSON object"},
      {"[]", "one JSON object, not a list"},
      {"{}", "'num_nodes' is missing"},
      {head, "not valid JSON"},
      {head + ",}", "not valid JSON"},
      {head + "}}", "not valid JSON"},
      {head + "} x", "not valid JSON"},
      {head + "} {}", "not valid JSON"},
      {head + "}" + std::string(1, '\0') + "x", "zero byte"},
      {"\xEF\xBB\xBF" + head + "}", "byte order mark"},
      {head + ",\"id\":\"\xff\"}", "UTF-8"},
      {head + ",\"id\":\"\xc3\"}", "UTF-8"},
      {head + ",\"id\":\"\x1b[2J\"}", "not valid JSON"},
      {head + ",\"id\":\"\\ud800\"}", "not valid JSON"},
      {head + ",\"label\":NaN}", "not valid JSON"},
      {head + ",\"label\":Infinity}", "not valid JSON"},
      {head + ",\"label\":-Infinity}", "not valid JSON"},
      {head + ",\"label\":01}", "not valid JSON"},
      {head + ",\"label\":+1}", "not valid JSON"},
      {head + ",\"label\":.5}", "not valid JSON"},
      {head + ",\"label\":1.}", "not valid JSON"},
      {head + ",\"label\":1e999}", "overflow"},
      {head + "/* x */}", "not valid JSON"},
      // keys
      {head + ",\"lable\":1}", "unknown key 'lable'"},
      {head + ",\"num_nodes\":2}", "'num_nodes' is there twice"},
      {head + ",\"label\":1,\"label\":1}", "'label' is there twice"},
      {R"({"num_nodes":2})", "'edges' is missing"},
      {R"({"edges":[]})", "'num_nodes' is missing"},
      // num_nodes
      {R"({"num_nodes":0,"edges":[]})", "num_nodes is 0"},
      {R"({"num_nodes":-1,"edges":[]})", "num_nodes is -1"},
      {R"({"num_nodes":16777217,"edges":[]})", "num_nodes is 16777217"},
      {R"({"num_nodes":18446744073709551615,"edges":[]})", "num_nodes is 1.84"},
      {R"({"num_nodes":99999999999999999999999,"edges":[]})", "num_nodes is 99999999999999999999999"},
      {R"({"num_nodes":2.0,"edges":[]})", "num_nodes must be an integer"},
      {R"({"num_nodes":"2","edges":[]})", "num_nodes must be an integer, not a string"},
      {R"({"num_nodes":[2],"edges":[]})", "num_nodes must be an integer, not a list"},
      {R"({"num_nodes":null,"edges":[]})", "num_nodes must be an integer, not null"},
      // edges
      {R"({"num_nodes":2,"edges":[[0,2]]})", "edge 0 names node 2, but the graph has nodes 0..1"},
      {R"({"edges":[[0,1],[7,0]],"num_nodes":2})", "edge 1 names node 7"},
      {R"({"num_nodes":2,"edges":[[0,-1]]})", "edge 0 names a node that cannot be: -1"},
      {R"({"num_nodes":2,"edges":[[0,2147483648]]})", "cannot be: 2147483648"},
      {R"({"num_nodes":2,"edges":[[0,4294967296]]})", "cannot be: 4294967296"},
      {R"({"num_nodes":2,"edges":[[0,99999999999999999999]]})", "cannot be: 99999999999999999999"},
      {R"({"num_nodes":2,"edges":[[0,1.0]]})", "edges must be a list of pairs"},
      {R"({"num_nodes":2,"edges":[[0]]})", "edge 0 has 1 numbers"},
      {R"({"num_nodes":2,"edges":[[]]})", "edge 0 has 0 numbers"},
      {R"({"num_nodes":2,"edges":[[0,1],[0,1,1]]})", "edge 1 has 3 numbers"},
      {R"({"num_nodes":2,"edges":[0,1]})", "edges must be a list of pairs"},
      {R"({"num_nodes":2,"edges":[[0,[1]]]})", "nested too deeply"},
      {R"({"num_nodes":2,"edges":[[0,null]]})", "edges must be a list of pairs"},
      {R"({"num_nodes":2,"edges":{}})", "edges must be a list of pairs"},
      {R"({"num_nodes":2,"edges":"0-1"})", "edges must be a list of pairs"},
      // undirected
      {R"({"num_nodes":2,"undirected":1,"edges":[]})", "undirected must be true or false"},
      {R"({"num_nodes":2,"undirected":true,"edges":[[0,1],[1,1],[1,0]]})", "edges 0 and 2 are the same undirected"},
      {R"({"num_nodes":2,"undirected":true,"edges":[[0,1],[0,1]]})", "edges 0 and 1 are the same undirected"},
      {R"({"num_nodes":2,"undirected":true,"edges":[[1,1],[1,1]]})", "edges 0 and 1 are the same undirected"},
      {R"({"num_nodes":2,"undirected":true,"edges":[[0,1],[0,2]]})", "edge 1 names node 2"},
      {R"({"num_nodes":2,"undirected":true,"edges":[[0,1]],"edge_feat":[1,1]})", "edge_feat has 2 rows for 1 edges"},
      // features
      {head + ",\"node_feat\":[1]}", "node_feat has 1 rows for 2 nodes"},
      {head + ",\"node_feat\":[]}", "node_feat has 0 rows for 2 nodes"},
      {head + ",\"node_feat\":[[1],[2],[3]]}", "node_feat has 3 rows for 2 nodes"},
      {head + ",\"edge_feat\":[1,2]}", "edge_feat has 2 rows for 1 edges"},
      {head + ",\"edge_attr\":[]}", "edge_attr has 0 rows for 1 edges"},
      {head + ",\"node_feat\":[[1],[2,3]]}", "row 1 of node_feat has 2 numbers, those before it have 1"},
      {head + ",\"node_feat\":[[1],[]]}", "row 1 of node_feat has 0 numbers"},
      {head + ",\"node_feat\":[[],[]]}", "node_feat has an empty row"},
      {head + ",\"node_feat\":[1,[2]]}", "node_feat mixes"},
      {head + ",\"node_feat\":[[1],2]}", "node_feat mixes"},
      {head + ",\"node_feat\":[1,null]}", "node_feat must be"},
      {head + ",\"node_feat\":[1,\"a\"]}", "node_feat must be"},
      {head + ",\"node_feat\":1}", "node_feat must be"},
      {head + ",\"node_feat\":[[[1]],[[2]]]}", "nested too deeply"},
      {head + ",\"node_feat\":[1,-1]}", "node_feat has the category -1"},
      {head + ",\"node_feat\":[1,2147483648]}", "node_feat has the category 2147483648"},
      {head + ",\"node_feat\":[1,99999999999999999999]}", "node_feat has the category 99999999999999999999"},
      {head + ",\"node_feat\":[1,1e39]}", "too large for a float: 1e39"},
      {head + ",\"node_attr\":[1,-3.5e38]}", "too large for a float: -3.5e38"},
      {head + ",\"node_attr\":[1," + std::string(40, '9') + "]}", "too large for a float"},
      {head + ",\"node_feat\":[1,0.5],\"node_attr\":[1,2]}", "put them all into node_attr"},
      {head + ",\"node_feat\":[[" + repeated("1,", kMaxFeatureColumns) + "1],[1]]}", "columns allowed"},
      // labels
      {head + ",\"label\":\"x\"}", "label must be"},
      {head + ",\"label\":true}", "label must be"},
      {head + ",\"label\":[]}", "label is an empty list"},
      {head + ",\"label\":[[1]]}", "nested too deeply"},
      {head + ",\"label\":1,\"node_label\":[1,2]}", "either 'label' or 'node_label'"},
      {head + ",\"node_label\":[1]}", "node_label has 1 numbers for 2 nodes"},
      {head + ",\"node_label\":[]}", "node_label has 0 numbers for 2 nodes"},
      {head + ",\"node_label\":1}", "node_label must be"},
      {head + ",\"node_label\":null}", "node_label must be"},
      {head + ",\"split\":1}", "split must be a string"},
      {head + ",\"id\":1.5}", "id must be a string or an integer"},
      {head + ",\"id\":99999999999999999999}", "more than 64 bits"},
      {head + ",\"id\":null}", "id must be a string or an integer"},
      // eigenpairs
      {head + ",\"eigvals\":[1]}", "come together"},
      {head + ",\"eigvecs\":[[1],[1]]}", "come together"},
      {head + ",\"eigvals\":[1],\"eigvecs\":[[1]]}", "eigvecs has 1 rows for 2 nodes"},
      {head + ",\"eigvals\":[1],\"eigvecs\":[[1,2],[1,2]]}", "eigvecs has 2 columns for 1 eigvals"},
      {head + ",\"eigvals\":[1,2],\"eigvecs\":[[1,2],[1]]}", "row 1 of eigvecs has 1 numbers"},
      {head + ",\"eigvals\":[1],\"eigvecs\":[1,2]}", "eigvecs must be"},
      {head + ",\"eigvals\":[[1]],\"eigvecs\":[[1],[2]]}", "eigvals must be"},
      {head + ",\"eigvals\":[1e39],\"eigvecs\":[[1],[2]]}", "too large for a float"},
      {head + ",\"eigvals\":[null],\"eigvecs\":[[1],[2]]}", "eigvals must be"},
      // nesting
      {std::string(1000000, '['), "one JSON object, not a list"},
      {R"({"num_nodes":)" + std::string(1000000, '['), "num_nodes must be an integer, not a list"},
      {R"({"edges":)" + std::string(1000000, '['), "nested too deeply"},
      {repeated(R"({"id":)", 200000), "id must be a string or an integer, not an object"},
  };
  for (const Bad& bad : cases) {
    const std::string shown = printable(bad.json, 100);
    try {
      parse(bad.json);
      ADD_FAILURE() << "accepted: " << shown;
    } catch (const RecordError& error) {
      const std::string message = error.what();
      EXPECT_TRUE(message.starts_with("f:1: ")) << message;
      EXPECT_NE(message.find(bad.message), std::string::npos) << shown << "\n  says: " << message;
      EXPECT_LT(message.size(), 300u) << shown;
      for (const char c : message) EXPECT_GE(static_cast<unsigned char>(c), 0x20) << message;
    }
  }
}

TEST(GraphReader, GoesOnBehindABadLine) {
  TemporaryFolder folder;
  const std::string path = folder.file("g.jsonl.gz");
  write_file(path, "\n{\"num_nodes\":1,\"edges\":[]}\r\n  \nbad\n{\"num_nodes\":2,\"edges\":[]}");
  GraphReader reader(path);
  Graph graph;
  ASSERT_TRUE(reader.next(graph));
  EXPECT_EQ(graph.id, "0");
  EXPECT_EQ(reader.where(), path + ":2");
  EXPECT_TRUE(error_of([&] { reader.next(graph); }).starts_with(path + ":4: not valid JSON"));
  ASSERT_TRUE(reader.next(graph));
  EXPECT_EQ(graph.id, "2");  // the bad line counts
  EXPECT_EQ(graph.num_nodes, 2);
  EXPECT_EQ(reader.where(), path + ":5");
  EXPECT_FALSE(reader.next(graph));
  EXPECT_EQ(reader.bytes_read(), reader.bytes_total());
}

TEST(GraphReader, RefusesAFileWithoutAGraph) {
  TemporaryFolder folder;
  for (const char* text : {"", "\n \n"}) {
    write_file(folder.file("g"), text);
    GraphReader reader(folder.file("g"));
    Graph graph;
    EXPECT_NE(error_of([&] { reader.next(graph); }).find("g: there is no graph"), std::string::npos);
  }
}

TEST(GraphReader, ReadsTheRecordedCasesAndWritesThemBackTheSame) {
  SAN_NEED_SHARED(golden, "golden");
  int files = 0, graphs = 0;
  for (const auto& folder : std::filesystem::directory_iterator(golden)) {
    if (!folder.is_directory()) continue;
    ++files;
    GraphReader reader((folder.path() / "graphs.jsonl").string());
    for (Graph graph; reader.next(graph); ++graphs) {
      Graph again = parse(format_graph(graph));
      if (graph.edges.empty()) again.edge_features = graph.edge_features;
      EXPECT_EQ(again, graph) << reader.where();
    }
  }
  EXPECT_EQ(files, 13);
  EXPECT_GT(graphs, 13);
}

// --- round trips

uint32_t bits_of(float x) {
  return std::bit_cast<uint32_t>(x);
}

// == does not tell -0 from 0: compare the bits.
void expect_same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) EXPECT_EQ(bits_of(a[i]), bits_of(b[i])) << a[i] << " " << b[i];
}

void expect_same_bits(const std::vector<double>& a, const std::vector<double>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(a[i]) && std::isnan(b[i])) continue;
    EXPECT_EQ(std::bit_cast<uint64_t>(a[i]), std::bit_cast<uint64_t>(b[i])) << a[i] << " " << b[i];
  }
}

float any_float(Random& random) {
  for (;;) {
    const auto x = std::bit_cast<float>(static_cast<uint32_t>(random.bits()));
    if (random.chance(0.3)) return static_cast<float>(random.range(-3, 4)) * (random.chance(0.5) ? 1.0f : -0.0f);
    if (std::isfinite(x)) return x;
  }
}

double any_label(Random& random) {
  for (;;) {
    const auto x = std::bit_cast<double>(random.bits());
    if (random.chance(0.2)) return std::numeric_limits<double>::quiet_NaN();
    if (random.chance(0.2)) return random.range(-3, 4) * (random.chance(0.5) ? 1.0 : -0.0);
    if (random.chance(0.2)) return static_cast<double>(random.bits());
    if (std::isfinite(x)) return x;
  }
}

Features any_features(int64_t rows, Random& random) {
  Features out;
  out.category_columns = random.range(0, 3);
  out.value_columns = random.range(0, 3);
  for (int64_t i = 0; i < rows * out.category_columns; ++i) {
    out.categories.push_back(static_cast<int32_t>(random.bits() >> (33 + random.below(31))));
  }
  for (int64_t i = 0; i < rows * out.value_columns; ++i) out.values.push_back(any_float(random));
  return out;
}

Graph any_graph(Random& random) {
  Graph graph;
  const char* const names[] = {"", "a", "7", "\"quoted\\\"", "h\xC3\xA9", "\x01\n\x7f", "\xF0\x9F\x98\x80"};
  graph.id = names[random.below(std::size(names))];
  graph.split = names[random.below(std::size(names))];
  graph.num_nodes = random.range(1, 8);
  for (int i = random.range(0, 12); i > 0; --i) {
    graph.edges.push_back({random.range(0, graph.num_nodes), random.range(0, graph.num_nodes)});
  }
  graph.node_features = any_features(graph.num_nodes, random);
  if (!graph.edges.empty()) graph.edge_features = any_features(static_cast<int64_t>(graph.edges.size()), random);
  const int kind = random.range(0, 3);
  if (kind == 1) graph.graph_labels.resize(random.below(4));
  if (kind == 2) graph.node_labels.resize(static_cast<size_t>(graph.num_nodes));
  for (auto* labels : {&graph.graph_labels, &graph.node_labels}) {
    for (double& label : *labels) label = any_label(random);
  }
  if (random.chance(0.5)) {
    Eigenpairs& pairs = graph.eigenpairs.emplace();
    pairs.count = random.range(0, 4);
    for (int i = 0; i < pairs.count; ++i) pairs.values.push_back(any_float(random));
    for (int i = 0; i < pairs.count * graph.num_nodes; ++i) pairs.vectors.push_back(any_float(random));
  }
  return graph;
}

TEST(FormatGraph, EveryGraphReadsBackToTheSameBits) {
  Random random(5);
  for (int i = 0; i < 5000; ++i) {
    const Graph graph = any_graph(random);
    const std::string json = format_graph(graph);
    EXPECT_EQ(json.find('\n'), std::string::npos);
    const Graph again = parse(json);
    ASSERT_EQ(again, graph) << json;
    expect_same_bits(again.node_features.values, graph.node_features.values);
    expect_same_bits(again.edge_features.values, graph.edge_features.values);
    expect_same_bits(again.graph_labels, graph.graph_labels);
    expect_same_bits(again.node_labels, graph.node_labels);
    if (graph.eigenpairs) {
      expect_same_bits(again.eigenpairs->values, graph.eigenpairs->values);
      expect_same_bits(again.eigenpairs->vectors, graph.eigenpairs->vectors);
    }
    ASSERT_FALSE(HasFailure()) << json;
  }
}

TEST(FormatGraph, WholeRealFeaturesKeepAPoint) {
  Graph graph = make_path(2);
  graph.node_features = {0, 1, {}, {1.0f, 1e10f}};
  EXPECT_NE(format_graph(graph).find("\"node_feat\":[[1.0],["), std::string::npos) << format_graph(graph);
  EXPECT_EQ(parse(format_graph(graph)).node_features, graph.node_features);
}

TEST(FormatGraph, AGraphWithoutEdgesLosesOnlyItsColumns) {
  Graph graph = make_path(1);
  graph.edge_features.category_columns = 3;
  graph.edge_features.value_columns = 2;
  Graph again = parse(format_graph(graph));
  EXPECT_TRUE(again.edge_features.empty());
  again.edge_features = graph.edge_features;
  EXPECT_EQ(again, graph);
}

TEST(FormatGraph, RefusesWhatCannotBeReadBack) {
  Graph graph = make_path(2);
  graph.id = "\xff";
  EXPECT_NE(error_of([&] { format_graph(graph); }).find("UTF-8"), std::string::npos);
  graph.id = "";
  graph.graph_labels = {std::numeric_limits<double>::infinity()};
  EXPECT_NE(error_of([&] { format_graph(graph); }).find("infinite"), std::string::npos);
}

TEST(ParseGraph, DamagedLinesThrowNothingButRecordErrors) {
  const uint64_t seed = testing::mutation_seed();
  SCOPED_TRACE("SAN_TEST_SEED=" + std::to_string(seed));
  Random random(seed);
  int accepted = 0, refused = 0;
  for (int i = 0; i < 20000; ++i) {
    const std::string json =
        testing::mutated(random.chance(0.1) ? std::string(kFull) : format_graph(any_graph(random)), random);
    try {
      const Graph graph = parse(json);
      ++accepted;
      // What was taken is a sound graph, and is written and read the same.
      ASSERT_EQ(parse(format_graph(graph)), graph) << json;
    } catch (const RecordError&) {
      ++refused;
    }
  }
  EXPECT_GT(accepted, 100);
  EXPECT_GT(refused, 5000);
}

}  // namespace
}  // namespace san
