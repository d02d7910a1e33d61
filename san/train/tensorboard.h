// TensorBoard event files: scalars by step, written so that a crash loses at most the last record.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace san {

// Appends to a new events.out.tfevents.* file in `folder` (created). Not for sharing between threads.
class EventWriter {
 public:
  explicit EventWriter(const std::string& folder);
  ~EventWriter();
  EventWriter(const EventWriter&) = delete;
  EventWriter& operator=(const EventWriter&) = delete;

  void scalar(std::string_view tag, double value, int64_t step);
  void flush();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace san
