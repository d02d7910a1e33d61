// Reads event files back with a little parser of its own: nothing here is shared with the writer.
#include "san/train/tensorboard.h"

#include <sys/resource.h>

#include <bit>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>
#include <optional>
#include <vector>

#include "tests/testing.h"

namespace san {
namespace {

using testing::error_of;
using testing::TemporaryFolder;

// Bit by bit, as the polynomial is defined.
uint32_t slow_crc32c(std::string_view bytes) {
  uint32_t crc = 0xffffffffu;
  for (const char c : bytes) {
    crc ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) crc = (crc & 1) != 0 ? (crc >> 1) ^ 0x82f63b78u : crc >> 1;
  }
  return crc ^ 0xffffffffu;
}

struct Reader {
  std::string_view bytes;

  std::string_view take(size_t count) {
    if (count > bytes.size()) throw Error("truncated");
    const auto piece = bytes.substr(0, count);
    bytes.remove_prefix(count);
    return piece;
  }
  template <typename T>
  T fixed() {
    static_assert(std::endian::native == std::endian::little);
    T value;
    std::memcpy(&value, take(sizeof(T)).data(), sizeof(T));
    return value;
  }
  uint64_t varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 70; shift += 7) {
      const auto byte = static_cast<unsigned char>(take(1)[0]);
      value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    throw Error("varint without end");
  }
};

struct Event {
  double wall_time = 0;
  int64_t step = 0;
  std::optional<std::string> file_version, tag;
  std::optional<float> value;
};

void parse_value(Reader reader, Event& event) {
  while (!reader.bytes.empty()) {
    switch (reader.varint()) {
      case 1 << 3 | 2:
        event.tag = reader.take(reader.varint());
        break;
      case 2 << 3 | 5:
        event.value = reader.fixed<float>();
        break;
      default:
        throw Error("unknown field of a value");
    }
  }
}

Event parse_event(Reader reader) {
  Event event;
  while (!reader.bytes.empty()) {
    switch (reader.varint()) {
      case 1 << 3 | 1:
        event.wall_time = reader.fixed<double>();
        break;
      case 2 << 3 | 0:
        event.step = static_cast<int64_t>(reader.varint());
        break;
      case 3 << 3 | 2:
        event.file_version = reader.take(reader.varint());
        break;
      case 5 << 3 | 2: {
        Reader summary{reader.take(reader.varint())};
        if (summary.varint() != (1 << 3 | 2)) throw Error("unknown field of a summary");
        parse_value(Reader{summary.take(summary.varint())}, event);
        if (!summary.bytes.empty()) throw Error("more than one value");
        break;
      }
      default:
        throw Error("unknown field of an event");
    }
  }
  return event;
}

std::string bytes_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::vector<Event> events_of(const std::string& path) {
  const auto masked = [](std::string_view bytes) {
    const uint32_t crc = slow_crc32c(bytes);
    return std::rotr(crc, 15) + 0xa282ead8u;
  };
  const std::string bytes = bytes_of(path);
  Reader reader{bytes};
  std::vector<Event> events;
  while (!reader.bytes.empty()) {
    const auto header = reader.bytes.substr(0, 8);
    const auto length = reader.fixed<uint64_t>();
    if (reader.fixed<uint32_t>() != masked(header)) throw Error("wrong checksum of a length");
    const auto payload = reader.take(length);
    if (reader.fixed<uint32_t>() != masked(payload)) throw Error("wrong checksum of a payload");
    events.push_back(parse_event(Reader{payload}));
  }
  return events;
}

TEST(Crc32c, AgreesWithThePublishedVectors) {
  // RFC 3720, appendix B.4, and the check value of the CRC catalogue.
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43u);
  std::string ascending;
  for (int i = 0; i < 32; ++i) ascending += static_cast<char>(i);
  EXPECT_EQ(crc32c(ascending), 0x46dd794eu);
  EXPECT_EQ(crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(crc32c(""), 0u);
  EXPECT_EQ(slow_crc32c("123456789"), 0xe3069283u);
}

TEST(EventWriter, FileStartsWithTheBytesEveryEventFileStartsWith) {
  TemporaryFolder folder;
  EventWriter writer(folder.file("a/b"));
  const std::string bytes = bytes_of(writer.path());
  // Length 24, its checksum (known from TensorFlow's own files), then the wall time's key.
  ASSERT_EQ(bytes.size(), 40u);
  EXPECT_EQ(bytes.substr(0, 13), std::string("\x18\0\0\0\0\0\0\0\xa3\x7f\x4b\x22\x09", 13));
  EXPECT_EQ(bytes.substr(21, 15),
            "\x1a\x0d"
            "brain.Event:2");
  EXPECT_NE(writer.path().find("/events.out.tfevents."), std::string::npos);
}

TEST(EventWriter, ScalarsReadBack) {
  TemporaryFolder folder;
  const std::chrono::duration<double> before = std::chrono::system_clock::now().time_since_epoch();
  std::string path;
  {
    EventWriter writer(folder.file("logs"));
    path = writer.path();
    writer.scalar("loss/train", 0.5, 0);
    writer.scalar("metric/\xc3\xa9", -1.25, 300);
    writer.flush();
    writer.scalar("", 1e300, std::numeric_limits<int64_t>::max());
    writer.scalar(std::string(300, 'x'), std::nan(""), -1);
  }
  const std::chrono::duration<double> after = std::chrono::system_clock::now().time_since_epoch();
  const auto events = events_of(path);
  ASSERT_EQ(events.size(), 5u);
  EXPECT_EQ(events[0].file_version, "brain.Event:2");
  EXPECT_FALSE(events[0].tag);
  for (const Event& event : events) {
    EXPECT_GE(event.wall_time, before.count());
    EXPECT_LE(event.wall_time, after.count());
  }
  EXPECT_EQ(events[1].tag, "loss/train");
  EXPECT_EQ(events[1].value, 0.5f);
  EXPECT_EQ(events[1].step, 0);
  EXPECT_FALSE(events[1].file_version);
  EXPECT_EQ(events[2].tag, "metric/\xc3\xa9");
  EXPECT_EQ(events[2].value, -1.25f);
  EXPECT_EQ(events[2].step, 300);
  EXPECT_EQ(events[3].value, std::numeric_limits<float>::infinity());
  EXPECT_EQ(events[3].step, std::numeric_limits<int64_t>::max());
  EXPECT_EQ(events[4].tag, std::string(300, 'x'));
  EXPECT_TRUE(std::isnan(events[4].value.value()));
  EXPECT_EQ(events[4].step, -1);
}

TEST(EventWriter, RecordsAreInTheFileWithoutFlush) {
  TemporaryFolder folder;
  EventWriter writer(folder.file("logs"));
  for (int step = 1; step <= 100; ++step) {
    writer.scalar("loss", step, step);
    ASSERT_EQ(events_of(writer.path()).size(), static_cast<size_t>(step) + 1);
  }
}

TEST(EventWriter, WritersOfOneSecondAndFolderGetFilesOfTheirOwn) {
  TemporaryFolder folder;
  EventWriter first(folder.file("logs")), second(folder.file("logs"));
  EXPECT_NE(first.path(), second.path());
  first.scalar("a", 1, 1);
  EXPECT_EQ(events_of(first.path()).size(), 2u);
  EXPECT_EQ(events_of(second.path()).size(), 1u);
}

TEST(EventWriter, FullDiskIsAnErrorThatLeavesWholeRecords) {
  TemporaryFolder folder;
  EventWriter writer(folder.file("logs"));
  writer.scalar("loss", 1, 1);
  // A limit on file sizes stands in for a disk that fills in the middle of a record.
  const size_t whole = bytes_of(writer.path()).size();
  rlimit old{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old), 0);
  auto* const handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit small = old;
  small.rlim_cur = whole + 10;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string message = error_of([&] { writer.scalar("loss", 2, 2); });
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &old), 0);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(message, writer.path() + ": cannot write: File too large");
  EXPECT_EQ(bytes_of(writer.path()).size(), whole);
  writer.scalar("loss", 3, 3);
  const auto events = events_of(writer.path());
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[2].step, 3);
}

TEST(EventWriter, NamesTheFolderItCannotCreate) {
  TemporaryFolder folder;
  std::ofstream(folder.file("file")) << "x";
  const std::string message = error_of([&] { EventWriter(folder.file("file/logs")); });
  EXPECT_NE(message.find(folder.file("file/logs") + ": cannot create the folder"), std::string::npos) << message;
}

}  // namespace
}  // namespace san
