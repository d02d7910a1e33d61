// A data set ready for training: graphs with their eigenpairs in one memory-mapped file.
//
// Built once from a GraphSource, in parallel and in constant memory, then opened in milliseconds whatever its size. The file is
// keyed by the input's content, the featuriser and the spectral options; it is versioned and checksummed, written under a
// temporary name and renamed, so two processes that build the same one do not harm each other. A damaged, truncated or old file
// is noticed and built anew: at once when it is small; when it is large, damage to a graph is only noticed when that graph is
// read, which removes the file and throws an Error that says to run again. A data set may be larger than memory.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "san/data/batch.h"
#include "san/data/source.h"
#include "san/data/stream.h"
#include "san/graph/graph.h"
#include "san/spectral/spectrum.h"

namespace san {

// Bad records: with skip_bad_records they are left out, counted and their messages kept (the first kMaxBadMessages), so that
// opening the file later reports them again; else the first one is an Error, also when a file built without them is there.
// A graph that does not fit those before it (other feature or label columns) is a bad record too.
struct PrepareOptions : StreamOptions {
  std::string cache_folder;  // empty: default_cache_folder()
};

inline constexpr int kMaxBadMessages = 100;

// $SAN_CACHE_DIR, else $XDG_CACHE_HOME/san, else ~/.cache/san. Throws Error when none of the variables (nor HOME) is set.
std::string default_cache_folder();

// Immutable; safe to share between threads. Copies share the file.
class Dataset {
 public:
  // Opens the cache for this source and these options, building it first when it is not there or not sound. Consumes the
  // source only in the latter case. Throws Error: a bad record (see above), no graphs at all, the folder cannot be written,
  // standard input.
  static Dataset prepare(GraphSource& source, const PrepareOptions& options);
  // All in memory, for tests and small jobs: no file is written. Eigenpairs are computed where a graph has none and
  // `spectral` is given.
  static Dataset from_graphs(std::vector<Graph> graphs, std::vector<std::string> targets = {},
                             const std::optional<SpectrumOptions>& spectral = {});

  int64_t size() const;
  // Copies graph i out of the file, eigenpairs included. Throws Error when its checksum is wrong.
  Graph graph(int64_t i) const;
  // Cheap facts about graph i, without touching its record.
  int32_t num_nodes(int64_t i) const;
  const std::string& split(int64_t i) const;  // the word it came with; empty: none
  std::string smiles(int64_t i) const;        // of a molecule; empty for others. Reads only the start of the record

  // Labels of all graphs: [size, label_columns] row-major, straight from the file (valid as long as any copy of this Dataset);
  // NaN = missing. Empty for node-labelled or unlabelled sets. A graph without labels in a labelled set has missing ones.
  std::span<const double> labels() const;
  int label_columns() const;
  bool node_labels() const;
  const std::vector<std::string>& targets() const;  // names of the label columns; empty when the format has none

  // Over all graphs. What a model's embedding tables must hold: largest category + 1 per column. Graphs without features
  // have no columns here (see Graph for what that means).
  const std::vector<int32_t>& node_category_sizes() const;
  const std::vector<int32_t>& edge_category_sizes() const;
  int node_value_columns() const;
  int edge_value_columns() const;
  int64_t total_nodes() const;
  int64_t total_edges() const;
  int32_t max_nodes() const;
  int32_t max_pairs() const;  // eigenpairs of the graph that has most

  const std::string& path() const;                       // of the cache file; empty for from_graphs
  int64_t bad_records() const;                           // how many were skipped when it was built
  const std::vector<std::string>& bad_messages() const;  // the first ones
  bool built() const;                                    // true: prepare() had to build it, false: it was opened
  const std::string& rebuilt_because()
      const;  // why a file that was there could not be used; empty: it could, or none was

  Batch batch(std::span<const int64_t> graphs, int max_pairs) const;

 private:
  struct Impl;
  explicit Dataset(std::shared_ptr<const Impl> impl);
  std::shared_ptr<const Impl> impl_;
};

}  // namespace san
