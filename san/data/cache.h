// The file behind Dataset: graphs, eigenpairs and labels in one memory-mapped file. Internal to data/.
//
// Layout, all numbers little-endian, every section 8-byte aligned:
//   header      256 bytes: magic, version, byte order mark, file size, number of graphs, key, section table, checksum
//   records     one per graph, see encode(): whatever is not in the sections below
//   offsets     u64 [graphs + 1]: place of each record in the section above
//   nodes       i32 [graphs]
//   labels      f64 [graphs, label_columns]: graph labels, NaN = missing
//   splits      u8 [graphs]: place in the metadata's list of split words
//   metadata    JSON
//   blocks      u64 [...]: XXH3 of each kBlock bytes between header and this table
// Every byte is under a checksum: the header's own, that of the block table in the header, or its block's. Opening checks
// the first two and the metadata's blocks; other blocks are checked when they are first read, or all at once in small
// files. Checking by block rather than by record costs nothing per access once a block is known to be good, and lets the
// index of a very large file go unread at opening.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "san/graph/graph.h"

namespace san::cache {

inline constexpr uint32_t kVersion = 1;
inline constexpr size_t kBlock = size_t{1} << 18;
inline constexpr size_t kHeaderBytes = 256;
inline constexpr int64_t kCheckAllBelow = int64_t{64} << 20;
inline constexpr int kMaxSplitWords = 255;

struct Section {
  uint64_t offset = 0, size = 0;
};

struct Sections {
  Section records, offsets, nodes, labels, splits, metadata, blocks;
};

struct Columns {
  int categories = 0, values = 0;
  bool operator==(const Columns&) const = default;
};

struct Metadata {
  std::string made_from;             // the spec
  std::vector<std::string> targets;  // as the source names them
  int label_columns = 0;
  bool node_labels = false;
  std::vector<std::string> split_words;
  int64_t bad_records = 0;
  std::vector<std::string> bad_messages;  // of the first ones
  Columns node_columns, edge_columns;
  std::vector<int32_t> node_category_sizes, edge_category_sizes;  // largest category + 1, per column
  int64_t total_nodes = 0, total_edges = 0;
  int32_t max_nodes = 0, max_pairs = 0;
};

// What the writer must know of a graph, made on any thread.
struct Encoded {
  std::string bytes;
  int32_t num_nodes = 0;
  int64_t num_edges = 0;
  int32_t num_pairs = 0;
  Columns node_columns, edge_columns;
  std::vector<int32_t> node_category_sizes, edge_category_sizes;
  std::vector<double> labels;
  bool node_labels = false;
  std::string id, split;

  bool labelled() const { return node_labels || !labels.empty(); }
};

Encoded encode(const Graph& graph);

// Writes a file (or, without a path, memory) in one pass and in constant memory. The temporary file beside the target is
// locked while it is written: one whose writer died is removed by the next writer in that folder. Not for sharing.
class Writer {
 public:
  Writer(std::string path, const std::string& key);
  ~Writer();  // without finish(): removes the temporary file
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  // Throws RecordError, having written nothing, for a graph that does not fit those before it: other columns or labels.
  // Throws Error when the disk is full. A graph without labels among labelled ones has missing ones.
  void add(const Encoded& graph, const std::string& where);
  int64_t size() const;

  // The rest; `metadata` brings made_from, targets and what is known of bad records.
  void finish(Metadata metadata);
  std::string take_memory();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// An open cache. Immutable to its users; safe to share between threads.
class File {
 public:
  // Null, and the reason in `problem`, when there is no file, or it is of another version or key, truncated or damaged.
  static std::shared_ptr<const File> open(const std::string& path, const std::string& key, std::string& problem);
  static std::shared_ptr<const File> from_memory(std::string bytes);
  ~File();
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  const std::string& path() const { return path_; }
  const Metadata& metadata() const { return metadata_; }
  const Sections& sections() const { return sections_; }
  int64_t size() const { return size_; }

  // Each checks the blocks it touches. On damage: removes the file and throws Error.
  Graph graph(int64_t i) const;
  std::string smiles(int64_t i) const;
  int32_t num_nodes(int64_t i) const;
  uint8_t split(int64_t i) const;
  std::span<const double> labels() const;

 private:
  File() = default;
  void parse(const std::string& key);
  bool block_is_good(size_t block) const;
  void check(uint64_t offset, uint64_t size) const;
  std::span<const std::byte> record(int64_t i) const;
  [[noreturn]] void damaged(const char* what) const;
  template <typename T>
  T at(const Section& section, int64_t i) const;

  std::string path_, memory_;
  const std::byte* data_ = nullptr;
  uint64_t bytes_ = 0;
  bool mapped_ = false, opened_ = false;
  int64_t size_ = 0;
  Sections sections_;
  Metadata metadata_;
  std::unique_ptr<std::atomic<uint8_t>[]> good_;  // per block
};

}  // namespace san::cache
