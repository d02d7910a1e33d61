// Errors that a person is meant to read.
//
// Bad input throws san::Error with one line that says what is wrong, where, and what to do. Broken invariants
// of our own code are asserts. Failures that are part of normal work (one SMILES among a million that does
// not parse) are values, not exceptions.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace san {

class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// One record of a file is bad; the reader stands behind it and can go on with the next one.
class RecordError : public Error {
 public:
  using Error::Error;
};

// Throws Error with a formatted message: fail("{}: no such column '{}'", file, name).
template <typename... Args>
[[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(fmt::format(format, std::forward<Args>(args)...));
}

// `text` cut to at most `limit` bytes and stripped of control characters, so that a hostile file cannot put
// an escape sequence or a megabyte of garbage into our one-line errors.
std::string printable(std::string_view text, size_t limit = 80);

}  // namespace san

// Checks what comes from outside (files, flags, callers): always on, throws san::Error with the formatted
// message.
#define SAN_CHECK(condition, ...)  \
  do {                             \
    if (!(condition)) [[unlikely]] \
      ::san::fail(__VA_ARGS__);    \
  } while (false)
