#include "san/data/stream.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <limits>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "san/base/parallel.h"

namespace san {
namespace {

// What is in memory between reading and taking: enough that a slow graph does not hold up the other threads.
constexpr int64_t kMaxRecords = 512;
constexpr size_t kMaxBytes = size_t{8} << 20;
// Records read ahead per thread, so that nobody waits while one thread inflates the next piece of a file.
constexpr int64_t kReadAhead = 16;

size_t bytes_of(const Record& record) {
  const Graph& graph = record.graph;
  return record.text.size() + graph.edges.size() * sizeof(Edge) +
         4 * (graph.node_features.categories.size() + graph.node_features.values.size() +
              graph.edge_features.categories.size() + graph.edge_features.values.size());
}

struct Slot {
  Record record;
  size_t bytes = 0;
  Streamed streamed;
  std::string problem;         // not empty: a bad record
  std::exception_ptr failure;  // what ends the stream when it is this record's turn
  bool done = false;
};

// Every thread, the caller's too, takes the first of these that it can: take the oldest record if it is done (the caller
// only), read a record if few are waiting and nobody reads, convert the oldest that waits. So no thread has a fixed role
// that could leave it idle, and with one thread this is a plain loop.
class Stream {
 public:
  Stream(GraphSource& source, const StreamOptions& options, const std::function<void(Streamed&)>& work)
      : source_(source), options_(options), work_(work) {
    const int threads = options.threads > 0 ? options.threads : available_threads();
    read_ahead_ = threads > 1 ? std::min(kReadAhead * threads, kMaxRecords / 2) : 1;
    try {
      for (int i = 1; i < threads; ++i) helpers_.emplace_back([this] { help(); });
    } catch (...) {
      stop();
      throw;
    }
  }
  ~Stream() { stop(); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  // The oldest record, converted; null at the end. For the caller's thread; release() that before asking for the next.
  Slot* next() {
    std::unique_lock lock(mutex_);
    for (;;) {
      if (!slots_.empty() && slots_.front().done) return &slots_.front();
      if (slots_.empty() && read_all_) return nullptr;
      if (!step(lock)) caller_.wait(lock);
    }
  }

  void release(Slot& slot) {
    const size_t bytes = slot.bytes;
    slot = {};  // freeing a graph's memory is not for the time under the lock
    const std::lock_guard lock(mutex_);
    slots_.pop_front();
    ++first_;
    bytes_ -= bytes;
    helper_.notify_one();
  }

  double fraction() const {
    const std::lock_guard lock(mutex_);
    return fraction_;
  }

 private:
  void help() {
    std::unique_lock lock(mutex_);
    while (!stopping_)
      if (!step(lock)) helper_.wait(lock);
  }

  void stop() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = read_all_ = true;
    }
    helper_.notify_all();
    helpers_.clear();
  }

  // Reads or converts one record, unlocked meanwhile. False: there is nothing to do until another thread gets on.
  bool step(std::unique_lock<std::mutex>& lock) {
    const int64_t in_memory = static_cast<int64_t>(slots_.size());
    const int64_t waiting = first_ + in_memory - next_;
    if (!read_all_ && !reading_ && waiting < read_ahead_ && in_memory < kMaxRecords && bytes_ < kMaxBytes) {
      read(lock);
      return true;
    }
    if (waiting == 0 || next_ > last_) return false;
    Slot& slot = slots_[static_cast<size_t>(next_ - first_)];  // stays where it is while the ends of the deque move
    const int64_t number = next_++;
    lock.unlock();
    convert(slot);
    lock.lock();
    slot.done = true;
    if (slot.failure || (!slot.problem.empty() && !options_.skip_bad_records)) {
      // It will end the stream: what follows need not be converted, and not be read.
      last_ = std::min(last_, number);
      read_all_ = true;
    }
    if (number == first_) caller_.notify_one();
    return true;
  }

  void read(std::unique_lock<std::mutex>& lock) {
    reading_ = true;
    lock.unlock();
    Slot slot;
    bool more = true;
    double fraction = 0;
    try {
      more = source_.next(slot.record);
      slot.bytes = bytes_of(slot.record);
      const auto total = static_cast<double>(source_.bytes_total());
      fraction = total > 0 ? static_cast<double>(source_.bytes_read()) / total : 0.0;
    } catch (const RecordError& error) {
      slot.problem = error.what();
    } catch (...) {
      slot.failure = std::current_exception();
    }
    lock.lock();
    reading_ = false;
    if (slot.problem.empty()) fraction_ = fraction;
    // What follows a bad record is not used then: a file with a bad first line is not read for a while.
    if (!more || slot.failure || (!slot.problem.empty() && !options_.skip_bad_records)) read_all_ = true;
    if (more) {
      bytes_ += slot.bytes;
      slots_.push_back(std::move(slot));
      helper_.notify_one();
    }
    caller_.notify_one();
  }

  void convert(Slot& slot) const {
    if (!slot.problem.empty() || slot.failure) return;
    const std::string where = slot.record.where;
    try {
      slot.streamed.index = slot.record.index;
      slot.streamed.where = where;
      Graph& graph = slot.streamed.graph;
      graph = source_.convert(std::move(slot.record));
      if (options_.with_spectra && !graph.eigenpairs) {
        try {
          graph.eigenpairs = to_eigenpairs(compute_spectrum(graph, options_.spectral));
        } catch (const Error& error) {
          fail("{}: {}", where, error.what());
        }
      }
      if (work_) work_(slot.streamed);
    } catch (const Error& error) {
      slot.problem = error.what();
    } catch (...) {
      slot.failure = std::current_exception();
    }
    slot.record = {};
  }

  GraphSource& source_;
  const StreamOptions& options_;
  const std::function<void(Streamed&)>& work_;
  int64_t read_ahead_ = 1;

  mutable std::mutex mutex_;  // over all below, but not over a slot that is being converted or taken
  std::condition_variable caller_, helper_;
  std::deque<Slot> slots_;  // read and not yet released, in input order
  int64_t first_ = 0;       // number of slots_.front()
  int64_t next_ = 0;        // the first that waits for conversion
  int64_t last_ = std::numeric_limits<int64_t>::max();  // none after this one is converted
  size_t bytes_ = 0;
  double fraction_ = 0;
  bool reading_ = false, read_all_ = false, stopping_ = false;
  std::vector<std::jthread> helpers_;
};

}  // namespace

int64_t stream_graphs(GraphSource& source, const StreamOptions& options, const std::function<void(Streamed&)>& work,
                      const std::function<void(Streamed&)>& take) {
  int64_t bad = 0, done = 0;
  auto shown = std::chrono::steady_clock::now();
  Stream stream(source, options, work);
  while (Slot* slot = stream.next()) {
    if (slot->failure) std::rethrow_exception(slot->failure);
    if (slot->problem.empty()) {
      try {
        take(slot->streamed);
        ++done;
      } catch (const RecordError& error) {
        slot->problem = error.what();
      }
    }
    if (!slot->problem.empty()) {
      if (!options.skip_bad_records) throw RecordError(slot->problem);
      ++bad;
      if (options.on_bad_record) options.on_bad_record(slot->problem);
    }
    stream.release(*slot);
    const auto now = std::chrono::steady_clock::now();
    if (options.progress && now - shown > std::chrono::milliseconds(200)) {
      shown = now;
      options.progress({done, stream.fraction()});
    }
  }
  if (options.progress) options.progress({done, 1.0});
  return bad;
}

}  // namespace san
