// The kernels compiled for the CPU level portable (see CMakeLists.txt for the flags). Only headers without inline functions of
// other libraries come first: code compiled here must not leak into the rest of the program.
#include "san/kernels/kernels.h"

#define SAN_VL 4
#define SAN_LEVEL portable
#include "san/kernels/level.inl"
