#include "san/base/parallel.h"

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "san/base/thread_pool.h"
#include "tests/testing.h"

namespace san {
namespace {

TEST(ParallelFor, CallsEveryItemOnce) {
  for (const int threads : {1, 2, 7}) {
    for (const int64_t grain : {1, 3, 100}) {
      std::vector<std::atomic<int>> calls(50);
      parallel_for(
          50, threads, [&](int64_t i) { ++calls[static_cast<size_t>(i)]; }, grain);
      for (const auto& count : calls) EXPECT_EQ(count, 1);
    }
  }
  parallel_for(0, 4, [](int64_t) { FAIL(); });
}

TEST(ParallelFor, RethrowsTheFirstItemsError) {
  for (const int threads : {1, 4}) {
    const std::string message =
        testing::error_of([&] { parallel_for(100, threads, [](int64_t i) { SAN_CHECK(i < 10, "item {}", i); }); });
    EXPECT_EQ(message, "item 10");
  }
}

TEST(ThreadPool, WhatABodyThrowsComesOutOfRunAndThePoolStaysGood) {
  for (const int threads : {1, 4}) {
    ThreadPool pool(threads);
    for (int round = 0; round < 20; ++round) {
      EXPECT_EQ(testing::error_of([&] { pool.run(1000, [](int64_t task, int) { SAN_CHECK(task != 7, "seven"); }); }),
                "seven");
      std::atomic<int> calls{0};
      pool.run(1000, [&](int64_t, int) { ++calls; });
      EXPECT_EQ(calls, 1000);
    }
  }
}

TEST(ThreadPool, EveryTaskOfEveryRunIsDoneOnceBeforeRunReturns) {
  // Short runs, so that workers are often late, and long enough pauses that they have gone to sleep.
  ThreadPool pool(4);
  std::vector<int> calls(200);
  for (int round = 0; round < 3000; ++round) {
    const int64_t tasks = 1 + round % 7 * (round % 29);
    pool.run(tasks, [&, round](int64_t task, int) { calls[static_cast<size_t>(task)] += round; });
    for (int64_t task = 0; task < tasks; ++task) ASSERT_EQ(calls[static_cast<size_t>(task)], round) << task;
    std::fill(calls.begin(), calls.end(), 0);
    if (round % 100 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace
}  // namespace san
