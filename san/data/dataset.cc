#include "san/data/dataset.h"

#include <cstdlib>
#include <filesystem>

#include "san/base/parallel.h"
#include "san/data/cache.h"
#include "san/spectral/random_walk.h"

namespace san {
namespace {

namespace fs = std::filesystem;

std::string key_of(const GraphSource& source, const PrepareOptions& options, const std::string& folder) {
  std::string text = fmt::format("san data {} {}", cache::kVersion, source.fingerprint(FileFingerprints(folder)));
  if (options.with_spectra) {
    const SpectrumOptions& spectral = options.spectral;
    text += fmt::format(" {} {} {} {}", spectral.num_pairs, enum_name(spectral.laplacian), enum_name(spectral.norm),
                        enum_name(spectral.solver));
  }
  if (options.spectral.walk_steps > 0) text += fmt::format(" walks {}", options.spectral.walk_steps);
  return fingerprint_of(text);
}

// A readable name: the last part of the spec, then enough of the key.
std::string file_name(std::string spec, const std::string& key) {
  if (spec.starts_with("train=")) spec.resize(std::min(spec.size(), spec.find(',')));
  std::string stem = fs::path(spec).filename().string();
  if (stem.empty()) stem = fs::path(spec).parent_path().filename().string();
  for (char& c : stem) {
    const bool plain =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
    if (!plain) c = '_';
  }
  return fmt::format("{}-{}.san", stem.substr(0, 60), key.substr(0, 16));
}

// Fails as building would have failed, or reports as it would have reported.
void report_bad_records(const cache::Metadata& metadata, const PrepareOptions& options) {
  if (metadata.bad_records == 0) return;
  if (!options.skip_bad_records) {
    throw RecordError(metadata.bad_messages.empty() ? fmt::format("{} bad records", metadata.bad_records)
                                                    : metadata.bad_messages[0]);
  }
  if (!options.on_bad_record) return;
  for (const auto& message : metadata.bad_messages) options.on_bad_record(message);
}

void build(GraphSource& source, const PrepareOptions& options, const std::string& path, const std::string& key) {
  cache::Writer writer(path, key);
  cache::Metadata metadata;
  StreamOptions streaming = options;
  streaming.on_bad_record = [&](const std::string& message) {
    if (metadata.bad_messages.size() < kMaxBadMessages) metadata.bad_messages.push_back(printable(message, 400));
    if (options.on_bad_record) options.on_bad_record(message);
  };
  metadata.bad_records = stream_graphs(
      source, streaming,
      [](Streamed& item) {
        item.encoded = std::make_shared<cache::Encoded>(cache::encode(item.graph));
        item.graph = {};
      },
      [&](Streamed& item) { writer.add(*std::static_pointer_cast<cache::Encoded>(item.encoded), item.where); });
  SAN_CHECK(writer.size() > 0, "{}: there is no graph in it{}", source.name(),
            metadata.bad_messages.empty() ? "" : "; the first bad record: " + metadata.bad_messages[0]);
  metadata.made_from = source.name();
  metadata.targets = source.targets();
  writer.finish(std::move(metadata));
}

}  // namespace

std::string default_cache_folder() {
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value != nullptr ? value : "");
  };
  if (const std::string folder = variable("SAN_CACHE_DIR"); !folder.empty()) return folder;
  if (const std::string folder = variable("XDG_CACHE_HOME"); !folder.empty()) return folder + "/san";
  const std::string home = variable("HOME");
  SAN_CHECK(!home.empty(), "no folder for prepared data: set SAN_CACHE_DIR");
  return home + "/.cache/san";
}

struct Dataset::Impl {
  std::shared_ptr<const cache::File> file;
  bool built = false;
  std::string rebuilt_because;
};

Dataset::Dataset(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}

Dataset Dataset::prepare(GraphSource& source, const PrepareOptions& options) {
  const std::string folder = options.cache_folder.empty() ? default_cache_folder() : options.cache_folder;
  std::error_code failure;
  fs::create_directories(folder, failure);
  SAN_CHECK(!failure,
            "{}: cannot make this folder for prepared data: {} (choose another with --cache or SAN_CACHE_DIR)", folder,
            failure.message());
  const std::string key = key_of(source, options, folder);
  const std::string path = (fs::path(folder) / file_name(source.name(), key)).string();

  auto impl = std::make_shared<Impl>();
  std::string problem;
  const bool there = fs::exists(path, failure);
  impl->file = cache::File::open(path, key, problem);
  if (impl->file) {
    report_bad_records(impl->file->metadata(), options);
    return Dataset(impl);
  }
  if (there) impl->rebuilt_because = problem;
  build(source, options, path, key);
  impl->file = cache::File::open(path, key, problem);
  SAN_CHECK(impl->file != nullptr, "{}: the cache that was just written cannot be read: {}", path, problem);
  impl->built = true;
  return Dataset(impl);
}

Dataset Dataset::from_graphs(std::vector<Graph> graphs, std::vector<std::string> targets,
                             const std::optional<SpectrumOptions>& spectral) {
  SAN_CHECK(!graphs.empty(), "a data set needs at least one graph");
  std::vector<cache::Encoded> encoded(graphs.size());
  parallel_for(static_cast<int64_t>(graphs.size()), 0, [&](int64_t i) {
    Graph& graph = graphs[static_cast<size_t>(i)];
    validate(graph, fmt::format("graph {}", i));
    if (spectral && !graph.eigenpairs) graph.eigenpairs = to_eigenpairs(compute_spectrum(graph, *spectral));
    if (spectral) add_walk_features(graph, spectral->walk_steps);
    encoded[static_cast<size_t>(i)] = cache::encode(graph);
  });
  cache::Writer writer({}, {});
  for (size_t i = 0; i < encoded.size(); ++i) writer.add(encoded[i], fmt::format("graph {}", i));
  cache::Metadata metadata;
  metadata.targets = std::move(targets);
  writer.finish(std::move(metadata));
  auto impl = std::make_shared<Impl>();
  impl->file = cache::File::from_memory(writer.take_memory());
  impl->built = true;
  return Dataset(impl);
}

int64_t Dataset::size() const {
  return impl_->file->size();
}
Graph Dataset::graph(int64_t i) const {
  return impl_->file->graph(i);
}
int32_t Dataset::num_nodes(int64_t i) const {
  return impl_->file->num_nodes(i);
}
const std::string& Dataset::split(int64_t i) const {
  return impl_->file->metadata().split_words.at(impl_->file->split(i));
}
std::string Dataset::smiles(int64_t i) const {
  return impl_->file->smiles(i);
}
std::span<const double> Dataset::labels() const {
  return impl_->file->labels();
}
int Dataset::label_columns() const {
  return impl_->file->metadata().label_columns;
}
bool Dataset::node_labels() const {
  return impl_->file->metadata().node_labels;
}
const std::vector<std::string>& Dataset::targets() const {
  return impl_->file->metadata().targets;
}
const std::vector<int32_t>& Dataset::node_category_sizes() const {
  return impl_->file->metadata().node_category_sizes;
}
const std::vector<int32_t>& Dataset::edge_category_sizes() const {
  return impl_->file->metadata().edge_category_sizes;
}
int Dataset::node_value_columns() const {
  return impl_->file->metadata().node_columns.values;
}
int Dataset::edge_value_columns() const {
  return impl_->file->metadata().edge_columns.values;
}
int64_t Dataset::total_nodes() const {
  return impl_->file->metadata().total_nodes;
}
int64_t Dataset::total_edges() const {
  return impl_->file->metadata().total_edges;
}
int32_t Dataset::max_nodes() const {
  return impl_->file->metadata().max_nodes;
}
int32_t Dataset::max_pairs() const {
  return impl_->file->metadata().max_pairs;
}
const std::string& Dataset::path() const {
  return impl_->file->path();
}
int64_t Dataset::bad_records() const {
  return impl_->file->metadata().bad_records;
}
const std::vector<std::string>& Dataset::bad_messages() const {
  return impl_->file->metadata().bad_messages;
}
bool Dataset::built() const {
  return impl_->built;
}
const std::string& Dataset::rebuilt_because() const {
  return impl_->rebuilt_because;
}

Batch Dataset::batch(std::span<const int64_t> graphs, int max_pairs) const {
  std::vector<Graph> copies;
  copies.reserve(graphs.size());
  for (const int64_t i : graphs) copies.push_back(graph(i));
  std::vector<const Graph*> pointers;
  pointers.reserve(copies.size());
  for (const Graph& copy : copies) pointers.push_back(&copy);
  return make_batch(pointers, max_pairs);
}

}  // namespace san
