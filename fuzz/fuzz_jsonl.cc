// Any bytes as one line of Graph JSONL: either a RecordError, or a graph that is written and read back the
// same.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "san/graph/jsonl.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  san::Graph graph;
  try {
    graph = san::parse_graph({reinterpret_cast<const char*>(data), size}, "fuzz:1", 0);
  } catch (const san::RecordError&) {
    return 0;
  }
  if (!(san::parse_graph(san::format_graph(graph), "again:1", 1) == graph)) std::abort();
  return 0;
}
