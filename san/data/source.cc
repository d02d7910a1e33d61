#include "san/data/source.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <deque>
#include <filesystem>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string_view>

#include "san/base/file.h"
#include "san/data/csv.h"
#include "san/data/number_rows.h"
#include "san/data/ogb.h"
#include "san/data/tu.h"
#include "san/graph/generators.h"
#include "san/graph/jsonl.h"

#ifdef SAN_WITH_RDKIT
#include "san/chem/molecule.h"
#endif

namespace san {
namespace {

namespace fs = std::filesystem;

// Goes into every fingerprint: raise it when a reader or featuriser starts to make other graphs of the same input.
constexpr int kReadersVersion = 1;

constexpr size_t kSniffedRows = 1000;
constexpr size_t kSniffedBytes = size_t{16} << 20;

std::string lowered(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return out;
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r\n\v\f";
  const size_t begin = text.find_first_not_of(kBlanks);
  if (begin == text.npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

// A text that no two different lists share.
std::string joined(const std::vector<std::string>& parts) {
  std::string out;
  for (const auto& part : parts) out += fmt::format("{}:{};", part.size(), part);
  return out;
}

std::string fingerprint_of_parts(std::vector<std::string> parts) {
  parts.push_back(std::to_string(kReadersVersion));
  return fingerprint_of(joined(parts));
}

std::string file_fingerprint(const std::string& path, const FileFingerprints& files) {
  SAN_CHECK(path != "-", "standard input cannot be prepared, because it cannot be read twice: save it to a file first");
  return files.of(path);
}

// --- molecule CSV

enum class LabelText { kNumber, kMissing, kOther };

LabelText parse_label(std::string_view field, double& value) {
  field = trimmed(field);
  value = std::numeric_limits<double>::quiet_NaN();
  if (field.empty()) return LabelText::kMissing;
  if (field.size() > 1 && field[0] == '+' && field[1] != '-') field.remove_prefix(1);
  double number = 0;
  const auto [end, status] = std::from_chars(field.data(), field.data() + field.size(), number);
  if (status == std::errc{} && end == field.data() + field.size() && std::isfinite(number)) {
    value = number;
    return LabelText::kNumber;
  }
  if (field.size() <= 4) {
    const std::string word = lowered(field);
    for (const char* missing : {"nan", "na", "n/a", "null", "none", "?"})
      if (word == missing) return LabelText::kMissing;
  }
  return LabelText::kOther;
}

// Whether a column's name says that it numbers, names or counts things rather than measures them.
bool names_rows(const std::string& header) {
  const std::string name = lowered(trimmed(header));
  for (const char* word : {"", "id", "ids", "index", "idx", "row", "no", "nr", "number", "name", "key", "split", "fold",
                           "unnamed: 0", "cid", "inchikey"})
    if (name == word) return true;
  return name.ends_with("_id") || name.ends_with(" id") || name.ends_with("_index") || name.starts_with("num_");
}

class CsvSource final : public GraphSource {
 public:
  CsvSource(const std::string& path, const SourceOptions& options) : path_(path), options_(options), reader_(path) {
#ifdef SAN_WITH_RDKIT
    featuriser_.featuriser = featuriser_from_name(options.featuriser);
    featuriser_.unknown = options.unknown_atoms_error ? UnknownType::kError : UnknownType::kBucket;
#else
    fail("{}: molecules cannot be read: this san was built without RDKit (configure with -DSAN_WITH_RDKIT=ON)",
         reader_.name());
#endif
    smiles_ = find_smiles_column();
    id_ = options.id_column.empty() ? 0 : reader_.column(options.id_column);
    const auto& header = reader_.header();
    if (!options.split_column.empty()) {
      split_ = reader_.column(options.split_column);
    } else if (std::count(header.begin(), header.end(), "split") == 1) {
      split_ = reader_.column("split");
    }
    find_targets();
  }

  bool next(Record& record) override {
    record = {};
    record.index = index_++;
    if (!sniffed_.empty()) {
      const Row row = std::move(sniffed_.front());
      sniffed_.pop_front();
      if (!row.problem.empty()) throw RecordError(row.problem);
      const std::vector<std::string_view> fields(row.fields.begin(), row.fields.end());
      fill(record, fields, row.where);
      return true;
    }
    if (!reader_.next()) return false;
    fill(record, reader_.fields(), reader_.where());
    return true;
  }

  Graph convert(Record record) const override {
#ifdef SAN_WITH_RDKIT
    std::string problem;
    std::optional<Graph> graph = smiles_to_graph(record.text, featuriser_, problem);
    if (!graph) throw RecordError(fmt::format("{}: {}", record.where, problem));
    graph->id = std::move(record.graph.id);
    graph->split = std::move(record.graph.split);
    graph->graph_labels = std::move(record.graph.graph_labels);
    graph->smiles = std::move(record.text);
    return std::move(*graph);
#else
    fail("{}: this san was built without RDKit", record.where);
#endif
  }

  std::string id_name() const override {
    return reader_.header()[id_];
  }
  std::vector<std::string> targets() const override {
    std::vector<std::string> names;
    for (const size_t column : targets_) names.push_back(reader_.header()[column]);
    return names;
  }
  std::string name() const override {
    return reader_.name();
  }
  std::string fingerprint(const FileFingerprints& files) const override {
    // The columns found, not those asked for: both ways to name the same ones share a cache.
    std::vector<std::string> parts = {"csv",
                                      file_fingerprint(path_, files),
                                      options_.featuriser,
                                      options_.unknown_atoms_error ? "error" : "bucket",
                                      options_.labels_required ? "labels" : "",
                                      std::to_string(smiles_),
                                      std::to_string(id_),
                                      split_ ? std::to_string(*split_) : ""};
    for (const size_t column : targets_) parts.push_back(std::to_string(column));
    return fingerprint_of_parts(parts);
  }
  int64_t bytes_read() const override {
    return reader_.bytes_read();
  }
  int64_t bytes_total() const override {
    return reader_.bytes_total();
  }

 private:
  struct Row {
    std::vector<std::string> fields;
    std::string where, problem;
  };

  size_t find_smiles_column() const {
    const auto& header = reader_.header();
    if (std::find(header.begin(), header.end(), options_.smiles_column) == header.end()) {
      const std::string wanted = lowered(options_.smiles_column);
      std::vector<size_t> found;
      for (size_t i = 0; i < header.size(); ++i)
        if (lowered(trimmed(header[i])) == wanted) found.push_back(i);
      if (found.size() == 1) return found[0];
      std::string names;
      for (const auto& name : header) names += (names.empty() ? "'" : ", '") + printable(name, 40) + "'";
      SAN_CHECK(!found.empty(), "{}: no column is called '{}'; there are {}. Name it with --smiles-column",
                reader_.name(), printable(options_.smiles_column), printable(names, 400));
    }
    return reader_.column(options_.smiles_column);
  }

  void find_targets() {
    const auto& header = reader_.header();
    for (const auto& name : options_.target_columns) {
      if (!options_.labels_required && std::find(header.begin(), header.end(), name) == header.end()) continue;
      const size_t column = reader_.column(name);
      SAN_CHECK(std::find(targets_.begin(), targets_.end(), column) == targets_.end(),
                "{}: the target column '{}' is named twice", reader_.name(), printable(name));
      targets_.push_back(column);
    }
    if (!options_.target_columns.empty()) return;
    sniff();
    std::vector<bool> candidate(header.size(), true), number(header.size(), false);
    for (size_t i = 0; i < header.size(); ++i) {
      candidate[i] = i != smiles_ && i != split_ && !names_rows(header[i]) && (options_.id_column.empty() || i != id_);
    }
    for (const Row& row : sniffed_) {
      for (size_t i = 0; i < row.fields.size(); ++i) {
        if (!candidate[i]) continue;
        double value = 0;
        const LabelText kind = parse_label(row.fields[i], value);
        if (kind == LabelText::kOther) candidate[i] = false;
        if (kind == LabelText::kNumber) number[i] = true;
      }
    }
    for (size_t i = 0; i < header.size(); ++i)
      if (candidate[i] && number[i]) targets_.push_back(i);
  }

  void sniff() {
    size_t bytes = 0;
    for (bool more = true; more && sniffed_.size() < kSniffedRows && bytes < kSniffedBytes;) {
      Row row;
      try {
        more = reader_.next();
        if (!more) break;
        row.where = reader_.where();
        for (const auto field : reader_.fields()) {
          row.fields.emplace_back(field);
          bytes += field.size();
        }
      } catch (const RecordError& error) {
        row = {};
        row.problem = error.what();
      }
      sniffed_.push_back(std::move(row));
    }
  }

  void fill(Record& record, std::span<const std::string_view> fields, std::string where) {
    record.where = std::move(where);
    record.text = trimmed(fields[smiles_]);
    record.graph.id = fields[id_];
    if (split_) record.graph.split = trimmed(fields[*split_]);
    record.graph.graph_labels.reserve(targets_.size());
    for (const size_t column : targets_) {
      double value = 0;
      if (parse_label(fields[column], value) == LabelText::kOther && options_.labels_required) {
        throw RecordError(fmt::format("{}: column '{}': '{}' is not a number (write classes as 0, 1, 2, ...)",
                                      record.where, printable(reader_.header()[column], 60),
                                      printable(fields[column], 40)));
      }
      record.graph.graph_labels.push_back(value);
    }
  }

  std::string path_;
  SourceOptions options_;
  CsvReader reader_;
  size_t smiles_ = 0, id_ = 0;
  std::optional<size_t> split_;
  std::vector<size_t> targets_;
  std::deque<Row> sniffed_;  // rows that were read to find the target columns, still to be handed out
  int64_t index_ = 0;
#ifdef SAN_WITH_RDKIT
  FeaturiserOptions featuriser_;
#endif
};

// --- Graph JSONL

class JsonlSource final : public GraphSource {
 public:
  explicit JsonlSource(const std::string& path) : path_(path), lines_(path) {}

  bool next(Record& record) override {
    record = {};
    std::string_view line;
    do {
      if (!lines_.next(line)) return false;
      line = trimmed(line);
    } while (line.empty());
    // Said once, here, rather than as a million bad records.
    SAN_CHECK(index_ > 0 || line[0] == '{', "{}: not Graph JSONL: a line is {{\"num_nodes\": ..., \"edges\": ...}}{}",
              lines_.where(), path_ == "-" ? "; for molecules on standard input say --format csv" : "");
    record.index = index_++;
    record.where = lines_.where();
    record.text = line;
    return true;
  }

  Graph convert(Record record) const override { return parse_graph(record.text, record.where, record.index); }

  std::string name() const override { return lines_.name(); }
  std::string fingerprint(const FileFingerprints& files) const override {
    return fingerprint_of_parts({"jsonl", file_fingerprint(path_, files)});
  }
  int64_t bytes_read() const override { return lines_.bytes_read(); }
  int64_t bytes_total() const override { return lines_.bytes_total(); }

 private:
  std::string path_;
  LineReader lines_;
  int64_t index_ = 0;
};

// --- folders

// Files below `folder`, by name, so that the fingerprint does not depend on the file system's order.
std::string folder_fingerprint(const std::string& folder, const FileFingerprints& files,
                               const std::function<bool(const std::string&)>& wanted) {
  std::vector<std::string> names;
  std::error_code failure;
  for (fs::recursive_directory_iterator entry(folder, failure), end; !failure && entry != end;
       entry.increment(failure)) {
    std::error_code ignored;
    const std::string name = entry->path().lexically_relative(folder).string();
    if (wanted(name) && entry->is_regular_file(ignored)) names.push_back(name);
  }
  SAN_CHECK(!failure, "{}: cannot be listed: {}", folder, failure.message());
  std::sort(names.begin(), names.end());
  std::vector<std::string> parts;
  for (const auto& name : names) {
    parts.push_back(name);
    parts.push_back(files.of((fs::path(folder) / name).string()));
  }
  return fingerprint_of(joined(parts));
}

bool is_tu_file(const std::string& name, const char* part) {
  return name.ends_with(fmt::format("_{}.txt", part)) || name.ends_with(fmt::format("_{}.txt.gz", part));
}

// Parsed whole at the first next(): its files cannot be followed graph by graph.
class TuSource final : public GraphSource {
 public:
  explicit TuSource(const std::string& folder) : folder_(folder) {}

  bool next(Record& record) override {
    if (!data_) data_ = read_tu(folder_);
    record = {};
    if (static_cast<size_t>(index_) >= data_->graphs.size()) return false;
    record.graph = std::move(data_->graphs[static_cast<size_t>(index_)]);
    record.where = fmt::format("{}: graph {}", folder_, record.graph.id);
    record.index = index_++;
    return true;
  }
  Graph convert(Record record) const override { return std::move(record.graph); }
  std::string name() const override { return folder_; }
  std::string fingerprint(const FileFingerprints& files) const override {
    static constexpr std::array kParts = {"A",           "graph_indicator", "graph_labels", "graph_attributes",
                                          "node_labels", "node_attributes", "edge_labels",  "edge_attributes"};
    return fingerprint_of_parts({"tu", folder_fingerprint(folder_, files, [](const std::string& name) {
                                   return std::any_of(kParts.begin(), kParts.end(),
                                                      [&](const char* part) { return is_tu_file(name, part); });
                                 })});
  }
  int64_t bytes_read() const override { return index_; }
  int64_t bytes_total() const override { return data_ ? static_cast<int64_t>(data_->graphs.size()) : 0; }

 private:
  std::string folder_;
  std::optional<TuDataset> data_;
  int64_t index_ = 0;
};

class OgbSource final : public GraphSource {
 public:
  OgbSource(const std::string& folder, const SourceOptions& options) : folder_(folder) {
    options_.id_column = options.id_column;
  }

  bool next(Record& record) override {
    if (!reader_) start();
    record = {};
    try {
      if (!reader_->next(record.graph)) return false;
    } catch (const RecordError&) {
      ++index_;
      pass_molecule();
      throw;
    }
    record.where = fmt::format("{}: graph {}", folder_, index_);
    record.index = index_++;
    if (molecules_) {
      SAN_CHECK(molecules_->next(), "{}: ends after {} molecules, but there are more graphs", molecules_->name(),
                index_ - 1);
      record.graph.smiles = (*molecules_)[smiles_];
    }
    return true;
  }
  Graph convert(Record record) const override { return std::move(record.graph); }
  std::string name() const override { return folder_; }
  std::string fingerprint(const FileFingerprints& files) const override {
    return fingerprint_of_parts(
        {"ogb", options_.id_column, folder_fingerprint(folder_, files, [](const std::string& name) {
           return (name.ends_with(".csv") || name.ends_with(".csv.gz")) &&
                  (name.starts_with("raw/") || name.starts_with("split/") || name.starts_with("mapping/mol.csv"));
         })});
  }
  int64_t bytes_read() const override { return reader_ ? reader_->bytes_read() : 0; }
  int64_t bytes_total() const override { return reader_ ? reader_->bytes_total() : 0; }

 private:
  // At the first graph, not before: opening a prepared set must not read the split files of a large one.
  void start() {
    reader_.emplace(folder_, options_);
    const std::string path = number_rows::find_file((fs::path(folder_) / "mapping").string(), "mol.csv");
    if (path.empty()) return;
    molecules_.emplace(path);
    const auto& header = molecules_->header();
    if (std::count(header.begin(), header.end(), "smiles") == 1) {
      smiles_ = molecules_->column("smiles");
    } else {
      molecules_.reset();
    }
  }

  // The row of a bad graph, or all that follow would have their neighbour's molecule.
  void pass_molecule() {
    try {
      if (molecules_) molecules_->next();
    } catch (const RecordError&) {  // the graph is a bad one already
    }
  }

  std::string folder_;
  OgbOptions options_;
  std::optional<OgbReader> reader_;
  std::optional<CsvReader> molecules_;  // mapping/mol.csv, when it has SMILES
  size_t smiles_ = 0;
  int64_t index_ = 0;
};

// --- generated sets

class GeneratedSource final : public GraphSource {
 public:
  explicit GeneratedSource(const std::string& spec) : spec_(spec) {
    std::string_view rest = std::string_view(spec).substr(std::string_view("generate:").size());
    const size_t mark = rest.find('?');
    kind_ = rest.substr(0, mark);
    SAN_CHECK(kind_ == "pattern" || kind_ == "cluster" || kind_ == "csl",
              "{}: unknown set '{}'; there are generate:pattern, generate:cluster and generate:csl", printable(spec),
              printable(kind_));
    for (rest = mark == rest.npos ? std::string_view{} : rest.substr(mark + 1); !rest.empty();) {
      const size_t end = std::min(rest.find('&'), rest.size());
      option(rest.substr(0, end));
      rest.remove_prefix(std::min(end + 1, rest.size()));
    }
    pattern_.seed = cluster_.seed = seed_;
    count_ = kind_ == "pattern" ? pattern_count(pattern_) : kind_ == "cluster" ? cluster_count(cluster_) : kCslGraphs;
  }

  bool next(Record& record) override {
    record = {};
    if (index_ >= count_) return false;
    record.index = index_++;
    record.where = fmt::format("{}: graph {}", spec_, record.index);
    return true;
  }
  Graph convert(Record record) const override {
    if (kind_ == "pattern") return make_pattern(pattern_, record.index);
    if (kind_ == "cluster") return make_cluster(cluster_, record.index);
    return make_csl(seed_, static_cast<int>(record.index));
  }
  std::string name() const override { return spec_; }
  std::string fingerprint(const FileFingerprints&) const override {
    const std::vector<int> sizes = kind_ == "pattern"
                                       ? std::vector{pattern_.patterns, pattern_.train, pattern_.valid, pattern_.test}
                                   : kind_ == "cluster" ? std::vector{cluster_.train, cluster_.valid, cluster_.test}
                                                        : std::vector<int>{};
    return fingerprint_of_parts({"generate", kind_, std::to_string(seed_), fmt::format("{}", fmt::join(sizes, " "))});
  }
  int64_t bytes_read() const override { return index_; }
  int64_t bytes_total() const override { return count_; }

 private:
  void option(std::string_view text) {
    const size_t equals = text.find('=');
    const std::string_view name = text.substr(0, equals);
    const std::string_view value = equals == text.npos ? std::string_view{} : text.substr(equals + 1);
    const auto number = [&](auto& out) {
      const auto [end, status] = std::from_chars(value.data(), value.data() + value.size(), out);
      SAN_CHECK(status == std::errc{} && end == value.data() + value.size() && !value.empty(),
                "{}: '{}' wants a whole number, not '{}'", printable(spec_), printable(name), printable(value));
    };
    const bool sizes = kind_ != "csl";
    if (name == "seed") return number(seed_);
    if (name == "patterns" && kind_ == "pattern") return number(pattern_.patterns);
    if (sizes && name == "train") return number(kind_ == "pattern" ? pattern_.train : cluster_.train);
    if (sizes && name == "valid") return number(kind_ == "pattern" ? pattern_.valid : cluster_.valid);
    if (sizes && name == "test") return number(kind_ == "pattern" ? pattern_.test : cluster_.test);
    fail("{}: unknown option '{}'; {} takes {}", printable(spec_), printable(name), kind_,
         kind_ == "csl"       ? "seed"
         : kind_ == "cluster" ? "train, valid, test, seed"
                              : "train, valid, test, patterns, seed");
  }

  std::string spec_, kind_;
  uint64_t seed_ = 0;
  PatternOptions pattern_;
  ClusterOptions cluster_;
  int64_t index_ = 0, count_ = 0;
};

// --- several sources as the parts of one set

class PartsSource final : public GraphSource {
 public:
  struct Part {
    std::string split;
    std::unique_ptr<GraphSource> source;
  };
  PartsSource(std::string spec, std::vector<Part> parts) : spec_(std::move(spec)), parts_(std::move(parts)) {
    for (const Part& part : parts_) {
      SAN_CHECK(part.source->targets() == parts_[0].source->targets(), "{}: {} and {} have different label columns",
                printable(spec_), parts_[0].source->name(), part.source->name());
    }
  }

  bool next(Record& record) override {
    for (; part_ < parts_.size(); ++part_, first_ = index_) {
      bool more = false;
      try {
        more = parts_[part_].source->next(record);
      } catch (const RecordError&) {
        ++index_;
        throw;
      }
      if (!more) continue;
      record.index += first_;
      index_ = record.index + 1;
      record.graph.split = parts_[part_].split;
      record.part = static_cast<int>(part_);
      return true;
    }
    return false;
  }

  Graph convert(Record record) const override {
    const auto part = static_cast<size_t>(record.part);
    Graph graph = parts_.at(part).source->convert(std::move(record));
    graph.split = parts_[part].split;
    return graph;
  }

  std::vector<std::string> targets() const override { return parts_[0].source->targets(); }
  std::string name() const override { return spec_; }
  std::string fingerprint(const FileFingerprints& files) const override {
    std::vector<std::string> parts = {"parts"};
    for (const Part& part : parts_) {
      parts.push_back(part.split);
      parts.push_back(part.source->fingerprint(files));
    }
    return fingerprint_of_parts(parts);
  }
  int64_t bytes_read() const override { return sum(&GraphSource::bytes_read); }
  int64_t bytes_total() const override { return sum(&GraphSource::bytes_total); }

 private:
  int64_t sum(int64_t (GraphSource::*what)() const) const {
    int64_t total = 0;
    for (const Part& part : parts_) total += (part.source.get()->*what)();
    return total;
  }

  std::string spec_;
  std::vector<Part> parts_;
  size_t part_ = 0;
  int64_t index_ = 0, first_ = 0;
};

// The cuts of "train=A,valid=B,test=C"; empty when the spec is not of that form. File names may hold commas.
std::vector<std::pair<std::string, std::string>> cut_parts(const std::string& spec) {
  std::vector<std::pair<size_t, std::string>> starts;
  for (const char* split : {"train", "valid", "test"}) {
    const std::string mark = fmt::format("{}=", split);
    for (size_t at = spec.find(mark); at != spec.npos; at = spec.find(mark, at + 1))
      if (at == 0 || spec[at - 1] == ',') starts.emplace_back(at, split);
  }
  std::sort(starts.begin(), starts.end());
  if (starts.empty() || starts[0].first != 0) return {};
  std::vector<std::pair<std::string, std::string>> parts;
  for (size_t i = 0; i < starts.size(); ++i) {
    const size_t begin = starts[i].first + starts[i].second.size() + 1;
    const size_t end = i + 1 < starts.size() ? starts[i + 1].first - 1 : spec.size();
    parts.emplace_back(starts[i].second, spec.substr(begin, end - begin));
    for (size_t k = 0; k < i; ++k)
      SAN_CHECK(parts[k].first != parts[i].first, "'{}': the part {} is named twice", printable(spec, 200),
                parts[i].first);
  }
  return parts;
}

// --- what is it?

bool has_tu_files(const fs::path& folder) {
  std::error_code failure;
  for (fs::directory_iterator entry(folder, failure), end; !failure && entry != end; entry.increment(failure))
    if (is_tu_file(entry->path().filename().string(), "A")) return true;
  return false;
}

bool has_ogb_files(const fs::path& folder) {
  return !number_rows::find_file((folder / "raw").string(), "num-node-list.csv").empty();
}

std::string format_of_file(const std::string& path, const SourceOptions& options) {
  std::string name = lowered(path);
  if (name.ends_with(".gz")) name.resize(name.size() - 3);
  if (name.ends_with(".csv")) return "csv";
  if (name.ends_with(".jsonl") || name.ends_with(".ndjson")) return "jsonl";
  std::error_code ignored;
  SAN_CHECK(fs::is_regular_file(path, ignored),
            "{}: cannot tell what this is without reading it, and what is read of a pipe is gone: say --format csv or "
            "--format jsonl",
            path);
  std::string_view line;
  LineReader lines(path, size_t{1} << 26);
  while (lines.next(line) && trimmed(line).empty()) {
  }
  line = trimmed(line);
  SAN_CHECK(!line.empty(), "{}: is empty", path);
  if (line[0] == '{') return "jsonl";
  if (lowered(line).find(lowered(options.smiles_column)) != std::string::npos) return "csv";
  fail(
      "{}: cannot tell what this is: its first line is neither a JSON object nor a CSV header with the column '{}'; "
      "say "
      "--format csv or --format jsonl",
      path, printable(options.smiles_column));
}

std::string format_of(const std::string& spec, const SourceOptions& options) {
  std::error_code ignored;
  const fs::file_status status = fs::status(spec, ignored);
  SAN_CHECK(fs::exists(status),
            "{}: no such file or folder (data is a .csv or .jsonl file, a TU or OGB folder, generate:pattern, "
            "generate:cluster, generate:csl, or - for standard input)",
            printable(spec, 200));
  if (!fs::is_directory(status)) return format_of_file(spec, options);
  if (has_ogb_files(spec)) return "ogb";
  if (has_tu_files(spec) || has_tu_files(fs::path(spec) / "raw")) return "tu";
  fail("{}: this folder is neither in the TU format (no *_A.txt) nor in OGB's layout (no raw/num-node-list.csv.gz)",
       spec);
}

}  // namespace

std::unique_ptr<GraphSource> open_source(const std::string& spec, const SourceOptions& options) {
  static constexpr std::array kFormats = {"auto", "csv", "jsonl", "tu", "ogb"};
  SAN_CHECK(std::find(kFormats.begin(), kFormats.end(), options.format) != kFormats.end(),
            "unknown format '{}'; there are auto, csv, jsonl, tu and ogb", printable(options.format));
  SAN_CHECK(!spec.empty(), "no data was named");
  if (spec.starts_with("generate:")) return std::make_unique<GeneratedSource>(spec);
  std::error_code ignored;
  if (!fs::exists(spec, ignored)) {
    std::vector<PartsSource::Part> parts;
    for (const auto& [split, part] : cut_parts(spec)) parts.push_back({split, open_source(part, options)});
    if (!parts.empty()) return std::make_unique<PartsSource>(spec, std::move(parts));
  }
  const std::string format = options.format != "auto" ? options.format
                             : spec == "-"            ? "jsonl"
                                                      : format_of(spec, options);
  if (format == "csv") return std::make_unique<CsvSource>(spec, options);
  if (format == "jsonl") return std::make_unique<JsonlSource>(spec);
  if (format == "ogb") return std::make_unique<OgbSource>(spec, options);
  const bool inside = !has_tu_files(spec) && has_tu_files(fs::path(spec) / "raw");
  return std::make_unique<TuSource>(inside ? (fs::path(spec) / "raw").string() : spec);
}

}  // namespace san
