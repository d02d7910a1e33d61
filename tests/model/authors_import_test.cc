#include "san/model/authors_import.h"

#include <algorithm>

#include "san/base/file.h"
#include "tests/testing.h"

namespace san {
namespace {

using testing::error_of;

TEST(AuthorsImport, MapsNames) {
  const std::pair<const char*, const char*> names[] = {
      {"layers.12.attention.Q_2.weight", "layers.12.q2.weight"},
      {"layers.0.attention.V.bias", "layers.0.v.bias"},
      {"layers.0.batch_norm2_h.running_var", "layers.0.batch_norm2.running_var"},
      {"PE_Transformer.layers.1.self_attn.in_proj_bias", "lpe.layers.1.attention.in.bias"},
      {"PE_Transformer.layers.1.linear2.weight", "lpe.layers.1.ff2.weight"},
      {"embedding_h.atom_embedding_list.8.weight", "node_embedding.table.8"},
      {"embedding_e_real.bond_embedding_list.0.weight", "edge_embedding.table.0"},
      {"embedding_e.bond_embedding_list.2.weight", "edge_embedding.table.2"},
      {"MLP_layer.FC_layers.2.bias", "head.2.bias"},
      {"linear_A.weight", "lpe.input.weight"},
  };
  for (const auto& [theirs, ours] : names) EXPECT_EQ(authors_tensor_name(theirs), ours);
  for (const char* unknown : {"", "layers.", "layers.x.O_h.bias", "layers.0", "PE_Transformer.norm.weight", "gamma",
                              "embedding_h.atom_embedding_list.8.bias"}) {
    EXPECT_FALSE(authors_tensor_name(unknown)) << unknown;
  }
}

TEST(AuthorsImport, SaysWhatDoesNotFit) {
  SAN_NEED_SHARED(folder, "golden/zinc_node_full");
  const std::string json = read_file(folder / "net_params.json", 1 << 20);
  const TensorFile state = read_safetensors(folder / "weights.safetensors");
  const StoredModel model = import_authors_model(json, state, "here");
  EXPECT_EQ(parameter_count(model.description.model), 150113);
  EXPECT_EQ(model.description.input.spectral.norm, EigenvectorNorm::kNode);

  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = json;
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    text.replace(at, from.size(), to);
    return text;
  };
  const std::pair<std::string, const char*> cases[] = {
      {"", "not valid JSON"},
      {"{}", "'dataset' is missing"},
      {with("\"ZINC\"", "\"QM9\""), "unknown dataset 'qm9'"},
      {with("\"GT_layers\"", "\"GT_layer\""), "net_params.GT_layers is missing"},
      {with("\"GT_layers\": 2", "\"GT_layers\": 3"), "the tensor 'layers.2.q1.weight' is missing"},
      {with("\"GT_layers\": 2", "\"GT_layers\": 1"), "unknown tensor 'layers.1."},
      {with("\"GT_n_heads\": 8", "\"GT_n_heads\": 5"), "does not divide"},
      {with("\"LPE\": \"node\"", "\"LPE\": \"edge\""), "has shape"},
      {with("\"LPE\": \"node\"", "\"LPE\": \"both\""), "the authors' program has none, node and edge"},
      {with("\"full_graph\": true", "\"full_graph\": 1"), "net_params.full_graph must be true or false"},
      {with("\"num_atom_type\": 28", "\"num_atom_type\": 27"),
       "net_params.num_atom_type is 27, but the weights have 28"},
  };
  for (const auto& [text, what] : cases) {
    const std::string message = error_of([&, &text = text] { import_authors_model(text, state, "here"); });
    EXPECT_NE(message.find(what), std::string::npos) << message;
    EXPECT_TRUE(message.starts_with("here: ")) << message;
  }
  TensorFile more = state;
  more.tensors["surprise"] = make_tensor({1}, {0.0F});
  EXPECT_NE(error_of([&] { import_authors_model(json, more, "here"); }).find("unknown tensor 'surprise'"),
            std::string::npos);
}

}  // namespace
}  // namespace san
