#include "san/data/splits.h"

#include <cmath>
#include <set>

#include "san/base/file.h"
#include "tests/testing.h"

namespace san {
namespace {

using testing::error_of;
using testing::TemporaryFolder;

void expect_complete(const Splits& splits, int64_t size) {
  validate(splits, size);
  EXPECT_EQ(std::ssize(splits.train) + std::ssize(splits.valid) + std::ssize(splits.test), size);
  for (const auto* part : {&splits.train, &splits.valid, &splits.test})
    EXPECT_TRUE(std::is_sorted(part->begin(), part->end()));
}

TEST(Splits, RandomIsCompleteDisjointAndAFunctionOfTheSeed) {
  for (const int64_t size : {1, 2, 9, 10, 1000}) expect_complete(random_split(size, {}, 3), size);
  const Splits a = random_split(1000, {}, 3), b = random_split(1000, {}, 3), c = random_split(1000, {}, 4);
  EXPECT_EQ(a.train, b.train);
  EXPECT_NE(a.train, c.train);
  EXPECT_EQ(a.train.size(), 800U);
  EXPECT_EQ(a.valid.size(), 100U);
  EXPECT_EQ(random_split(10, {1, 0, 0}, 0).train.size(), 10U);
}

TEST(Splits, FractionsMustSumToOne) {
  EXPECT_NE(error_of([] { random_split(10, {0.8, 0.1, 0.2}, 0); }).find("sum to 1"), std::string::npos);
  EXPECT_NE(error_of([] { random_split(10, {1.2, -0.1, -0.1}, 0); }).find("sum to 1"), std::string::npos);
}

TEST(Splits, StratifiedKeepsProportionsWithinOneGraph) {
  std::vector<double> labels;
  for (int i = 0; i < 1003; ++i) labels.push_back(i % 50 == 0 ? 1 : i % 7 == 0 ? std::nan("") : 0);
  const Splits splits = stratified_split(labels, {}, 5);
  expect_complete(splits, 1003);
  std::map<int, double> total;
  const auto class_of = [&](int64_t i) {
    return std::isnan(labels[static_cast<size_t>(i)]) ? 2 : static_cast<int>(labels[static_cast<size_t>(i)]);
  };
  for (int64_t i = 0; i < 1003; ++i) total[class_of(i)] += 1;
  const std::pair<const std::vector<int64_t>*, double> parts[] = {
      {&splits.train, 0.8}, {&splits.valid, 0.1}, {&splits.test, 0.1}};
  for (const auto& [part, fraction] : parts) {
    std::map<int, double> here;
    for (const int64_t i : *part) here[class_of(i)] += 1;
    // Train and valid are rounded to within one graph each; test gets what is left, so within two.
    for (const auto& [label, count] : total) EXPECT_NEAR(here[label], fraction * count, 2.0) << label;
  }
  EXPECT_NE(splits.train, stratified_split(labels, {}, 6).train);
}

TEST(Splits, StratifyingMeasurementsIsRefused) {
  EXPECT_NE(error_of([] { stratified_split({0.1, 0.2, 0.3, 0.4}, {}, 0); }).find("measurements"), std::string::npos);
}

TEST(Splits, ScaffoldFollowsTheRuleIncludingTies) {
  // Groups: b (3), then a and c (2 each; c begins later, so it comes first), d (1). Limits: train 4.8, both 5.6 of 8.
  const Splits splits = scaffold_split({"b", "a", "b", "a", "b", "c", "c", "d"}, {0.6, 0.1, 0.3});
  EXPECT_EQ(splits.train, (std::vector<int64_t>{0, 2, 4, 7}));
  EXPECT_EQ(splits.valid, (std::vector<int64_t>{5, 6}));
  EXPECT_EQ(splits.test, (std::vector<int64_t>{1, 3}));
  const Splits tie = scaffold_split({"a", "a", "c", "c"}, {0.5, 0.5, 0});
  EXPECT_EQ(tie.train, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(tie.valid, (std::vector<int64_t>{0, 1}));
}

TEST(Splits, GivenWordsAndTheirOtherNames) {
  const Splits splits = given_split({"train", "Val", "TEST", "validation", "dev", "valid"});
  EXPECT_EQ(splits.train, (std::vector<int64_t>{0}));
  EXPECT_EQ(splits.valid, (std::vector<int64_t>{1, 3, 4, 5}));
  EXPECT_EQ(splits.test, (std::vector<int64_t>{2}));
  EXPECT_NE(error_of([] {
              given_split({"train", "holdout"});
            }).find("graph 1 is said to be in the part 'holdout'"),
            std::string::npos);
  EXPECT_NE(error_of([] { given_split({"train", ""}); }).find("graph 1"), std::string::npos);
  EXPECT_NE(error_of([] { given_split({"", ""}); }).find("no graph"), std::string::npos);
}

TEST(Splits, FoldsPartitionTheData) {
  std::vector<double> labels;
  for (int i = 0; i < 103; ++i) labels.push_back(i % 10 == 0 ? 1 : 0);
  for (const bool stratified : {false, true}) {
    std::set<int64_t> tested, validated;
    for (int fold = 0; fold < 5; ++fold) {
      const Splits splits = k_fold(103, 5, fold, 1, stratified ? labels : std::vector<double>{});
      expect_complete(splits, 103);
      EXPECT_GE(splits.test.size(), 20U);
      EXPECT_LE(splits.test.size(), 21U);
      tested.insert(splits.test.begin(), splits.test.end());
      validated.insert(splits.valid.begin(), splits.valid.end());
      if (stratified) {
        int64_t positive = 0;
        for (const int64_t i : splits.test) positive += labels[static_cast<size_t>(i)] == 1;
        EXPECT_GE(positive, 2);  // 11 positives over 5 folds
        EXPECT_LE(positive, 3);
      }
      EXPECT_EQ(splits.valid, k_fold(103, 5, (fold + 1) % 5, 1, stratified ? labels : std::vector<double>{}).test);
    }
    EXPECT_EQ(tested.size(), 103U);
    EXPECT_EQ(validated.size(), 103U);
  }
  EXPECT_NE(error_of([] { k_fold(10, 2, 0, 0); }).find("at least 3"), std::string::npos);
}

TEST(Splits, FileComesBackAsWritten) {
  const TemporaryFolder folder;
  const Splits splits = random_split(57, {0.7, 0.2, 0.1}, 9);
  write_splits(folder.file("s.json"), splits);
  const Splits read = read_splits(folder.file("s.json"), 57);
  EXPECT_EQ(read.train, splits.train);
  EXPECT_EQ(read.valid, splits.valid);
  EXPECT_EQ(read.test, splits.test);
}

TEST(Splits, BadFilesAreRefused) {
  const TemporaryFolder folder;
  const std::pair<const char*, const char*> cases[] = {
      {R"({"train": [0, 1], "valid": [1]})", "graph 1 twice"},
      {R"({"train": [0, 10]})", "graph 10"},
      {R"({"train": [-1]})", "graph -1"},
      {R"({"train": [0.5]})", "not a graph number"},
      {R"({"train": 3})", "not a list"},
      {R"({"trian": []})", "unknown part 'trian'"},
      {R"([[0], [1]])", "expected"},
      {R"({"train": [18446744073709551615]})", "not a graph number"},
      {R"({"train": [)", "not JSON"},
  };
  for (const auto& [text, expected] : cases) {
    write_file(folder.file("s.json"), text);
    const std::string message = error_of([&] { read_splits(folder.file("s.json"), 10); });
    EXPECT_NE(message.find(expected), std::string::npos) << text << " -> " << message;
  }
}

TEST(Splits, FolderOfOgbsFilesIsRead) {
  SAN_NEED_SHARED(folder, "data/ogb-layout/ogbg_molhiv_sample/split/scaffold");
  const Splits splits = read_splits(folder, 600);
  EXPECT_EQ(splits.train.size(), 400U);
  EXPECT_EQ(splits.valid.size(), 100U);
  EXPECT_EQ(splits.test.size(), 100U);
}

}  // namespace
}  // namespace san
