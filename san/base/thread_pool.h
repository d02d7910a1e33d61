// Threads that stay, for work that comes in many short pieces: a training step has hundreds.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <thread>
#include <type_traits>
#include <vector>

namespace san {

// A pool for one caller at a time. run() may not be called from inside a task.
class ThreadPool {
 public:
  // 0 = all the cores this process may use. The calling thread is one of them. Where the system gives no more threads, fewer
  // do the work.
  explicit ThreadPool(int threads = 0);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // body(task, thread) for every task in [0, tasks), thread in [0, threads()). Tasks are handed out in order, one at a
  // time; which thread gets which differs from run to run, so results may not depend on it. What a body throws
  // (the first, when several do) comes out of run() when the tasks in hand are done; the rest is not begun.
  template <typename Body>
  void run(int64_t tasks, Body&& body) {
    using Plain = std::remove_reference_t<Body>;
    if (tasks <= 0) return;
    if (tasks == 1 || workers_.empty()) {
      for (int64_t i = 0; i < tasks; ++i) body(i, 0);
      return;
    }
    start(tasks, const_cast<void*>(static_cast<const void*>(&body)),
          [](void* context, int64_t task, int thread) { (*static_cast<Plain*>(context))(task, thread); });
  }

 private:
  using Call = void (*)(void* context, int64_t task, int thread);
  void start(int64_t tasks, void* context, Call call);
  void work(int thread);
  void serve(int thread);

  std::vector<std::thread> workers_;
  std::atomic<uint32_t> round_{0};  // grows with each run; workers wait for it to change
  // Tasks nobody has taken yet, and those that are done. Who takes a task holds up the end of its run, so that what belongs to the
  // run (tasks_, context_, call_) is read after taking one; a worker that wakes up late finds none left, or one of a later run.
  std::atomic<int64_t> left_{0}, done_{0};
  std::atomic<bool> ending_{false}, failed_{false};
  std::exception_ptr failure_;  // of the thread that set failed_
  int64_t tasks_ = 0;
  void* context_ = nullptr;
  Call call_ = nullptr;
};

}  // namespace san
