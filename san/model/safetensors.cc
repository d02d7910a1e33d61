#include "san/model/safetensors.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "san/base/error.h"
#include "san/base/file.h"

namespace san {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors data is used as it is in the file");

constexpr uint64_t kMaxHeaderBytes = 100'000'000;
constexpr size_t kMaxDimensions = 16;
constexpr std::string_view kMetadata = "__metadata__";

// Types as they are in files.
enum class Stored { kF64, kI64, kF32, kI32, kF16, kBF16, kU8, kBool };

struct StoredType {
  std::string_view name;
  size_t bytes;
  DType becomes;
};

constexpr std::array<StoredType, 8> kStoredTypes{{
    {"F64", 8, DType::kF64},
    {"I64", 8, DType::kI64},
    {"F32", 4, DType::kF32},
    {"I32", 4, DType::kI64},
    {"F16", 2, DType::kF32},
    {"BF16", 2, DType::kF32},
    {"U8", 1, DType::kI64},
    {"BOOL", 1, DType::kI64},
}};

const StoredType& facts(Stored type) {
  return kStoredTypes[static_cast<size_t>(type)];
}

// Elements of a shape; empty when negative or when the product (zeros left out, so that strides are safe too)
// times 8 bytes overflows.
std::optional<int64_t> checked_count(const std::vector<int64_t>& shape) {
  int64_t product = 1, limit_check = 8;
  for (const int64_t size : shape) {
    if (size < 0) return std::nullopt;
    product = size == 0 ? 0 : product;
    if (size != 0 && __builtin_mul_overflow(limit_check, size, &limit_check)) return std::nullopt;
  }
  return product == 0 ? 0 : limit_check / 8;
}

std::string shown(const std::vector<int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

struct Entry {
  std::string name;
  Stored type = Stored::kF32;
  std::vector<int64_t> shape;
  uint64_t begin = 0, end = 0;
};

// Receives the header's events. Depth 1: names; 2: the fields of one tensor; 3: its lists.
class HeaderReader {
 public:
  explicit HeaderReader(const std::string& file) : file_(file) {}

  std::vector<Entry> entries;
  std::map<std::string, std::string> metadata;

  bool null() { wrong("null"); }
  bool boolean(bool) { wrong("true or false"); }
  bool number_integer(int64_t value) {
    if (depth_ != 3) wrong("a number");
    bad("tensor '{}' has the negative number {} in its {}", name(), value, field_);
  }
  bool number_unsigned(uint64_t value) {
    if (depth_ != 3) wrong("a number");
    if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) too_large();
    if (field_ == "shape") {
      if (entry_.shape.size() == kMaxDimensions) {
        bad("tensor '{}' has more than {} dimensions", name(), kMaxDimensions);
      }
      entry_.shape.push_back(static_cast<int64_t>(value));
    } else {
      if (offsets_ == 2) bad("tensor '{}' has more than two data_offsets", name());
      (offsets_ == 0 ? entry_.begin : entry_.end) = value;
      ++offsets_;
    }
    return true;
  }
  bool number_float(double, const std::string& text) {
    if (depth_ == 3 && text.find_first_of(".eE") == std::string::npos) too_large();
    wrong("a number with a point");
  }
  bool string(std::string& value) {
    if (depth_ != 2 || (!in_metadata_ && field_ != "dtype")) wrong("a string");
    if (in_metadata_) {
      metadata[field_] = std::move(value);
      return true;
    }
    const auto found = std::find_if(kStoredTypes.begin(), kStoredTypes.end(),
                                    [&](const StoredType& type) { return type.name == value; });
    if (found == kStoredTypes.end()) bad("tensor '{}' has the unknown dtype '{}'", name(), printable(value, 20));
    entry_.type = static_cast<Stored>(found - kStoredTypes.begin());
    return true;
  }
  bool binary(nlohmann::json::binary_t&) { wrong("bytes"); }
  bool start_object(size_t) {
    if (depth_ >= 2) wrong("an object");
    if (++depth_ == 2) {
      fields_ = {};
      offsets_ = 0;
      entry_.shape.clear();
    }
    return true;
  }
  bool key(std::string& key) {
    if (depth_ == 1) {
      entry_.name = key;
      in_metadata_ = key == kMetadata;
      if (in_metadata_ && std::exchange(has_metadata_, true)) bad("the header has __metadata__ twice");
      return true;
    }
    field_ = key;
    if (in_metadata_) {
      if (metadata.contains(key)) bad("the metadata has '{}' twice", printable(key));
      return true;
    }
    constexpr std::array<std::string_view, 3> kFields{"dtype", "shape", "data_offsets"};
    const auto found = std::find(kFields.begin(), kFields.end(), key);
    if (found == kFields.end()) bad("tensor '{}' has the unknown field '{}'", name(), printable(key));
    if (std::exchange(fields_[static_cast<size_t>(found - kFields.begin())], true)) {
      bad("tensor '{}' has the field '{}' twice", name(), key);
    }
    return true;
  }
  bool end_object() {
    if (depth_-- == 2 && !in_metadata_) {
      if (fields_ != std::array{true, true, true} || offsets_ != 2) {
        bad("tensor '{}' needs dtype, shape and two data_offsets", name());
      }
      entries.push_back(entry_);
    }
    return true;
  }
  bool start_array(size_t) {
    if (depth_ != 2 || in_metadata_ || field_ == "dtype") wrong("a list");
    ++depth_;
    return true;
  }
  bool end_array() {
    --depth_;
    return true;
  }
  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception&) {
    bad("the header is not valid JSON at byte {}", position);
  }

 private:
  template <typename... Args>
  [[noreturn]] void bad(fmt::format_string<Args...> format, Args&&... args) const {
    fail("{}: {}", file_, fmt::format(format, std::forward<Args>(args)...));
  }
  [[noreturn]] void wrong(const char* what) const {
    if (depth_ == 0) bad("the header must be a JSON object");
    if (depth_ == 1) bad("'{}' in the header must be an object, not {}", name(), what);
    bad("{} of '{}' in the header cannot be {}{}", printable(field_), name(), depth_ == 3 ? "a list with " : "", what);
  }
  [[noreturn]] void too_large() const {
    bad("tensor '{}' has a number in its {} that does not fit 63 bits", name(), field_);
  }
  std::string name() const { return printable(entry_.name); }

  const std::string& file_;
  int depth_ = 0;
  Entry entry_;
  std::string field_;
  std::array<bool, 3> fields_{};
  int offsets_ = 0;
  bool in_metadata_ = false, has_metadata_ = false;
};

// Checks everything the header claims against the size of the data; entries come out in the order of the
// data.
HeaderReader read_header(std::string_view header, uint64_t data_bytes, const std::string& file) {
  SAN_CHECK(header.starts_with('{'), "{}: not a safetensors file: the header does not start with {{", file);
  SAN_CHECK(header.find('\0') == std::string_view::npos, "{}: the header is not valid JSON: a zero byte", file);
  HeaderReader reader(file);
  nlohmann::json::sax_parse(header.data(), header.data() + header.size(), &reader);
  std::vector<Entry>& entries = reader.entries;
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.name < b.name; });
  for (size_t i = 1; i < entries.size(); ++i) {
    SAN_CHECK(entries[i].name != entries[i - 1].name, "{}: the header has the tensor '{}' twice", file,
              printable(entries[i].name));
  }
  std::stable_sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  uint64_t reached = 0;
  for (const Entry& entry : entries) {
    const std::string name = printable(entry.name);
    const std::optional<int64_t> count = checked_count(entry.shape);
    SAN_CHECK(count, "{}: tensor '{}' has the impossible shape {}", file, name, shown(entry.shape));
    SAN_CHECK(entry.begin <= entry.end && entry.end <= data_bytes,
              "{}: tensor '{}' has data_offsets [{}, {}], but the file holds {} bytes of data", file, name, entry.begin,
              entry.end, data_bytes);
    SAN_CHECK(entry.end - entry.begin == static_cast<uint64_t>(*count) * facts(entry.type).bytes,
              "{}: tensor '{}' has {} bytes, but {} of shape {} takes {}", file, name, entry.end - entry.begin,
              facts(entry.type).name, shown(entry.shape), static_cast<uint64_t>(*count) * facts(entry.type).bytes);
    SAN_CHECK(entry.begin == reached, "{}: tensor '{}' {}", file, name,
              entry.begin < reached ? "overlaps the one before it" : "leaves a gap after the one before it");
    reached = entry.end;
  }
  SAN_CHECK(reached == data_bytes, "{}: {} bytes after the last tensor belong to none", file, data_bytes - reached);
  return reader;
}

float half_to_float(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000) << 16;
  const uint32_t exponent = half >> 10 & 0x1f, fraction = half & 0x3ff;
  if (exponent == 0) {  // zero or subnormal: fraction * 2^-24, exact
    return std::bit_cast<float>(std::bit_cast<uint32_t>(static_cast<float>(fraction) * 0x1p-24f) | sign);
  }
  const uint32_t widened = exponent == 0x1f ? 0xff : exponent + 127 - 15;
  return std::bit_cast<float>(sign | widened << 23 | fraction << 13);
}

template <typename From, typename To, typename Convert>
void widen(const std::vector<std::byte>& raw, std::vector<std::byte>& out, Convert convert) {
  const size_t count = raw.size() / sizeof(From);
  out.resize(count * sizeof(To));
  for (size_t i = 0; i < count; ++i) {
    From from;
    std::memcpy(&from, raw.data() + i * sizeof(From), sizeof(From));
    const To to = convert(from);
    std::memcpy(out.data() + i * sizeof(To), &to, sizeof(To));
  }
}

// `read(to, size)` gives the next bytes of the data.
template <typename Read>
TensorFile read_tensors(HeaderReader header, const std::string& file, Read read) {
  TensorFile out;
  out.metadata = std::move(header.metadata);
  for (Entry& entry : header.entries) {
    Tensor tensor;
    tensor.dtype = facts(entry.type).becomes;
    tensor.shape = std::move(entry.shape);
    std::vector<std::byte> raw(entry.end - entry.begin);
    read(raw.data(), raw.size());
    switch (entry.type) {
      case Stored::kF64:
      case Stored::kI64:
      case Stored::kF32:
        tensor.data = std::move(raw);
        break;
      case Stored::kI32:
        widen<int32_t, int64_t>(raw, tensor.data, [](int32_t x) { return int64_t{x}; });
        break;
      case Stored::kF16:
        widen<uint16_t, float>(raw, tensor.data, half_to_float);
        break;
      case Stored::kBF16:
        widen<uint16_t, float>(raw, tensor.data, [](uint16_t x) { return std::bit_cast<float>(uint32_t{x} << 16); });
        break;
      case Stored::kU8:
        widen<uint8_t, int64_t>(raw, tensor.data, [](uint8_t x) { return int64_t{x}; });
        break;
      case Stored::kBool:
        for (const std::byte x : raw) {
          SAN_CHECK(x <= std::byte{1}, "{}: tensor '{}' is BOOL but holds a byte other than 0 and 1", file,
                    printable(entry.name));
        }
        widen<uint8_t, int64_t>(raw, tensor.data, [](uint8_t x) { return int64_t{x}; });
        break;
    }
    out.tensors.emplace(std::move(entry.name), std::move(tensor));
  }
  return out;
}

// Length of the header, checked against the size of the file.
uint64_t header_length(const char* bytes, uint64_t file_bytes, const std::string& file) {
  uint64_t length = 0;
  std::memcpy(&length, bytes, sizeof length);
  SAN_CHECK(length <= kMaxHeaderBytes, "{}: not a safetensors file: a header of {} bytes (at most {} are allowed)",
            file, length, kMaxHeaderBytes);
  SAN_CHECK(length <= file_bytes - sizeof length, "{}: the header takes {} bytes, but the file has only {}", file,
            length, file_bytes);
  return length;
}

// Checks that a file is large enough to have a header length at all.
void check_size(uint64_t file_bytes, const std::string& file) {
  SAN_CHECK(file_bytes >= sizeof(uint64_t), "{}: not a safetensors file: it has only {} bytes", file, file_bytes);
}

class InputFile {
 public:
  explicit InputFile(const std::filesystem::path& path)
      : name_(path.string()), fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    SAN_CHECK(fd_ >= 0, "{}: cannot open: {}", name_, std::strerror(errno));
  }
  ~InputFile() { ::close(fd_); }
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  const std::string& name() const { return name_; }

  uint64_t size() const {
    struct stat info {};
    SAN_CHECK(::fstat(fd_, &info) == 0 && S_ISREG(info.st_mode), "{}: not a regular file", name_);
    return static_cast<uint64_t>(info.st_size);
  }

  void read(void* to, size_t size) {
    for (auto* at = static_cast<char*>(to); size > 0;) {
      const ssize_t got = ::read(fd_, at, size);
      if (got < 0 && errno == EINTR) continue;
      SAN_CHECK(got >= 0, "{}: cannot read: {}", name_, std::strerror(errno));
      SAN_CHECK(got > 0, "{}: the file became shorter while it was read", name_);
      at += got;
      size -= static_cast<size_t>(got);
    }
  }

 private:
  std::string name_;
  int fd_;
};

}  // namespace

size_t size_of(DType dtype) {
  return dtype == DType::kF32 ? 4 : 8;
}

int64_t Tensor::count() const {
  const std::optional<int64_t> count = checked_count(shape);
  SAN_CHECK(count, "a tensor cannot have the shape {}", shown(shape));
  return *count;
}

Tensor make_tensor(std::vector<int64_t> shape, const std::vector<float>& values) {
  Tensor tensor;
  tensor.shape = std::move(shape);
  SAN_CHECK(tensor.count() == static_cast<int64_t>(values.size()), "{} values for a tensor of shape {}", values.size(),
            shown(tensor.shape));
  const auto* bytes = reinterpret_cast<const std::byte*>(values.data());
  tensor.data.assign(bytes, bytes + values.size() * sizeof(float));
  return tensor;
}

TensorFile read_safetensors(const std::filesystem::path& path) {
  InputFile input(path);
  const uint64_t size = input.size();
  check_size(size, input.name());
  std::array<char, 8> length_bytes{};
  input.read(length_bytes.data(), length_bytes.size());
  const uint64_t length = header_length(length_bytes.data(), size, input.name());
  HeaderReader header = [&] {
    std::string text(length, '\0');
    input.read(text.data(), text.size());
    return read_header(text, size - length_bytes.size() - length, input.name());
  }();
  return read_tensors(std::move(header), input.name(), [&](std::byte* to, size_t bytes) { input.read(to, bytes); });
}

TensorFile parse_safetensors(std::string_view bytes, const std::string& name) {
  check_size(bytes.size(), name);
  const uint64_t length = header_length(bytes.data(), bytes.size(), name);
  bytes.remove_prefix(sizeof length);
  HeaderReader header = read_header(bytes.substr(0, length), bytes.size() - length, name);
  bytes.remove_prefix(length);
  return read_tensors(std::move(header), name, [&](std::byte* to, size_t size) {
    if (size > 0) std::memcpy(to, bytes.data(), size);
    bytes.remove_prefix(size);
  });
}

void write_safetensors(const std::filesystem::path& path, const TensorFile& file) {
  const auto quoted = [&](const std::string& text) {
    try {
      return nlohmann::json(text).dump();
    } catch (const nlohmann::json::exception&) {
      fail("{}: the name '{}' is not UTF-8", path.string(), printable(text));
    }
  };
  std::vector<const std::pair<const std::string, Tensor>*> order;
  for (const auto& item : file.tensors) {
    const auto& [name, tensor] = item;
    SAN_CHECK(name != kMetadata, "{}: no tensor can have the name '{}'", path.string(), kMetadata);
    SAN_CHECK(tensor.shape.size() <= kMaxDimensions, "{}: tensor '{}' has more than {} dimensions", path.string(),
              printable(name), kMaxDimensions);
    SAN_CHECK(tensor.data.size() == static_cast<uint64_t>(tensor.count()) * size_of(tensor.dtype),
              "{}: tensor '{}' of shape {} holds {} bytes", path.string(), printable(name), shown(tensor.shape),
              tensor.data.size());
    order.push_back(&item);
  }
  std::stable_sort(order.begin(), order.end(),
                   [](const auto* a, const auto* b) { return size_of(a->second.dtype) > size_of(b->second.dtype); });

  std::string header = "{";
  if (!file.metadata.empty()) {
    header += quoted(std::string(kMetadata)) + ":{";
    for (const auto& [key, value] : file.metadata) {
      if (header.back() != '{') header += ',';
      header += quoted(key) + ":" + quoted(value);
    }
    header += '}';
  }
  uint64_t offset = 0;
  for (const auto* item : order) {
    const Tensor& tensor = item->second;
    const std::string_view dtype = tensor.dtype == DType::kF32 ? "F32" : tensor.dtype == DType::kF64 ? "F64" : "I64";
    if (header.size() > 1) header += ',';
    header += fmt::format("{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}", quoted(item->first), dtype,
                          fmt::join(tensor.shape, ","), offset, offset + tensor.data.size());
    offset += tensor.data.size();
  }
  header += '}';
  header.append((8 - header.size() % 8) % 8, ' ');
  const uint64_t length = header.size();
  SAN_CHECK(length <= kMaxHeaderBytes, "{}: the header would take {} bytes (at most {} are allowed)", path.string(),
            length, kMaxHeaderBytes);

  FileWriter writer(path.string());
  writer.write({reinterpret_cast<const char*>(&length), sizeof length});
  writer.write(header);
  for (const auto* item : order) {
    const std::vector<std::byte>& data = item->second.data;
    writer.write({reinterpret_cast<const char*>(data.data()), data.size()});
  }
  writer.commit();
}

}  // namespace san
