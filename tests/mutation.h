// Random damage to bytes, for tests that a reader of hostile input throws nothing but san::Error.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <string>

#include "san/base/random.h"

namespace san::testing {

// Fixed so that a failure repeats; SAN_TEST_SEED=n in the environment tries other damage.
inline uint64_t mutation_seed() {
  const char* given = std::getenv("SAN_TEST_SEED");
  return given != nullptr ? std::strtoull(given, nullptr, 10) : 1;
}

// One to four flips, deletions, insertions, repetitions or truncations. Insertions favour what means
// something in JSON.
inline std::string mutated(std::string bytes, Random& random) {
  static constexpr std::string_view kMeaning = "{}[]\",:.-+eE0123456789ntf\\ \0\xff\xc2";
  const auto place = [&] { return static_cast<size_t>(random.below(bytes.size() + 1)); };
  for (int left = random.range(1, 5); left > 0; --left) {
    const size_t at = place();
    switch (random.range(0, 6)) {
      case 0:
        if (at < bytes.size()) bytes[at] = static_cast<char>(bytes[at] ^ (1 << random.range(0, 8)));
        break;
      case 1:
        if (at < bytes.size()) bytes[at] = kMeaning[random.below(kMeaning.size())];
        break;
      case 2:
        bytes.insert(at, 1, kMeaning[random.below(kMeaning.size())]);
        break;
      case 3:
        bytes.erase(at, random.below(8));
        break;
      case 4:
        bytes.insert(at, bytes.substr(std::min(place(), bytes.size()), random.below(40)));
        break;
      default:
        if (random.chance(0.2)) bytes.resize(at);
    }
  }
  return bytes;
}

}  // namespace san::testing
