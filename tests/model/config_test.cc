#include "san/model/config.h"

#include "san/model/model_folder.h"
#include "tests/testing.h"

namespace san {
namespace {

using testing::error_of;

// The published configurations (section 7 of the specification), as the authors' nets build them.
struct Published {
  const char* name;
  std::vector<int> node_tables, edge_tables;
  LpeKind lpe;
  int lpe_layers, lpe_dim, lpe_heads;
  AttentionKind attention;
  int layers, d, heads, outputs;
  int64_t parameters;
};

const std::vector<int> kAtoms = {119, 4, 12, 12, 10, 6, 6, 2, 2}, kBonds = {5, 6, 2};

int64_t count_of(const Published& p) {
  ModelConfig c;
  c.node_tables = p.node_tables;
  c.edge_tables = p.edge_tables;
  c.added_edge = AddedEdge::kRow0;
  c.lpe.kind = p.lpe;
  c.lpe.layers = p.lpe_layers;
  c.lpe.dim = p.lpe_dim;
  c.lpe.heads = p.lpe_heads;
  c.attention = p.attention;
  c.layers = p.layers;
  c.hidden_dim = p.d;
  c.heads = p.heads;
  c.outputs = p.outputs;
  return parameter_count(c);
}

TEST(ModelConfig, CountsThePublishedParameters) {
  constexpr auto node = LpeKind::kNode, none = LpeKind::kNone;
  constexpr auto full = AttentionKind::kFull, sparse = AttentionKind::kSparse;
  // The MolHIV net with node LPE carries `embedding_e_fake` (1 x d), which it never uses and we do not have:
  // - d.
  // ZINC's bond table has 5 rows with full attention and 4 without.
  const Published all[] = {
      {"ZINC", {28}, {5}, node, 2, 8, 4, full, 10, 56, 8, 1, 454753},
      {"PATTERN", {3}, {2}, node, 3, 16, 4, full, 4, 80, 10, 2, 520518},
      {"CLUSTER", {7}, {2}, node, 1, 16, 4, full, 16, 48, 8, 6, 519186},
      {"MolHIV", kAtoms, kBonds, node, 3, 16, 4, full, 10, 64, 4, 1, 714769 - 64},
      {"ZINC full-node", {28}, {5}, node, 3, 16, 4, full, 6, 64, 8, 1, 508577},
      {"ZINC full-none", {28}, {5}, none, 3, 16, 4, full, 6, 80, 8, 1, 471361},
      {"ZINC sparse-node", {28}, {4}, node, 3, 16, 4, sparse, 6, 72, 8, 1, 494865},
      {"ZINC sparse-none", {28}, {4}, none, 3, 16, 4, sparse, 6, 96, 8, 1, 511201},
      {"PATTERN full-node", {3}, {2}, node, 3, 16, 4, full, 6, 64, 8, 2, 507202},
      {"PATTERN full-none", {3}, {2}, none, 3, 16, 4, full, 6, 80, 8, 2, 469142},
      {"PATTERN sparse-node", {3}, {2}, node, 3, 16, 4, sparse, 6, 72, 8, 2, 493340},
      {"PATTERN sparse-none", {3}, {2}, none, 3, 16, 4, sparse, 6, 96, 8, 2, 508634},
      {"MolHIV full-node", kAtoms, kBonds, node, 2, 16, 4, full, 6, 72, 4, 1, 528265 - 72},
      {"MolHIV full-none", kAtoms, kBonds, none, 2, 16, 4, full, 6, 80, 4, 1, 483601},
      {"MolHIV sparse-node", kAtoms, kBonds, node, 2, 16, 4, sparse, 6, 80, 4, 1, 503265 - 80},
      {"MolHIV sparse-none", kAtoms, kBonds, none, 2, 16, 4, sparse, 6, 96, 4, 1, 525985},
      {"MolPCBA", kAtoms, kBonds, node, 3, 16, 4, full, 5, 304, 4, 128, 5885044},
      {"CLUSTER full-none", {7}, {2}, none, 1, 16, 4, full, 16, 48, 8, 6, 450498},
      {"CLUSTER sparse-node", {7}, {2}, node, 1, 16, 4, sparse, 16, 56, 8, 6, 530036},
      {"CLUSTER sparse-none", {7}, {2}, none, 1, 16, 4, sparse, 16, 56, 8, 6, 461348},
  };
  for (const Published& p : all) EXPECT_EQ(count_of(p), p.parameters) << p.name;
}

ModelDescription valid() {
  ModelDescription d;
  d.model.lpe.ff_dim = 16;
  validate(d);
  return d;
}

TEST(ModelConfig, SaysWhatIsWrong) {
  struct Case {
    const char* what;
    void (*spoil)(ModelDescription&);
  };
  const Case cases[] = {
      {"model.heads = 3 does not divide model.hidden_dim = 56", [](auto& d) { d.model.heads = 3; }},
      {"does not divide model.out_dim = 12", [](auto& d) { d.model.out_dim = 12; }},
      {"model.lpe.dim = 56 leaves no room", [](auto& d) { d.model.lpe.dim = 56; }},
      {"model.lpe.heads = 3 does not divide", [](auto& d) { d.model.lpe.heads = 3; }},
      {"model.layers = 0", [](auto& d) { d.model.layers = 0; }},
      {"model.gamma = -1", [](auto& d) { d.model.gamma = -1; }},
      {"model.gamma = nan", [](auto& d) { d.model.gamma = std::nan(""); }},
      {"model.dropout = 1", [](auto& d) { d.model.dropout = 1; }},
      {"model.node_tables = 0",
       [](auto& d) {
         d.model.node_tables = {3, 0};
       }},
      {"a model needs a categorical column", [](auto& d) { d.model.node_tables = {}; }},
      {"row0 needs categorical edge features",
       [](auto& d) {
         d.model.added_edge = AddedEdge::kRow0;
         d.model.edge_values = 2;
       }},
      {"the width before the head is 2",
       [](auto& d) {
         d.model.out_dim = 2;
         d.model.heads = 2;
       }},
      {"task node-classification does not go with", [](auto& d) { d.task.kind = TaskKind::kNodeClassification; }},
      {"task.loss = l1 does not go with", [](auto& d) { d.task.kind = TaskKind::kBinary; }},
      {"3 target names for 1 outputs",
       [](auto& d) {
         d.task.targets = {"a", "b", "c"};
       }},
      {"task.scale and task.shift", [](auto& d) { d.task.scale = {1.0}; }},
      {"spectral.num_pairs = 0", [](auto& d) { d.input.spectral.num_pairs = 0; }},
      {"featuriser = 'x'", [](auto& d) { d.input.featuriser = "x"; }},
      {"parameters; at most",
       [](auto& d) {
         d.model.hidden_dim = 1 << 16;
         d.model.layers = 1000;
       }},
  };
  for (const Case& c : cases) {
    ModelDescription d = valid();
    c.spoil(d);
    const std::string message = error_of([&] { validate(d); });
    EXPECT_NE(message.find(c.what), std::string::npos) << message;
  }
}

TEST(ModelConfig, JsonRoundTripKeepsEveryField) {
  ModelDescription d = valid();
  d.model.gamma = 1e-7;
  d.model.node_tables = {119, 4};
  d.model.readout = Readout::kMax;
  d.model.outputs = 2;
  d.task.targets = {"log\"P", "\xc3\xa9"};
  d.task.scale = {0.1, 3.0};
  d.task.shift = {1.0 / 3, -2};
  d.input.spectral.norm = EigenvectorNorm::kNode;
  d.input.featuriser = "zinc";
  d.provenance = "{\"seed\":1}";
  const ModelDescription again = description_from_json(to_json(d), "here");
  EXPECT_EQ(to_json(again), to_json(d));
  EXPECT_EQ(again.task.shift, d.task.shift);
  EXPECT_EQ(again.task.targets, d.task.targets);
}

TEST(ModelConfig, JsonErrorsNameTheFileAndTheField) {
  const std::string good = to_json(valid());
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    text.replace(at, from.size(), to);
    return text;
  };
  const std::pair<std::string, const char*> cases[] = {
      {"", "not valid JSON"},
      {"[]", "not a san model"},
      {"{\"format\": 3}", "not valid JSON"},
      {good.substr(0, good.size() / 2), "not valid JSON"},
      {std::string(100000, '['), "nested too deeply"},
      {with("\"version\": 1", "\"version\": 99"), "another version"},
      {with("\"gamma\"", "\"gama\""), "'model.gamma' is missing"},
      {with("\"bias\": false", "\"bias\": false, \"colour\": 1"), "unknown field 'model.colour'"},
      {with("\"bias\": false", "\"bias\": 0"), "'model.bias' must be true or false"},
      {with("\"layers\": 10", "\"layers\": 1e99"), "'model.layers' must be a whole number"},
      {with("\"layers\": 10", "\"layers\": 99999999999"), "'model.layers' must be a whole number"},
      {with("\"readout\": \"sum\"", "\"readout\": \"product\""), "one of sum, mean, max, node is expected"},
      {with("\"featuriser\": \"none\"", "\"featuriser\": 1"), "'featuriser' must be a string"},
  };
  for (const auto& [text, what] : cases) {
    const std::string message = error_of([&, &text = text] { description_from_json(text, "config.json"); });
    EXPECT_NE(message.find(what), std::string::npos) << message;
    EXPECT_TRUE(message.starts_with("config.json: ")) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  }
}

StoredModel stored_zeros() {
  StoredModel model;
  model.description = valid();
  for (const TensorSpec& spec : tensor_specs(model.description.model)) {
    model.weights.tensors[spec.name] =
        make_tensor(spec.shape, std::vector<float>(static_cast<size_t>(spec.count()), 0.5F));
  }
  return model;
}

TEST(ModelFolder, RefusesWeightsThatAreNotTheModels) {
  const StoredModel good = stored_zeros();
  EXPECT_NO_THROW(check_weights(good.description.model, good.weights, "w"));
  struct Case {
    const char* what;
    void (*spoil)(TensorFile&);
  };
  const Case cases[] = {
      {"the tensor 'head.0.bias' is missing", [](auto& f) { f.tensors.erase("head.0.bias"); }},
      {"unknown tensor 'head.9.bias'", [](auto& f) { f.tensors["head.9.bias"] = make_tensor({1}, {0.0F}); }},
      {"has shape [1]; the configuration calls for [28]",
       [](auto& f) { f.tensors["head.0.bias"] = make_tensor({1}, {0.0F}); }},
      {"is not of type F32", [](auto& f) { f.tensors["head.0.bias"].dtype = DType::kF64; }},
      {"not finite",
       [](auto& f) { f.tensors["head.0.bias"] = make_tensor({28}, std::vector<float>(28, std::nanf(""))); }},
      {"negative variance",
       [](auto& f) {
         f.tensors["layers.0.batch_norm1.running_var"] = make_tensor({56}, std::vector<float>(56, -1.0F));
       }},
  };
  for (const Case& c : cases) {
    TensorFile weights = good.weights;
    c.spoil(weights);
    const std::string message = error_of([&] { check_weights(good.description.model, weights, "w"); });
    EXPECT_NE(message.find(c.what), std::string::npos) << message;
  }
}

TEST(ModelFolder, RefusesToDivideByNothing) {
  ModelConfig config;
  config.node_values = 2;
  config.standardise_nodes = true;
  TensorFile weights;
  for (const TensorSpec& spec : tensor_specs(config)) {
    weights.tensors[spec.name] = make_tensor(spec.shape, std::vector<float>(static_cast<size_t>(spec.count()), 1.0F));
  }
  EXPECT_NO_THROW(check_weights(config, weights, "w"));
  for (const float wrong : {0.0F, -1.0F, 1e-30F}) {
    weights.tensors["node_embedding.deviation"] = make_tensor({2}, {1.0F, wrong});
    const std::string message = error_of([&] { check_weights(config, weights, "w"); });
    EXPECT_NE(message.find("deviation"), std::string::npos) << message;
  }
}

TEST(ModelFolder, NamesTheFileThatIsMissing) {
  testing::TemporaryFolder folder;
  EXPECT_NE(error_of([&] { read_model(folder.path() / "none"); }).find("not a model folder"), std::string::npos);
  EXPECT_NE(error_of([&] { read_model(folder.path()); }).find("config.json: cannot open"), std::string::npos);
  const StoredModel model = stored_zeros();
  write_model(folder.path() / "m", model);
  EXPECT_EQ(read_model(folder.path() / "m").weights.tensors.size(), model.weights.tensors.size());
  std::filesystem::remove(folder.path() / "m/model.safetensors");
  EXPECT_NE(error_of([&] { read_model(folder.path() / "m"); }).find("model.safetensors: cannot open"),
            std::string::npos);
}

TEST(CheckGraph, NamesTheNodeAndTheColumnTheModelDoesNotKnow) {
  ModelConfig config;
  config.node_tables = {3, 2};
  Graph graph;
  graph.id = "g";
  graph.num_nodes = 2;
  graph.edges = {{0, 1}, {1, 0}};
  graph.node_features = {2, 0, {2, 1, 0, 2}, {}};
  EXPECT_EQ(error_of([&] { check_graph(config, graph, "f:3"); }),
            "f:3: graph 'g': node 1 has category 2 in feature column 1; the model knows 0..1");
  graph.node_features = {};
  EXPECT_NE(error_of([&] { check_graph(config, graph, ""); }).find("the model was made for 2 and 0"),
            std::string::npos);
  config.node_tables = {1};
  EXPECT_NO_THROW(check_graph(config, graph, ""));
  config.edge_tables = {1};  // absent edge features are category 1
  EXPECT_NE(error_of([&] { check_graph(config, graph, ""); }).find("no edge features (category 1)"), std::string::npos);
}

}  // namespace
}  // namespace san
