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

int64_t lpe_scratch(const LpeShape& shape) {
  const int64_t tokens = shape.tokens();
  const int64_t attention = 9 * shape.k * tokens + 3 * tokens;
  const int64_t forward =
      5 * shape.k * tokens + (tokens > kHiddenStep * kTokenPiece ? tokens : kHiddenStep * kTokenPiece);
  const int64_t feed_forward = 2 * kHiddenStep * kTokenPiece + kHiddenStep * kLanes * (2 * shape.k + 1);
  return std::max({attention, forward, feed_forward}) + kPad;
}

int64_t dense_scratch(const AttentionShape& shape) {
  return int64_t{6} * shape.head_width() * kLanes + 2 * kLanes + kPad;
}

}  // namespace san
