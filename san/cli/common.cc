#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <new>

#include "san/base/error.h"
#include "san/cli/main.h"
#include "san/cli/progress.h"

namespace san::cli {
namespace {

// A standard stream that the caller closed would lend its number to the next file that is opened, and messages would go into
// that file. /dev/null takes its place, opened the wrong way round: using the stream still fails.
void hold_standard_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(stream, F_GETFD) >= 0 || errno != EBADF) continue;
    static_cast<void>(::open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY));
  }
}

}  // namespace

bool parse_flags(CLI::App& app, int argc, char** argv, int& exit_code) {
  try {
    app.parse(argc, argv);
    return true;
  } catch (const CLI::CallForHelp&) {
    fmt::print("{}", app.help());
    exit_code = kDone;
  } catch (const CLI::ParseError& error) {
    say("san: {} (see {} --help)\n", error.what(), argv[0]);
    exit_code = kUsage;
  }
  return false;
}

int guarded(const std::function<int()>& command) {
  hold_standard_streams();
  int code = kFailed;
  try {
    code = command();
  } catch (const Error& error) {
    say("san: {}\n", error.what());
  } catch (const std::bad_alloc&) {
    say("san: out of memory\n");
  } catch (const std::exception& error) {
    // fmt::print throws when stdout cannot be written; the reason follows.
    if (!std::ferror(stdout)) say("san: internal error, please report it: {}\n", printable(error.what(), 400));
  }
  const bool flushed = std::fflush(stdout) == 0;
  const std::string reason = flushed ? "not all of it" : std::strerror(errno);
  if (flushed && !std::ferror(stdout)) return code;
  say("san: <stdout>: cannot write: {}\n", reason);
  return kFailed;
}

}  // namespace san::cli
