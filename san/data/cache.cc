#include "san/data/cache.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>

#include "san/base/error.h"
#include "san/data/fingerprint.h"

namespace san::cache {
namespace {

static_assert(std::endian::native == std::endian::little, "the cache is written as the machine has it");

constexpr char kMagic[8] = {'S', 'A', 'N', 'D', 'A', 'T', 'A', '\n'};
constexpr uint32_t kByteOrder = 0x01020304;

struct Header {
  char magic[8];
  uint32_t version;
  uint32_t byte_order;
  uint64_t file_size;
  uint64_t num_graphs;
  char key[32];
  Sections sections;
  uint64_t blocks_checksum;
  char unused[kHeaderBytes - 64 - sizeof(Sections) - 16];
  uint64_t header_checksum;  // of all before
};
static_assert(sizeof(Header) == kHeaderBytes && std::is_trivially_copyable_v<Header>);

[[noreturn]] void system_failure(const std::string& path, const char* what) {
  fail("{}: {}: {}", path, what, std::strerror(errno));
}

// --- records

// Numbers below `limit` in as few bytes as they need: node numbers and categories nearly always fit in one.
int width_for(int64_t limit) {
  return limit <= 256 ? 1 : limit <= 65536 ? 2 : 4;
}

struct RecordHeader {
  int32_t num_nodes;
  int32_t num_edges;
  int32_t node_categories, node_values, edge_categories, edge_values;  // columns
  int32_t num_pairs;                                                   // -1: none
  uint32_t id_bytes, split_bytes, smiles_bytes;
  uint8_t end_width, node_width, edge_width, has_node_labels;
};
static_assert(sizeof(RecordHeader) == 44);

class Encoder {
 public:
  explicit Encoder(std::string& out) : out_(out) {}

  template <typename T>
  void raw(const T* data, size_t count) {
    out_.append(reinterpret_cast<const char*>(data), count * sizeof(T));
  }
  void narrow(const int32_t* data, size_t count, int width) {
    if (width == 4) return raw(data, count);
    const size_t begin = out_.size();
    out_.resize(begin + count * static_cast<size_t>(width));
    if (width == 1) {
      auto* to = reinterpret_cast<uint8_t*>(out_.data() + begin);
      for (size_t i = 0; i < count; ++i) to[i] = static_cast<uint8_t>(data[i]);
    } else {
      for (size_t i = 0; i < count; ++i) {
        const auto value = static_cast<uint16_t>(data[i]);
        std::memcpy(out_.data() + begin + 2 * i, &value, 2);
      }
    }
  }

 private:
  std::string& out_;
};

// Throws Error rather than read outside the record: a checksum is no proof.
class Decoder {
 public:
  explicit Decoder(std::span<const std::byte> bytes) : at_(bytes.data()), left_(bytes.size()) {}

  const std::byte* take(uint64_t size) {
    SAN_CHECK(size <= left_, "a record of the cache ends too early");
    const std::byte* from = at_;
    at_ += size;
    left_ -= size;
    return from;
  }
  template <typename T>
  std::vector<T> raw(uint64_t count) {
    SAN_CHECK(count <= left_ / sizeof(T), "a record of the cache ends too early");
    std::vector<T> out(count);
    if (count > 0) std::memcpy(out.data(), take(count * sizeof(T)), count * sizeof(T));
    return out;
  }
  void narrow(int32_t* out, uint64_t count, int width) {
    SAN_CHECK(width == 1 || width == 2 || width == 4, "a record of the cache has numbers of {} bytes", width);
    SAN_CHECK(count <= left_ / static_cast<uint64_t>(width), "a record of the cache ends too early");
    const std::byte* from = take(count * static_cast<uint64_t>(width));
    if (width == 4) {
      if (count > 0) std::memcpy(out, from, count * 4);
    } else if (width == 1) {
      const auto* numbers = reinterpret_cast<const uint8_t*>(from);
      for (uint64_t i = 0; i < count; ++i) out[i] = numbers[i];
    } else {
      for (uint64_t i = 0; i < count; ++i) {
        uint16_t value = 0;
        std::memcpy(&value, from + 2 * i, 2);
        out[i] = value;
      }
    }
  }
  std::vector<int32_t> narrow(uint64_t count, int width) {
    SAN_CHECK(count <= left_, "a record of the cache ends too early");  // before the allocation
    std::vector<int32_t> out(count);
    narrow(out.data(), count, width);
    return out;
  }
  std::string text(uint64_t size) {
    const auto* from = reinterpret_cast<const char*>(take(size));
    return {from, size};
  }

 private:
  const std::byte* at_;
  uint64_t left_;
};

// 1 + the largest category of each column.
std::vector<int32_t> category_sizes(const Features& features) {
  const auto columns = static_cast<size_t>(features.category_columns);
  std::vector<int32_t> sizes(columns, 0);
  for (size_t i = 0; i < features.categories.size(); i += columns)
    for (size_t c = 0; c < columns; ++c) sizes[c] = std::max(sizes[c], features.categories[i + c]);
  for (int32_t& size : sizes)
    if (!features.categories.empty() && size < INT32_MAX) ++size;
  return sizes;
}

int64_t largest(const std::vector<int32_t>& sizes) {
  return sizes.empty() ? 0 : *std::max_element(sizes.begin(), sizes.end());
}

// The texts come first: the SMILES can be had without the rest.
RecordHeader decode_texts(Decoder& in, Graph& graph) {
  RecordHeader header{};
  std::memcpy(&header, in.take(sizeof header), sizeof header);
  graph.id = in.text(header.id_bytes);
  graph.split = in.text(header.split_bytes);
  graph.smiles = in.text(header.smiles_bytes);
  SAN_CHECK(header.num_nodes >= 1 && header.num_edges >= 0 && header.node_categories >= 0 && header.node_values >= 0 &&
                header.edge_categories >= 0 && header.edge_values >= 0 && header.num_pairs >= -1,
            "a record of the cache has impossible sizes");
  return header;
}

Graph decode(std::span<const std::byte> bytes) {
  Graph graph;
  Decoder in(bytes);
  const RecordHeader header = decode_texts(in, graph);
  const auto nodes = static_cast<uint64_t>(header.num_nodes), edges = static_cast<uint64_t>(header.num_edges);
  const auto times = [](uint64_t rows, int32_t columns) { return rows * static_cast<uint64_t>(columns); };
  graph.num_nodes = header.num_nodes;
  static_assert(sizeof(Edge) == 8);
  const std::vector<int32_t> ends = in.narrow(2 * edges, header.end_width);
  graph.edges.resize(edges);
  for (size_t i = 0; i < edges; ++i) graph.edges[i] = {ends[2 * i], ends[2 * i + 1]};
  graph.node_features.category_columns = header.node_categories;
  graph.node_features.value_columns = header.node_values;
  graph.edge_features.category_columns = header.edge_categories;
  graph.edge_features.value_columns = header.edge_values;
  graph.node_features.categories = in.narrow(times(nodes, header.node_categories), header.node_width);
  graph.edge_features.categories = in.narrow(times(edges, header.edge_categories), header.edge_width);
  graph.node_features.values = in.raw<float>(times(nodes, header.node_values));
  graph.edge_features.values = in.raw<float>(times(edges, header.edge_values));
  if (header.has_node_labels != 0) graph.node_labels = in.raw<double>(nodes);
  if (header.num_pairs >= 0) {
    Eigenpairs& pairs = graph.eigenpairs.emplace();
    pairs.count = header.num_pairs;
    pairs.values = in.raw<float>(static_cast<uint64_t>(header.num_pairs));
    pairs.vectors = in.raw<float>(times(nodes, header.num_pairs));
  }
  return graph;
}

nlohmann::json to_json(const Metadata& m) {
  return {{"made_from", m.made_from},
          {"targets", m.targets},
          {"label_columns", m.label_columns},
          {"node_labels", m.node_labels},
          {"split_words", m.split_words},
          {"bad_records", m.bad_records},
          {"bad_messages", m.bad_messages},
          {"node_columns", {m.node_columns.categories, m.node_columns.values}},
          {"edge_columns", {m.edge_columns.categories, m.edge_columns.values}},
          {"node_category_sizes", m.node_category_sizes},
          {"edge_category_sizes", m.edge_category_sizes},
          {"total_nodes", m.total_nodes},
          {"total_edges", m.total_edges},
          {"max_nodes", m.max_nodes},
          {"max_pairs", m.max_pairs}};
}

Metadata metadata_from(const nlohmann::json& json) {
  Metadata m;
  json.at("made_from").get_to(m.made_from);
  json.at("targets").get_to(m.targets);
  json.at("label_columns").get_to(m.label_columns);
  json.at("node_labels").get_to(m.node_labels);
  json.at("split_words").get_to(m.split_words);
  json.at("bad_records").get_to(m.bad_records);
  json.at("bad_messages").get_to(m.bad_messages);
  json.at("node_columns").at(0).get_to(m.node_columns.categories);
  json.at("node_columns").at(1).get_to(m.node_columns.values);
  json.at("edge_columns").at(0).get_to(m.edge_columns.categories);
  json.at("edge_columns").at(1).get_to(m.edge_columns.values);
  json.at("node_category_sizes").get_to(m.node_category_sizes);
  json.at("edge_category_sizes").get_to(m.edge_category_sizes);
  json.at("total_nodes").get_to(m.total_nodes);
  json.at("total_edges").get_to(m.total_edges);
  json.at("max_nodes").get_to(m.max_nodes);
  json.at("max_pairs").get_to(m.max_pairs);
  return m;
}

// --- writing

// Removes temporary files whose writer is no more: nobody holds their lock.
void remove_stale_temporaries(const std::filesystem::path& folder) {
  std::error_code failure;
  for (std::filesystem::directory_iterator entry(folder, failure), end; !failure && entry != end;
       entry.increment(failure)) {
    const std::string path = entry->path().string();
    if (!path.ends_with(".san.tmp") && path.find(".san.tmp-") == path.npos) continue;
    const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    if (fd < 0) continue;
    if (::flock(fd, LOCK_EX | LOCK_NB) == 0) ::unlink(path.c_str());
    ::close(fd);
  }
}

// Bytes put aside until the records are complete: in memory while they are few, then in a file without a name.
class Aside {
 public:
  explicit Aside(std::string folder) : folder_(std::move(folder)) {}
  ~Aside() {
    if (fd_ >= 0) ::close(fd_);
  }
  Aside(const Aside&) = delete;
  Aside& operator=(const Aside&) = delete;

  template <typename T>
  void add(const T& value) {
    pending_.append(reinterpret_cast<const char*>(&value), sizeof value);
    if (pending_.size() >= kLimit && !folder_.empty()) flush();
  }

  template <typename Put>
  void read_back(Put&& put) {
    if (fd_ >= 0) {
      flush();
      std::vector<char> chunk(kLimit);
      for (off_t at = 0;;) {
        const ssize_t got = ::pread(fd_, chunk.data(), chunk.size(), at);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) system_failure(folder_, "cannot read a temporary file");
        if (got == 0) break;
        put(chunk.data(), static_cast<size_t>(got));
        at += got;
      }
    } else {
      put(pending_.data(), pending_.size());
    }
  }

 private:
  static constexpr size_t kLimit = size_t{1} << 20;

  void flush() {
    if (fd_ < 0) {
      fd_ = ::open(folder_.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
      if (fd_ < 0) {  // file systems without nameless files
        std::string name = folder_ + "/aside.san.tmp-XXXXXX";
        fd_ = ::mkostemp(name.data(), O_CLOEXEC);
        if (fd_ >= 0) ::unlink(name.c_str());
      }
      if (fd_ < 0) system_failure(folder_, "cannot write a temporary file");
    }
    for (size_t done = 0; done < pending_.size();) {
      const ssize_t put = ::write(fd_, pending_.data() + done, pending_.size() - done);
      if (put < 0 && errno == EINTR) continue;
      if (put <= 0) system_failure(folder_, "cannot write a temporary file");
      done += static_cast<size_t>(put);
    }
    pending_.clear();
  }

  std::string folder_, pending_;
  int fd_ = -1;
};

}  // namespace

Encoded encode(const Graph& graph) {
  Encoded out;
  out.num_nodes = graph.num_nodes;
  out.num_edges = static_cast<int64_t>(graph.edges.size());
  out.num_pairs = graph.eigenpairs ? graph.eigenpairs->count : 0;
  out.node_columns = {graph.node_features.category_columns, graph.node_features.value_columns};
  out.edge_columns = {graph.edge_features.category_columns, graph.edge_features.value_columns};
  out.node_category_sizes = category_sizes(graph.node_features);
  out.edge_category_sizes = category_sizes(graph.edge_features);
  out.labels = graph.graph_labels;
  out.node_labels = !graph.node_labels.empty();
  out.id = graph.id;
  out.split = graph.split;

  RecordHeader header{};
  header.num_nodes = graph.num_nodes;
  header.num_edges = static_cast<int32_t>(graph.edges.size());
  header.node_categories = graph.node_features.category_columns;
  header.node_values = graph.node_features.value_columns;
  header.edge_categories = graph.edge_features.category_columns;
  header.edge_values = graph.edge_features.value_columns;
  header.num_pairs = graph.eigenpairs ? graph.eigenpairs->count : -1;
  header.id_bytes = static_cast<uint32_t>(graph.id.size());
  header.split_bytes = static_cast<uint32_t>(graph.split.size());
  header.smiles_bytes = static_cast<uint32_t>(graph.smiles.size());
  header.end_width = static_cast<uint8_t>(width_for(graph.num_nodes));
  header.node_width = static_cast<uint8_t>(width_for(largest(out.node_category_sizes)));
  header.edge_width = static_cast<uint8_t>(width_for(largest(out.edge_category_sizes)));
  header.has_node_labels = out.node_labels ? 1 : 0;

  std::vector<int32_t> ends;
  ends.reserve(2 * graph.edges.size());
  for (const Edge& edge : graph.edges) {
    ends.push_back(edge.source);
    ends.push_back(edge.target);
  }
  Encoder to(out.bytes);
  to.raw(&header, 1);
  out.bytes += graph.id;
  out.bytes += graph.split;
  out.bytes += graph.smiles;
  to.narrow(ends.data(), ends.size(), header.end_width);
  to.narrow(graph.node_features.categories.data(), graph.node_features.categories.size(), header.node_width);
  to.narrow(graph.edge_features.categories.data(), graph.edge_features.categories.size(), header.edge_width);
  to.raw(graph.node_features.values.data(), graph.node_features.values.size());
  to.raw(graph.edge_features.values.data(), graph.edge_features.values.size());
  to.raw(graph.node_labels.data(), graph.node_labels.size());
  if (graph.eigenpairs) {
    to.raw(graph.eigenpairs->values.data(), graph.eigenpairs->values.size());
    to.raw(graph.eigenpairs->vectors.data(), graph.eigenpairs->vectors.size());
  }
  out.bytes.resize((out.bytes.size() + 7) / 8 * 8, '\0');
  return out;
}

struct Writer::Impl {
  Impl(std::string target, const std::string& key_text)
      : path(std::move(target)),
        folder(path.empty() ? "" : std::filesystem::absolute(path).parent_path().string()),
        key(key_text),
        offsets(folder),
        nodes(folder),
        labels(folder),
        splits(folder) {
    block.reserve(kBlock);
    if (path.empty()) {
      memory.assign(kHeaderBytes, '\0');
    } else {
      remove_stale_temporaries(folder);
      create();
    }
    offsets.add(uint64_t{0});
  }
  ~Impl() {
    if (fd >= 0) {
      ::unlink(temporary.c_str());
      ::close(fd);
    }
  }

  void create() {
    for (int attempt = 0; attempt < 100; ++attempt) {
      temporary = fmt::format("{}.tmp-XXXXXX", path);
      fd = ::mkostemp(temporary.data(), O_CLOEXEC);
      if (fd < 0) system_failure(path, "cannot write");
      // Another process may have taken the new file for a dead one's, before it was locked.
      struct stat info {};
      if (::flock(fd, LOCK_EX | LOCK_NB) == 0 && ::fstat(fd, &info) == 0 && info.st_nlink > 0) break;
      ::close(fd);
      fd = -1;
    }
    SAN_CHECK(fd >= 0, "{}: cannot write: the temporary file keeps disappearing", path);
    ::fchmod(fd, 0644);
    put_at(std::string(kHeaderBytes, '\0').data(), kHeaderBytes, 0);
    written = kHeaderBytes;
  }

  void put_at(const char* data, size_t size, uint64_t at) {
    while (size > 0) {
      const ssize_t done = ::pwrite(fd, data, size, static_cast<off_t>(at));
      if (done < 0 && errno == EINTR) continue;
      if (done <= 0)
        system_failure(path, "cannot write the cache (choose another folder with --cache or SAN_CACHE_DIR)");
      data += done;
      size -= static_cast<size_t>(done);
      at += static_cast<uint64_t>(done);
    }
  }

  void flush_block() {
    if (block.empty()) return;
    blocks.push_back(checksum(block.data(), block.size()));
    if (fd >= 0) {
      put_at(block.data(), block.size(), written);
    } else {
      memory += block;
    }
    written += block.size();
    block.clear();
  }

  void put(const char* data, size_t size) {
    total += size;
    while (size > 0) {
      const size_t take = std::min(size, kBlock - block.size());
      block.append(data, take);
      data += take;
      size -= take;
      if (block.size() == kBlock) flush_block();
    }
  }

  // A section: what `fill` puts, then padding.
  template <typename Fill>
  Section section(Fill&& fill) {
    Section made{kHeaderBytes + total, 0};
    fill();
    made.size = kHeaderBytes + total - made.offset;
    pad();
    return made;
  }
  void pad() {
    static constexpr char kZeros[8] = {};
    put(kZeros, (8 - total % 8) % 8);
  }

  uint8_t split_code(const std::string& word, const std::string& where) {
    if (!words.empty() && words[last_word] == word) return static_cast<uint8_t>(last_word);
    const auto found = std::find(words.begin(), words.end(), word);
    last_word = static_cast<size_t>(found - words.begin());
    if (found == words.end()) {
      SAN_CHECK(words.size() < kMaxSplitWords, "{}: '{}' is the {}th different split: is this the right column?", where,
                printable(word, 40), words.size() + 1);
      words.push_back(word);
    }
    return static_cast<uint8_t>(last_word);
  }

  void fits(const Encoded& graph, const std::string& where) const {
    const auto bad = [&](const std::string& what) { throw RecordError(fmt::format("{}: {}", where, what)); };
    const auto columns = [&](const char* what, const Columns& here, const Columns& others) {
      if (here == others) return;
      bad(fmt::format("the graph has {} categorical and {} real-valued {} feature columns, those before it {} and {}",
                      here.categories, here.values, what, others.categories, others.values));
    };
    if (count > 0) columns("node", graph.node_columns, facts.node_columns);
    if (have_edges && graph.num_edges > 0) columns("edge", graph.edge_columns, facts.edge_columns);
    if (count == 0) return;
    if (!graph.labelled() && !facts.node_labels) return;  // missing labels
    if (!have_labels && !graph.node_labels) return;       // the first that has any: those before it have missing ones
    if (graph.node_labels != facts.node_labels) {
      bad(facts.node_labels ? "the graph has no node labels, those before it do"
                            : "the graph has node labels, those before it do not");
    }
    if (graph.labels.size() != static_cast<size_t>(facts.label_columns)) {
      bad(fmt::format("the graph has {} labels, those before it {}", graph.labels.size(), facts.label_columns));
    }
  }

  static void merge(std::vector<int32_t>& sizes, const std::vector<int32_t>& more) {
    if (sizes.size() < more.size()) sizes.resize(more.size(), 0);
    for (size_t i = 0; i < more.size(); ++i) sizes[i] = std::max(sizes[i], more[i]);
  }

  void add(const Encoded& graph, const std::string& where) {
    fits(graph, where);
    const uint8_t split = split_code(graph.split, where);
    if (count == 0) {
      facts.node_columns = graph.node_columns;
    }
    if (!have_labels && graph.labelled()) {
      have_labels = true;
      facts.label_columns = static_cast<int>(graph.labels.size());
      facts.node_labels = graph.node_labels;
      for (int64_t i = 0; i < count * facts.label_columns; ++i) labels.add(std::numeric_limits<double>::quiet_NaN());
    }
    if (!have_edges && graph.num_edges > 0) {
      have_edges = true;
      facts.edge_columns = graph.edge_columns;
    }
    put(graph.bytes.data(), graph.bytes.size());
    offsets.add(total);
    nodes.add(graph.num_nodes);
    splits.add(split);
    for (int i = 0; i < facts.label_columns; ++i) {
      labels.add(graph.labels.empty() ? std::numeric_limits<double>::quiet_NaN()
                                      : graph.labels[static_cast<size_t>(i)]);
    }
    merge(facts.node_category_sizes, graph.node_category_sizes);
    merge(facts.edge_category_sizes, graph.edge_category_sizes);
    facts.total_nodes += graph.num_nodes;
    facts.total_edges += graph.num_edges;
    facts.max_nodes = std::max(facts.max_nodes, graph.num_nodes);
    facts.max_pairs = std::max(facts.max_pairs, graph.num_pairs);
    ++count;
  }

  void finish(Metadata metadata) {
    facts.made_from = std::move(metadata.made_from);
    facts.targets = std::move(metadata.targets);
    facts.bad_records = metadata.bad_records;
    facts.bad_messages = std::move(metadata.bad_messages);
    facts.split_words = words;
    Header header{};
    std::copy_n(kMagic, sizeof kMagic, header.magic);
    header.version = kVersion;
    header.byte_order = kByteOrder;
    header.num_graphs = static_cast<uint64_t>(count);
    std::copy_n(key.data(), std::min(key.size(), sizeof header.key), header.key);
    Sections& sections = header.sections;
    sections.records = {kHeaderBytes, total};
    const auto copy = [&](const char* data, size_t size) { put(data, size); };
    sections.offsets = section([&] { offsets.read_back(copy); });
    sections.nodes = section([&] { nodes.read_back(copy); });
    sections.labels = section([&] { labels.read_back(copy); });
    sections.splits = section([&] { splits.read_back(copy); });
    // Names from outside may be any bytes.
    const std::string text = to_json(facts).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    sections.metadata = section([&] { put(text.data(), text.size()); });
    flush_block();
    sections.blocks = {kHeaderBytes + total, blocks.size() * sizeof(uint64_t)};
    header.file_size = sections.blocks.offset + sections.blocks.size;
    header.blocks_checksum = checksum(blocks.data(), sections.blocks.size);
    header.header_checksum = checksum(&header, offsetof(Header, header_checksum));
    const auto* table = reinterpret_cast<const char*>(blocks.data());
    const auto* first = reinterpret_cast<const char*>(&header);
    if (fd < 0) {
      memory.append(table, sections.blocks.size);
      std::copy_n(first, kHeaderBytes, memory.begin());
      return;
    }
    put_at(table, sections.blocks.size, written);
    put_at(first, kHeaderBytes, 0);
    if (::fsync(fd) != 0) system_failure(path, "cannot write the cache");
    if (::rename(temporary.c_str(), path.c_str()) != 0) system_failure(path, "cannot write the cache");
    ::close(std::exchange(fd, -1));
    const int parent = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (parent >= 0) {
      ::fsync(parent);  // the rename too must reach the disk
      ::close(parent);
    }
  }

  std::string path, folder, key, temporary, memory;
  int fd = -1;
  std::string block;             // being filled
  std::vector<uint64_t> blocks;  // checksums
  uint64_t total = 0;            // bytes put behind the header
  uint64_t written = 0;
  Aside offsets, nodes, labels, splits;
  std::vector<std::string> words;
  size_t last_word = 0;
  Metadata facts;
  bool have_edges = false, have_labels = false;
  int64_t count = 0;
};

Writer::Writer(std::string path, const std::string& key) : impl_(std::make_unique<Impl>(std::move(path), key)) {}
Writer::~Writer() = default;
void Writer::add(const Encoded& graph, const std::string& where) {
  impl_->add(graph, where);
}
int64_t Writer::size() const {
  return impl_->count;
}
void Writer::finish(Metadata metadata) {
  impl_->finish(std::move(metadata));
}
std::string Writer::take_memory() {
  return std::move(impl_->memory);
}

// --- reading

std::shared_ptr<const File> File::open(const std::string& path, const std::string& key, std::string& problem) {
  problem.clear();
  const std::shared_ptr<File> file(new File);
  file->path_ = path;
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    problem = errno == ENOENT ? "there is none" : std::strerror(errno);
    return nullptr;
  }
  struct stat info {};
  if (::fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_size >= static_cast<off_t>(kHeaderBytes)) {
    file->bytes_ = static_cast<uint64_t>(info.st_size);
    void* address = ::mmap(nullptr, file->bytes_, PROT_READ, MAP_SHARED, fd, 0);
    if (address != MAP_FAILED) {
      file->data_ = static_cast<const std::byte*>(address);
      file->mapped_ = true;
    }
  }
  ::close(fd);
  if (!file->mapped_) {
    problem = "it is too short or cannot be mapped";
    return nullptr;
  }
  try {
    file->parse(key);
  } catch (const std::exception& error) {
    problem = error.what();
    return nullptr;
  }
  file->opened_ = true;
  return file;
}

std::shared_ptr<const File> File::from_memory(std::string bytes) {
  const std::shared_ptr<File> file(new File);
  file->memory_ = std::move(bytes);
  file->data_ = reinterpret_cast<const std::byte*>(file->memory_.data());
  file->bytes_ = file->memory_.size();
  file->parse({});
  return file;
}

File::~File() {
  if (mapped_) ::munmap(const_cast<std::byte*>(data_), bytes_);
}

void File::parse(const std::string& key) {
  Header header{};
  std::memcpy(&header, data_, kHeaderBytes);
  SAN_CHECK(std::equal(kMagic, kMagic + sizeof kMagic, header.magic), "it is not a cache of san");
  SAN_CHECK(header.byte_order == kByteOrder, "it was written on a machine with another byte order");
  SAN_CHECK(header.version == kVersion, "it is of version {}, this is version {}", header.version, kVersion);
  SAN_CHECK(header.header_checksum == checksum(&header, offsetof(Header, header_checksum)), "its header is damaged");
  SAN_CHECK(header.file_size == bytes_, "it has {} bytes instead of {}", bytes_, header.file_size);
  char wanted[sizeof header.key] = {};
  std::copy_n(key.data(), std::min(key.size(), sizeof wanted), wanted);
  SAN_CHECK(std::equal(wanted, wanted + sizeof wanted, header.key), "it was made from other data or options");

  sections_ = header.sections;
  for (const Section* section : {&sections_.records, &sections_.offsets, &sections_.nodes, &sections_.labels,
                                 &sections_.splits, &sections_.metadata, &sections_.blocks}) {
    SAN_CHECK(section->offset >= kHeaderBytes && section->offset % 8 == 0 && section->offset <= bytes_ &&
                  section->size <= bytes_ - section->offset,
              "its section table is damaged");
  }
  const uint64_t covered = sections_.blocks.offset - kHeaderBytes;
  const uint64_t blocks = (covered + kBlock - 1) / kBlock;
  SAN_CHECK(sections_.blocks.size == blocks * sizeof(uint64_t), "its section table is damaged");
  SAN_CHECK(header.blocks_checksum == checksum(data_ + sections_.blocks.offset, sections_.blocks.size),
            "its table of checksums is damaged");
  SAN_CHECK(header.num_graphs > 0 && header.num_graphs < bytes_, "its number of graphs is damaged");
  size_ = static_cast<int64_t>(header.num_graphs);
  good_ = std::make_unique<std::atomic<uint8_t>[]>(blocks);
  if (static_cast<int64_t>(bytes_) < kCheckAllBelow) {
    for (size_t i = 0; i < blocks; ++i) SAN_CHECK(block_is_good(i), "its block {} is damaged", i);
  }
  check(sections_.metadata.offset, sections_.metadata.size);
  const auto* text = reinterpret_cast<const char*>(data_ + sections_.metadata.offset);
  metadata_ = metadata_from(nlohmann::json::parse(text, text + sections_.metadata.size));
  const uint64_t columns = static_cast<uint64_t>(metadata_.label_columns);
  SAN_CHECK(sections_.offsets.size == (header.num_graphs + 1) * 8 && sections_.nodes.size == header.num_graphs * 4 &&
                sections_.splits.size == header.num_graphs && sections_.labels.size / 8 == header.num_graphs * columns,
            "its sections do not fit together");
}

bool File::block_is_good(size_t block) const {
  if (good_[block].load(std::memory_order_acquire) != 0) return true;
  const uint64_t begin = kHeaderBytes + block * kBlock;
  const uint64_t end = std::min<uint64_t>(begin + kBlock, sections_.blocks.offset);
  uint64_t expected = 0;
  std::memcpy(&expected, data_ + sections_.blocks.offset + block * sizeof expected, sizeof expected);
  if (checksum(data_ + begin, end - begin) != expected) return false;
  good_[block].store(1, std::memory_order_release);
  return true;
}

void File::check(uint64_t offset, uint64_t size) const {
  if (size == 0) return;
  const uint64_t first = (offset - kHeaderBytes) / kBlock, last = (offset + size - 1 - kHeaderBytes) / kBlock;
  for (uint64_t block = first; block <= last; ++block)
    if (!block_is_good(block)) damaged("a checksum is wrong");
}

void File::damaged(const char* what) const {
  if (!opened_) fail("it is damaged: {}", what);
  ::unlink(path_.c_str());
  fail("{}: the cache is damaged ({}) and was removed: run again to build it anew", path_, what);
}

template <typename T>
T File::at(const Section& section, int64_t i) const {
  const uint64_t offset = section.offset + static_cast<uint64_t>(i) * sizeof(T);
  check(offset, sizeof(T));
  T value{};
  std::memcpy(&value, data_ + offset, sizeof value);
  return value;
}

std::span<const std::byte> File::record(int64_t i) const {
  SAN_CHECK(i >= 0 && i < size_, "there is no graph {}; the data set has 0..{}", i, size_ - 1);
  const auto begin = at<uint64_t>(sections_.offsets, i), end = at<uint64_t>(sections_.offsets, i + 1);
  if (begin > end || end > sections_.records.size) damaged("its index is wrong");
  check(sections_.records.offset + begin, end - begin);
  return {data_ + sections_.records.offset + begin, end - begin};
}

Graph File::graph(int64_t i) const {
  Graph graph = decode(record(i));
  const auto columns = static_cast<size_t>(metadata_.label_columns);
  if (columns > 0) {
    const uint64_t offset = sections_.labels.offset + static_cast<uint64_t>(i) * columns * 8;
    check(offset, columns * 8);
    graph.graph_labels.resize(columns);
    std::memcpy(graph.graph_labels.data(), data_ + offset, columns * 8);
  }
  return graph;
}

std::string File::smiles(int64_t i) const {
  Graph graph;
  Decoder in(record(i));
  decode_texts(in, graph);
  return graph.smiles;
}

int32_t File::num_nodes(int64_t i) const {
  SAN_CHECK(i >= 0 && i < size_, "there is no graph {}; the data set has 0..{}", i, size_ - 1);
  return at<int32_t>(sections_.nodes, i);
}

uint8_t File::split(int64_t i) const {
  SAN_CHECK(i >= 0 && i < size_, "there is no graph {}; the data set has 0..{}", i, size_ - 1);
  return at<uint8_t>(sections_.splits, i);
}

std::span<const double> File::labels() const {
  check(sections_.labels.offset, sections_.labels.size);
  return {reinterpret_cast<const double*>(data_ + sections_.labels.offset), sections_.labels.size / sizeof(double)};
}

}  // namespace san::cache
