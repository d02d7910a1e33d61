#include "san/data/fingerprint.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <vector>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "san/base/error.h"
#include "san/base/file.h"

namespace san {
namespace {

std::string hex(const XXH128_hash_t& hash) {
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

std::string hash_of(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  SAN_CHECK(fd >= 0, "{}: cannot open: {}", path, std::strerror(errno));
  const std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> state(XXH3_createState(), XXH3_freeState);
  XXH3_128bits_reset(state.get());
  std::vector<char> chunk(size_t{1} << 18);
  ssize_t got = 0;
  while ((got = ::read(fd, chunk.data(), chunk.size())) != 0) {
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) break;
    XXH3_128bits_update(state.get(), chunk.data(), static_cast<size_t>(got));
  }
  const int reason = errno;
  ::close(fd);
  SAN_CHECK(got == 0, "{}: cannot read: {}", path, std::strerror(reason));
  return hex(XXH3_128bits_digest(state.get()));
}

}  // namespace

uint64_t checksum(const void* data, size_t size) {
  return XXH3_64bits(data, size);
}

std::string fingerprint_of(std::string_view text) {
  return hex(XXH3_128bits(text.data(), text.size()));
}

FileFingerprints::FileFingerprints(std::string folder) : folder_(std::move(folder)) {}

std::string FileFingerprints::of(const std::string& path) const {
  struct stat info {};
  SAN_CHECK(::stat(path.c_str(), &info) == 0, "{}: cannot open: {}", path, std::strerror(errno));
  SAN_CHECK(S_ISREG(info.st_mode),
            "{}: a pipe cannot be prepared, because it cannot be read twice: save it to a file first", path);
  if (folder_.empty() || info.st_size < kRememberFrom) return hash_of(path);
  std::error_code ignored;
  const std::string name = std::filesystem::weakly_canonical(path, ignored).string();
  const std::string note = fmt::format("{}/{}.fingerprint", folder_, fingerprint_of(name));
  // The change time cannot be set by hand: a file written over with its old size and date is noticed.
  const std::string state = fmt::format("{} {} {}.{:09} {}.{:09} ", info.st_size, info.st_ino, info.st_mtim.tv_sec,
                                        info.st_mtim.tv_nsec, info.st_ctim.tv_sec, info.st_ctim.tv_nsec);
  if (std::filesystem::exists(note, ignored)) {
    const std::string known = read_file(note, 4096);
    if (known.size() == state.size() + 32 && known.starts_with(state)) return known.substr(state.size());
  }
  const std::string hash = hash_of(path);
  // A file that changed a moment ago may change again within the clock's tick, unseen: remember it next time.
  if (std::time(nullptr) - info.st_ctim.tv_sec > 2) {
    try {
      write_file(note, state + hash);
    } catch (const Error&) {  // a note is a convenience: a full disk must not stop the reading
    }
  }
  return hash;
}

}  // namespace san
