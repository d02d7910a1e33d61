// The kernels with vectors of 16 floats for any CPU, so that the code of the level avx512 is tested on machines without it, all but the few
// lines that are written for it alone.
#include "san/kernels/kernels.h"

#define SAN_VL 16

namespace san::wide {
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
}  // namespace san::wide
