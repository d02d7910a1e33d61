// The files of configs/, inside the program.
#pragma once

#include <span>
#include <string_view>

namespace san {

struct PublishedConfig {
  std::string_view name;  // below configs/: "zinc.toml", "ablation/zinc-full-node.toml"
  std::string_view text;
};
std::span<const PublishedConfig> published_configs();

}  // namespace san
