#include "san/base/parallel.h"

#include <atomic>
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

}  // namespace
}  // namespace san
