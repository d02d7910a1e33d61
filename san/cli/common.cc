#include <cstdio>
#include <new>

#include "san/base/error.h"
#include "san/cli/main.h"

namespace san::cli {

bool parse_flags(CLI::App& app, int argc, char** argv, int& exit_code) {
  try {
    app.parse(argc, argv);
    return true;
  } catch (const CLI::CallForHelp&) {
    fmt::print("{}", app.help());
    exit_code = kDone;
  } catch (const CLI::ParseError& error) {
    fmt::print(stderr, "san: {} (see {} --help)\n", error.what(), argv[0]);
    exit_code = kUsage;
  }
  return false;
}

int guarded(const std::function<int()>& command) {
  try {
    return command();
  } catch (const Error& error) {
    fmt::print(stderr, "san: {}\n", error.what());
  } catch (const std::bad_alloc&) {
    fmt::print(stderr, "san: out of memory\n");
  } catch (const std::exception& error) {
    fmt::print(stderr, "san: internal error, please report it: {}\n", printable(error.what(), 400));
  }
  return kFailed;
}

}  // namespace san::cli
