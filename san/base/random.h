// Counter-based random numbers: a pure function of (seed, stream, counter).
//
// Everything random in san comes from here, never from <random>'s distributions, whose results differ between
// standard libraries. The same seed gives the same numbers on every machine, whatever the thread count.
#pragma once

#include <cstdint>
#include <span>
#include <utility>

namespace san {

// 64 well-mixed bits of the counter (two rounds of the splitmix64 finaliser keyed by seed and stream).
// Pure; safe from any thread.
constexpr uint64_t random_bits(uint64_t seed, uint64_t stream, uint64_t counter) {
  auto mix = [](uint64_t z) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
  };
  const uint64_t key = mix(seed + 0x9e3779b97f4a7c15ULL) ^ mix(stream + 0xd1b54a32d192ed03ULL);
  return mix(mix(key + counter * 0x9e3779b97f4a7c15ULL) + key);
}

// A sequence of numbers from one (seed, stream). Cheap to create: give each graph, epoch or thread a stream
// of its own instead of sharing one. Not for sharing between threads.
class Random {
 public:
  explicit Random(uint64_t seed, uint64_t stream = 0) : seed_(seed), stream_(stream) {}

  uint64_t bits() { return random_bits(seed_, stream_, counter_++); }

  // Uniform in [0, 1), 53 bits.
  double uniform() { return static_cast<double>(bits() >> 11) * 0x1.0p-53; }

  // Uniform integer in [0, bound), without modulo bias. REQUIRES: bound > 0.
  uint64_t below(uint64_t bound) {
    // Lemire's method: the high half of a 128-bit product, rejecting the short remainder.
    for (;;) {
      const unsigned __int128 product = static_cast<unsigned __int128>(bits()) * bound;
      if (static_cast<uint64_t>(product) >= (-bound) % bound) return static_cast<uint64_t>(product >> 64);
    }
  }

  // Uniform integer in [low, high): low included, high not. REQUIRES: low < high.
  int range(int low, int high) {
    return low + static_cast<int>(below(static_cast<uint64_t>(static_cast<int64_t>(high) - low)));
  }

  bool chance(double probability) { return uniform() < probability; }

  // Standard normal (Box-Muller, one value per call).
  double normal();

  // Fisher-Yates.
  template <typename T>
  void shuffle(std::span<T> items) {
    for (size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[below(i)]);
  }

 private:
  uint64_t seed_, stream_, counter_ = 0;
};

}  // namespace san
