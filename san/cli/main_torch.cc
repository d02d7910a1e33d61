// `san-torch`: the commands that need libtorch. Started by `san` with the same arguments.
#include <string>

#include "san/base/error.h"
#include "san/cli/commands.h"
#include "san/cli/main.h"

int main(int argc, char** argv) {
  return san::cli::guarded([&] {
    constexpr std::pair<std::string_view, int (*)(int, char**)> kCommands[] = {{"predict", san::cli::run_predict},
                                                                               {"train", san::cli::run_train},
                                                                               {"reproduce", san::cli::run_reproduce},
                                                                               {"eval", san::cli::run_eval},
                                                                               {"bench", san::cli::run_bench}};
    const std::string name = argc > 1 ? argv[1] : "";
    for (const auto& [command, run] : kCommands) {
      if (command != name) continue;
      std::string title = "san " + name;
      argv[1] = title.data();
      return run(argc - 1, argv + 1);
    }
    san::fail("this program is started by `san`, not by hand");
  });
}
