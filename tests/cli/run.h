// Runs the program `san` as a user would.
#pragma once

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "san/base/file.h"
#include "tests/testing.h"

namespace san::testing {

struct Ran {
  int code = -1;
  int64_t peak_kilobytes = 0;
  std::string out, err;
};

// Prepared data goes to "cache" in the folder.
inline Ran run(const TemporaryFolder& folder, std::vector<std::string> arguments) {
  const std::string out = folder.file("stdout"), err = folder.file("stderr");
  std::string program = std::string(SAN_BIN_DIR) + "/san";
  std::vector<char*> argv = {program.data()};
  for (auto& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::dup2(::open(out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644), STDOUT_FILENO);
    ::dup2(::open(err.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644), STDERR_FILENO);
    ::setenv("SAN_CACHE_DIR", folder.file("cache").c_str(), 1);
    ::execv(program.c_str(), argv.data());
    ::_exit(127);
  }
  int status = 0;
  rusage usage{};
  ::wait4(pid, &status, 0, &usage);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, usage.ru_maxrss, read_file(out, 1 << 26),
          read_file(err, 1 << 26)};
}

}  // namespace san::testing
