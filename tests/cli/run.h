// Runs the program `san` as a user would.
#pragma once

#include <fcntl.h>
#include <pty.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <functional>
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
  int64_t file_bytes = 0;              // no file may grow beyond this; 0 = no limit
  bool terminal = false;               // standard error is a terminal: progress is shown step by step
  std::string out_to, err_to;          // where standard output and error go; else they are collected
  std::function<void(pid_t)> started;  // called in the parent
};

// Prepared data goes to "cache" in the folder.
inline Ran run_with(const TemporaryFolder& folder, std::vector<std::string> arguments, const RunOptions& options) {
  const std::string out = folder.file("stdout"), err = folder.file("stderr");
  std::string program = std::string(SAN_BIN_DIR) + "/san";
  std::vector<char*> argv = {program.data()};
  for (auto& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  int terminal[2] = {-1, -1};  // this side, the program's
  if (options.terminal && ::openpty(&terminal[0], &terminal[1], nullptr, nullptr, nullptr) != 0) {
    ADD_FAILURE() << "no terminal to be had";
    return {};
  }
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::dup2(::open(out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644), STDOUT_FILENO);
    ::dup2(options.terminal ? terminal[1] : ::open(err.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644), STDERR_FILENO);
    if (!options.out_to.empty()) ::dup2(::open(options.out_to.c_str(), O_WRONLY), STDOUT_FILENO);
    if (!options.err_to.empty()) ::dup2(::open(options.err_to.c_str(), O_WRONLY), STDERR_FILENO);
    if (options.terminal) {
      ::close(terminal[0]);
      ::close(terminal[1]);
    }
    ::setenv("SAN_CACHE_DIR", folder.file("cache").c_str(), 1);
    if (options.file_bytes > 0) {
      const rlimit limit{static_cast<rlim_t>(options.file_bytes), static_cast<rlim_t>(options.file_bytes)};
      ::setrlimit(RLIMIT_FSIZE, &limit);
      ::signal(SIGXFSZ, SIG_IGN);  // then write() fails, as on a full disk
    }
    ::execv(program.c_str(), argv.data());
    ::_exit(127);
  }
  if (options.started) options.started(pid);
  std::string shown;
  std::jthread watcher;
  if (options.terminal) {
    ::close(terminal[1]);
    watcher = std::jthread([&shown, from = terminal[0]] {
      char bytes[4096];
      for (ssize_t got = 0; (got = ::read(from, bytes, sizeof bytes)) > 0;)
        shown.append(bytes, static_cast<size_t>(got));
    });
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
  if (options.terminal) {
    watcher.join();
    ::close(terminal[0]);
  } else {
    shown = read_file(err, 1 << 26);
  }
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, WIFSIGNALED(status), usage.ru_maxrss, read_file(out, 1 << 26),
          std::move(shown)};
}

inline Ran run(const TemporaryFolder& folder, std::vector<std::string> arguments) {
  return run_with(folder, std::move(arguments), {});
}
// Sends `signal` after so many milliseconds, if it still runs then.
inline Ran run_and_kill(const TemporaryFolder& folder, std::vector<std::string> arguments, int milliseconds,
                        int signal = SIGKILL) {
  RunOptions options;
  options.signal_after = milliseconds;
  options.signal = signal;
  return run_with(folder, std::move(arguments), options);
}
inline Ran run_limited(const TemporaryFolder& folder, std::vector<std::string> arguments, int64_t file_bytes) {
  RunOptions options;
  options.file_bytes = file_bytes;
  return run_with(folder, std::move(arguments), options);
}

}  // namespace san::testing
