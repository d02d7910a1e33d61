// The kernels compiled for the CPU level avx512 (see CMakeLists.txt for the flags). Only headers without inline functions of
// other libraries come first: code compiled here must not leak into the rest of the program.
#include <immintrin.h>

#include "san/kernels/kernels.h"

#define SAN_VL 16
#define SAN_LEVEL avx512
#include "san/kernels/level.inl"
