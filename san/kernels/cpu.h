// Which vector instructions the kernels use.
#pragma once

namespace san {

enum class CpuLevel { kPortable, kAvx2, kAvx512 };

// The highest level that this machine has, or the one that the environment variable SAN_CPU_LEVEL (portable, avx2,
// avx512) names. Decided at the first call. Throws Error for an unknown name or a level that the machine lacks.
CpuLevel cpu_level();
const char* cpu_level_name(CpuLevel level);
bool cpu_has(CpuLevel level);

// For tests: the level from now on. Not while kernels run. REQUIRES: cpu_has(level).
void set_cpu_level(CpuLevel level);

}  // namespace san
