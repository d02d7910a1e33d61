// All kernels with vectors of SAN_VL floats, in the namespace SAN_LEVEL: what every level_*.cc is made of.
namespace san::SAN_LEVEL {
namespace {
#include "san/kernels/vector.inl"

#include "san/kernels/tiles.inl"

#include "san/kernels/attention.inl"
#include "san/kernels/attention_heads.inl"
#include "san/kernels/gemm.inl"
#include "san/kernels/lpe.inl"
#include "san/kernels/lpe_groups.inl"
#include "san/kernels/rows.inl"
}  // namespace

extern const Kernels kTable;
const Kernels kTable = {
#include "san/kernels/table.inl"
};
}  // namespace san::SAN_LEVEL
