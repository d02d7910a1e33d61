#include "san/base/error.h"

namespace san {

std::string printable(std::string_view text, size_t limit) {
  const bool cut = text.size() > limit;
  std::string out(text.substr(0, limit));
  for (char& c : out) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  if (cut) out += "...";
  return out;
}

}  // namespace san
