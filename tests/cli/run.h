// Runs the program `san` as a user would.
#pragma once

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <string>
#include <thread>
#include <vector>

#include "san/base/file.h"
#include "tests/testing.h"

namespace san::testing {

struct Ran {
  int code = -1;
  bool killed = false;
  int64_t peak_kilobytes = 0;
  std::string out, err;
};

struct RunOptions {
  int signal_after = 0;  // milliseconds; 0 = never
  int signal = SIGKILL;
  int64_t file_bytes = 0;  // no file may grow beyond this; 0 = no limit
};

// Prepared data goes to "cache" in the folder.
inline Ran run_with(const TemporaryFolder& folder, std::vector<std::string> arguments, const RunOptions& options) {
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
    if (options.file_bytes > 0) {
      const rlimit limit{static_cast<rlim_t>(options.file_bytes), static_cast<rlim_t>(options.file_bytes)};
      ::setrlimit(RLIMIT_FSIZE, &limit);
      ::signal(SIGXFSZ, SIG_IGN);  // then write() fails, as on a full disk
    }
    ::execv(program.c_str(), argv.data());
    ::_exit(127);
  }
  std::jthread killer;
  std::atomic<bool> ended{false};
  if (options.signal_after > 0) {
    killer = std::jthread([&, pid] {
      for (int waited = 0; waited < options.signal_after && !ended; waited += 5) {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
      if (!ended) ::kill(pid, options.signal);
    });
  }
  int status = 0;
  rusage usage{};
  siginfo_t info{};
  ::waitid(P_PID, static_cast<id_t>(pid), &info,
           WEXITED | WNOWAIT);  // still a zombie: its number cannot be taken by another
  ended = true;
  if (killer.joinable()) killer.join();
  ::wait4(pid, &status, 0, &usage);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, WIFSIGNALED(status), usage.ru_maxrss, read_file(out, 1 << 26),
          read_file(err, 1 << 26)};
}

inline Ran run(const TemporaryFolder& folder, std::vector<std::string> arguments) {
  return run_with(folder, std::move(arguments), {});
}
// Sends `signal` after so many milliseconds, if it still runs then.
inline Ran run_and_kill(const TemporaryFolder& folder, std::vector<std::string> arguments, int milliseconds,
                        int signal = SIGKILL) {
  return run_with(folder, std::move(arguments), {milliseconds, signal, 0});
}
inline Ran run_limited(const TemporaryFolder& folder, std::vector<std::string> arguments, int64_t file_bytes) {
  return run_with(folder, std::move(arguments), {0, SIGKILL, file_bytes});
}

}  // namespace san::testing
