// Which graph is for training, which for validation, which for the test. Never the same one in two parts.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
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

// All are pure functions of their arguments. Fractions must be >= 0 and sum to 1; parts are rounded to the nearest graph.
Splits random_split(int64_t size, const SplitFractions& fractions, uint64_t seed);
// Keeps the proportions of classes: one label per graph (NaN is a class of its own). Each class's share of train and of valid is
// within one graph of exact, and so are their sizes; test gets the rest. Throws Error when labels look like measurements, not
// classes: more than half of them are different.
Splits stratified_split(const std::vector<double>& labels, const SplitFractions& fractions, uint64_t seed);
// OGB's and DeepChem's rule: groups of equal scaffold, largest first (ties: the group with the larger first index first), go
// to train while it stays <= its share, else to valid while train + valid stay <= theirs, else to test. Deterministic.
Splits scaffold_split(const std::vector<std::string>& scaffolds, const SplitFractions& fractions);
// By the words the data came with: train; valid, val, validation or dev; test (any case). Throws Error for others, also for a
// graph without one, naming the graph.
Splits given_split(const std::vector<std::string>& words);
// Fold `fold` of `folds` (>= 3, so that all parts have graphs): it is the test part, the next one the validation part. Folds
// differ in size by at most one graph. Stratified when `labels` is not empty.
Splits k_fold(int64_t size, int folds, int fold, uint64_t seed, const std::vector<double>& labels = {});

// The Murcko scaffold of every graph of a set of molecules, on `threads` threads (0 = all cores): what scaffold_split groups by.
// Throws Error for a graph that is not a molecule, or when built without RDKit.
std::vector<std::string> dataset_scaffolds(const Dataset& data, int threads = 0,
                                           const std::function<void(const Progress&)>& progress = {});

// {"train": [...], "valid": [...], "test": [...]}: graph numbers from 0, parts in any order, absent = empty. read_splits also
// takes a folder with train.csv, valid.csv and test.csv (or .csv.gz; one number per line), as OGB has them. Both check with
// validate(); read_splits takes `size` = the number of graphs.
Splits read_splits(const std::filesystem::path& path, int64_t size);
void write_splits(const std::filesystem::path& path, const Splits& splits);

}  // namespace san
