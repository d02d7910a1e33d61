// The kernels compiled for the CPU level avx512 (see CMakeLists.txt for the flags). Only headers without inline functions of
// other libraries come first: code compiled here must not leak into the rest of the program.
#include <immintrin.h>

#include "san/kernels/kernels.h"

#define SAN_VL 16

namespace san::avx512 {
namespace {
#include "san/kernels/vector.inl"

#include "san/kernels/tiles.inl"

#include "san/kernels/attention.inl"
#include "san/kernels/gemm.inl"
#include "san/kernels/lpe.inl"
#include "san/kernels/rows.inl"
}  // namespace

extern const Kernels kTable;
const Kernels kTable = {
#include "san/kernels/table.inl"
};
}  // namespace san::avx512
