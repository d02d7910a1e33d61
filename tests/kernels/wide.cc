// The kernels with vectors of 16 floats for any CPU, so that the code of the level avx512 is tested on machines without it, all but the few
// lines that are written for it alone.
#include "san/kernels/kernels.h"

#define SAN_VL 16
#define SAN_LEVEL wide
#include "san/kernels/level.inl"
