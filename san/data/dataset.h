// A data set ready for training: graphs with their eigenpairs in one memory-mapped file.
//
// Built once from a GraphSource, in parallel, then opened in milliseconds whatever its size. The file is keyed by the input's
// content, the featuriser and the spectral options; it is versioned and checksummed, written under a temporary name and renamed,
// so two processes that build the same one do not harm each other. A damaged, truncated or old file is noticed and built anew.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "san/data/batch.h"
#include "san/data/source.h"
#include "san/graph/graph.h"
#include "san/spectral/spectrum.h"

namespace san {

struct Progress {
  int64_t done = 0;     // graphs
  double fraction = 0;  // of the input; 0 = unknown
};

struct PrepareOptions {
  SpectrumOptions spectral;
  bool with_spectra = true;                       // false: no eigenpairs (models without LPE)
  int threads = 0;                                // 0 = all cores
  bool skip_bad_records = false;                  // else the first bad record is an Error
  std::string cache_folder;                       // empty: $SAN_CACHE_DIR, else $XDG_CACHE_HOME/san, else ~/.cache/san
  std::function<void(const Progress&)> progress;  // called from one thread, some times a second
  std::function<void(const std::string&)> on_bad_record;  // one line each
};

// Immutable; safe to share between threads.
class Dataset {
 public:
  // Opens the cache for this source and these options, building it first when it is not there or not sound.
  static Dataset prepare(GraphSource& source, const PrepareOptions& options);
  // All in memory, for tests and small jobs: no file is written.
  static Dataset from_graphs(std::vector<Graph> graphs, std::vector<std::string> targets = {});

  int64_t size() const;
  // Copies graph i out of the file, eigenpairs included. Throws Error when the record's checksum is wrong.
  Graph graph(int64_t i) const;
  // Cheap facts about graph i, without touching its record.
  int32_t num_nodes(int64_t i) const;
  const std::vector<std::string>& targets() const;

  // Labels of all graphs: [size, label_columns] (graph labels; NaN = missing), empty for node-labelled or unlabelled sets.
  // And the "split" each graph came with, empty strings when none.
  int label_columns() const;
  bool node_labels() const;

  const std::string& path() const;  // of the cache file; empty for from_graphs
  int64_t bad_records() const;      // how many were skipped when it was built
  bool built() const;               // true: prepare() had to build it, false: it was opened

  Batch batch(std::span<const int64_t> graphs, int max_pairs) const;

 private:
  struct Impl;
  explicit Dataset(std::shared_ptr<const Impl> impl);
  std::shared_ptr<const Impl> impl_;
};

}  // namespace san
