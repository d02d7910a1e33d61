// TensorBoard event files: scalars by step, written so that a crash loses at most the last record.
//
// The format: a sequence of TFRecords (length, its checksum, payload, its checksum), each an Event message of TensorFlow's
// event.proto, encoded here by hand: the first says "brain.Event:2", the others carry one scalar each.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace san {

// Appends to a new events.out.tfevents.* file in `folder` (created); a resumed run gets a file of its own, TensorBoard
// shows them as one. Every record goes to the system at once, so that a killed process leaves whole records. Throws Error
// naming the file when it cannot be written (the records before stay readable). Not for sharing between threads.
class EventWriter {
 public:
  explicit EventWriter(const std::string& folder);
  ~EventWriter();
  EventWriter(const EventWriter&) = delete;
  EventWriter& operator=(const EventWriter&) = delete;

  // Stored as a 32-bit float; NaN and infinities are kept, TensorBoard marks them.
  void scalar(std::string_view tag, double value, int64_t step);
  // Until the disk has everything.
  void flush();
  const std::string& path() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// The checksum of TFRecords, Castagnoli's polynomial.
uint32_t crc32c(std::string_view bytes);

}  // namespace san
