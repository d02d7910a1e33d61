#include "san/data/stream.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <map>
#include <mutex>
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

// The costly half: the graph of a record, and its eigenpairs.
void complete(const GraphSource& source, const StreamOptions& options, Record record, Streamed& streamed) {
  streamed.index = record.index;
  streamed.where = record.where;
  streamed.graph = source.convert(std::move(record));
  if (!options.with_spectra || streamed.graph.eigenpairs) return;
  try {
    streamed.graph.eigenpairs = to_eigenpairs(compute_spectrum(streamed.graph, options.spectral));
  } catch (const Error& error) {
    fail("{}: {}", streamed.where, error.what());
  }
}

class Reporter {
 public:
  Reporter(const GraphSource& source, const std::function<void(const Progress&)>& report)
      : source_(source), report_(report) {}

  void update(int64_t done, bool last) {
    if (!report_) return;
    const auto now = std::chrono::steady_clock::now();
    if (!last && now - shown_ < std::chrono::milliseconds(200)) return;
    shown_ = now;
    report_({done, last ? 1.0 : fraction_.load()});
  }

  // To be called where nobody reads the source at the same time.
  void read_so_far() {
    const auto total = static_cast<double>(source_.bytes_total());
    if (report_ && total > 0) fraction_ = static_cast<double>(source_.bytes_read()) / total;
  }

 private:
  std::atomic<double> fraction_{0};
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
      try {
        complete(source, options, std::move(slot.record), slot.streamed);
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
    reporter.read_so_far();
    reporter.update(done, false);
  }
  reporter.update(done, true);
  return bad;
}

void StreamBlock::reject(size_t i, const std::string& message) {
  bad.resize(graphs.size(), false);
  bad[i] = true;
  problems.push_back({graphs[i].index, message});
}

namespace {

// The threads of stream_blocks and what they share.
class BlockPipeline {
 public:
  BlockPipeline(GraphSource& source, const StreamOptions& options, int block,
                const std::function<void(StreamBlock&)>& work, const std::function<void(StreamBlock&)>& take)
      : source_(source),
        options_(options),
        block_(static_cast<size_t>(std::max(1, block))),
        work_(work),
        take_(take),
        threads_(options.threads > 0 ? options.threads : available_threads()),
        reporter_(source, options.progress) {}

  int64_t run() {
    parallel_for(threads_, threads_, [&](int64_t) { serve(); });
    if (failure_) std::rethrow_exception(failure_);
    reporter_.update(done_, true);
    return bad_;
  }

 private:
  void serve() {
    try {
      std::vector<Record> records;
      for (;;) {
        int64_t ticket = 0;
        StreamBlock block;
        if (!read(records, block.problems, ticket)) return;
        for (Record& record : records) {
          const int64_t index = record.index;
          Streamed streamed;
          try {
            complete(source_, options_, std::move(record), streamed);
            block.graphs.push_back(std::move(streamed));
          } catch (const Error& error) {
            block.problems.push_back({index, error.what()});
            if (!options_.skip_bad_records) break;
          }
        }
        if (options_.skip_bad_records || block.problems.empty()) work_(block);
        if (!options_.skip_bad_records && !block.problems.empty()) end_reading();
        std::sort(block.problems.begin(), block.problems.end(),
                  [](const auto& a, const auto& b) { return a.index < b.index; });
        if (!hand_over(ticket, std::move(block))) return;
      }
    } catch (...) {
      stop(std::current_exception());
    }
  }

  // Cuts the next block off the input; false at its end or when all is over.
  bool read(std::vector<Record>& records, std::vector<StreamBlock::Problem>& problems, int64_t& ticket) {
    const std::lock_guard reading(reading_);
    if (ended_) return false;
    ticket = tickets_++;
    const size_t limit = std::min(block_, size_t{4} << std::min<int64_t>(ticket / threads_, 20));
    records.clear();
    for (size_t bytes = 0; records.size() < limit && bytes < kChunkBytes;) {
      Record record;
      try {
        if (!source_.next(record)) {
          ended_ = true;
          break;
        }
      } catch (const RecordError& error) {
        problems.push_back({INT64_MAX, error.what()});  // behind all others of the block
        ended_ = !options_.skip_bad_records;
        break;
      }
      bytes += bytes_of(record);
      records.push_back(std::move(record));
    }
    // The bytes read so far, for the progress line: only here is it safe to ask.
    reporter_.read_so_far();
    return true;
  }

  // Blocks wait here for those before them, and threads that are far ahead for the others. False: all is over.
  bool hand_over(int64_t ticket, StreamBlock block) {
    std::unique_lock lock(mutex_);
    room_.wait(lock, [&] { return failed_ || ticket < next_ + 4 * threads_; });
    if (failed_) return false;
    waiting_.emplace(ticket, std::move(block));
    if (taking_) return true;
    taking_ = true;
    while (!failed_ && !waiting_.empty() && waiting_.begin()->first == next_) {
      StreamBlock first = std::move(waiting_.begin()->second);
      waiting_.erase(waiting_.begin());
      lock.unlock();
      deliver(first);  // throws: taking_ stays set, nothing is taken any more
      lock.lock();
      ++next_;
      room_.notify_all();
    }
    taking_ = false;
    return !failed_;
  }

  void deliver(StreamBlock& block) {
    for (const StreamBlock::Problem& problem : block.problems) {
      if (!options_.skip_bad_records) throw RecordError(problem.message);
      if (options_.on_bad_record) options_.on_bad_record(problem.message);
    }
    bad_ += static_cast<int64_t>(block.problems.size());
    take_(block);
    for (size_t i = 0; i < block.graphs.size(); ++i) done_ += block.rejected(i) ? 0 : 1;
    reporter_.update(done_, false);
  }

  void end_reading() {
    const std::lock_guard reading(reading_);
    ended_ = true;
  }

  void stop(std::exception_ptr failure) {
    end_reading();
    const std::lock_guard lock(mutex_);
    if (!failed_) failure_ = std::move(failure);
    failed_ = true;
    room_.notify_all();
  }

  GraphSource& source_;
  const StreamOptions& options_;
  const size_t block_;
  const std::function<void(StreamBlock&)>& work_;
  const std::function<void(StreamBlock&)>& take_;
  const int threads_;

  std::mutex reading_;  // the source, and:
  bool ended_ = false;
  int64_t tickets_ = 0;

  std::mutex mutex_;
  std::condition_variable room_;
  std::map<int64_t, StreamBlock> waiting_;
  int64_t next_ = 0;  // ticket of the block to be taken next
  bool taking_ = false, failed_ = false;
  std::exception_ptr failure_;

  // Of the thread that is taking.
  Reporter reporter_;
  int64_t bad_ = 0, done_ = 0;
};

}  // namespace

int64_t stream_blocks(GraphSource& source, const StreamOptions& options, int block,
                      const std::function<void(StreamBlock&)>& work, const std::function<void(StreamBlock&)>& take) {
  return BlockPipeline(source, options, block, work, take).run();
}

}  // namespace san
