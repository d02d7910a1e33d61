#include "san/data/loader.h"

#include <algorithm>
#include <fstream>
#include <numeric>
#include <set>

#include "san/graph/generators.h"
#include "tests/data/fake_source.h"
#include "tests/testing.h"

namespace san {
namespace {

using testing::error_of;

const Dataset& some_data() {
  static const Dataset data = [] {
    std::vector<Graph> graphs;
    for (int i = 0; i < 103; ++i) {
      Graph graph = make_path(1 + (i * 37) % 50);
      graph.graph_labels = {static_cast<double>(i)};
      graphs.push_back(std::move(graph));
    }
    SpectrumOptions spectral;
    spectral.num_pairs = 3;
    return Dataset::from_graphs(std::move(graphs), {}, spectral);
  }();
  return data;
}

std::vector<int64_t> all_graphs() {
  std::vector<int64_t> graphs(103);
  std::iota(graphs.begin(), graphs.end(), 0);
  return graphs;
}

std::vector<LoadedBatch> run(const LoaderOptions& options, int64_t epoch, int64_t first = 0) {
  Loader loader(some_data(), all_graphs(), options, epoch, first);
  std::vector<LoadedBatch> batches;
  LoadedBatch batch;
  while (loader.next(batch)) batches.push_back(batch);
  return batches;
}

TEST(Loader, EveryGraphOncePerEpoch) {
  for (const bool bucket : {false, true}) {
    for (const bool shuffle : {false, true}) {
      LoaderOptions options;
      options.batch_size = 10;
      options.bucket = bucket;
      options.shuffle = shuffle;
      std::multiset<int64_t> seen;
      size_t partial = 0;
      for (const auto& batch : batch_plan(some_data(), all_graphs(), options, 2)) {
        seen.insert(batch.begin(), batch.end());
        partial += batch.size() < 10;
      }
      EXPECT_EQ(seen.size(), 103U);
      EXPECT_EQ(std::set<int64_t>(seen.begin(), seen.end()).size(), 103U);
      EXPECT_EQ(partial, 1U);
      options.drop_last = true;
      EXPECT_EQ(batch_plan(some_data(), all_graphs(), options, 2).size(), 10U);
    }
  }
}

TEST(Loader, OrderIsAFunctionOfSeedAndEpoch) {
  for (const bool bucket : {false, true}) {
    LoaderOptions options;
    options.bucket = bucket;
    options.seed = 5;
    const auto plan = batch_plan(some_data(), all_graphs(), options, 7);
    EXPECT_EQ(plan, batch_plan(some_data(), all_graphs(), options, 7));
    EXPECT_NE(plan, batch_plan(some_data(), all_graphs(), options, 8));
    options.seed = 6;
    EXPECT_NE(plan, batch_plan(some_data(), all_graphs(), options, 7));
  }
}

TEST(Loader, WithoutShufflingTheOrderIsAsGiven) {
  LoaderOptions options;
  options.shuffle = false;
  options.batch_size = 103;
  EXPECT_EQ(batch_plan(some_data(), all_graphs(), options, 1).at(0), all_graphs());
}

TEST(Loader, BucketsHoldGraphsOfLikeSizes) {
  LoaderOptions options;
  options.batch_size = 10;
  const auto spread = [&](bool bucket) {
    options.bucket = bucket;
    int64_t sum = 0;
    for (const auto& batch : batch_plan(some_data(), all_graphs(), options, 0)) {
      int32_t low = INT32_MAX, high = 0;
      for (const int64_t graph : batch) {
        low = std::min(low, some_data().num_nodes(graph));
        high = std::max(high, some_data().num_nodes(graph));
      }
      sum += high - low;
    }
    return sum;
  };
  EXPECT_LT(spread(true) * 4, spread(false));
}

TEST(Loader, PrefetchingChangesNothing) {
  LoaderOptions options;
  options.batch_size = 7;
  options.prefetch = 0;
  const auto plain = run(options, 3);
  for (const int prefetch : {1, 2, 100}) {
    options.prefetch = prefetch;
    const auto ahead = run(options, 3);
    ASSERT_EQ(ahead.size(), plain.size());
    for (size_t i = 0; i < plain.size(); ++i) {
      EXPECT_EQ(ahead[i].graphs, plain[i].graphs);
      EXPECT_EQ(ahead[i].batch.labels, plain[i].batch.labels);
      EXPECT_EQ(ahead[i].batch.eigenvectors, plain[i].batch.eigenvectors);
      EXPECT_EQ(ahead[i].batch.edge_sources, plain[i].batch.edge_sources);
    }
  }
}

TEST(Loader, BatchHoldsItsGraphs) {
  LoaderOptions options;
  options.batch_size = 11;
  options.max_pairs = 2;
  for (const LoadedBatch& loaded : run(options, 1)) {
    ASSERT_EQ(loaded.batch.num_graphs, std::ssize(loaded.graphs));
    for (size_t i = 0; i < loaded.graphs.size(); ++i) {
      EXPECT_EQ(loaded.batch.labels[i], static_cast<double>(loaded.graphs[i]));
      EXPECT_EQ(loaded.batch.node_offsets[i + 1] - loaded.batch.node_offsets[i],
                some_data().num_nodes(loaded.graphs[i]));
    }
    EXPECT_LE(loaded.batch.max_pairs, 2);
  }
}

TEST(Loader, ResumesAtAnyBatch) {
  LoaderOptions options;
  options.batch_size = 20;
  const auto whole = run(options, 4);
  for (int64_t first = 0; first <= std::ssize(whole); ++first) {
    const auto rest = run(options, 4, first);
    ASSERT_EQ(std::ssize(rest), std::ssize(whole) - first);
    for (size_t i = 0; i < rest.size(); ++i) EXPECT_EQ(rest[i].graphs, whole[i + static_cast<size_t>(first)].graphs);
  }
}

TEST(Loader, MayBeLeftInTheMiddle) {
  LoaderOptions options;
  options.batch_size = 1;
  Loader loader(some_data(), all_graphs(), options, 0);
  LoadedBatch batch;
  EXPECT_TRUE(loader.next(batch));
}

TEST(Loader, ErrorsOfTheBackgroundThreadComeOutOfNext) {
  LoaderOptions options;
  options.shuffle = false;
  options.batch_size = 2;
  Loader loader(some_data(), {0, 1, 2, 5000}, options, 0);
  LoadedBatch batch;
  EXPECT_TRUE(loader.next(batch));
  EXPECT_NE(error_of([&] { loader.next(batch); }).find("no graph 5000"), std::string::npos);
}

}  // namespace
}  // namespace san
