// stream_graphs: order, errors, threads and memory, whatever the threads' speeds.
#include "san/data/stream.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tests/data/fake_source.h"
#include "tests/testing.h"

namespace san {
namespace {

using testing::error_of;
using testing::FakeSource;

std::vector<Graph> nodes(int count) {
  std::vector<Graph> graphs(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) {
    graphs[static_cast<size_t>(i)].num_nodes = 1;
    graphs[static_cast<size_t>(i)].id = std::to_string(i);
  }
  return graphs;
}

StreamOptions options_for(int threads) {
  StreamOptions options;
  options.threads = threads;
  options.with_spectra = false;
  return options;
}

// Some records take a hundred times as long as others, and not the same ones on every thread.
void dawdle(int64_t index) {
  std::this_thread::sleep_for(std::chrono::microseconds(index % 37 == 0 ? 2000 : index % 5));
}

TEST(Stream, TakesInInputOrderWhateverTheThreadsDo) {
  for (const int threads : {1, 2, 3, 8}) {
    FakeSource source(nodes(2000));
    std::atomic<int> reading{0};
    std::atomic<bool> together{false};
    source.before_next = [&](int64_t) {
      if (++reading > 1) together = true;
      std::this_thread::yield();
      --reading;
    };
    std::vector<std::string> taken;
    const auto caller = std::this_thread::get_id();
    bool elsewhere = false;
    const int64_t bad = stream_graphs(
        source, options_for(threads), [](Streamed& item) { dawdle(item.index); },
        [&](Streamed& item) {
          elsewhere = elsewhere || std::this_thread::get_id() != caller;
          EXPECT_EQ(item.index, static_cast<int64_t>(taken.size()));
          taken.push_back(item.graph.id);
        });
    EXPECT_EQ(bad, 0);
    EXPECT_FALSE(together) << "next() was called by two threads at once";
    EXPECT_FALSE(elsewhere) << "take() was called outside the caller's thread";
    ASSERT_EQ(taken.size(), 2000U);
    for (size_t i = 0; i < taken.size(); ++i) ASSERT_EQ(taken[i], std::to_string(i));
  }
}

TEST(Stream, UsesAsManyThreadsAsAskedForAndTheCallersIsOneOfThem) {
  for (const int threads : {1, 2, 4}) {
    FakeSource source(nodes(600));
    std::mutex mutex;
    std::set<std::thread::id> seen;
    stream_graphs(
        source, options_for(threads),
        [&](Streamed&) {
          std::this_thread::sleep_for(std::chrono::microseconds(200));
          const std::lock_guard lock(mutex);
          seen.insert(std::this_thread::get_id());
        },
        [](Streamed&) {});
    EXPECT_EQ(seen.size(), static_cast<size_t>(threads));
    EXPECT_EQ(seen.count(std::this_thread::get_id()), 1U);
  }
}

TEST(Stream, HoldsAFewHundredGraphsHoweverSlowlyTheyAreTaken) {
  for (const int threads : {1, 3}) {
    FakeSource source(nodes(5000));
    std::atomic<int64_t> read{0};
    source.before_next = [&](int64_t index) { read = index; };
    int64_t taken = 0, most = 0;
    stream_graphs(source, options_for(threads), {}, [&](Streamed&) {
      if (taken % 100 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      most = std::max(most, read - taken);
      ++taken;
    });
    EXPECT_EQ(taken, 5000);
    EXPECT_LE(most, 600);
  }
}

TEST(Stream, HoldsFewLargeRecords) {
  auto graphs = nodes(300);
  for (Graph& graph : graphs) {
    graph.node_features = {0, 1 << 18, {}, {}};
    graph.node_features.values.assign(1 << 18, 0.5F);  // 1 MB each
  }
  FakeSource source(std::move(graphs));
  std::atomic<int64_t> read{0};
  source.before_next = [&](int64_t index) { read = index; };
  int64_t taken = 0, most = 0;
  stream_graphs(source, options_for(2), {}, [&](Streamed&) {
    std::this_thread::sleep_for(std::chrono::microseconds(500));
    most = std::max(most, read - taken);
    ++taken;
  });
  EXPECT_EQ(taken, 300);
  EXPECT_LE(most, 12);
}

TEST(Stream, TheFirstBadRecordInInputOrderIsTheErrorThoughLaterOnesFailSooner) {
  for (const int threads : {1, 2, 4}) {
    auto graphs = nodes(1000);
    for (const size_t i : {300, 301, 310, 500}) graphs[i].id = "bad";
    FakeSource source(std::move(graphs));
    int64_t taken = 0;
    const std::string message = error_of([&] {
      stream_graphs(
          source, options_for(threads),
          [](Streamed& item) {
            if (item.index == 299) std::this_thread::sleep_for(std::chrono::milliseconds(50));
          },
          [&](Streamed&) { ++taken; });
    });
    EXPECT_EQ(message, "fake:301: a bad graph");
    EXPECT_EQ(taken, 300);
  }
}

TEST(Stream, SkippedRecordsAreReportedInInputOrderAndCounted) {
  for (const int threads : {1, 3}) {
    auto graphs = nodes(1000);
    for (size_t i = 7; i < graphs.size(); i += 10) graphs[i].id = "bad";
    FakeSource source(std::move(graphs));
    StreamOptions options = options_for(threads);
    options.skip_bad_records = true;
    std::vector<std::string> messages, expected;
    options.on_bad_record = [&](const std::string& message) { messages.push_back(message); };
    int64_t taken = 0;
    const int64_t bad = stream_graphs(
        source, options,
        [](Streamed& item) {
          dawdle(item.index);
          if (item.index % 10 == 8) fail("{}: refused by work", item.where);
        },
        [&](Streamed& item) {
          if (item.index % 10 == 9) throw RecordError(item.where + ": refused by take");
          ++taken;
        });
    for (int i = 0; i < 1000; ++i) {
      if (i % 10 >= 7) {
        expected.push_back(fmt::format("fake:{}: {}", i + 1,
                                       i % 10 == 7   ? "a bad graph"
                                       : i % 10 == 8 ? "refused by work"
                                                     : "refused by take"));
      }
    }
    EXPECT_EQ(bad, 300);
    EXPECT_EQ(taken, 700);
    EXPECT_EQ(messages, expected);
  }
}

TEST(Stream, WhatTakeThrowsComesOutWhenTheOtherThreadsHaveEnded) {
  for (const int threads : {1, 2, 4}) {
    FakeSource source(nodes(100000));
    std::atomic<int> working{0};
    std::string message;
    try {
      stream_graphs(
          source, options_for(threads),
          [&](Streamed&) {
            ++working;
            std::this_thread::sleep_for(std::chrono::microseconds(50));
            --working;
          },
          [](Streamed& item) {
            if (item.index == 100) throw std::logic_error("the disk is full");
          });
    } catch (const std::logic_error& error) {
      message = error.what();
    }
    EXPECT_EQ(message, "the disk is full");
    EXPECT_EQ(working, 0);
    EXPECT_LT(source.converted, 1000);
  }
}

TEST(Stream, AnErrorOfTakeThatIsNotOfTheRecordEndsTheStreamThoughBadRecordsAreSkipped) {
  FakeSource source(nodes(1000));
  StreamOptions options = options_for(2);
  options.skip_bad_records = true;
  EXPECT_EQ(error_of([&] { stream_graphs(source, options, {}, [](Streamed&) { fail("no space left"); }); }),
            "no space left");
}

TEST(Stream, DamagedInputIsAnErrorAfterWhatCameBeforeIt) {
  for (const int threads : {1, 2}) {
    for (const bool skip : {false, true}) {
      FakeSource source(nodes(1000));
      source.before_next = [](int64_t index) {
        if (index == 700) fail("fake: the file is damaged");
      };
      StreamOptions options = options_for(threads);
      options.skip_bad_records = skip;
      int64_t taken = 0;
      EXPECT_EQ(error_of([&] { stream_graphs(source, options, {}, [&](Streamed&) { ++taken; }); }),
                "fake: the file is damaged");
      EXPECT_EQ(taken, 700);
    }
  }
}

TEST(Stream, ExceptionsOfWorkThatAreNoErrorsEndTheStreamInTheirTurn) {
  for (const int threads : {1, 3}) {
    FakeSource source(nodes(1000));
    StreamOptions options = options_for(threads);
    options.skip_bad_records = true;
    int64_t taken = 0;
    EXPECT_THROW(stream_graphs(
                     source, options,
                     [](Streamed& item) {
                       if (item.index >= 200) throw std::bad_alloc();
                     },
                     [&](Streamed&) { ++taken; }),
                 std::bad_alloc);
    EXPECT_EQ(taken, 200);
  }
}

TEST(Stream, ProgressEndsAtOne) {
  FakeSource source(nodes(50));
  StreamOptions options = options_for(2);
  Progress last;
  options.progress = [&](const Progress& progress) { last = progress; };
  stream_graphs(source, options, {}, [](Streamed&) {});
  EXPECT_EQ(last.done, 50);
  EXPECT_EQ(last.fraction, 1.0);
  FakeSource empty({});
  EXPECT_EQ(stream_graphs(empty, options, {}, [](Streamed&) {}), 0);
  EXPECT_EQ(last.done, 0);
}

TEST(StreamBlocks, KeepOrderReportBadRecordsAndGiveEveryGraphToOneBlock) {
  for (const int threads : {1, 2, 5}) {
    for (const int block : {1, 7, 64}) {
      SCOPED_TRACE(std::to_string(threads) + " threads, blocks of " + std::to_string(block));
      FakeSource source(nodes(1000));
      StreamOptions options = options_for(threads);
      options.skip_bad_records = true;
      std::vector<std::string> problems;
      options.on_bad_record = [&](const std::string& problem) { problems.push_back(problem); };
      int64_t last = 0;
      options.progress = [&](const Progress& progress) { last = progress.done; };
      std::string text;
      const int64_t bad = stream_blocks(
          source, options, block,
          [&](StreamBlock& b) {
            EXPECT_LE(b.graphs.size(), static_cast<size_t>(block));
            for (size_t i = 0; i < b.graphs.size(); ++i) {
              dawdle(b.graphs[i]->index);
              if (b.graphs[i]->index % 100 == 50) b.problems[i] = "no " + b.graphs[i]->graph.id;
              if (b.problems[i].empty()) b.text += b.graphs[i]->graph.id + ' ';
            }
          },
          [&](StreamBlock& b) { text += b.text; });
      EXPECT_EQ(bad, 10);
      EXPECT_EQ(last, 990);
      std::string expected;
      for (int i = 0; i < 1000; ++i) {
        if (i % 100 != 50) expected += std::to_string(i) + ' ';
      }
      EXPECT_EQ(text, expected);
      ASSERT_EQ(problems.size(), 10U);
      EXPECT_EQ(problems[3], "no 350");
    }
  }
}

TEST(StreamBlocks, TheFirstBadRecordOrFailureOfWorkEndsTheStream) {
  for (const int threads : {1, 4}) {
    FakeSource source(nodes(1000));
    const auto work = [](StreamBlock& b) {
      for (size_t i = 0; i < b.graphs.size(); ++i) {
        if (b.graphs[i]->index % 100 == 50) b.problems[i] = "no " + b.graphs[i]->graph.id;
      }
    };
    EXPECT_EQ(error_of([&] { stream_blocks(source, options_for(threads), 16, work, [](StreamBlock&) {}); }), "no 50");
    FakeSource again(nodes(1000));
    const auto fails = [](StreamBlock& b) {
      if (b.graphs.back()->index > 300) fail("all is over");
    };
    StreamOptions options = options_for(threads);
    options.skip_bad_records = true;
    EXPECT_EQ(error_of([&] { stream_blocks(again, options, 16, fails, [](StreamBlock&) {}); }), "all is over");
  }
}

}  // namespace
}  // namespace san
