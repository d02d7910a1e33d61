// Which graph is for training, which for validation, which for the test. Never the same one in two parts.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "san/data/dataset.h"

namespace san {

struct Splits {
  std::vector<int64_t> train, valid, test;  // ascending graph numbers
};

struct SplitFractions {
  double train = 0.8, valid = 0.1, test = 0.1;
};

// Throws Error when a graph is in two parts, named twice or outside 0 .. size - 1.
void validate(const Splits& splits, int64_t size);

// All are pure functions of their arguments.
Splits random_split(int64_t size, const SplitFractions& fractions, uint64_t seed);
// Keeps the proportions of classes: one label per graph (NaN is a class of its own).
Splits stratified_split(const std::vector<double>& labels, const SplitFractions& fractions, uint64_t seed);
// OGB's and DeepChem's rule: groups of equal scaffold, largest first (ties: the group with the larger first index first), go
// to train while it stays <= its share, else to valid while train + valid stay <= theirs, else to test. Deterministic.
Splits scaffold_split(const std::vector<std::string>& scaffolds, const SplitFractions& fractions);
// By the words the data came with: train; valid, val, validation or dev; test. Throws Error for others, naming the graph.
Splits given_split(const std::vector<std::string>& words);
// Fold `fold` of `folds`: it is the test part, the next one the validation part. Stratified when `labels` is not empty.
Splits k_fold(int64_t size, int folds, int fold, uint64_t seed, const std::vector<double>& labels = {});

// {"train": [...], "valid": [...], "test": [...]}
Splits read_splits(const std::filesystem::path& path, int64_t size);
void write_splits(const std::filesystem::path& path, const Splits& splits);

}  // namespace san
