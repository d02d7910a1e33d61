#include "san/model/token_groups.h"

#include <algorithm>
#include <cmath>

#include "san/kernels/random_mask.h"

namespace san {
namespace {

constexpr int64_t kMostSamples = 64;  // rows that the direction of a part is taken from
constexpr int kTurns = 3;             // steps of the power iteration: a rough direction will do

struct Keyed {
  float key;
  int32_t id;
  bool operator<(const Keyed& other) const { return key != other.key ? key < other.key : id < other.id; }
};

// About the direction in which the rows are spread most, of no particular length.
void longest_direction(const float* rows, int64_t ld, int k, const Keyed* part, int64_t count,
                       std::vector<float>& samples, std::vector<float>& direction) {
  const int64_t taken = std::min({count, kMostSamples, std::max<int64_t>(16, count / 8)});
  samples.resize(static_cast<size_t>(taken * k));
  direction.assign(static_cast<size_t>(k), 0.0F);
  for (int64_t i = 0; i < taken; ++i) {
    // Anywhere: at equal distances stand, at first, the same positions of sequences.
    const uint64_t place = uint64_t{mask_hash(0, static_cast<uint32_t>(i))} * static_cast<uint64_t>(count) >> 32;
    const float* row = rows + part[place].id * ld;
    for (int c = 0; c < k; ++c) {
      samples[static_cast<size_t>(i * k + c)] = row[c];
      direction[static_cast<size_t>(c)] += row[c] / static_cast<float>(taken);
    }
  }
  std::vector<float> spread(static_cast<size_t>(k), 0.0F);
  for (int64_t i = 0; i < taken; ++i) {
    for (int c = 0; c < k; ++c) {
      float& x = samples[static_cast<size_t>(i * k + c)];
      x -= direction[static_cast<size_t>(c)];
      spread[static_cast<size_t>(c)] += x * x;
    }
  }
  // Begins with the feature that differs most.
  const auto widest = std::max_element(spread.begin(), spread.end());
  std::fill(direction.begin(), direction.end(), 0.0F);
  direction[static_cast<size_t>(widest - spread.begin())] = 1;
  if (!(*widest > 0)) return;
  for (int turn = 0; turn < kTurns; ++turn) {
    std::fill(spread.begin(), spread.end(), 0.0F);
    for (int64_t i = 0; i < taken; ++i) {
      const float* x = samples.data() + i * k;
      float dot = 0;
      for (int c = 0; c < k; ++c) dot += x[c] * direction[static_cast<size_t>(c)];
      for (int c = 0; c < k; ++c) spread[static_cast<size_t>(c)] += dot * x[c];
    }
    float largest = 0;
    for (const float x : spread) largest = std::max(largest, std::abs(x));
    if (!(largest > 0) || !std::isfinite(largest)) return;
    for (size_t c = 0; c < spread.size(); ++c) direction[c] = spread[c] / largest;
  }
}

struct Part {
  int64_t begin, end;
};

}  // namespace

void group_alike(const float* rows, int64_t ld, int k, int64_t group, ThreadPool& pool, std::vector<int32_t>& ids) {
  const auto count = static_cast<int64_t>(ids.size());
  std::vector<Keyed> all(ids.size());
  for (size_t i = 0; i < ids.size(); ++i) all[i] = {0, ids[i]};
  // Cuts a part at a multiple of `group`; returns where.
  const auto cut = [&](const Part& part, std::vector<float>& samples, std::vector<float>& direction) {
    Keyed* first = all.data() + part.begin;
    const int64_t size = part.end - part.begin, half = (size + group - 1) / group / 2 * group;
    longest_direction(rows, ld, k, first, size, samples, direction);
    for (int64_t i = 0; i < size; ++i) {
      const float* row = rows + first[i].id * ld;
      float key = 0;
      for (int c = 0; c < k; ++c) key += row[c] * direction[static_cast<size_t>(c)];
      first[i].key = std::isfinite(key) ? key : 0;  // NaN has no place in an order
    }
    std::nth_element(first, first + half, first + size);
    return part.begin + half;
  };
  // Halves for all threads first, then each part to its end.
  std::vector<Part> parts{{0, count}};
  for (int level = 0; level < 4; ++level) {
    std::vector<int64_t> middle(parts.size());
    pool.run(static_cast<int64_t>(parts.size()), [&](int64_t i, int) {
      std::vector<float> samples, direction;
      const Part& part = parts[static_cast<size_t>(i)];
      middle[static_cast<size_t>(i)] = part.end - part.begin > group ? cut(part, samples, direction) : part.end;
    });
    std::vector<Part> next;
    for (size_t i = 0; i < parts.size(); ++i) {
      next.push_back({parts[i].begin, middle[i]});
      if (middle[i] < parts[i].end) next.push_back({middle[i], parts[i].end});
    }
    parts = std::move(next);
  }
  pool.run(static_cast<int64_t>(parts.size()), [&](int64_t i, int) {
    std::vector<float> samples, direction;
    std::vector<Part> open{parts[static_cast<size_t>(i)]};
    while (!open.empty()) {
      const Part part = open.back();
      open.pop_back();
      if (part.end - part.begin <= group) continue;
      const int64_t middle = cut(part, samples, direction);
      open.push_back({part.begin, middle});
      open.push_back({middle, part.end});
    }
  });
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = all[i].id;
}

}  // namespace san
