#include "san/data/stream.h"

#include <chrono>
#include <vector>

#include "san/base/parallel.h"

namespace san {
namespace {

// Enough graphs that threads end together within a percent or so; few enough to be small change in memory.
constexpr size_t kChunkRecords = 512;
constexpr size_t kChunkBytes = size_t{8} << 20;

size_t bytes_of(const Record& record) {
  const Graph& graph = record.graph;
  return record.text.size() + graph.edges.size() * sizeof(Edge) +
         4 * (graph.node_features.categories.size() + graph.node_features.values.size() +
              graph.edge_features.categories.size() + graph.edge_features.values.size());
}

struct Slot {
  Record record;
  Streamed streamed;
  std::string problem;  // not empty: a bad record
};

class Reporter {
 public:
  Reporter(const GraphSource& source, const std::function<void(const Progress&)>& report)
      : source_(source), report_(report) {}

  void update(int64_t done, bool last) {
    if (!report_) return;
    const auto now = std::chrono::steady_clock::now();
    if (!last && now - shown_ < std::chrono::milliseconds(200)) return;
    shown_ = now;
    const auto total = static_cast<double>(source_.bytes_total());
    report_({done, last ? 1.0 : total > 0 ? static_cast<double>(source_.bytes_read()) / total : 0.0});
  }

 private:
  const GraphSource& source_;
  const std::function<void(const Progress&)>& report_;
  std::chrono::steady_clock::time_point shown_{};
};

}  // namespace

int64_t stream_graphs(GraphSource& source, const StreamOptions& options, const std::function<void(Streamed&)>& work,
                      const std::function<void(Streamed&)>& take) {
  Reporter reporter(source, options.progress);
  int64_t bad = 0, done = 0;
  const auto report_bad = [&](const std::string& problem) {
    if (!options.skip_bad_records) throw RecordError(problem);
    ++bad;
    if (options.on_bad_record) options.on_bad_record(problem);
  };
  std::vector<Slot> slots(kChunkRecords);
  for (bool more = true; more;) {
    size_t count = 0;
    for (size_t bytes = 0; count < kChunkRecords && bytes < kChunkBytes; ++count) {
      Slot& slot = slots[count];
      slot = {};
      try {
        more = source.next(slot.record);
        if (!more) break;
        bytes += bytes_of(slot.record);
      } catch (const RecordError& error) {
        slot.problem = error.what();
        // What follows will not be used: without this, a file with a bad first line would be read for a while.
        if (!options.skip_bad_records) {
          ++count;
          break;
        }
      }
    }
    parallel_for(static_cast<int64_t>(count), options.threads, [&](int64_t i) {
      Slot& slot = slots[static_cast<size_t>(i)];
      if (!slot.problem.empty()) return;
      const std::string where = slot.record.where;
      try {
        slot.streamed.index = slot.record.index;
        slot.streamed.where = where;
        Graph& graph = slot.streamed.graph;
        graph = source.convert(std::move(slot.record));
        if (options.with_spectra && !graph.eigenpairs) {
          try {
            graph.eigenpairs = to_eigenpairs(compute_spectrum(graph, options.spectral));
          } catch (const Error& error) {
            fail("{}: {}", where, error.what());
          }
        }
        if (work) work(slot.streamed);
      } catch (const Error& error) {
        slot.problem = error.what();
      }
    });
    for (size_t i = 0; i < count; ++i) {
      Slot& slot = slots[i];
      if (slot.problem.empty()) {
        try {
          take(slot.streamed);
          ++done;
        } catch (const RecordError& error) {
          slot.problem = error.what();
        }
      }
      if (!slot.problem.empty()) report_bad(slot.problem);
      slot = {};
    }
    reporter.update(done, false);
  }
  reporter.update(done, true);
  return bad;
}

}  // namespace san
