#include "san/kernels/cpu.h"

#include <atomic>
#include <cstdlib>
#include <string_view>

#include "san/base/error.h"

namespace san {
namespace {

CpuLevel decide() {
  const char* wanted = std::getenv("SAN_CPU_LEVEL");
  constexpr CpuLevel kLevels[] = {CpuLevel::kAvx512, CpuLevel::kAvx2, CpuLevel::kPortable};
  if (wanted == nullptr || *wanted == '\0') {
    for (const CpuLevel level : kLevels) {
      if (cpu_has(level)) return level;
    }
  }
  for (const CpuLevel level : kLevels) {
    if (wanted == nullptr || std::string_view(wanted) != cpu_level_name(level)) continue;
    SAN_CHECK(cpu_has(level), "SAN_CPU_LEVEL: this machine does not have {}", wanted);
    return level;
  }
  fail("SAN_CPU_LEVEL: '{}' is not portable, avx2 or avx512", printable(wanted == nullptr ? "" : wanted, 40));
}

std::atomic<int> current{-1};

}  // namespace

const char* cpu_level_name(CpuLevel level) {
  switch (level) {
    case CpuLevel::kPortable:
      return "portable";
    case CpuLevel::kAvx2:
      return "avx2";
    case CpuLevel::kAvx512:
      return "avx512";
  }
  return "?";
}

bool cpu_has(CpuLevel level) {
#if defined(__x86_64__)
  if (level == CpuLevel::kAvx512) {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("fma");
  }
  if (level == CpuLevel::kAvx2) return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#endif
  return level == CpuLevel::kPortable;
}

CpuLevel cpu_level() {
  int level = current.load(std::memory_order_acquire);
  if (level < 0) {
    level = static_cast<int>(decide());
    current.store(level, std::memory_order_release);
  }
  return static_cast<CpuLevel>(level);
}

void set_cpu_level(CpuLevel level) {
  SAN_CHECK(cpu_has(level), "this machine does not have {}", cpu_level_name(level));
  current.store(static_cast<int>(level), std::memory_order_release);
}

}  // namespace san
