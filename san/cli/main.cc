// `san`: finds the command and runs it. Commands that need libtorch live in a second program, as git's do.
#include "san/cli/main.h"

#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>

#include "san/base/error.h"
#include "san/cli/commands.h"

namespace {

using san::cli::guarded;

struct Command {
  const char* name;
  const char* summary;
  int (*run)(int argc, char** argv);  // null: in san-torch
};

constexpr Command kCommands[] = {
    {"train", "data in, a trained model and a report out", nullptr},
    {"predict", "predictions of a model for molecules or graphs", nullptr},
    {"eval", "metrics of a model on labelled data", nullptr},
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

int start_torch_program(char** argv) {
  prepare_environment();
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe");
  const std::string program = (self.parent_path() / "san-torch").string();
  ::execv(program.c_str(), argv);
  san::fail("'{}' needs {}, which cannot be started: {}", argv[1], program, std::strerror(errno));
}

}  // namespace

int main(int argc, char** argv) {
  const std::string name = argc > 1 ? argv[1] : "";
  if (name == "--help" || name == "-h" || name == "help") return print_usage(stdout), 0;
  if (name == "--version") return fmt::print("san {}\n", SAN_VERSION), 0;
  for (const Command& command : kCommands) {
    if (name != command.name) continue;
    return guarded([&] {
      if (command.run == nullptr) return start_torch_program(argv);
      std::string title = "san " + name;
      argv[1] = title.data();
      return command.run(argc - 1, argv + 1);
    });
  }
  if (name.empty()) {
    print_usage(stderr);
  } else {
    fmt::print(stderr, "san: unknown command '{}' (see san --help)\n", san::printable(name));
  }
  return san::cli::kUsage;
}
