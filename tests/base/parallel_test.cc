#include "san/base/parallel.h"

#include <atomic>
#include <vector>

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

}  // namespace
}  // namespace san
