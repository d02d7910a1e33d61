#include "san/cli/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

namespace san::cli {
namespace {

constexpr double kFirstLine = 0.5, kBarEvery = 0.1, kLineEvery = 10;  // seconds
constexpr int kBarWidth = 24;

double since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

size_t terminal_width() {
  winsize size{};
  return ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

}  // namespace

std::string with_commas(int64_t number) {
  std::string digits = std::to_string(number);
  for (auto at = static_cast<ptrdiff_t>(digits.size()) - 3; at > (number < 0 ? 1 : 0); at -= 3) {
    digits.insert(static_cast<size_t>(at), 1, ',');
  }
  return digits;
}

std::string clock_time(double seconds) {
  const auto whole = static_cast<int64_t>(std::lround(std::clamp(seconds, 0.0, 1e9)));
  if (whole >= 3600) return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
  return fmt::format("{}:{:02}", whole / 60, whole % 60);
}

ProgressBar::ProgressBar(std::string what, std::string unit)
    : what_(std::move(what)),
      unit_(std::move(unit)),
      terminal_(::isatty(STDERR_FILENO) == 1),
      start_(std::chrono::steady_clock::now()),
      shown_(start_) {}

ProgressBar::~ProgressBar() {
  clear();
}

void ProgressBar::clear() {
  if (drawn_) std::fputs("\r\x1b[K", stderr);
  drawn_ = false;
}

double ProgressBar::seconds() const {
  return since(start_);
}

void ProgressBar::update(int64_t done, double fraction) {
  done_ = done;
  const double elapsed = seconds();
  if (elapsed < kFirstLine || since(shown_) < (terminal_ ? kBarEvery : kLineEvery)) return;
  shown_ = std::chrono::steady_clock::now();
  const double rate = static_cast<double>(done) / elapsed;
  std::string line = what_ + ' ';
  if (fraction > 0) {
    const auto filled = static_cast<size_t>(std::clamp(fraction, 0.0, 1.0) * kBarWidth);
    if (terminal_) line += '[' + std::string(filled, '#') + std::string(kBarWidth - filled, '.') + "] ";
    line += fmt::format("{:.0f} %, ", 100 * fraction);
  }
  line += fmt::format("{} {}, {}/s", with_commas(done), unit_, with_commas(std::lround(rate)));
  if (fraction > 0) line += fmt::format(", {} left", clock_time(elapsed * (1 - fraction) / fraction));
  if (terminal_) {
    line.resize(std::min(line.size(), terminal_width() - 1));  // a line that wraps could not be redrawn
    say("\r{}\x1b[K", line);
    drawn_ = true;
  } else {
    say("{}\n", line);
  }
  std::fflush(stderr);
}

}  // namespace san::cli
