#include "san/data/loader.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <numeric>
#include <thread>

#include "san/base/random.h"

namespace san {
namespace {

constexpr uint64_t kOrderStream = 0x6f72646572, kBucketStream = 0x6275636b65;

// Batches whose graphs are sorted by size among each other: enough for batches of like sizes, few enough to stay random.
constexpr size_t kPoolBatches = 64;

}  // namespace

std::vector<std::vector<int64_t>> batch_plan(const Dataset& data, const std::vector<int64_t>& graphs,
                                             const LoaderOptions& options, int64_t epoch) {
  SAN_CHECK(options.batch_size >= 1, "a batch size of {}", options.batch_size);
  const auto batch_size = static_cast<size_t>(options.batch_size);
  std::vector<int64_t> order = graphs;
  if (options.shuffle) {
    // The epoch is part of the seed, not of the stream: streams are told apart by what they are for.
    Random random(random_bits(options.seed, kOrderStream, static_cast<uint64_t>(epoch)), kOrderStream);
    random.shuffle(std::span(order));
  }
  if (options.bucket) {
    std::vector<std::pair<int32_t, int64_t>> sized(order.size());
    for (size_t i = 0; i < order.size(); ++i) sized[i] = {data.num_nodes(order[i]), order[i]};
    const size_t pool = options.shuffle ? batch_size * kPoolBatches : sized.size();
    for (size_t begin = 0; begin < sized.size(); begin += pool) {
      const auto end = sized.begin() + static_cast<ptrdiff_t>(std::min(begin + pool, sized.size()));
      std::stable_sort(sized.begin() + static_cast<ptrdiff_t>(begin), end,
                       [](const auto& a, const auto& b) { return a.first < b.first; });
    }
    for (size_t i = 0; i < order.size(); ++i) order[i] = sized[i].second;
  }
  std::vector<std::vector<int64_t>> plan;
  for (size_t begin = 0; begin < order.size(); begin += batch_size) {
    const size_t end = std::min(begin + batch_size, order.size());
    if (end - begin < batch_size && options.drop_last) break;
    plan.emplace_back(order.begin() + static_cast<ptrdiff_t>(begin), order.begin() + static_cast<ptrdiff_t>(end));
  }
  if (options.bucket && options.shuffle) {
    Random random(random_bits(options.seed, kBucketStream, static_cast<uint64_t>(epoch)), kBucketStream);
    random.shuffle(std::span(plan));
  }
  return plan;
}

struct Loader::Impl {
  Impl(const Dataset& data_in, const std::vector<int64_t>& graphs, const LoaderOptions& options_in, int64_t epoch,
       int64_t first)
      : data(data_in), options(options_in), plan(batch_plan(data, graphs, options, epoch)), position(first) {
    SAN_CHECK(first >= 0 && first <= static_cast<int64_t>(plan.size()), "batch {} of an epoch of {}", first,
              plan.size());
    if (options.prefetch > 0) worker = std::jthread([this](const std::stop_token& stop) { run(stop); });
  }
  ~Impl() {
    if (!worker.joinable()) return;
    {
      const std::lock_guard lock(mutex);
      worker.request_stop();
    }
    changed.notify_all();
  }

  LoadedBatch make(int64_t number) const {
    LoadedBatch made;
    made.graphs = plan[static_cast<size_t>(number)];
    made.batch = data.batch(made.graphs, options.max_pairs);
    return made;
  }

  void run(const std::stop_token& stop) {
    try {
      for (int64_t number = position; number < static_cast<int64_t>(plan.size()); ++number) {
        LoadedBatch made = make(number);
        std::unique_lock lock(mutex);
        changed.wait(lock,
                     [&] { return stop.stop_requested() || ready.size() < static_cast<size_t>(options.prefetch); });
        if (stop.stop_requested()) return;
        ready.push_back(std::move(made));
        changed.notify_all();
      }
    } catch (...) {
      const std::lock_guard lock(mutex);
      failure = std::current_exception();
      changed.notify_all();
    }
  }

  bool next(LoadedBatch& out) {
    if (taken + position >= static_cast<int64_t>(plan.size())) return false;
    if (options.prefetch <= 0) {
      out = make(position + taken);
    } else {
      std::unique_lock lock(mutex);
      changed.wait(lock, [&] { return !ready.empty() || failure; });
      if (ready.empty()) std::rethrow_exception(failure);  // after the batches made before it
      out = std::move(ready.front());
      ready.pop_front();
      changed.notify_all();
    }
    ++taken;
    return true;
  }

  const Dataset data;  // a copy shares the file and outlives the caller's
  const LoaderOptions options;
  const std::vector<std::vector<int64_t>> plan;
  const int64_t position;  // first batch
  int64_t taken = 0;

  std::mutex mutex;
  std::condition_variable changed;
  std::deque<LoadedBatch> ready;
  std::exception_ptr failure;
  std::jthread worker;  // last: it must end before the rest goes
};

Loader::Loader(const Dataset& data, std::vector<int64_t> graphs, const LoaderOptions& options, int64_t epoch,
               int64_t first)
    : impl_(std::make_unique<Impl>(data, graphs, options, epoch, first)) {}
Loader::~Loader() = default;

int64_t Loader::num_batches() const {
  return static_cast<int64_t>(impl_->plan.size());
}
bool Loader::next(LoadedBatch& batch) {
  return impl_->next(batch);
}

}  // namespace san
