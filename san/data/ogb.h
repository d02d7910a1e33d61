// OGB's raw csv layout for graph property prediction (ogbg-mol*, ogbg-ppa): a folder of
//   raw/num-node-list.csv.gz   nodes of graph i        raw/num-edge-list.csv.gz   edges of graph i, as listed
//   raw/edge.csv.gz            "source,target" per edge, nodes numbered from 0 in each graph
//   raw/graph-label.csv.gz     one row per graph, a column per task; "nan" or nothing = missing
//   raw/node-feat.csv.gz, raw/edge-feat.csv.gz        optional; a file of integers gives categories, a file
//   with any
//                              real number in its first row gives real values
//   split/KIND/{train,valid,test}.csv.gz              optional; graph numbers from 0
//   mapping/mol.csv.gz         optional; a header, then one row per graph (columns in any order)
// Every file may also be plain (.csv). There are no headers but in mapping/.
//
// A bond stands once in edge.csv: whether the inverse edges are to be added is written in OGB's package, not
// in the folder. It is so for all molecule sets, and the default here: the inverse comes right after each
// edge (a self loop too, as OGB has it) with the same features.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "san/graph/graph.h"

namespace san {

struct OgbOptions {
  bool add_inverse = true;
  std::string split;      // KIND, for example "scaffold"; empty: the only one there is, or none when there is none
  std::string id_column;  // of mapping/mol.csv, for example "smiles" or "mol_id"; empty: the graph's number from 0
};

// Streams the graphs in constant memory (plus one byte per graph for the split). Not for sharing between
// threads.
class OgbReader {
 public:
  // `folder` holds raw/. Throws Error when a file that is needed is missing or the split cannot be read.
  explicit OgbReader(const std::string& folder, const OgbOptions& options = {});
  ~OgbReader();
  OgbReader(OgbReader&&) noexcept;

  // The next graph, validated, with labels and, when there is a split, `split` set; false at the end. Throws
  // Error naming file:line for whatever does not fit; the files cannot be followed after that.
  bool next(Graph& graph);

  const std::string& split_kind() const;  // the split in use; empty when none
  int64_t num_graphs_read() const;
  int64_t bytes_read() const;  // of all raw files, for progress
  int64_t bytes_total() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace san
