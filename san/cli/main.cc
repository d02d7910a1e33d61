// `san`: finds the command and runs it. Commands that need libtorch live in a second program, as git's do.
#include "san/cli/main.h"

#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "san/base/error.h"
#include "san/cli/commands.h"
#include "san/cli/progress.h"

namespace {

using san::cli::guarded;

struct Command {
  const char* name;
  const char* summary;
  int (*run)(int argc, char** argv);  // null: in san-torch
};

constexpr Command kCommands[] = {
    {"train", "data in, a trained model and a report out", nullptr},
    {"predict", "predictions of a model for molecules or graphs", san::cli::run_predict},
    {"eval", "metrics of a model on labelled data", san::cli::run_eval},
    {"embed", "what the network knows of molecules or graphs, as features", san::cli::run_embed},
    {"reproduce", "the paper's experiments: runs, tables, figures", nullptr},
    {"bench", "speed on this machine", nullptr},
    {"import", "a model of the authors' PyTorch program -> a san model folder", san::cli::run_import},
    {"data", "look at data, prepare it, split it, generate it", san::cli::run_data},
    {"spectrum", "eigenvalues, eigenvectors and spectral distances of graphs", san::cli::run_spectrum},
};

void print_usage(std::FILE* out) {
  fmt::print(out, "san {}: Spectral Attention Networks\n\nusage: san COMMAND [flags]\n\n", SAN_VERSION);
  for (const Command& command : kCommands) fmt::print(out, "  {:<10} {}\n", command.name, command.summary);
  fmt::print(out, "\n`san COMMAND --help` explains a command. `san --version` prints the version.\n");
}

// Settings that libtorch's own libraries read only at their start; what the user has set stays.
void prepare_environment() {
  // Debian's OpenBLAS does not know newer CPUs and falls back to a generic core, four times slower.
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq")) {
    ::setenv("OPENBLAS_CORETYPE", "SKYLAKEX", 0);
  } else if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    ::setenv("OPENBLAS_CORETYPE", "HASWELL", 0);
  }
  // Waiting threads sleep instead of spinning: on a shared machine spinning takes the cores that the work needs.
  ::setenv("OMP_WAIT_POLICY", "PASSIVE", 0);
  // Tensors of some megabytes come and go at every operation: keep their memory instead of asking the system each time.
  ::setenv("MALLOC_MMAP_THRESHOLD_", "1073741824", 0);
  ::setenv("MALLOC_TRIM_THRESHOLD_", "1073741824", 0);
}

std::string torch_program() {
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe");
  return (self.parent_path() / "san-torch").string();
}

}  // namespace

namespace san::cli {

bool torch_program_present() {
  return ::access(torch_program().c_str(), X_OK) == 0;
}

int start_torch_program(const std::string& command, int argc, char** argv) {
  prepare_environment();
  std::string program = torch_program(), name = command;
  std::vector<char*> arguments = {program.data(), name.data()};
  arguments.insert(arguments.end(), argv + 1, argv + argc);
  arguments.push_back(nullptr);
  ::execv(program.c_str(), arguments.data());
  fail("'{}' needs {}, which cannot be started: {}", command, program, std::strerror(errno));
}

}  // namespace san::cli

int main(int argc, char** argv) {
  const std::string name = argc > 1 ? argv[1] : "";
  if (name == "--help" || name == "-h" || name == "help") return guarded([] { return print_usage(stdout), 0; });
  if (name == "--version") return guarded([] { return fmt::print("san {}\n", SAN_VERSION), 0; });
  for (const Command& command : kCommands) {
    if (name != command.name) continue;
    return guarded([&] {
      if (command.run == nullptr) return san::cli::start_torch_program(name, argc - 1, argv + 1);
      std::string title = "san " + name;
      argv[1] = title.data();
      return command.run(argc - 1, argv + 1);
    });
  }
  if (name.empty()) {
    print_usage(stderr);
  } else {
    san::cli::say("san: unknown command '{}' (see san --help)\n", san::printable(name));
  }
  return san::cli::kUsage;
}
