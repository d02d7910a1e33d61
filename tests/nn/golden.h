// The cases recorded from the authors' program in ../shared/golden, loaded through the library's own import.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "san/base/file.h"
#include "san/data/batch.h"
#include "san/graph/jsonl.h"
#include "san/model/authors_import.h"
#include "tests/testing.h"

namespace san::testing {

struct GoldenCase {
  StoredModel model;
  std::vector<Graph> graphs;
  Batch batch;
  TensorFile expected;
};

inline std::vector<std::string> golden_names() {
  std::vector<std::string> names;
  const std::filesystem::path root = shared_path("golden");
  if (!root.empty()) {
    for (const auto& entry : std::filesystem::directory_iterator(root)) {
      if (entry.is_directory()) names.push_back(entry.path().filename().string());
    }
  }
  std::sort(names.begin(), names.end());
  if (names.empty()) names.emplace_back("absent");  // the test then skips, saying so
  return names;
}

inline std::vector<Graph> read_graphs(const std::string& path) {
  std::vector<Graph> graphs;
  GraphReader reader(path);
  for (Graph graph; reader.next(graph);) graphs.push_back(graph);
  return graphs;
}

inline Batch batch_of(const std::vector<Graph>& graphs, int max_pairs = 1 << 20) {
  std::vector<const Graph*> pointers;
  for (const Graph& graph : graphs) pointers.push_back(&graph);
  return make_batch(pointers, max_pairs);
}

inline GoldenCase load_golden(const std::filesystem::path& folder) {
  GoldenCase c;
  const std::filesystem::path params = folder / "net_params.json";
  c.model = import_authors_model(read_file(params, 1 << 20), read_safetensors(folder / "weights.safetensors"),
                                 params.string());
  // The cases were recorded with all dropout off.
  c.model.description.model.dropout = c.model.description.model.lpe.dropout = 0;
  c.graphs = read_graphs((folder / "graphs.jsonl").string());
  c.batch = batch_of(c.graphs);
  c.expected = read_safetensors(folder / "expected.safetensors");
  return c;
}

}  // namespace san::testing
