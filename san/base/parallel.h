// Loops over independent items on several threads.
#pragma once

#include <cstdint>
#include <functional>

namespace san {

// Number of cores this process may use.
int available_threads();

// Calls body(i) for every i in [0, count), on up to `threads` threads (0 = available_threads()); the calling
// thread works too. Items are handed out in order, in pieces of `grain`. Returns when all are done; if bodies
// threw, rethrows the exception of the lowest i that threw, after the others have ended.
void parallel_for(int64_t count, int threads, const std::function<void(int64_t)>& body, int64_t grain = 1);

}  // namespace san
