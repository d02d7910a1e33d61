// What the two programs share: `san`, which starts at once, and `san-torch`, which holds the commands that
// need libtorch (0.5 s to load) and is started by `san` when one of them is asked for.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>

namespace san::cli {

// Exit codes. 0 only if everything asked for was done.
inline constexpr int kDone = 0;
inline constexpr int kFailed = 1;  // an error, or rows were skipped
inline constexpr int kUsage = 2;   // wrong flags

// Parses; prints help or a usage error. Returns true when the command should go on, else `exit_code` is set.
bool parse_flags(CLI::App& app, int argc, char** argv, int& exit_code);

// Runs `command`, turning exceptions, and a stdout that could not be written, into one line on stderr: "san: what is wrong".
int guarded(const std::function<int()>& command);

// Replaces this process by `san-torch COMMAND`, flags as in argv[1..argc). Throws Error when it cannot be started. In main.cc.
int start_torch_program(const std::string& command, int argc, char** argv);
// Whether that program is there.
bool torch_program_present();

}  // namespace san::cli
