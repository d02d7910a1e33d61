// Comma-separated values, streamed: RFC 4180 as people write it. Plain or gzip, "-" for standard input.
//
// Records are rows of fields between commas. A field in double quotes may hold commas, line ends and,
// doubled, quotes. Lines end in \n or \r\n; a byte order mark is dropped; lines that are empty or only blanks
// are passed over (so a blank value in a file of one column must be written ""). A quote inside a field that
// does not begin with one is an ordinary character. Blanks beside commas belong to the field. Bytes are taken
// as they are.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "san/base/error.h"

namespace san {

struct CsvOptions {
  bool header = true;                        // the first record names the columns
  size_t max_field_bytes = size_t{1} << 24;  // limits: a record that breaks one is a RecordError
  size_t max_record_bytes = size_t{1} << 26;
  size_t max_columns = 1 << 16;
};

// Reads a file record by record in memory that the longest record bounds. Not for sharing between threads.
class CsvReader {
 public:
  // Opens the file and reads the header. Throws Error: cannot be opened, is empty (when a header is asked
  // for), the header is malformed.
  explicit CsvReader(const std::string& path, const CsvOptions& options = {});
  // From any source of bytes: read(buffer, size) returns how many it wrote, 0 at the end.
  using Source = std::function<size_t(char*, size_t)>;
  CsvReader(Source source, std::string name, const CsvOptions& options = {});
  ~CsvReader();
  CsvReader(CsvReader&&) noexcept;
  CsvReader& operator=(CsvReader&&) noexcept;

  // The next record into fields(); false at the end. Throws RecordError, naming file:line of the record's
  // first line, for a record with another number of fields than the header (or, without one, than the first
  // record), text after a closing quote, a quote that is never closed, or a limit exceeded. Call again to go
  // on: with the next record, or, when the quotes were at fault, with the line after the bad record's first.
  // Throws Error when the file itself is damaged.
  bool next();

  // The fields of the record that next() read last; valid until it is called again.
  std::span<const std::string_view> fields() const;
  std::string_view operator[](size_t column) const { return fields()[column]; }

  const std::vector<std::string>& header() const;  // empty when there is none
  // Place of the column of that name. Throws Error naming similar columns when there is none, or when there
  // are several of that name.
  size_t column(std::string_view name) const;

  int64_t line_number() const;  // of the first line of the record that next() read last (or failed on), from 1
  std::string where() const;    // "file:line", for messages
  const std::string& name() const;
  int64_t bytes_read() const;   // of the file as it is on disk, for progress; 0 when reading from a Source
  int64_t bytes_total() const;  // 0 when unknown

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Appends the field to `out`, in quotes when it needs them (it holds a comma, a quote or a line end, begins
// or ends with a blank, or is empty and `alone` in its record).
void append_csv_field(std::string& out, std::string_view field, bool alone = false);
// A whole record with its line end.
std::string format_csv_record(std::span<const std::string> fields);

// Up to `count` of `names`, those most like `name` first, as "'a', 'b'"; empty when none is at all like it.
std::string similar_names(std::string_view name, std::span<const std::string> names, size_t count = 3);

}  // namespace san
