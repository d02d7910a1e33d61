#include "san/data/csv.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstring>

#include "san/base/file.h"

namespace san {
namespace {

constexpr size_t kFirstBuffer = size_t{1} << 15;

// Bytes that end a run of ordinary ones in an unquoted field.
constexpr std::array<bool, 256> kEndsRun = [] {
  std::array<bool, 256> table{};
  table[','] = table['\n'] = true;
  return table;
}();

bool only_blanks(std::string_view text) {
  return text.find_first_not_of(" \t\r") == text.npos;
}

}  // namespace

struct CsvReader::Impl {
  // Offsets are relative to the record's first byte, so that they survive moving the buffer.
  struct Field {
    size_t begin, end;
    bool quoted, doubled;
  };
  enum class State { kFieldStart, kPlain, kQuoted, kAfterQuote };

  Impl(Source source_in, std::string name_in, const CsvOptions& options_in)
      : source(std::move(source_in)), name(std::move(name_in)), options(options_in) {}

  // Appends bytes to the buffer; false at the end of the file.
  bool fill() {
    if (begin > 0) {
      std::memmove(buffer.data(), buffer.data() + begin, end - begin);
      end -= begin;
      begin = 0;
    }
    // At least half is free for reading; only a long record makes the buffer grow.
    if (buffer.size() < 2 * end || buffer.empty()) buffer.resize(std::max(buffer.size() * 2, kFirstBuffer));
    const size_t got = source(buffer.data() + end, buffer.size() - end);
    end += got;
    return got > 0;
  }

  [[noreturn]] void bad_record(const std::string& what) {
    throw RecordError(fmt::format("{}:{}: {}", name, record_line, what));
  }

  // Quotes are at fault: the record may have swallowed good lines, so go on after its first line.
  [[noreturn]] void bad_quotes(const std::string& what) {
    const void* first_end = std::memchr(buffer.data() + begin, '\n', end - begin);
    begin = first_end == nullptr ? end : static_cast<size_t>(static_cast<const char*>(first_end) - buffer.data()) + 1;
    next_line = record_line + 1;
    if (first_end == nullptr) skip_line = true;
    bad_record(what);
  }

  // Passes over the rest of a line that is longer than the buffer.
  void finish_skipping() {
    while (skip_line) {
      if (begin == end && !fill()) break;
      const void* found = std::memchr(buffer.data() + begin, '\n', end - begin);
      if (found != nullptr) skip_line = false;
      begin = found == nullptr ? end : static_cast<size_t>(static_cast<const char*>(found) - buffer.data()) + 1;
    }
    skip_line = false;
  }

  // Cuts the next record into `spans`; false at the end of the file. Blank lines are passed over.
  bool scan() {
    finish_skipping();
    for (;;) {
      record_line = next_line;
      spans.clear();
      State state = State::kFieldStart;
      size_t at = 0;  // how far the record has been scanned
      Field field{0, 0, false, false};
      int64_t lines = 0;
      bool too_many = false;
      const auto close_field = [&](size_t field_end) {
        if (!field.quoted) field.end = field_end;
        if (spans.size() < options.max_columns) {
          spans.push_back(field);
        } else {
          too_many = true;
        }
      };
      bool complete = false, at_end = false;
      while (!complete) {
        if (begin + at == end) {
          // Without this a quote that is never closed would read the whole file into memory.
          if (at > options.max_record_bytes) {
            if (state == State::kQuoted)
              bad_quotes(fmt::format("a record is longer than {} bytes (a quote that is never closed?)",
                                     options.max_record_bytes));
            begin = end;
            skip_line = true;
            ++next_line;
            bad_record(fmt::format("a record is longer than {} bytes", options.max_record_bytes));
          }
          if (!fill()) {
            at_end = true;
            break;
          }
        }
        const char* const text = buffer.data() + begin;
        const size_t available = end - begin;
        switch (state) {
          case State::kFieldStart:
            field = {at, at, false, false};
            if (text[at] == '"') {
              field.quoted = true;
              state = State::kQuoted;
              ++at;
            } else {
              state = State::kPlain;
            }
            break;
          case State::kPlain: {
            while (at < available && !kEndsRun[static_cast<unsigned char>(text[at])]) ++at;
            if (at == available) break;
            const bool newline = text[at] == '\n';
            close_field(newline && at > field.begin && text[at - 1] == '\r' ? at - 1 : at);
            ++at;
            state = State::kFieldStart;
            complete = newline;
            break;
          }
          case State::kQuoted: {
            while (at < available && text[at] != '"') lines += text[at++] == '\n';
            if (at == available) break;
            field.end = at++;
            state = State::kAfterQuote;
            break;
          }
          case State::kAfterQuote:
            if (text[at] == '"') {
              field.doubled = true;
              state = State::kQuoted;
              ++at;
            } else if (text[at] == ',' || text[at] == '\n') {
              close_field(at);
              complete = text[at] == '\n';
              ++at;
              state = State::kFieldStart;
            } else if (text[at] == '\r') {
              if (at + 1 < available) {
                if (text[at + 1] != '\n') bad_quotes("text after the closing quote of a field");
                ++at;
              } else if (!fill()) {
                ++at;  // the file ends in a lone \r
              }
            } else {
              bad_quotes("text after the closing quote of a field");
            }
            break;
        }
      }
      if (at_end) {
        if (state == State::kQuoted) bad_quotes("the file ends inside a quoted field (a quote is never closed)");
        if (at == 0 && spans.empty()) return false;
        const bool carriage = state == State::kPlain && at > field.begin && buffer[begin + at - 1] == '\r';
        if (state == State::kFieldStart) field = {at, at, false, false};
        close_field(carriage ? at - 1 : at);
      }
      next_line += lines + 1;
      record = begin;
      const size_t record_bytes = at;
      begin += at;
      if (spans.size() == 1 && !spans[0].quoted &&
          only_blanks({buffer.data() + record + spans[0].begin, spans[0].end - spans[0].begin})) {
        if (at_end) return false;
        continue;
      }
      if (record_bytes > options.max_record_bytes)
        bad_record(fmt::format("a record is longer than {} bytes", options.max_record_bytes));
      if (too_many) bad_record(fmt::format("a record has more than {} fields", options.max_columns));
      return true;
    }
  }

  // Turns spans into text, taking the quotes out in place.
  void cut() {
    views.clear();
    for (const Field& field : spans) {
      if (field.end - field.begin > options.max_field_bytes)
        bad_record(fmt::format("field {} is longer than {} bytes", views.size() + 1, options.max_field_bytes));
      char* text = buffer.data() + record + field.begin;
      size_t size = field.end - field.begin;
      if (field.quoted) {
        ++text;
        --size;
      }
      if (field.doubled) {
        size_t kept = 0;
        for (size_t i = 0; i < size; ++i) {
          text[kept++] = text[i];
          if (text[i] == '"') ++i;  // the second of a pair
        }
        size = kept;
      }
      views.emplace_back(text, size);
    }
  }

  void start() {
    while (end < 3 && fill()) {
    }
    if (std::string_view(buffer.data(), end).starts_with("\xEF\xBB\xBF")) begin = 3;
    if (!options.header) return;
    try {
      SAN_CHECK(scan(), "{}: is empty; a header line with column names is needed", name);
      cut();
    } catch (const RecordError& error) {
      throw Error(error.what());  // without its header the file as a whole cannot be read
    }
    header.assign(views.begin(), views.end());
    width = header.size();
  }

  bool next() {
    views.clear();
    if (!scan()) return false;
    cut();
    if (width == 0) width = views.size();
    if (views.size() != width) {
      const size_t got = views.size();
      views.clear();
      bad_record(fmt::format("{} field{}, but the {} has {}", got, got == 1 ? "" : "s",
                             options.header ? "header" : "first record", width));
    }
    return true;
  }

  std::unique_ptr<LineReader> file;  // null when reading from a Source
  Source source;
  std::string name;
  CsvOptions options;
  std::vector<std::string> header;
  size_t width = 0;  // fields per record, once known

  std::vector<char> buffer;
  size_t begin = 0, end = 0;  // what has not been consumed yet
  size_t record = 0;          // where the last record begins in the buffer
  bool skip_line = false;
  int64_t next_line = 1, record_line = 0;
  std::vector<Field> spans;
  std::vector<std::string_view> views;
};

CsvReader::CsvReader(const std::string& path, const CsvOptions& options) {
  auto file = std::make_unique<LineReader>(path);
  LineReader* const reader = file.get();
  impl_ = std::make_unique<Impl>([reader](char* out, size_t size) { return reader->read(out, size); }, reader->name(),
                                 options);
  impl_->file = std::move(file);
  impl_->start();
}

CsvReader::CsvReader(Source source, std::string name, const CsvOptions& options)
    : impl_(std::make_unique<Impl>(std::move(source), std::move(name), options)) {
  impl_->start();
}

CsvReader::~CsvReader() = default;
CsvReader::CsvReader(CsvReader&&) noexcept = default;
CsvReader& CsvReader::operator=(CsvReader&&) noexcept = default;

bool CsvReader::next() {
  return impl_->next();
}
std::span<const std::string_view> CsvReader::fields() const {
  return impl_->views;
}
const std::vector<std::string>& CsvReader::header() const {
  return impl_->header;
}
int64_t CsvReader::line_number() const {
  return impl_->record_line;
}
std::string CsvReader::where() const {
  return impl_->record_line == 0 ? impl_->name : fmt::format("{}:{}", impl_->name, impl_->record_line);
}
const std::string& CsvReader::name() const {
  return impl_->name;
}
int64_t CsvReader::bytes_read() const {
  return impl_->file == nullptr ? 0 : impl_->file->bytes_read();
}
int64_t CsvReader::bytes_total() const {
  return impl_->file == nullptr ? 0 : impl_->file->bytes_total();
}

size_t CsvReader::column(std::string_view wanted) const {
  const auto& header = impl_->header;
  const auto count = std::count(header.begin(), header.end(), wanted);
  SAN_CHECK(count <= 1, "{}: {} columns are called '{}'; rename all but one", impl_->name, count, printable(wanted));
  if (count == 1) return static_cast<size_t>(std::find(header.begin(), header.end(), wanted) - header.begin());
  const std::string similar = similar_names(wanted, header);
  if (!similar.empty()) {
    fail("{}: no column is called '{}'; did you mean {}?", impl_->name, printable(wanted), similar);
  }
  std::string all;
  for (size_t i = 0; i < header.size() && i < 12; ++i)
    all += fmt::format("{}'{}'", i == 0 ? "" : ", ", printable(header[i], 60));
  fail("{}: no column is called '{}'; there {}: {}{}", impl_->name, printable(wanted),
       header.size() == 1 ? "is" : "are", all, header.size() > 12 ? ", ..." : "");
}

void append_csv_field(std::string& out, std::string_view field, bool alone) {
  const auto is_blank = [](char c) { return c == ' ' || c == '\t'; };
  const bool quote =
      field.empty() ? alone
                    : field.find_first_of(",\"\r\n") != field.npos || is_blank(field.front()) || is_blank(field.back());
  if (!quote) {
    out += field;
    return;
  }
  out += '"';
  for (const char c : field) {
    if (c == '"') out += '"';
    out += c;
  }
  out += '"';
}

std::string format_csv_record(std::span<const std::string> fields) {
  std::string line;
  for (size_t i = 0; i < fields.size(); ++i) {
    if (i > 0) line += ',';
    append_csv_field(line, fields[i], fields.size() == 1);
  }
  line += '\n';
  return line;
}

std::string similar_names(std::string_view name, std::span<const std::string> names, size_t count) {
  // Long names would make the distance slow, and are not typed by hand.
  constexpr size_t kLongest = 100;
  const auto folded = [](std::string_view text) {
    std::string out(text.substr(0, kLongest));
    for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return out;
  };
  const std::string wanted = folded(name);
  std::vector<std::pair<size_t, size_t>> ranked;  // distance, place
  for (size_t i = 0; i < names.size() && i < 1000; ++i) {
    const std::string other = folded(names[i]);
    std::vector<size_t> row(other.size() + 1);
    for (size_t k = 0; k < row.size(); ++k) row[k] = k;
    for (size_t j = 0; j < wanted.size(); ++j) {
      size_t diagonal = std::exchange(row[0], j + 1);
      for (size_t k = 0; k < other.size(); ++k) {
        const size_t changed = diagonal + (wanted[j] != other[k] ? 1 : 0);
        diagonal = row[k + 1];
        row[k + 1] = std::min({changed, diagonal + 1, row[k] + 1});
      }
    }
    size_t distance = row.back();
    // "solubility" for "measured log solubility in mols per litre".
    if (wanted.size() >= 3 && other.find(wanted) != other.npos) distance = std::min<size_t>(distance, 1);
    if (distance <= std::max<size_t>(1, std::max(wanted.size(), other.size()) / 3)) ranked.emplace_back(distance, i);
  }
  std::sort(ranked.begin(), ranked.end());
  std::string list;
  for (size_t i = 0; i < ranked.size() && i < count; ++i)
    list += fmt::format("{}'{}'", i == 0 ? "" : ", ", printable(names[ranked[i].second], 60));
  return list;
}

}  // namespace san
