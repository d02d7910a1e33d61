#include "san/data/stream.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "san/base/parallel.h"
#include "san/spectral/random_walk.h"

namespace san {
namespace {

// A thread reads and converts this much at a time: enough that threads seldom meet, few enough that they end together.
constexpr size_t kPieceRecords = 8;
constexpr size_t kPieceBytes = size_t{64} << 10;
// What is in memory between reading and taking: enough that a slow graph does not hold up the other threads.
constexpr size_t kMaxPieces = 64;
constexpr size_t kMaxBytes = size_t{8} << 20;

size_t bytes_of(const Record& record) {
  const Graph& graph = record.graph;
  return record.text.size() + graph.edges.size() * sizeof(Edge) +
         4 * (graph.node_features.categories.size() + graph.node_features.values.size() +
              graph.edge_features.categories.size() + graph.edge_features.values.size());
}

struct Slot {
  Record record;
  Streamed streamed;
  std::string problem;         // not empty: a bad record
  std::exception_ptr failure;  // what ends the stream when it is this record's turn
};

// Neighbours in the input. The thread that reads them converts them and, when they were taken, frees them: memory that
// one thread allocates and another frees makes the two wait for each other in malloc.
struct Piece {
  size_t thread = 0;
  std::vector<Slot> slots;
  StreamBlock block;           // for stream_blocks
  std::exception_ptr failure;  // of its work
  size_t bytes = 0;
  bool done = false;
};

using Work = std::function<void(Streamed&)>;
using BlockWork = std::function<void(StreamBlock&)>;

// Every thread, the caller's too, reads a piece when nobody else is reading and converts it; the caller's takes the oldest
// piece first when it is done. So no thread has a fixed part that could leave it idle, and one thread is a plain loop.
class Stream {
 public:
  // One of `work` (per graph) and `block_work` (per piece of up to `records`) may be empty, or both.
  Stream(GraphSource& source, const StreamOptions& options, const Work& work, const BlockWork& block_work,
         size_t records)
      : source_(source), options_(options), work_(work), block_work_(block_work), records_(records) {
    const int threads = options.threads > 0 ? options.threads : available_threads();
    used_.resize(static_cast<size_t>(threads));
    max_pieces_ = std::max(kMaxPieces * kPieceRecords / std::max(records_, kPieceRecords), 4 * used_.size());
    try {
      for (size_t i = 1; i < used_.size(); ++i) helpers_.emplace_back([this, i] { help(i); });
    } catch (...) {
      stop();
      throw;
    }
  }
  ~Stream() { stop(); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  // The oldest piece, converted; null at the end. For the caller's thread; release() that before asking for the next.
  Piece* next() {
    std::unique_lock lock(mutex_);
    for (;;) {
      if (!pieces_.empty() && pieces_.front()->done) return pieces_.front().get();
      if (pieces_.empty() && read_all_) return nullptr;
      if (!step(lock, 0)) caller_.wait(lock);
    }
  }

  void release() {
    const std::lock_guard lock(mutex_);
    bytes_ -= pieces_.front()->bytes;
    used_[pieces_.front()->thread].push_back(std::move(pieces_.front()));
    pieces_.pop_front();
    helper_.notify_one();
  }

  double fraction() const { return fraction_; }

 private:
  void help(size_t thread) {
    std::unique_lock lock(mutex_);
    while (!stopping_)
      if (!step(lock, thread)) helper_.wait(lock);
  }

  void stop() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    helper_.notify_all();
    helpers_.clear();
  }

  // Frees what was taken, or reads and converts one piece, unlocked meanwhile. False, and not unlocked meanwhile: there is
  // nothing to do until another thread gets on.
  bool step(std::unique_lock<std::mutex>& lock, size_t thread) {
    if (!used_[thread].empty()) {
      std::vector<std::unique_ptr<Piece>> used = std::exchange(used_[thread], {});
      lock.unlock();
      used.clear();
      lock.lock();
      return true;  // much may have changed meanwhile: the caller of this looks again
    }
    if (reading_ || read_all_ || pieces_.size() >= max_pieces_ || bytes_ >= kMaxBytes) return false;
    reading_ = true;
    lock.unlock();
    auto owner = std::make_unique<Piece>();
    Piece& piece = *owner;
    piece.thread = thread;
    const bool more = read(piece);
    lock.lock();
    reading_ = false;
    if (!more) read_all_ = true;
    bytes_ += piece.bytes;
    pieces_.push_back(std::move(owner));
    helper_.notify_one();
    caller_.notify_one();
    lock.unlock();
    const bool good = convert(piece);
    lock.lock();
    piece.done = true;
    if (!good) read_all_ = true;  // the stream will end in this piece
    if (&piece == pieces_.front().get()) caller_.notify_one();
    return true;
  }

  // False: nothing follows, or nothing that would be used.
  bool read(Piece& piece) {
    bool more = true;
    const size_t round = pieces_read_++ / used_.size();
    const size_t records = std::min(records_, kPieceRecords << std::min<size_t>(round, 16));
    piece.slots.reserve(records);
    while (more && piece.slots.size() < records && piece.bytes < kPieceBytes) {
      Slot& slot = piece.slots.emplace_back();
      try {
        more = source_.next(slot.record);
        if (!more)
          piece.slots.pop_back();
        else
          piece.bytes += bytes_of(slot.record);
      } catch (const RecordError& error) {
        slot.problem = error.what();
        more = options_.skip_bad_records;  // a file with a bad first line is not read for a while
      } catch (...) {
        slot.failure = std::current_exception();
        more = false;
      }
    }
    const auto total = static_cast<double>(source_.bytes_total());
    fraction_ = total > 0 ? static_cast<double>(source_.bytes_read()) / total : 0.0;
    return more;
  }

  // False: a record of it ends the stream.
  bool convert(Piece& piece) const {
    for (Slot& slot : piece.slots) {
      if (stopping_) return false;
      if (slot.problem.empty() && !slot.failure) convert(slot);
      if (slot.failure || (!slot.problem.empty() && !options_.skip_bad_records)) return false;
    }
    return !block_work_ || work_together(piece);
  }

  bool work_together(Piece& piece) const {
    std::vector<Slot*> slots;
    for (Slot& slot : piece.slots) {
      if (!slot.problem.empty()) continue;
      slots.push_back(&slot);
      piece.block.graphs.push_back(&slot.streamed);
    }
    piece.block.problems.resize(slots.size());
    bool good = true;
    try {
      block_work_(piece.block);
    } catch (...) {
      piece.failure = std::current_exception();
      return false;
    }
    for (size_t i = 0; i < slots.size(); ++i) {
      slots[i]->problem = piece.block.problems[i];
      good = good && (slots[i]->problem.empty() || options_.skip_bad_records);
    }
    return good;
  }

  void convert(Slot& slot) const {
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
      add_walk_features(graph, options_.spectral.walk_steps);
      if (work_) work_(slot.streamed);
    } catch (const Error& error) {
      slot.problem = error.what();
    } catch (...) {
      slot.failure = std::current_exception();
    }
  }

  GraphSource& source_;
  const StreamOptions& options_;
  const Work& work_;
  const BlockWork& block_work_;
  const size_t records_;
  size_t pieces_read_ = 0;  // of the thread that is reading
  size_t max_pieces_ = kMaxPieces;
  std::atomic<double> fraction_ = 0;
  std::atomic<bool> stopping_ = false;

  std::mutex mutex_;  // over all below, but not over what is in a piece
  std::condition_variable caller_, helper_;
  std::deque<std::unique_ptr<Piece>> pieces_;              // read and not yet released, in input order
  std::vector<std::vector<std::unique_ptr<Piece>>> used_;  // released, by the thread that frees them
  size_t bytes_ = 0;
  bool reading_ = false, read_all_ = false;
  std::vector<std::jthread> helpers_;
};

// take and take_block: as work and block_work.
int64_t run(const StreamOptions& options, Stream& stream, const Work& take, const BlockWork& take_block) {
  int64_t bad = 0, done = 0;
  auto shown = std::chrono::steady_clock::now();
  while (Piece* piece = stream.next()) {
    for (Slot& slot : piece->slots) {
      if (slot.failure) std::rethrow_exception(slot.failure);
      if (slot.problem.empty()) {
        try {
          if (take) take(slot.streamed);
          ++done;
        } catch (const RecordError& error) {
          slot.problem = error.what();
        }
      }
      if (slot.problem.empty()) continue;
      if (!options.skip_bad_records) throw RecordError(slot.problem);
      ++bad;
      if (options.on_bad_record) options.on_bad_record(slot.problem);
    }
    if (piece->failure) std::rethrow_exception(piece->failure);
    if (take_block) take_block(piece->block);
    stream.release();
    const auto now = std::chrono::steady_clock::now();
    if (options.progress && now - shown > std::chrono::milliseconds(200)) {
      shown = now;
      options.progress({done, stream.fraction()});
    }
  }
  if (options.progress) options.progress({done, 1.0});
  return bad;
}

}  // namespace

int64_t stream_graphs(GraphSource& source, const StreamOptions& options, const std::function<void(Streamed&)>& work,
                      const std::function<void(Streamed&)>& take) {
  const BlockWork none;
  Stream stream(source, options, work, none, kPieceRecords);
  return run(options, stream, take, none);
}

int64_t stream_blocks(GraphSource& source, const StreamOptions& options, int block,
                      const std::function<void(StreamBlock&)>& work, const std::function<void(StreamBlock&)>& take) {
  const Work none;
  Stream stream(source, options, none, work, static_cast<size_t>(std::max(1, block)));
  return run(options, stream, none, take);
}

}  // namespace san
