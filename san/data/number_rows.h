// Inside data/ only: text files of one row of numbers per line, as the TU and OGB layouts have. Plain or
// gzip; numbers stand between commas, with or without blanks; blank lines are passed over.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "san/base/file.h"

namespace san::number_rows {

// `folder`/`name` or, when only that is there, `folder`/`name`.gz; the empty string when neither is.
std::string find_file(const std::string& folder, const std::string& name);

class RowReader {
 public:
  explicit RowReader(const std::string& path);

  // The next line that is not blank, cut at commas (blanks around each field dropped); false at the end.
  // Valid until the next call. Throws Error for more than kMaxFeatureColumns fields.
  bool next(std::vector<std::string_view>& fields);
  // The same for files with a fixed number of columns: that of the first row. Throws Error for a ragged row.
  bool next_regular(std::vector<std::string_view>& fields);
  // The same, but a blank line is a row of one empty field: for files where nothing is a value (a missing
  // label).
  bool next_with_blanks(std::vector<std::string_view>& fields);

  std::string where() const { return lines_.where(); }
  const std::string& name() const { return lines_.name(); }
  const LineReader& lines() const { return lines_; }

  // The field as a number. Throws Error naming the line.
  int64_t integer(std::string_view field) const;
  double real(std::string_view field) const;             // finite
  double real_or_missing(std::string_view field) const;  // NaN for "", "nan", "NaN", "none", "null", "?"

 private:
  void cut(std::string_view line, std::vector<std::string_view>& fields);
  void check_columns(const std::vector<std::string_view>& fields);

  LineReader lines_;
  size_t columns_ = 0;
};

// Whether the text is an integer (sign allowed), not a real number.
bool is_integer(std::string_view field);

}  // namespace san::number_rows
