#include "san/kernels/kernels.h"

#include <algorithm>

namespace san {

namespace portable {
extern const Kernels kTable;
}
#if defined(__x86_64__)
namespace avx2 {
extern const Kernels kTable;
}
namespace avx512 {
extern const Kernels kTable;
}
#endif

const Kernels& kernels(CpuLevel level) {
  switch (level) {
#if defined(__x86_64__)
    case CpuLevel::kAvx512:
      return avx512::kTable;
    case CpuLevel::kAvx2:
      return avx2::kTable;
#endif
    default:
      return portable::kTable;
  }
}

const Kernels& kernels() {
  return kernels(cpu_level());
}

int64_t lpe_scratch(const LpeShape& shape, int64_t blocks) {
  const int64_t tokens = shape.tokens();
  const int64_t attention = 9 * shape.k * tokens + 3 * tokens;
  const int64_t forward =
      5 * shape.k * tokens + (tokens > kHiddenStep * kTokenPiece ? tokens : kHiddenStep * kTokenPiece);
  const int64_t feed_forward =
      2 * kHiddenStep * kTokenPiece + kHiddenStep * kLanes * (2 * shape.k + 1) + blocks * tokens;
  return std::max({attention, forward, feed_forward}) + kPad;
}

int64_t lpe_group_scratch(const LpeShape& shape) {
  return 2 * kGroupUnits * (kGroup + kLanes) + 4 * kGroupUnits * shape.row() + shape.row() + shape.ff_padded + kPad;
}

int64_t dense_scratch(const AttentionShape& shape, int64_t nodes, int heads) {
  const int64_t lanes = (nodes + kLanes - 1) / kLanes * kLanes, width = shape.head_width();
  const int64_t packed = 6 * heads * lanes * width + heads * lanes;
  const int64_t rows = kDenseRows * (4 * kTokenPiece + 2 * width * kLanes + width + 2 * shape.d + 2) + kLanes;
  return packed + rows + kPad;
}

}  // namespace san
