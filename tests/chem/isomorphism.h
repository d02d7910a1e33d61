// Are two small typed graphs the same up to the order of their nodes? For comparing featurised molecules.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "san/graph/graph.h"

namespace san::testing {

// One node and one edge category column each; at most one edge per ordered pair. Colours are refined until
// they stand still, then nodes are matched by backtracking within colours: molecules need next to no
// backtracking.
inline bool isomorphic(const Graph& a, const Graph& b) {
  if (a.num_nodes != b.num_nodes || a.edges.size() != b.edges.size()) return false;
  const int n = a.num_nodes;
  const Graph* graphs[2] = {&a, &b};
  std::vector<std::vector<std::pair<int, int>>> neighbours[2];  // (edge type, target)
  std::vector<std::vector<int>> type[2];                        // [source][target], -1 = no edge
  std::vector<int> colour[2];
  for (int g = 0; g < 2; ++g) {
    neighbours[g].resize(static_cast<size_t>(n));
    type[g].assign(static_cast<size_t>(n), std::vector<int>(static_cast<size_t>(n), -1));
    colour[g].assign(graphs[g]->node_features.categories.begin(), graphs[g]->node_features.categories.end());
    for (size_t e = 0; e < graphs[g]->edges.size(); ++e) {
      const auto [source, target] = graphs[g]->edges[e];
      neighbours[g][static_cast<size_t>(source)].emplace_back(graphs[g]->edge_features.categories[e], target);
      type[g][static_cast<size_t>(source)][static_cast<size_t>(target)] = graphs[g]->edge_features.categories[e];
    }
  }
  for (int round = 0; round < n; ++round) {
    std::map<std::pair<int, std::vector<std::pair<int, int>>>, int> names;
    std::vector<int> fresh[2];
    for (int g = 0; g < 2; ++g) {
      for (int v = 0; v < n; ++v) {
        std::vector<std::pair<int, int>> around;
        for (const auto& [edge, target] : neighbours[g][static_cast<size_t>(v)])
          around.emplace_back(edge, colour[g][static_cast<size_t>(target)]);
        std::sort(around.begin(), around.end());
        const auto key = std::pair(colour[g][static_cast<size_t>(v)], std::move(around));
        fresh[g].push_back(names.try_emplace(key, static_cast<int>(names.size())).first->second);
      }
    }
    colour[0] = fresh[0];
    colour[1] = fresh[1];
  }
  auto sorted0 = colour[0], sorted1 = colour[1];
  std::sort(sorted0.begin(), sorted0.end());
  std::sort(sorted1.begin(), sorted1.end());
  if (sorted0 != sorted1) return false;

  std::vector<int> image(static_cast<size_t>(n), -1);
  std::vector<bool> used(static_cast<size_t>(n), false);
  const auto extend = [&](const auto& self, int v) -> bool {
    if (v == n) return true;
    for (int w = 0; w < n; ++w) {
      if (used[static_cast<size_t>(w)] || colour[0][static_cast<size_t>(v)] != colour[1][static_cast<size_t>(w)])
        continue;
      bool fits = true;
      for (int u = 0; u <= v && fits; ++u) {
        const int x = u == v ? w : image[static_cast<size_t>(u)];
        fits = type[0][static_cast<size_t>(v)][static_cast<size_t>(u)] ==
                   type[1][static_cast<size_t>(w)][static_cast<size_t>(x)] &&
               type[0][static_cast<size_t>(u)][static_cast<size_t>(v)] ==
                   type[1][static_cast<size_t>(x)][static_cast<size_t>(w)];
      }
      if (!fits) continue;
      image[static_cast<size_t>(v)] = w;
      used[static_cast<size_t>(w)] = true;
      if (self(self, v + 1)) return true;
      used[static_cast<size_t>(w)] = false;
    }
    return false;
  };
  return extend(extend, 0);
}

}  // namespace san::testing
