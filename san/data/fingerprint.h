// Checksums and fingerprints: XXH3, fast enough to run over everything that is read or written. They tell
// accidents apart, not attackers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace san {

uint64_t checksum(const void* data, size_t size);

// 32 hex digits of a text.
std::string fingerprint_of(std::string_view text);

// Fingerprints of files' bytes as they are on disk. Those of large files are remembered in a folder (with size,
// times and inode, so that a file that changed is read again): a data set's key must not cost a pass over
// gigabytes each time it is opened. Not for sharing between threads.
class FileFingerprints {
 public:
  explicit FileFingerprints(std::string folder = {});  // empty: nothing is remembered

  // 32 hex digits. Throws Error when the file cannot be read.
  std::string of(const std::string& path) const;

  static constexpr int64_t kRememberFrom = int64_t{16} << 20;  // bytes

 private:
  std::string folder_;
};

}  // namespace san
