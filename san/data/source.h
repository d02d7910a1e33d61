// Graphs from anywhere: one interface over every input that a user may name.
//
// A spec is what --data takes:
//   FILE.csv[.gz]            molecules: a SMILES column and label columns (needs RDKit)
//   FILE.jsonl[.gz]          Graph JSONL
//   -                        standard input: Graph JSONL, or what SourceOptions::format says
//   FOLDER with *_A.txt      the TU text format (also when they are in FOLDER/raw)
//   FOLDER with raw/         OGB's csv layout
//   generate:pattern | generate:cluster | generate:csl, with options: generate:cluster?train=100&valid=20&test=20&seed=1
//   train=A,valid=B,test=C   several of these one after the other, each graph's split set to the name before the =
//                            (train, valid and test, once each, in any order, two or three of them)
// A file whose name says nothing is known by its first line.
//
// Reading is cut in two so that the costly half can run on all cores: next() cuts the input into records, in order, cheaply;
// convert() turns a record into a graph and may be called from many threads at once. stream.h runs the two.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "san/data/fingerprint.h"
#include "san/graph/graph.h"

namespace san {

// Molecule CSV. A label is a number; blank, "nan", "na", "n/a", "null", "none" and "?" (in any case) are missing labels;
// anything else is a bad record. Class names must be numbered by the user.
struct SourceOptions {
  std::string format = "auto";  // auto, csv, jsonl, tu, ogb
  std::string smiles_column =
      "smiles";  // CSV; without a column of exactly that name, the only one that differs in case
  // CSV; empty: every column that has a number, and nothing but numbers and missing labels, in the first 1,000 rows. Never
  // the columns named here, "split", or names that say they count rows (id, index, row, name, ..._id, ..._index, num_...). None at
  // all: the set has no labels.
  std::vector<std::string> target_columns;
  std::string split_column;         // CSV; empty: "split", when there is such a column
  std::string id_column;            // CSV; empty: the first column. OGB: of mapping/mol.csv; empty: the graph's number
  std::string featuriser = "ogb";   // CSV: zinc, ogb
  bool unknown_atoms_error = true;  // zinc: an atom type outside the table is an error, else a bucket of its own
  // false when predicting: columns of target_columns may be absent, and a label that cannot be read counts as missing.
  bool labels_required = true;
};

// One piece of the input, before the costly work.
struct Record {
  int64_t index = 0;  // in the input, from 0; bad records count
  std::string where;  // "file:line", for messages
  std::string text;   // SMILES, or a line of JSON
  Graph graph;        // id, split and labels; for formats that are parsed while cutting, all of it
  int part = 0;       // which source of several it came from
};

class GraphSource {
 public:
  virtual ~GraphSource() = default;

  // The next record; false at the end. Throws RecordError for a bad one (call again to go on), Error when the input is
  // damaged. For one thread.
  virtual bool next(Record& record) = 0;

  // The graph, validated, without eigenpairs unless the input gives them. Throws RecordError. Safe from many threads, also
  // while next() runs.
  virtual Graph convert(Record record) const = 0;

  // Names of the label columns; empty when the format has none.
  virtual std::vector<std::string> targets() const { return {}; }

  // What ids are called: the id column of a CSV, else "id".
  virtual std::string id_name() const { return "id"; }

  // What the user named, for messages and file names.
  virtual std::string name() const = 0;

  // A fingerprint of the input's content and of the options that shape its graphs, as hex. Reads all input files.
  // Throws Error for standard input, which cannot be read twice.
  virtual std::string fingerprint(const FileFingerprints& files) const = 0;

  virtual int64_t bytes_read() const { return 0; }
  virtual int64_t bytes_total() const { return 0; }  // 0 = unknown
};

// Throws Error, saying what is known, when the spec names nothing readable.
std::unique_ptr<GraphSource> open_source(const std::string& spec, const SourceOptions& options = {});

}  // namespace san
