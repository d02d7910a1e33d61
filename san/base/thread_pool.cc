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
  try {
    for (int64_t task = next_.fetch_add(1); task < tasks_; task = next_.fetch_add(1)) call_(context_, task, thread);
  } catch (...) {
    next_ = tasks_;
    if (!failed_.exchange(true)) failure_ = std::current_exception();
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
    if (running_.fetch_sub(1, std::memory_order_acq_rel) == 1) running_.notify_one();
  }
}

void ThreadPool::start(int64_t tasks, void* context, Call call) {
  tasks_ = tasks;
  context_ = context;
  call_ = call;
  next_ = 0;
  running_ = static_cast<int32_t>(workers_.size());
  round_.fetch_add(1, std::memory_order_release);
  round_.notify_all();
  work(0);
  for (int spin = 0; spin < kSpins && running_.load(std::memory_order_acquire) != 0; ++spin) pause_cpu();
  for (int32_t left = running_.load(std::memory_order_acquire); left != 0;
       left = running_.load(std::memory_order_acquire)) {
    running_.wait(left);
  }
  if (failed_.exchange(false)) std::rethrow_exception(std::exchange(failure_, nullptr));
}

}  // namespace san
