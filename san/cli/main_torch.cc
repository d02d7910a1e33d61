// `san-torch`: the commands that need libtorch. Started by `san` with the same arguments.
#include <string>

#include "san/base/error.h"
#include "san/cli/commands.h"
#include "san/cli/main.h"

int main(int argc, char** argv) {
  return san::cli::guarded([&] {
    const std::string name = argc > 1 ? argv[1] : "";
    SAN_CHECK(name == "predict", "this program is started by `san`, not by hand");
    std::string title = "san " + name;
    argv[1] = title.data();
    return san::cli::run_predict(argc - 1, argv + 1);
  });
}
