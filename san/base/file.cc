#include "san/base/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "san/base/error.h"

namespace san {
namespace {

constexpr size_t kChunk = size_t{1} << 16;

std::string system_reason() {
  return std::strerror(errno);
}

// Closes a file descriptor at the end of its scope.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() { reset(); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }
  void reset() {
    if (fd_ > STDERR_FILENO) ::close(fd_);
    fd_ = -1;
  }

 private:
  int fd_;
};

int open_for_reading(const std::string& path) {
  if (path == "-") return STDIN_FILENO;
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  SAN_CHECK(fd >= 0, "{}: cannot open: {}", path, system_reason());
  return fd;
}

}  // namespace

// --- LineReader ------------------------------------------------------------------------------------------------------

struct LineReader::Impl {
  Impl(const std::string& path, size_t limit)
      : name(path == "-" ? "<stdin>" : path), fd(open_for_reading(path)), max_line(limit), input(kChunk), text(kChunk) {
    struct stat info {};
    if (::fstat(fd.get(), &info) == 0) {
      SAN_CHECK(!S_ISDIR(info.st_mode), "{}: is a folder, not a file", name);
      if (S_ISREG(info.st_mode)) total = info.st_size;
    }
  }
  ~Impl() {
    if (inflating) inflateEnd(&stream);
  }

  // More compressed (or plain) bytes from the system into `input`; false at the end.
  bool fill_input() {
    for (;;) {
      const ssize_t got = ::read(fd.get(), input.data(), input.size());
      if (got < 0 && errno == EINTR) continue;
      SAN_CHECK(got >= 0, "{}: cannot read: {}", name, system_reason());
      begin = 0;
      end = static_cast<size_t>(got);
      consumed += got;
      return got > 0;
    }
  }

  void start() {
    started = true;
    // Two bytes decide plain or gzip; a pipe may hand them over one at a time.
    size_t have = 0;
    while (have < 2) {
      const ssize_t got = ::read(fd.get(), input.data() + have, input.size() - have);
      if (got < 0 && errno == EINTR) continue;
      SAN_CHECK(got >= 0, "{}: cannot read: {}", name, system_reason());
      if (got == 0) break;
      have += static_cast<size_t>(got);
    }
    begin = 0;
    end = have;
    consumed = static_cast<int64_t>(have);
    const auto* bytes = reinterpret_cast<const unsigned char*>(input.data());
    if (have >= 2 && bytes[0] == 0x1f && bytes[1] == 0x8b) {
      SAN_CHECK(inflateInit2(&stream, 16 + MAX_WBITS) == Z_OK, "{}: zlib would not start", name);
      inflating = true;
    }
  }

  size_t read(char* out, size_t size) {
    if (!started) start();
    if (size == 0) return 0;
    if (!inflating) {
      if (begin == end && !fill_input()) return 0;
      const size_t take = std::min(size, end - begin);
      std::memcpy(out, input.data() + begin, take);
      begin += take;
      return take;
    }
    stream.next_out = reinterpret_cast<Bytef*>(out);
    stream.avail_out = static_cast<uInt>(std::min(size, size_t{1} << 30));
    const uInt wanted = stream.avail_out;
    while (stream.avail_out == wanted) {
      if (begin == end && !fill_input()) {
        SAN_CHECK(member_ended, "{}: the gzip data ends too early (truncated file?)", where());
        return 0;
      }
      if (member_ended) {
        // gzip files may be several members end to end; anything else after a member is damage.
        SAN_CHECK(static_cast<unsigned char>(input[begin]) == 0x1f, "{}: garbage after the end of the gzip data",
                  where());
        inflateReset(&stream);
        member_ended = false;
      }
      stream.next_in = reinterpret_cast<Bytef*>(input.data() + begin);
      stream.avail_in = static_cast<uInt>(end - begin);
      const int status = inflate(&stream, Z_NO_FLUSH);
      begin = end - stream.avail_in;
      if (status == Z_STREAM_END) {
        member_ended = true;
      } else {
        SAN_CHECK(status == Z_OK || status == Z_BUF_ERROR, "{}: damaged gzip data ({})", where(),
                  stream.msg != nullptr ? stream.msg : "unexpected bytes");
      }
    }
    return wanted - stream.avail_out;
  }

  bool next(std::string_view& line) {
    for (;;) {
      const char* from = text.data() + text_begin;
      if (const void* found = std::memchr(from + scanned, '\n', text_end - text_begin - scanned)) {
        size_t length = static_cast<size_t>(static_cast<const char*>(found) - from);
        text_begin += length + 1;
        return give(from, length, line);
      }
      scanned = text_end - text_begin;
      if (text_ended) {
        if (scanned == 0) return false;
        text_begin = text_end;
        return give(from, scanned, line);
      }
      SAN_CHECK(scanned <= max_line, "{}:{}: a line is longer than {} bytes", name, number + 1, max_line);
      if (text_begin > 0) {
        std::memmove(text.data(), from, scanned);
        text_begin = 0;
        text_end = scanned;
      }
      if (text.size() < text_end + kChunk) text.resize(std::max(text.size() * 2, text_end + kChunk));
      const size_t got = read(text.data() + text_end, text.size() - text_end);
      if (got == 0) text_ended = true;
      text_end += got;
    }
  }

  bool give(const char* from, size_t length, std::string_view& line) {
    ++number;
    scanned = 0;
    if (length > 0 && from[length - 1] == '\r') --length;
    line = {from, length};
    if (number == 1 && line.substr(0, 3) == "\xEF\xBB\xBF") line.remove_prefix(3);
    return true;
  }

  std::string where() const { return number == 0 ? name : fmt::format("{}:{}", name, number); }

  std::string name;
  Descriptor fd;
  size_t max_line;
  int64_t number = 0, consumed = 0, total = 0;

  std::vector<char> input;  // bytes as they are in the file
  size_t begin = 0, end = 0;
  bool started = false, inflating = false, member_ended = false;
  z_stream stream{};

  std::vector<char> text = std::vector<char>(kChunk);  // decompressed, being cut into lines; never null for memchr
  size_t text_begin = 0, text_end = 0, scanned = 0;
  bool text_ended = false;
};

LineReader::LineReader(const std::string& path, size_t max_line_bytes)
    : impl_(std::make_unique<Impl>(path, max_line_bytes)) {}
LineReader::~LineReader() = default;
LineReader::LineReader(LineReader&&) noexcept = default;
LineReader& LineReader::operator=(LineReader&&) noexcept = default;
bool LineReader::next(std::string_view& line) {
  return impl_->next(line);
}
size_t LineReader::read(char* buffer, size_t size) {
  return impl_->read(buffer, size);
}
int64_t LineReader::line_number() const {
  return impl_->number;
}
const std::string& LineReader::name() const {
  return impl_->name;
}
std::string LineReader::where() const {
  return impl_->where();
}
int64_t LineReader::bytes_read() const {
  return impl_->consumed - static_cast<int64_t>(impl_->end - impl_->begin);
}
int64_t LineReader::bytes_total() const {
  return impl_->total;
}

// --- FileWriter ------------------------------------------------------------------------------------------------------

struct FileWriter::Impl {
  explicit Impl(const std::string& target) : path(target) {
    std::error_code ignored;
    const auto status = std::filesystem::status(path, ignored);
    SAN_CHECK(!std::filesystem::is_directory(status), "{}: is a folder, not a file", path);
    const int standard = path == "-" ? STDOUT_FILENO : standard_stream(path);
    if (standard >= 0) {
      direct = true;
      fd = standard;
    } else if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) {
      // A device or a pipe (/dev/null, a fifo) is written to, never replaced by a file.
      direct = true;
      fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
      SAN_CHECK(fd >= 0, "{}: cannot write: {}", path, system_reason());
    } else {
      replaced = std::filesystem::canonical(path, ignored).string();
      if (replaced.empty()) replaced = path;
      // The process id keeps two runs that write the same file from sharing a temporary.
      temporary = fmt::format("{}.{}.tmp", replaced, ::getpid());
      fd = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
      SAN_CHECK(fd >= 0, "{}: cannot write: {}", path, system_reason());
    }
    if (path.ends_with(".gz")) {
      SAN_CHECK(deflateInit2(&stream, 6, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY) == Z_OK,
                "{}: zlib would not start", path);
      deflating = true;
    }
  }
  // The standard output or error that `path` names (/dev/stdout, also when the shell sent it to a file); -1: neither.
  static int standard_stream(const std::string& path) {
    struct stat named {};
    struct stat open {};
    if (::stat(path.c_str(), &named) != 0) return -1;
    for (const int stream : {STDOUT_FILENO, STDERR_FILENO}) {
      if (::fstat(stream, &open) == 0 && named.st_dev == open.st_dev && named.st_ino == open.st_ino) return stream;
    }
    return -1;
  }
  ~Impl() {
    if (deflating) deflateEnd(&stream);
    if (fd > STDERR_FILENO) ::close(fd);
    if (!direct && !committed) ::unlink(temporary.c_str());
  }

  void put(const char* data, size_t size) {
    while (size > 0) {
      const ssize_t done = ::write(fd, data, size);
      if (done < 0 && errno == EINTR) continue;
      SAN_CHECK(done > 0, "{}: cannot write: {}", path == "-" ? "<stdout>" : path, system_reason());
      data += done;
      size -= static_cast<size_t>(done);
    }
  }

  void flush(bool finish) {
    if (!deflating) {
      put(pending.data(), pending.size());
    } else {
      std::vector<char> out(kChunk);
      stream.next_in = reinterpret_cast<Bytef*>(pending.data());
      stream.avail_in = static_cast<uInt>(pending.size());
      do {
        stream.next_out = reinterpret_cast<Bytef*>(out.data());
        stream.avail_out = static_cast<uInt>(out.size());
        deflate(&stream, finish ? Z_FINISH : Z_NO_FLUSH);
        put(out.data(), out.size() - stream.avail_out);
      } while (stream.avail_out == 0);
    }
    pending.clear();
  }

  std::string path, replaced, temporary, pending;
  bool direct = false;  // not a regular file: written as we go, nothing to rename
  bool deflating = false, committed = false;
  int fd = -1;
  z_stream stream{};
};

FileWriter::FileWriter(const std::string& path) : impl_(std::make_unique<Impl>(path)) {}
FileWriter::~FileWriter() = default;

void FileWriter::write(std::string_view text) {
  while (!text.empty()) {
    const size_t take = std::min(text.size(), kChunk);
    impl_->pending.append(text.substr(0, take));
    text.remove_prefix(take);
    if (impl_->pending.size() >= kChunk) impl_->flush(false);
  }
}

void FileWriter::rewrite_start(std::string_view bytes) {
  SAN_CHECK(!impl_->deflating, "{}: compressed text cannot be changed", impl_->path);
  impl_->flush(false);
  const ssize_t done = ::pwrite(impl_->fd, bytes.data(), bytes.size(), 0);
  SAN_CHECK(done == std::ssize(bytes), "{}: cannot write: {}", impl_->path,
            done < 0 ? system_reason() : "not all of it");
}

void FileWriter::commit() {
  impl_->flush(true);
  if (impl_->direct) return;
  SAN_CHECK(::fsync(impl_->fd) == 0, "{}: cannot write: {}", impl_->path, system_reason());
  SAN_CHECK(::close(std::exchange(impl_->fd, -1)) == 0, "{}: cannot write: {}", impl_->path, system_reason());
  SAN_CHECK(::rename(impl_->temporary.c_str(), impl_->replaced.c_str()) == 0, "{}: cannot write: {}", impl_->path,
            system_reason());
  impl_->committed = true;
  // The rename itself must reach the disk too: sync the folder.
  const std::filesystem::path parent = std::filesystem::path(impl_->replaced).parent_path();
  const Descriptor folder(::open(parent.empty() ? "." : parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder.get() >= 0) ::fsync(folder.get());
}

void remove_temporaries(const std::filesystem::path& folder) {
  std::error_code ignored;
  std::vector<std::filesystem::path> left;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
    std::string_view name = entry.path().native();
    if (!name.ends_with(".tmp")) continue;
    name.remove_suffix(4);  // NAME.PID
    const size_t digits = name.size() - (name.find_last_not_of("0123456789") + 1);
    if (digits > 0 && name[name.size() - digits - 1] == '.') left.push_back(entry.path());
  }
  for (const std::filesystem::path& path : left) std::filesystem::remove(path, ignored);
}

std::string read_file(const std::filesystem::path& path, size_t max_bytes) {
  const Descriptor fd(open_for_reading(path.string()));
  std::string contents;
  std::vector<char> chunk(kChunk);
  for (;;) {
    const ssize_t got = ::read(fd.get(), chunk.data(), chunk.size());
    if (got < 0 && errno == EINTR) continue;
    SAN_CHECK(got >= 0, "{}: cannot read: {}", path.string(), system_reason());
    if (got == 0) return contents;
    contents.append(chunk.data(), static_cast<size_t>(got));
    SAN_CHECK(contents.size() <= max_bytes, "{}: larger than the {} bytes allowed here", path.string(), max_bytes);
  }
}

void write_file(const std::filesystem::path& path, std::string_view contents) {
  FileWriter writer(path.string());
  writer.write(contents);
  writer.commit();
}

}  // namespace san
