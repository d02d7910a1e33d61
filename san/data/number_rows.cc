#include "san/data/number_rows.h"

#include <charconv>
#include <cmath>
#include <filesystem>
#include <limits>

#include "san/graph/graph.h"

namespace san::number_rows {
namespace {

// from_chars takes no leading plus.
std::string_view without_plus(std::string_view field) {
  if (field.size() > 1 && field[0] == '+' && field[1] != '-') field.remove_prefix(1);
  return field;
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r\v\f";
  const size_t begin = text.find_first_not_of(kBlanks);
  if (begin == text.npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

bool parse_integer(std::string_view field, int64_t& value) {
  field = without_plus(field);
  const auto [end, status] = std::from_chars(field.data(), field.data() + field.size(), value);
  return status == std::errc{} && end == field.data() + field.size() && !field.empty();
}

bool parse_real(std::string_view field, double& value) {
  field = without_plus(field);
  const auto [end, status] = std::from_chars(field.data(), field.data() + field.size(), value);
  return status == std::errc{} && end == field.data() + field.size() && !field.empty();
}

}  // namespace

std::string find_file(const std::string& folder, const std::string& name) {
  for (const char* suffix : {"", ".gz"}) {
    const auto path = std::filesystem::path(folder) / (name + suffix);
    std::error_code ignored;
    if (std::filesystem::exists(path, ignored)) return path.string();
  }
  return {};
}

RowReader::RowReader(const std::string& path) : lines_(path, size_t{1} << 26) {}

void RowReader::cut(std::string_view line, std::vector<std::string_view>& fields) {
  fields.clear();
  for (;;) {
    const size_t comma = line.find(',');
    SAN_CHECK(fields.size() < static_cast<size_t>(kMaxFeatureColumns), "{}: more than {} columns", where(),
              kMaxFeatureColumns);
    fields.push_back(trimmed(line.substr(0, comma)));
    if (comma == line.npos) return;
    line.remove_prefix(comma + 1);
  }
}

void RowReader::check_columns(const std::vector<std::string_view>& fields) {
  if (columns_ == 0) columns_ = fields.size();
  SAN_CHECK(fields.size() == columns_, "{}: {} columns, but the first row has {}", where(), fields.size(), columns_);
}

bool RowReader::next(std::vector<std::string_view>& fields) {
  std::string_view line;
  do {
    if (!lines_.next(line)) return false;
    line = trimmed(line);
  } while (line.empty());
  cut(line, fields);
  return true;
}

bool RowReader::next_regular(std::vector<std::string_view>& fields) {
  if (!next(fields)) return false;
  check_columns(fields);
  return true;
}

bool RowReader::next_with_blanks(std::vector<std::string_view>& fields) {
  std::string_view line;
  if (!lines_.next(line)) return false;
  cut(line, fields);
  check_columns(fields);
  return true;
}

int64_t RowReader::integer(std::string_view field) const {
  int64_t value = 0;
  SAN_CHECK(parse_integer(field, value), "{}: '{}' is not an integer", where(), printable(field, 40));
  return value;
}

double RowReader::real(std::string_view field) const {
  double value = 0;
  SAN_CHECK(parse_real(field, value) && std::isfinite(value), "{}: '{}' is not a finite number", where(),
            printable(field, 40));
  return value;
}

double RowReader::real_or_missing(std::string_view field) const {
  for (const char* missing : {"", "nan", "NaN", "NAN", "none", "None", "null", "?"})
    if (field == missing) return std::numeric_limits<double>::quiet_NaN();
  return real(field);
}

bool is_integer(std::string_view field) {
  int64_t value = 0;
  return parse_integer(field, value);
}

}  // namespace san::number_rows
