// Files in and out: line by line from plain or gzip text, and whole files written so that nobody ever sees
// half of one. "-" means standard input or output.
#pragma once

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

namespace san {

// Reads text a line at a time in constant memory; gzip is recognised by its first two bytes, not by the
// file's name. Throws Error, naming the file (and line), for a file that cannot be opened or read, a damaged
// or truncated gzip stream, or a line longer than `max_line_bytes`. Not for sharing between threads.
class LineReader {
 public:
  static constexpr size_t kDefaultMaxLineBytes = size_t{1} << 30;

  explicit LineReader(const std::string& path, size_t max_line_bytes = kDefaultMaxLineBytes);
  ~LineReader();
  LineReader(LineReader&&) noexcept;
  LineReader& operator=(LineReader&&) noexcept;

  // The next line without its end ("\n" or "\r\n"); false at the end of the file. A UTF-8 byte order mark at
  // the start of the file is dropped. `line` stays valid until the next call.
  bool next(std::string_view& line);

  // Raw bytes instead of lines, for formats whose records span lines: up to `size` bytes, 0 at the end.
  // Do not mix with next().
  size_t read(char* buffer, size_t size);

  // Number of the line that next() returned last, from 1.
  int64_t line_number() const;
  // The file's name as given ("<stdin>" for "-").
  const std::string& name() const;
  // "file:line", for messages.
  std::string where() const;
  // Compressed bytes consumed so far and the file's size (0 when unknown), for progress bars.
  int64_t bytes_read() const;
  int64_t bytes_total() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Writes a file under a temporary name beside `path` and renames it into place in commit(), after flushing it
// to disk: a crash, a full disk or an exception leaves the old file, or none, never half of the new one. Where `path` is a link,
// what it points to is replaced, not the link; pipes, devices and the program's own standard output are written as they are.
// ".gz" at the end of the name compresses. "-" writes to standard output. Throws Error naming the file.
class FileWriter {
 public:
  explicit FileWriter(const std::string& path);
  ~FileWriter();  // without commit(): removes the temporary file
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;

  void write(std::string_view text);
  // Other bytes in place of the file's first ones. Throws Error where that cannot be: in a pipe, in compressed text.
  void rewrite_start(std::string_view bytes);
  void commit();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Removes from a folder what writers left there that were killed. For whoever knows that nobody is writing there now.
void remove_temporaries(const std::filesystem::path& folder);

// The whole of a small file (not decompressed). Throws Error when it is larger than `max_bytes`: limits come
// before allocations.
std::string read_file(const std::filesystem::path& path, size_t max_bytes);

// FileWriter in one call.
void write_file(const std::filesystem::path& path, std::string_view contents);

}  // namespace san
