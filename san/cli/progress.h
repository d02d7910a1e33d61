// What the program says on stderr: messages, and a progress line: a bar that is redrawn in place on a terminal, now and then a plain line otherwise.
#pragma once

#include <fmt/format.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>

namespace san::cli {

// A message for the user, on stderr. That it cannot be written (a full disk, a closed terminal) must not cost the work it speaks of.
template <typename... Args>
void say(fmt::format_string<Args...> format, Args&&... args) {
  const std::string text = fmt::format(format, std::forward<Args>(args)...);
  static_cast<void>(std::fwrite(text.data(), 1, text.size(), stderr));
}

// 1234567 -> "1,234,567"
std::string with_commas(int64_t number);
// Seconds -> "0:07", "12:30", "3:05:00"
std::string clock_time(double seconds);

// For one thread. Draws nothing before half a second has gone by, so that quick jobs stay silent.
class ProgressBar {
 public:
  // `what` is done to `unit`: ProgressBar("preparing", "graphs").
  ProgressBar(std::string what, std::string unit);
  ~ProgressBar();  // wipes the bar from the terminal
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  // fraction: of the whole, 0..1; 0 = unknown. Call as often as you like.
  void update(int64_t done, double fraction);
  // Wipes the bar so that a line can be printed; the next update() draws it again.
  void clear();

  double seconds() const;  // since it was made
  int64_t done() const { return done_; }

 private:
  std::string what_, unit_;
  bool terminal_, drawn_ = false;
  std::chrono::steady_clock::time_point start_, shown_;
  int64_t done_ = 0;
};

}  // namespace san::cli
