// Any bytes through the CSV reader, whole and in small steps: the same records, fields within the limits, and
// what is written reads back.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "san/data/csv.h"

namespace {

using Rows = std::vector<std::vector<std::string>>;

Rows rows_of(std::string_view text, size_t step, bool header) {
  Rows rows;
  san::CsvOptions options;
  options.header = header;
  size_t at = 0;
  try {
    san::CsvReader reader(
        [&](char* out, size_t size) {
          const size_t take = std::min({size, step, text.size() - at});
          text.copy(out, take, at);
          at += take;
          return take;
        },
        "fuzz", options);
    for (;;) {
      try {
        if (!reader.next()) break;
        rows.emplace_back(reader.fields().begin(), reader.fields().end());
      } catch (const san::RecordError& error) {
        rows.push_back({"!", error.what()});
      }
    }
  } catch (const san::Error& error) {
    rows.push_back({"!!", error.what()});
  }
  return rows;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const size_t step = 1 + data[0] % 16;
  const bool header = data[0] >= 128;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const Rows rows = rows_of(text, size, header);
  if (rows_of(text, step, header) != rows) std::abort();
  for (const auto& row : rows) {
    const Rows again = rows_of(san::format_csv_record(row), size, false);
    // A leading byte order mark is the one thing that does not survive at the start of a file.
    if (again != Rows{row} && !row[0].starts_with("\xEF\xBB\xBF")) std::abort();
  }
  return 0;
}
