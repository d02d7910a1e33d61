#include "san/model/token_groups.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "san/base/random.h"
#include "tests/testing.h"

namespace san {
namespace {

struct Rows {
  int k;
  int64_t ld;
  std::vector<float> values;

  Rows(Random& random, int64_t count, int width)
      : k(width), ld(width + 3), values(static_cast<size_t>(count * ld), 1e9F) {
    for (int64_t i = 0; i < count; ++i) {
      for (int c = 0; c < k; ++c) at(i)[c] = static_cast<float>(random.normal());
    }
  }
  float* at(int64_t row) { return values.data() + row * ld; }
};

std::vector<int32_t> grouped(const Rows& rows, std::vector<int32_t> ids, int64_t group, int threads) {
  ThreadPool pool(threads);
  group_alike(rows.values.data(), rows.ld, rows.k, group, pool, ids);
  return ids;
}

TEST(TokenGroups, KeepEveryIdAndDoNotDependOnThreads) {
  for (const int64_t count : {0, 1, 63, 64, 65, 129, 1000, 5000}) {
    for (const int k : {1, 8, 20}) {
      Random random(static_cast<uint64_t>(count * 100 + k));
      const Rows rows(random, 2 * count, k);
      std::vector<int32_t> ids;  // some of the rows
      for (int64_t i = 0; i < count; ++i) ids.push_back(static_cast<int32_t>(2 * i + 1));
      const std::vector<int32_t> out = grouped(rows, ids, 64, 1);
      EXPECT_EQ(out, grouped(rows, ids, 64, 3));
      std::vector<int32_t> sorted = out;
      std::sort(sorted.begin(), sorted.end());
      EXPECT_EQ(sorted, ids);
    }
  }
}

TEST(TokenGroups, ClustersStayTogether) {
  Random random(5);
  Rows rows(random, 16 * 64, 12);
  // 16 far corners, in turns.
  for (int64_t i = 0; i < 16 * 64; ++i) {
    for (int bit = 0; bit < 4; ++bit)
      rows.at(i)[3 * bit] += (i % 16 >> bit & 1) != 0 ? 100.0F * static_cast<float>(bit + 1) : 0.0F;
  }
  std::vector<int32_t> ids(16 * 64);
  std::iota(ids.begin(), ids.end(), 0);
  ids = grouped(rows, ids, 64, 2);
  for (size_t i = 0; i < ids.size(); ++i) EXPECT_EQ(ids[i] % 16, ids[i / 64 * 64] % 16) << i;
}

TEST(TokenGroups, TakeEqualRowsAndRowsThatAreNotNumbers) {
  Random random(6);
  Rows rows(random, 500, 4);
  for (int64_t i = 0; i < 500; i += 3) rows.at(i)[i % 4] = std::numeric_limits<float>::quiet_NaN();
  for (int64_t i = 1; i < 500; i += 3) rows.at(i)[i % 4] = std::numeric_limits<float>::infinity();
  std::vector<int32_t> ids(500);
  std::iota(ids.begin(), ids.end(), 0);
  std::vector<int32_t> out = grouped(rows, ids, 16, 2);
  std::sort(out.begin(), out.end());
  EXPECT_EQ(out, ids);
  std::fill(rows.values.begin(), rows.values.end(), 1.5F);
  out = grouped(rows, ids, 16, 2);
  std::sort(out.begin(), out.end());
  EXPECT_EQ(out, ids);
}

}  // namespace
}  // namespace san
