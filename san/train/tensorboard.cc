#include "san/train/tensorboard.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>

#include "san/base/error.h"

namespace san {
namespace {

constexpr std::array<uint32_t, 256> make_crc_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82f63b78u : 0u);
    table[byte] = crc;
  }
  return table;
}

constexpr std::array<uint32_t, 256> kCrcTable = make_crc_table();

// TFRecords rotate and shift checksums, so that a checksum of data that holds checksums stays a good one.
uint32_t masked_crc(std::string_view bytes) {
  const uint32_t crc = crc32c(bytes);
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

template <typename Integer>
void put_fixed(std::string& out, Integer value) {
  for (size_t i = 0; i < sizeof(Integer); ++i) out += static_cast<char>((value >> (8 * i)) & 0xff);
}

void put_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>((value & 0x7f) | 0x80);
  out += static_cast<char>(value);
}

// Protobuf's wire types and the field numbers of Event, Summary and Summary.Value.
enum Wire : uint32_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };
constexpr uint32_t kEventWallTime = 1, kEventStep = 2, kEventFileVersion = 3, kEventSummary = 5;
constexpr uint32_t kSummaryValue = 1;
constexpr uint32_t kValueTag = 1, kValueSimpleValue = 2;

void put_key(std::string& out, uint32_t field, Wire wire) {
  put_varint(out, (field << 3) | wire);
}

void put_bytes(std::string& out, uint32_t field, std::string_view bytes) {
  put_key(out, field, kBytes);
  put_varint(out, bytes.size());
  out += bytes;
}

std::string event_at_now() {
  const std::chrono::duration<double> now = std::chrono::system_clock::now().time_since_epoch();
  std::string event;
  put_key(event, kEventWallTime, kFixed64);
  put_fixed(event, std::bit_cast<uint64_t>(now.count()));
  return event;
}

std::string record_of(std::string_view payload) {
  std::string record;
  put_fixed(record, static_cast<uint64_t>(payload.size()));
  put_fixed(record, masked_crc(record));
  record += payload;
  put_fixed(record, masked_crc(payload));
  return record;
}

float to_float(double value) {
  const double largest = std::numeric_limits<float>::max();
  if (value > largest) return std::numeric_limits<float>::infinity();
  if (value < -largest) return -std::numeric_limits<float>::infinity();
  return static_cast<float>(value);
}

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  uint32_t crc = ~uint32_t{0};
  for (const char c : bytes) crc = (crc >> 8) ^ kCrcTable[(crc ^ static_cast<unsigned char>(c)) & 0xff];
  return ~crc;
}

struct EventWriter::Impl {
  std::string path;
  int fd = -1;
  off_t size = 0;  // whole records

  ~Impl() {
    if (fd >= 0) ::close(fd);
  }

  void append(std::string_view payload) {
    const std::string record = record_of(payload);
    for (size_t done = 0; done < record.size();) {
      const ssize_t count = ::write(fd, record.data() + done, record.size() - done);
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) {
        const std::string reason = count < 0 ? std::strerror(errno) : "nothing was written";
        // Readers stop at half a record: without it, later ones (when there is space again) are still found. If even
        // this fails, there is nothing better to do than to report the first failure.
        if (::ftruncate(fd, size) == 0) ::lseek(fd, size, SEEK_SET);
        fail("{}: cannot write: {}", path, reason);
      }
      done += static_cast<size_t>(count);
    }
    size += static_cast<off_t>(record.size());
  }
};

EventWriter::EventWriter(const std::string& folder) : impl_(std::make_unique<Impl>()) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  SAN_CHECK(!error, "{}: cannot create the folder: {}", folder, error.message());
  char host[256] = "host";
  ::gethostname(host, sizeof(host) - 1);
  for (char& c : host) {
    if (c == '/') c = '_';
  }
  // TensorBoard reads a folder's files in the order of their names: the time comes first.
  const auto seconds =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  for (int attempt = 0; impl_->fd < 0; ++attempt) {
    const std::string name = fmt::format("events.out.tfevents.{:010}.{}.{}.{}", seconds, host, ::getpid(), attempt);
    impl_->path = (std::filesystem::path(folder) / name).string();
    impl_->fd = ::open(impl_->path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    SAN_CHECK(impl_->fd >= 0 || (errno == EEXIST && attempt < 10000), "{}: cannot create: {}", impl_->path,
              std::strerror(errno));
  }
  std::string event = event_at_now();
  put_bytes(event, kEventFileVersion, "brain.Event:2");
  impl_->append(event);
}

EventWriter::~EventWriter() = default;

void EventWriter::scalar(std::string_view tag, double value, int64_t step) {
  std::string inner;
  put_bytes(inner, kValueTag, tag);
  put_key(inner, kValueSimpleValue, kFixed32);
  put_fixed(inner, std::bit_cast<uint32_t>(to_float(value)));
  std::string summary;
  put_bytes(summary, kSummaryValue, inner);
  std::string event = event_at_now();
  put_key(event, kEventStep, kVarint);
  put_varint(event, static_cast<uint64_t>(step));
  put_bytes(event, kEventSummary, summary);
  impl_->append(event);
}

void EventWriter::flush() {
  SAN_CHECK(::fdatasync(impl_->fd) == 0 || errno == EINVAL || errno == EROFS, "{}: cannot write: {}", impl_->path,
            std::strerror(errno));
}

const std::string& EventWriter::path() const {
  return impl_->path;
}

}  // namespace san
