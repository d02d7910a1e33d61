#include "san/base/parallel.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace san {

int available_threads() {
  cpu_set_t set;
  if (::sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1U, std::thread::hardware_concurrency());
}

void parallel_for(int64_t count, int threads, const std::function<void(int64_t)>& body, int64_t grain) {
  if (threads <= 0) threads = available_threads();
  const int64_t pieces = (count + grain - 1) / grain;
  std::atomic<int64_t> next{0};
  std::mutex mutex;
  int64_t failed_at = count;
  std::exception_ptr failure;
  const auto work = [&] {
    for (int64_t piece = next++; piece < pieces; piece = next++) {
      const int64_t end = std::min(count, (piece + 1) * grain);
      for (int64_t i = piece * grain; i < end; ++i) {
        try {
          body(i);
        } catch (...) {
          const std::lock_guard lock(mutex);
          if (i < failed_at) {
            failed_at = i;
            failure = std::current_exception();
          }
          next = pieces;  // no new pieces; those under way have lower numbers and run to their end
          break;
        }
      }
    }
  };
  std::vector<std::jthread> helpers;
  const int64_t wanted = std::min<int64_t>(threads, pieces) - 1;
  try {
    for (int64_t i = 0; i < wanted; ++i) helpers.emplace_back(work);
  } catch (const std::exception&) {
    // No more threads to be had: those that run do the same work.
  }
  work();
  helpers.clear();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace san
