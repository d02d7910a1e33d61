#include "san/base/thread_pool.h"

#include <utility>

#include "san/base/parallel.h"

namespace san {
namespace {

// About 50 microseconds: the serial stretches between two runs are shorter, and going to sleep costs as much.
constexpr int kSpins = 2000;

void pause_cpu() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

ThreadPool::ThreadPool(int threads) {
  if (threads <= 0) threads = available_threads();
  try {
    for (int i = 1; i < threads; ++i) workers_.emplace_back([this, i] { serve(i); });
  } catch (const std::exception&) {
    // No more threads or memory to be had: those that run do the same work.
  }
}

ThreadPool::~ThreadPool() {
  ending_ = true;
  round_.fetch_add(1);
  round_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::work(int thread) {
  for (;;) {
    int64_t left = left_.load(std::memory_order_relaxed);
    do {
      if (left == 0) return;
    } while (!left_.compare_exchange_weak(left, left - 1, std::memory_order_acquire, std::memory_order_relaxed));
    const int64_t tasks = tasks_;
    int64_t ended = 1;
    try {
      call_(context_, tasks - left, thread);
    } catch (...) {
      if (!failed_.exchange(true)) failure_ = std::current_exception();
      ended += left_.exchange(0);  // these are not begun
    }
    // The moment the last one is counted the run is over, and the next may begin.
    if (done_.fetch_add(ended, std::memory_order_acq_rel) + ended == tasks) done_.notify_one();
  }
}

void ThreadPool::serve(int thread) {
  uint32_t seen = 0;
  for (;;) {
    for (int spin = 0; spin < kSpins && round_.load(std::memory_order_acquire) == seen; ++spin) pause_cpu();
    round_.wait(seen);
    seen = round_.load(std::memory_order_acquire);
    if (ending_) return;
    work(thread);
  }
}

void ThreadPool::start(int64_t tasks, void* context, Call call) {
  tasks_ = tasks;
  context_ = context;
  call_ = call;
  done_.store(0, std::memory_order_relaxed);
  left_.store(tasks, std::memory_order_release);
  round_.fetch_add(1, std::memory_order_release);
  round_.notify_all();
  work(0);
  // Only for the tasks that others have in hand: a worker that has not woken up yet (a millisecond on a busy virtual machine) is not
  // waited for.
  for (int spin = 0; spin < kSpins && done_.load(std::memory_order_acquire) != tasks; ++spin) pause_cpu();
  for (int64_t done = done_.load(std::memory_order_acquire); done != tasks;
       done = done_.load(std::memory_order_acquire)) {
    done_.wait(done);
  }
  if (failed_.exchange(false)) std::rethrow_exception(std::exchange(failure_, nullptr));
}

}  // namespace san
