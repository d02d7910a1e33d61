// Everything that a training run is told: config files, --set, flags. One table of options (visit_run_fields).
#pragma once

#include <cstdint>
#include <filesystem>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "san/data/source.h"
#include "san/model/config.h"

namespace san {

enum class SplitKind { kAuto, kRandom, kStratified, kScaffold, kGiven, kKFold, kFile };
enum class OptimiserKind { kAdam, kAdamW };
enum class ScheduleKind { kPlateau, kCosine, kConstant };
enum class PlateauOn { kLoss, kMetric };
enum class SignFlip { kNone, kBatch, kGraph };
enum class EngineKind { kFused, kTorch };

EnumNames<SplitKind> enum_names(SplitKind);
EnumNames<OptimiserKind> enum_names(OptimiserKind);
EnumNames<ScheduleKind> enum_names(ScheduleKind);
EnumNames<PlateauOn> enum_names(PlateauOn);
EnumNames<SignFlip> enum_names(SignFlip);
EnumNames<EngineKind> enum_names(EngineKind);

struct DataConfig {
  std::string path;  // what --data takes: a file, a folder, generate:...
  std::string format = "auto";
  std::string smiles_column = "smiles";
  std::vector<std::string> target_columns;
  std::string split_column;
  std::string id_column;
  std::string featuriser = "ogb";
  TaskKind task = TaskKind::kRegression;
  SplitKind split = SplitKind::kAuto;  // auto: the one the data came with, else random
  std::string split_file;
  std::vector<double> fractions = {0.8, 0.1, 0.1};
  int folds = 5;
  int fold = 0;
  int split_seed = 0;
  bool skip_bad_records = false;
};

struct TrainConfig {
  Loss loss = Loss::kL1;  // of the task when not given: l1, cross-entropy, weighted-cross-entropy for nodes
  OptimiserKind optimiser = OptimiserKind::kAdam;
  double lr = 3e-4;      // at 1e-3 the loss of Tox21 stops falling after 10 epochs
  double min_lr = 1e-6;  // plateau: training ends below it; cosine: where it ends
  double weight_decay = 0;
  ScheduleKind schedule = ScheduleKind::kPlateau;
  int patience = 20;  // plateau: epochs without progress before lr is multiplied by factor
  double factor = 0.5;
  PlateauOn plateau_on = PlateauOn::kLoss;  // what counts as progress, on the validation part
  int warmup_epochs = 0;
  int batch_size = 32;
  int accumulate = 1;  // batches per optimiser step
  int epochs = 200;
  double time_limit = 0;   // hours; 0 = none
  int early_stopping = 0;  // epochs without a better validation score; 0 = off
  double clip = 0;         // largest norm of the gradient; 0 = off
  // What is evaluated and kept: 0: the weights; else their running mean, of which each step replaces a share of 1 - average.
  double average = 0;
  SignFlip sign_flip = SignFlip::kGraph;
  bool standardise = true;         // regression: train on (label - mean) / standard deviation
  bool bucket = false;             // batches of graphs of similar size
  bool published_metrics = false;  // also report means of batch means, as the published program does
  int eval_test_every = 0;         // epochs; 0 = once, at the end
  double checkpoint_seconds = 60;  // between checkpoints inside an epoch
  EngineKind engine = EngineKind::kFused;
  int seed = 0;
};

struct RunConfig {
  DataConfig data;
  SpectrumOptions spectral;
  ModelConfig model;
  TrainConfig train;
  std::set<std::string> given;  // dotted names of the options that were set, "model.gamma"

  bool is_given(const std::string& name) const { return given.contains(name); }
};

// How the data of a run is opened.
SourceOptions source_options(const DataConfig& data);

// Throws Error naming the option for values that cannot be.
void validate(const RunConfig& config);

// Reads a TOML file on top of what is there. Unknown sections and keys are Errors with file:line.
void read_toml(RunConfig& config, const std::filesystem::path& path);
void parse_toml(RunConfig& config, std::string_view text, const std::string& name);
// "model.gamma=1e-5". A value that is not TOML is taken as a string.
void set_option(RunConfig& config, std::string_view assignment);
// The resolved configuration, every option spelled out.
std::string to_toml(const RunConfig& config);
// Every option and its value as TOML has it: {"model.gamma", "1e-05"}, in the order of to_toml.
std::vector<std::pair<std::string, std::string>> option_values(const RunConfig& config);
// A table of all options for people: name, default, meaning.
std::string describe_options();

// field(section, name, member, what it is).
template <typename Config, typename Visitor>
void visit_run_fields(Config& c, Visitor&& field) {
  const auto in = [&](const char* section) {
    return [&field, section](const char* name, auto& member, const char* help) { field(section, name, member, help); };
  };
  const auto data = in("data");
  data("path", c.data.path, "a file or folder, or generate:pattern, generate:cluster, generate:csl");
  data("format", c.data.format, "auto, csv, jsonl, tu or ogb");
  data("smiles_column", c.data.smiles_column, "CSV: where the SMILES are");
  data("target_columns", c.data.target_columns, "CSV: what to learn; blank fields are missing labels");
  data("split_column", c.data.split_column, "CSV: train / valid / test");
  data("id_column", c.data.id_column, "CSV: what predictions are labelled with");
  data("featuriser", c.data.featuriser, "molecules: ogb or zinc");
  data("task", c.data.task, "regression, binary, multiclass or node-classification");
  data("split", c.data.split, "auto, random, stratified, scaffold, given, k-fold or file");
  data("split_file", c.data.split_file, "splits.json for split = file");
  data("fractions", c.data.fractions, "train, valid, test");
  data("folds", c.data.folds, "k-fold: how many");
  data("fold", c.data.fold, "k-fold: which one is the test part");
  data("split_seed", c.data.split_seed, "seed of the split; stays the same when train.seed changes");
  data("skip_bad_records", c.data.skip_bad_records, "leave out records that cannot be read instead of stopping");
  visit_spectral_fields(c.spectral, in("spectral"));
  visit_model_fields(c.model, in("model"));
  visit_lpe_fields(c.model.lpe, in("model.lpe"));
  const auto train = in("train");
  train("loss", c.train.loss, "l1, mse; cross-entropy, weighted-cross-entropy; sigmoid-bce");
  train("optimiser", c.train.optimiser, "adam, or adamw: decoupled weight decay");
  train("lr", c.train.lr, "learning rate");
  train("min_lr", c.train.min_lr, "plateau: training ends below it; cosine: where it ends");
  train("weight_decay", c.train.weight_decay, "weight decay");
  train("schedule", c.train.schedule, "plateau, cosine or constant");
  train("patience", c.train.patience, "plateau: epochs without progress before lr is multiplied by factor");
  train("factor", c.train.factor, "plateau: what lr is multiplied by");
  train("plateau_on", c.train.plateau_on, "plateau: progress of the validation loss or of the metric");
  train("warmup_epochs", c.train.warmup_epochs, "epochs in which lr rises from 0");
  train("batch_size", c.train.batch_size, "graphs per batch");
  train("accumulate", c.train.accumulate, "batches per optimiser step");
  train("epochs", c.train.epochs, "at most so many");
  train("time_limit", c.train.time_limit, "hours; 0 = none");
  train("early_stopping", c.train.early_stopping, "epochs without a better validation score; 0 = off");
  train("clip", c.train.clip, "largest norm of the gradient; 0 = off");
  train("average", c.train.average,
        "evaluate and keep the running mean of the weights with this decay per step; 0 = off");
  train("sign_flip", c.train.sign_flip, "random signs of eigenvectors: none, batch or graph");
  train("standardise", c.train.standardise, "regression: learn (label - mean) / standard deviation");
  train("bucket", c.train.bucket, "batches of graphs of similar size");
  train("published_metrics", c.train.published_metrics, "also report means of batch means, as the published program");
  train("eval_test_every", c.train.eval_test_every, "epochs between test scores; 0 = once, at the end");
  train("checkpoint_seconds", c.train.checkpoint_seconds, "between checkpoints inside an epoch");
  train("engine", c.train.engine, "what computes: fused (kernels, where they can), or torch (the definition)");
  train("seed", c.train.seed, "seed of weights, order, dropout and signs");
}

}  // namespace san
