// Dropout masks as a pure function of (key, row, column): the forward pass and the backward pass compute the same one,
// nothing is stored, and neither threads nor CPU levels change it.
//
// A row (a token, a node) and a column (a hidden unit) each have 32 well-mixed bits; a product mixes the two. The result
// gives 16-bit numbers for a pair of columns; an element is dropped when its number is below the threshold.
#pragma once

#include <cstdint>

namespace san {

// 32 well-mixed bits of (key, index).
constexpr uint32_t mask_hash(uint32_t key, uint32_t index) {
  uint32_t x = index * 0x9e3779b1U + key;
  x ^= x >> 16;
  x *= 0x7feb352dU;
  x ^= x >> 15;
  x *= 0x846ca68bU;
  x ^= x >> 16;
  return x;
}

// The key of one place in the network where numbers are dropped.
constexpr uint32_t mask_key(uint64_t seed, uint32_t site) {
  const auto low = static_cast<uint32_t>(seed), high = static_cast<uint32_t>(seed >> 32);
  return mask_hash(mask_hash(low, site) ^ 0x3c6ef372U, high);
}

// Keys of rows and of pairs of columns differ, so that row 3 and column 3 have nothing in common.
constexpr uint32_t mask_row(uint32_t key, uint32_t row) {
  return mask_hash(key, row);
}
constexpr uint32_t mask_column(uint32_t key, uint32_t pair) {
  return mask_hash(~key, pair);
}

constexpr uint32_t kMaskMultiplier = 0x2c1b3c6dU;

// The number, 0 .. 65535, that decides about an element.
constexpr uint32_t mask_number(uint32_t row_bits, uint32_t column_bits, bool odd_column) {
  const uint32_t x = (row_bits ^ column_bits) * kMaskMultiplier;
  // 16 bits each, chosen so that vectors need one comparison for the upper and a shift and a comparison for the lower.
  return odd_column ? x >> 16 : (x >> 5) & 0xffffU;
}

struct Dropout {
  uint32_t key = 0;
  uint32_t threshold = 0;  // of 65536; 0 = nothing is dropped
  float scale = 1;         // of what is kept

  static Dropout make(double probability, uint64_t seed, uint32_t site) {
    Dropout d;
    d.key = mask_key(seed, site);
    d.threshold = static_cast<uint32_t>(probability * 65536 + 0.5);
    if (d.threshold > 65535) d.threshold = 65535;
    d.scale = static_cast<float>(65536.0 / (65536.0 - d.threshold));
    return d;
  }
  bool active() const { return threshold != 0; }
  // What an element is multiplied by.
  float factor(uint32_t row, uint32_t column) const {
    return mask_number(mask_row(key, row), mask_column(key, column / 2), (column & 1) != 0) < threshold ? 0 : scale;
  }
};

}  // namespace san
