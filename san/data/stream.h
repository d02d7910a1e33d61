// A source's graphs in input order, with their eigenpairs, worked on by all cores, in memory that does not grow with the
// input: what preparing, inspecting and predicting large files have in common.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "san/data/source.h"
#include "san/spectral/spectrum.h"

namespace san {

struct Progress {
  int64_t done = 0;     // graphs
  double fraction = 0;  // of the input; 0 = unknown
};

struct StreamOptions {
  SpectrumOptions spectral;
  bool with_spectra = true;                       // false: no eigenpairs are computed (models without LPE)
  int threads = 0;                                // 0 = all cores
  bool skip_bad_records = false;                  // else the first bad record, in input order, is an Error
  std::function<void(const Progress&)> progress;  // called from the caller's thread, some times a second and at the end
  std::function<void(const std::string&)> on_bad_record;  // one line each, in input order; only with skip_bad_records
};

struct Streamed {
  int64_t index = 0;  // in the input, bad records counted
  std::string where;
  Graph graph;  // with eigenpairs: those given in the input as they are, else computed as options.spectral says
  std::shared_ptr<void> encoded;  // for `work` to fill, when it makes something else of the graph
};

// Calls work (may be null) on many threads, then take on the caller's, in input order. An Error of work or a RecordError
// of take makes
// the record a bad one. Returns the number of bad records. At most a few
// hundred graphs are in memory at a time.
int64_t stream_graphs(GraphSource& source, const StreamOptions& options, const std::function<void(Streamed&)>& work,
                      const std::function<void(Streamed&)>& take);

// Some graphs in a row, worked on together by one thread.
struct StreamBlock {
  struct Problem {
    int64_t index;  // of the record
    std::string message;
  };
  std::vector<Streamed> graphs;
  std::vector<Problem> problems;  // bad records
  std::string text;               // for `work` to fill and `take` to use

  // Makes graph i a bad record. It stays in `graphs`.
  void reject(size_t i, const std::string& message);
  bool rejected(size_t i) const { return i < bad.size() && bad[i]; }

  std::vector<bool> bad = {};  // see rejected()
};

// As stream_graphs for work that wants several graphs at once: every thread cuts a block of up to `block` records (the first
// ones smaller, so that all threads have something to do) off the input, converts them, computes eigenpairs and calls work,
// so that reading, eigenpairs and work overlap on all cores. `take` and options.progress are called for one block at a
// time, in input order, from any thread. An Error of work or take ends everything and comes out here. Returns the number of
// bad records.
int64_t stream_blocks(GraphSource& source, const StreamOptions& options, int block,
                      const std::function<void(StreamBlock&)>& work, const std::function<void(StreamBlock&)>& take);

}  // namespace san
