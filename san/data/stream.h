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

// Calls work (may be null) on options.threads threads, the caller's among them, and take on the caller's, in input order,
// while later records are read and worked on. source.next is called by one thread at a time. An Error of work or a
// RecordError of take makes the record a bad one; whatever else is thrown comes out of this function when it is that
// record's turn and the other threads have ended. Returns the number of bad records. At most a few hundred graphs are in
// memory at a time.
int64_t stream_graphs(GraphSource& source, const StreamOptions& options, const std::function<void(Streamed&)>& work,
                      const std::function<void(Streamed&)>& take);

// Graphs that are neighbours in the input, worked on together by one thread.
struct StreamBlock {
  std::vector<Streamed*> graphs;      // without those that could not be read
  std::vector<std::string> problems;  // one per graph, for `work` to fill: not empty makes it a bad record
  std::string text;                   // for `work` to fill and `take` to use
};

// As stream_graphs for work that wants several graphs at once, up to `block` of them: the first blocks are smaller, so that
// all threads soon have something to do. What work throws ends the stream when it is that block's turn.
int64_t stream_blocks(GraphSource& source, const StreamOptions& options, int block,
                      const std::function<void(StreamBlock&)>& work, const std::function<void(StreamBlock&)>& take);

}  // namespace san
