// What the data decides: splits, table sizes, outputs, scaling, and a model size for people without a config.
#include <algorithm>
#include <cmath>
#include <span>

#include "san/train/trainer.h"
#ifdef SAN_WITH_RDKIT
#include "san/chem/molecule.h"
#endif

namespace san {
namespace {

// Everything about the graphs that a model's shape depends on.
struct DataShape {
  std::vector<int> node_tables, edge_tables;
  double largest_label = -1;
  bool whole_labels = true;  // all labels are whole numbers >= 0
  bool any_label = false;

  void add_label(double label) {
    if (std::isnan(label)) return;
    any_label = true;
    largest_label = std::max(largest_label, label);
    whole_labels = whole_labels && label >= 0 && label == std::floor(label) && label < 1e6;
  }
};

DataShape shape_of(const Dataset& data) {
  DataShape shape;
  shape.node_tables.assign(data.node_category_sizes().begin(), data.node_category_sizes().end());
  shape.edge_tables.assign(data.edge_category_sizes().begin(), data.edge_category_sizes().end());
  // Absent features mean category 0 for nodes and 1 for edges (see Graph).
  if (shape.node_tables.empty() && data.node_value_columns() == 0) shape.node_tables = {1};
  if (shape.edge_tables.empty() && data.edge_value_columns() == 0) shape.edge_tables = {2};
  for (const double label : data.labels()) shape.add_label(label);
  if (data.node_labels()) {
    for (int64_t i = 0; i < data.size(); ++i) {
      for (const double label : data.graph(i).node_labels) shape.add_label(label);
    }
  }
  return shape;
}

bool any_label(const Dataset& data, const std::vector<int64_t>& part) {
  const auto known = [](double label) { return !std::isnan(label); };
  const auto columns = static_cast<size_t>(data.label_columns());
  return std::any_of(part.begin(), part.end(), [&](int64_t i) {
    if (data.node_labels()) {
      const std::vector<double> labels = data.graph(i).node_labels;
      return std::any_of(labels.begin(), labels.end(), known);
    }
    const std::span<const double> labels = data.labels().subspan(static_cast<size_t>(i) * columns, columns);
    return std::any_of(labels.begin(), labels.end(), known);
  });
}

// Fixed sizes of the featuriser's columns: a molecule seen later may have what no training molecule had.
void featuriser_tables([[maybe_unused]] const std::string& featuriser, [[maybe_unused]] DataShape& shape) {
#ifdef SAN_WITH_RDKIT
  if (featuriser == "none") return;
  FeaturiserOptions options;
  options.featuriser = featuriser_from_name(featuriser);
  shape.node_tables = node_category_sizes(options);
  shape.edge_tables = edge_category_sizes(options);
#endif
}

// A size that suits the data, for people who gave no model options at all.
void choose_size(RunConfig& config, int64_t graphs) {
  const auto unless_given = [&](const char* name, auto& member, auto value) {
    if (!config.is_given(name)) member = value;
  };
  const bool small = graphs < 5000;
  unless_given("model.hidden_dim", config.model.hidden_dim, small ? 48 : 64);
  unless_given("model.heads", config.model.heads, 8);
  unless_given("model.layers", config.model.layers, small ? 4 : 6);
  unless_given("model.lpe.dim", config.model.lpe.dim, 8);
  unless_given("model.lpe.layers", config.model.lpe.layers, small ? 1 : 2);
  unless_given("model.lpe.ff_dim", config.model.lpe.ff_dim, small ? 64 : 256);
  unless_given("model.dropout", config.model.dropout, small ? 0.1 : 0.0);
  unless_given("model.gamma", config.model.gamma, 1e-2);
}

}  // namespace

Splits make_splits(const DataConfig& config, const Dataset& data) {
  const SplitFractions fractions{config.fractions[0], config.fractions[1], config.fractions[2]};
  const auto seed = static_cast<uint64_t>(config.split_seed);
  const auto labels = [&] {
    SAN_CHECK(data.label_columns() >= 1, "a stratified split needs graph labels");
    std::vector<double> first;
    for (int64_t i = 0; i < data.size(); ++i)
      first.push_back(data.labels()[static_cast<size_t>(i * data.label_columns())]);
    return first;
  };
  std::vector<std::string> words;
  for (int64_t i = 0; i < data.size(); ++i) words.push_back(data.split(i));
  switch (config.split) {
    case SplitKind::kRandom:
      return random_split(data.size(), fractions, seed);
    case SplitKind::kStratified:
      return stratified_split(labels(), fractions, seed);
    case SplitKind::kScaffold:
      return scaffold_split(dataset_scaffolds(data), fractions);
    case SplitKind::kGiven:
      return given_split(words);
    case SplitKind::kKFold: {
      const bool classes = config.task != TaskKind::kRegression && data.label_columns() == 1;
      return k_fold(data.size(), config.folds, config.fold, seed, classes ? labels() : std::vector<double>{});
    }
    case SplitKind::kFile:
      return read_splits(config.split_file, data.size());
    case SplitKind::kAuto:
      break;
  }
  const bool given = std::any_of(words.begin(), words.end(), [](const std::string& word) { return !word.empty(); });
  return given ? given_split(words) : random_split(data.size(), fractions, seed);
}

ModelDescription resolve(RunConfig& config, const Dataset& data, const Splits& splits) {
  validate(config);
  SAN_CHECK(!splits.train.empty(), "the split leaves nothing to train on");
  const bool sized = std::any_of(config.given.begin(), config.given.end(), [](const std::string& name) {
    return name == "model.hidden_dim" || name == "model.layers" || name == "model.heads";
  });
  if (!sized) choose_size(config, static_cast<int64_t>(splits.train.size()));

  DataShape shape = shape_of(data);
  SAN_CHECK(shape.any_label, "the data has no labels to learn from");
  SAN_CHECK(any_label(data, splits.train), "the training part has no labels to learn from");
  SAN_CHECK(splits.valid.empty() || any_label(data, splits.valid),
            "the validation part has no labels to choose the best epoch by");
  const std::string featuriser = data.smiles(0).empty() ? "none" : config.data.featuriser;
  featuriser_tables(featuriser, shape);
  ModelConfig& m = config.model;
  const auto take = [&](const char* name, auto& member, const auto& value) {
    if (!config.is_given(name)) member = value;
  };
  take("model.node_tables", m.node_tables, shape.node_tables);
  take("model.node_values", m.node_values, data.node_value_columns());
  take("model.edge_tables", m.edge_tables, shape.edge_tables);
  take("model.edge_values", m.edge_values, data.edge_value_columns());

  const TaskKind task = config.data.task;
  const bool node_task = task == TaskKind::kNodeClassification;
  const bool classes = node_task || task == TaskKind::kMulticlass;
  SAN_CHECK(node_task == data.node_labels(), "task {} needs {} labels, the data has {} labels", enum_name(task),
            node_task ? "node" : "graph", data.node_labels() ? "node" : "graph");
  SAN_CHECK(task != TaskKind::kMulticlass || data.label_columns() == 1,
            "task multiclass needs one target column, the data has {}: name it with --target-columns",
            data.label_columns());
  SAN_CHECK(task == TaskKind::kRegression || shape.whole_labels,
            "task {} needs labels 0, 1, 2, ...; the data has others", enum_name(task));
  SAN_CHECK(task != TaskKind::kBinary || shape.largest_label <= 1, "task binary needs labels 0 and 1; the data has {}",
            shape.largest_label);
  if (classes) {
    take("model.outputs", m.outputs, std::max(2, static_cast<int>(shape.largest_label) + 1));
    SAN_CHECK(shape.largest_label < m.outputs, "a label is {}, but the model has {} classes", shape.largest_label,
              m.outputs);
  } else {
    m.outputs = data.label_columns();
  }
  take("model.readout", m.readout, node_task ? Readout::kNode : Readout::kMean);
  take("train.loss", config.train.loss,
       node_task                       ? Loss::kWeightedCrossEntropy
       : task == TaskKind::kRegression ? Loss::kL1
                                       : Loss::kCrossEntropy);

  ModelDescription description;
  description.model = m;
  description.input.featuriser = featuriser;
  description.input.spectral = config.spectral;
  TaskConfig& t = description.task;
  t.kind = task;
  t.loss = config.train.loss;
  if (!classes) t.targets = data.targets();
  if (task == TaskKind::kRegression && config.train.standardise) {
    for (int column = 0; column < m.outputs; ++column) {
      double count = 0, sum = 0, squares = 0;
      for (const int64_t i : splits.train) {
        const double label = data.labels()[static_cast<size_t>(i * m.outputs + column)];
        if (std::isnan(label)) continue;
        ++count;
        sum += label;
      }
      const double mean = count > 0 ? sum / count : 0;
      for (const int64_t i : splits.train) {
        const double label = data.labels()[static_cast<size_t>(i * m.outputs + column)];
        if (!std::isnan(label)) squares += (label - mean) * (label - mean);
      }
      const double deviation = count > 1 ? std::sqrt(squares / count) : 0;
      t.shift.push_back(mean);
      t.scale.push_back(deviation > 1e-12 ? deviation : 1.0);
    }
  }
  validate(description);
  return description;
}

}  // namespace san
