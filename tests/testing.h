// Shared by all tests: where the recorded data is, throw-away folders, readable expectations.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "san/base/error.h"

namespace san::testing {

// A path below ../shared, or the empty path when that folder is not there.
inline std::filesystem::path shared_path(const std::string& below) {
  const std::filesystem::path path = std::filesystem::path(SAN_SHARED_DIR) / below;
  return std::filesystem::exists(path) ? path : std::filesystem::path{};
}

inline bool contains(const std::string& text, const std::string& what) {
  return text.find(what) != std::string::npos;
}

// A folder of the test's own, removed at the end.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "san_test_XXXXXX").string();
    path_ = ::mkdtemp(pattern.data());
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }
  std::string file(const std::string& name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

// The message of the san::Error that `action` throws; fails the test when it throws none.
template <typename Action>
std::string error_of(Action action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  ADD_FAILURE() << "expected a san::Error";
  return {};
}

}  // namespace san::testing

// Skips, saying so, when the recorded data beside the repository is absent (it is there in CI).
#define SAN_NEED_SHARED(variable, below)                                     \
  const std::filesystem::path variable = ::san::testing::shared_path(below); \
  if (variable.empty()) GTEST_SKIP() << "needs " << SAN_SHARED_DIR << "/" << below << ", which is not here"
