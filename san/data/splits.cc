#include "san/data/splits.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <unordered_map>

#include "san/base/file.h"
#include "san/base/parallel.h"
#include "san/base/random.h"
#include "san/data/number_rows.h"

#ifdef SAN_WITH_RDKIT
#include "san/chem/molecule.h"
#endif

namespace san {
namespace {

// Streams of the random numbers below: a split and the folds of the same seed have nothing in common.
constexpr uint64_t kSplitStream = 0x73706c6974, kFoldStream = 0x666f6c64;

void check(const SplitFractions& fractions) {
  const double sum = fractions.train + fractions.valid + fractions.test;
  SAN_CHECK(fractions.train >= 0 && fractions.valid >= 0 && fractions.test >= 0 && std::abs(sum - 1) < 1e-6,
            "split fractions {}, {}, {} must be at least 0 and sum to 1", fractions.train, fractions.valid,
            fractions.test);
}

Splits sorted(Splits splits) {
  for (auto* part : {&splits.train, &splits.valid, &splits.test}) std::sort(part->begin(), part->end());
  return splits;
}

std::vector<int64_t> shuffled(std::vector<int64_t> items, uint64_t seed, uint64_t stream) {
  Random random(seed, stream);
  random.shuffle(std::span(items));
  return items;
}

std::vector<int64_t> all(int64_t size) {
  SAN_CHECK(size >= 0, "a data set of {} graphs", size);
  std::vector<int64_t> items(static_cast<size_t>(size));
  std::iota(items.begin(), items.end(), 0);
  return items;
}

// Graphs by class, classes ascending and NaN last, each class shuffled by itself.
std::vector<std::vector<int64_t>> shuffled_classes(const std::vector<double>& labels, uint64_t seed, uint64_t stream) {
  std::map<double, std::vector<int64_t>> classes;
  std::vector<int64_t> missing;
  for (size_t i = 0; i < labels.size(); ++i) {
    (std::isnan(labels[i]) ? missing : classes[labels[i]]).push_back(static_cast<int64_t>(i));
  }
  SAN_CHECK(classes.size() * 2 <= labels.size(),
            "cannot keep proportions of classes: the {} labels have {} different values (measurements, not classes?)",
            labels.size(), classes.size());
  std::vector<std::vector<int64_t>> out;
  for (auto& [value, members] : classes) out.push_back(shuffled(std::move(members), seed, stream + out.size() + 1));
  if (!missing.empty()) out.push_back(shuffled(std::move(missing), seed, stream + out.size() + 1));
  return out;
}

}  // namespace

void validate(const Splits& splits, int64_t size) {
  std::vector<bool> seen(static_cast<size_t>(size), false);
  for (const auto* part : {&splits.train, &splits.valid, &splits.test}) {
    for (const int64_t graph : *part) {
      SAN_CHECK(graph >= 0 && graph < size, "the split names graph {}, but the data has graphs 0..{}", graph, size - 1);
      SAN_CHECK(!seen[static_cast<size_t>(graph)], "the split names graph {} twice", graph);
      seen[static_cast<size_t>(graph)] = true;
    }
  }
}

Splits random_split(int64_t size, const SplitFractions& fractions, uint64_t seed) {
  check(fractions);
  const std::vector<int64_t> order = shuffled(all(size), seed, kSplitStream);
  const auto n = static_cast<double>(size);
  const auto train = std::llround(fractions.train * n);
  const auto valid =
      std::clamp<int64_t>(std::llround((fractions.train + fractions.valid) * n) - train, 0, size - train);
  return sorted({{order.begin(), order.begin() + train},
                 {order.begin() + train, order.begin() + train + valid},
                 {order.begin() + train + valid, order.end()}});
}

Splits stratified_split(const std::vector<double>& labels, const SplitFractions& fractions, uint64_t seed) {
  check(fractions);
  Splits splits;
  double before = 0;  // graphs of earlier classes: rounding is carried over, so that it does not add up
  for (const auto& members : shuffled_classes(labels, seed, kSplitStream)) {
    const auto count = static_cast<int64_t>(members.size());
    const double after = before + static_cast<double>(count);
    const auto share = [&](double fraction) {
      return std::llround(fraction * after) - std::llround(fraction * before);
    };
    const int64_t train = std::min<int64_t>(share(fractions.train), count);
    const int64_t valid = std::min<int64_t>(share(fractions.valid), count - train);
    const auto begin = members.begin();
    splits.train.insert(splits.train.end(), begin, begin + train);
    splits.valid.insert(splits.valid.end(), begin + train, begin + train + valid);
    splits.test.insert(splits.test.end(), begin + train + valid, members.end());
    before = after;
  }
  return sorted(std::move(splits));
}

Splits scaffold_split(const std::vector<std::string>& scaffolds, const SplitFractions& fractions) {
  check(fractions);
  std::unordered_map<std::string_view, size_t> places;
  std::vector<std::vector<int64_t>> groups;
  for (size_t i = 0; i < scaffolds.size(); ++i) {
    const auto [place, fresh] = places.try_emplace(scaffolds[i], groups.size());
    if (fresh) groups.emplace_back();
    groups[place->second].push_back(static_cast<int64_t>(i));
  }
  std::sort(groups.begin(), groups.end(), [](const auto& a, const auto& b) {
    return std::pair(a.size(), a.front()) > std::pair(b.size(), b.front());
  });
  // Compared as OGB and DeepChem do, in double: 0.8 * n is not rounded.
  const auto n = static_cast<double>(scaffolds.size());
  const double train_limit = fractions.train * n, both_limit = (fractions.train + fractions.valid) * n;
  Splits splits;
  for (const auto& group : groups) {
    auto* part = &splits.test;
    if (static_cast<double>(splits.train.size() + group.size()) <= train_limit) {
      part = &splits.train;
    } else if (static_cast<double>(splits.train.size() + splits.valid.size() + group.size()) <= both_limit) {
      part = &splits.valid;
    }
    part->insert(part->end(), group.begin(), group.end());
  }
  return sorted(std::move(splits));
}

Splits given_split(const std::vector<std::string>& words) {
  SAN_CHECK(std::any_of(words.begin(), words.end(), [](const auto& word) { return !word.empty(); }),
            "the data says of no graph which part it is in");
  Splits splits;
  for (size_t i = 0; i < words.size(); ++i) {
    std::string word = words[i];
    for (char& c : word) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    std::vector<int64_t>* part = nullptr;
    if (word == "train" || word == "training") part = &splits.train;
    if (word == "valid" || word == "val" || word == "validation" || word == "dev") part = &splits.valid;
    if (word == "test") part = &splits.test;
    SAN_CHECK(part != nullptr, "graph {} is said to be in the part '{}'; the parts are train, valid and test", i,
              printable(words[i], 40));
    part->push_back(static_cast<int64_t>(i));
  }
  return splits;
}

Splits k_fold(int64_t size, int folds, int fold, uint64_t seed, const std::vector<double>& labels) {
  SAN_CHECK(folds >= 3, "{} folds: at least 3 are needed, for train, valid and test", folds);
  SAN_CHECK(fold >= 0 && fold < folds, "fold {} of {}: they are numbered 0..{}", fold, folds, folds - 1);
  SAN_CHECK(size >= folds, "{} graphs cannot be cut into {} folds", size, folds);
  std::vector<std::vector<int64_t>> groups;
  if (labels.empty()) {
    groups.push_back(shuffled(all(size), seed, kFoldStream));
  } else {
    SAN_CHECK(static_cast<int64_t>(labels.size()) == size, "{} labels for {} graphs", labels.size(), size);
    groups = shuffled_classes(labels, seed, kFoldStream);
  }
  Splits splits;
  int64_t place = 0;  // dealt out like cards, on and on over the classes
  for (const auto& group : groups) {
    for (const int64_t graph : group) {
      const auto dealt = static_cast<int>(place++ % folds);
      (dealt == fold ? splits.test : dealt == (fold + 1) % folds ? splits.valid : splits.train).push_back(graph);
    }
  }
  return sorted(std::move(splits));
}

std::vector<std::string> dataset_scaffolds(const Dataset& data, int threads,
                                           const std::function<void(const Progress&)>& progress) {
#ifdef SAN_WITH_RDKIT
  constexpr int64_t kChunk = 1024;
  std::vector<std::string> scaffolds(static_cast<size_t>(data.size()));
  for (int64_t begin = 0; begin < data.size(); begin += kChunk) {
    const int64_t count = std::min(kChunk, data.size() - begin);
    parallel_for(count, threads, [&](int64_t k) {
      const int64_t i = begin + k;
      const std::string smiles = data.smiles(i);
      SAN_CHECK(!smiles.empty(), "graph {} is not a molecule: scaffold splits need SMILES", i);
      std::string problem;
      std::optional<std::string> scaffold = murcko_scaffold(smiles, problem);
      SAN_CHECK(scaffold.has_value(), "graph {} has no scaffold: {}", i, problem);
      scaffolds[static_cast<size_t>(i)] = std::move(*scaffold);
    });
    if (progress) progress({begin + count, static_cast<double>(begin + count) / static_cast<double>(data.size())});
  }
  return scaffolds;
#else
  (void)data, (void)threads, (void)progress;
  fail("scaffold splits need RDKit, without which this san was built (configure with -DSAN_WITH_RDKIT=ON)");
#endif
}

namespace {

Splits read_folder(const std::string& folder) {
  Splits splits;
  const std::pair<const char*, std::vector<int64_t>*> parts[] = {
      {"train", &splits.train}, {"valid", &splits.valid}, {"test", &splits.test}};
  for (const auto& [name, part] : parts) {
    const std::string path = number_rows::find_file(folder, fmt::format("{}.csv", name));
    SAN_CHECK(!path.empty(), "{}: there is no {}.csv or {}.csv.gz", folder, name, name);
    number_rows::RowReader rows(path);
    std::vector<std::string_view> fields;
    while (rows.next(fields)) {
      SAN_CHECK(fields.size() == 1, "{}: expected one graph number", rows.where());
      part->push_back(rows.integer(fields[0]));
    }
  }
  return splits;
}

Splits read_json(const std::filesystem::path& path) {
  const std::string name = path.string();
  nlohmann::json json;
  try {
    json = nlohmann::json::parse(read_file(path, size_t{1} << 30));
  } catch (const nlohmann::json::exception& error) {
    fail("{}: not JSON: {}", name, printable(error.what(), 200));
  }
  SAN_CHECK(json.is_object(), R"({}: expected {{"train": [...], "valid": [...], "test": [...]}})", name);
  Splits splits;
  for (const auto& [key, list] : json.items()) {
    auto* part = key == "train"   ? &splits.train
                 : key == "valid" ? &splits.valid
                 : key == "test"  ? &splits.test
                                  : nullptr;
    SAN_CHECK(part != nullptr, "{}: unknown part '{}'; the parts are train, valid and test", name, printable(key, 40));
    SAN_CHECK(list.is_array(), "{}: '{}' is not a list of graph numbers", name, key);
    for (const auto& item : list) {
      SAN_CHECK(item.is_number_integer() && (!item.is_number_unsigned() || item.get<uint64_t>() <= INT64_MAX),
                "{}: '{}' holds something that is not a graph number", name, key);
      part->push_back(item.get<int64_t>());
    }
  }
  return splits;
}

}  // namespace

Splits read_splits(const std::filesystem::path& path, int64_t size) {
  std::error_code ignored;
  Splits splits = std::filesystem::is_directory(path, ignored) ? read_folder(path.string()) : read_json(path);
  try {
    validate(splits, size);
  } catch (const Error& error) {
    fail("{}: {}", path.string(), error.what());
  }
  return sorted(std::move(splits));
}

void write_splits(const std::filesystem::path& path, const Splits& splits) {
  FileWriter writer(path.string());
  writer.write(fmt::format("{{\"train\": [{}],\n \"valid\": [{}],\n \"test\": [{}]}}\n", fmt::join(splits.train, ", "),
                           fmt::join(splits.valid, ", "), fmt::join(splits.test, ", ")));
  writer.commit();
}

}  // namespace san
