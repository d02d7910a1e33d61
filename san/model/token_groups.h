// Puts alike vectors side by side: what the LPE's feed-forward maps of a training step want (kernels.h, LpeGroupForward).
#pragma once

#include <cstdint>
#include <vector>

#include "san/base/thread_pool.h"

namespace san {

// Reorders `ids` so that each run of `group` of them (the last may be shorter) has rows that are near each other; id i's row is
// rows[i * ld .. i * ld + k). By halving: each part is cut across the direction in which it is longest. The result is a function of
// rows and ids, whatever the number of threads. Rows that are not finite may end up anywhere.
void group_alike(const float* rows, int64_t ld, int k, int64_t group, ThreadPool& pool, std::vector<int32_t>& ids);

}  // namespace san
