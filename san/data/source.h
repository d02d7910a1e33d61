// Graphs from anywhere: one interface over every input that a user may name.
//
// A spec is what --data takes:
//   FILE.csv[.gz]            molecules: a SMILES column and label columns (needs RDKit)
//   FILE.jsonl[.gz]          Graph JSONL; also "-" (standard input) unless SourceOptions::format says csv
//   FOLDER with *_A.txt      the TU text format
//   FOLDER with raw/         OGB's csv layout
//   generate:pattern | generate:cluster | generate:csl, with options: generate:cluster?train=100&valid=20&test=20&seed=1
//
// Reading is cut in two so that the costly half can run on all cores: next() cuts the input into records, in order, cheaply;
// convert() turns a record into a graph and may be called from many threads at once.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "san/graph/graph.h"

namespace san {

struct SourceOptions {
  std::string format = "auto";           // auto, csv, jsonl, tu, ogb
  std::string smiles_column = "smiles";  // CSV
  std::vector<std::string>
      target_columns;               // CSV; empty: all columns that hold only numbers or blanks, except those named here
  std::string split_column;         // CSV; empty: none ("split" is never a target)
  std::string id_column;            // CSV; empty: the first column
  std::string featuriser = "ogb";   // CSV: zinc, ogb
  bool unknown_atoms_error = true;  // zinc: an atom type outside the table is an error, else a bucket of its own
  bool labels_required = true;      // false when predicting: label columns may be absent
};

// One piece of the input, before the costly work.
struct Record {
  int64_t index = 0;  // in the input, from 0; bad records count
  std::string where;  // "file:line", for messages
  std::string text;   // SMILES, or a line of JSON
  Graph graph;        // id, split and labels; for formats that are parsed while cutting, all of it
};

class GraphSource {
 public:
  virtual ~GraphSource() = default;

  // The next record; false at the end. Throws RecordError for a bad one (call again to go on), Error when the input is
  // damaged. For one thread.
  virtual bool next(Record& record) = 0;

  // The graph, validated, without eigenpairs unless the input gives them. Throws RecordError. Safe from many threads.
  virtual Graph convert(Record record) const = 0;

  // Names of the label columns; empty when the format has none.
  virtual std::vector<std::string> targets() const { return {}; }

  // A fingerprint of the input's content and of the options that shape its graphs, as hex. Reads all input files.
  // Throws Error for standard input, which cannot be read twice.
  virtual std::string fingerprint() const = 0;

  virtual int64_t bytes_read() const { return 0; }
  virtual int64_t bytes_total() const { return 0; }  // 0 = unknown
};

// Throws Error, saying what is known, when the spec names nothing readable.
std::unique_ptr<GraphSource> open_source(const std::string& spec, const SourceOptions& options);

}  // namespace san
