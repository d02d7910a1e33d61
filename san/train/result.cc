#include "san/train/result.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "san/base/error.h"
#include "san/base/file.h"

namespace san {
namespace {

using Json = nlohmann::ordered_json;
using Metrics = std::vector<std::pair<std::string, double>>;

// JSON has no NaN: a metric that does not exist is null.
Json number(double value) {
  return std::isfinite(value) ? Json(value) : Json(nullptr);
}
double number(const Json& json) {
  return json.is_null() ? std::nan("") : json.get<double>();
}

Json to_json(const Metrics& metrics) {
  Json out = Json::object();
  for (const auto& [name, value] : metrics) out[name] = number(value);
  return out;
}

Metrics metrics_from(const Json& json) {
  Metrics out;
  for (const auto& [name, value] : json.items()) out.emplace_back(name, number(value));
  return out;
}

}  // namespace

void write_result(const std::filesystem::path& path, const TrainResult& result) {
  const Json json = {{"stopped", result.stopped},
                     {"metric", result.metric},
                     {"best_epoch", result.best_epoch},
                     {"best_valid", number(result.best_valid)},
                     {"test", to_json(result.test_metrics)},
                     {"test_batch_means", to_json(result.published_metrics)},
                     {"epochs", result.epochs},
                     {"seconds", number(result.seconds)},
                     {"graphs_per_second", number(result.graphs_per_second)},
                     {"train_graphs", result.train_graphs},
                     {"parameters", result.parameters},
                     {"machine", result.machine},
                     {"command", result.command}};
  // A command line may hold any bytes.
  write_file(path, json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
}

TrainResult read_result(const std::filesystem::path& path) {
  try {
    const Json json = Json::parse(read_file(path, size_t{1} << 20));
    TrainResult result;
    result.stopped = json.at("stopped");
    result.metric = json.at("metric");
    result.best_epoch = json.at("best_epoch");
    result.best_valid = number(json.at("best_valid"));
    result.test_metrics = metrics_from(json.at("test"));
    result.published_metrics = metrics_from(json.at("test_batch_means"));
    result.epochs = json.at("epochs");
    result.seconds = number(json.at("seconds"));
    result.graphs_per_second = number(json.at("graphs_per_second"));
    result.train_graphs = json.at("train_graphs");
    result.parameters = json.at("parameters");
    result.machine = json.at("machine");
    result.command = json.at("command");
    return result;
  } catch (const nlohmann::json::exception& error) {
    fail("{}: not the result of a run: {}", path.string(), printable(error.what(), 200));
  }
}

}  // namespace san
