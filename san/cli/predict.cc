// san predict: a model folder and graphs or molecules in, a CSV of predictions out. Every core reads, computes eigenpairs,
// predicts and formats blocks of its own; memory does not grow with the input.
#include <algorithm>
#include <cmath>

#include "san/base/file.h"
#include "san/cli/commands.h"
#include "san/cli/main.h"
#include "san/cli/model_flags.h"
#include "san/cli/progress.h"
#include "san/data/csv.h"
#include "san/data/stream.h"
#include "san/model/network.h"
#include "san/model/predictor.h"

namespace san::cli {
namespace {

// Records that one thread works on at a time: small change in memory, some milliseconds of work.
constexpr int kAutoBlock = 64, kMaxBlock = 4096;

class Predicting {
 public:
  Predicting(const PredictFlags& flags, std::vector<StoredModel> members) : flags_(flags) {
    for (StoredModel& member : members) networks_.emplace_back(std::move(member));
  }

  int run() {
    const ModelDescription& description = networks_[0].description();
    const auto source = open_input(flags_.data, flags_.source, description);
    FileWriter writer(flags_.out);
    writer.write(predictions_header(description, source->id_name(), flags_.raw, networks_.size() > 1));

    ProgressBar bar("predicting", "graphs");
    StreamOptions stream;
    stream.spectral = description.input.spectral;
    stream.with_spectra = std::any_of(networks_.begin(), networks_.end(), [](const Predictor& network) {
      return network.description().model.lpe.kind != LpeKind::kNone;
    });
    stream.threads = flags_.threads;
    stream.skip_bad_records = flags_.on_error == "skip";
    stream.on_bad_record = [&](const std::string& message) {
      bar.clear();
      say("san: {}\n", message);
    };
    stream.progress = [&](const Progress& progress) { bar.update(progress.done, progress.fraction); };
    const int block = flags_.batch_size == 0 ? kAutoBlock : std::min(flags_.batch_size, kMaxBlock);
    const int64_t skipped = stream_blocks(
        *source, stream, block, [&](StreamBlock& b) { work(b); }, [&](StreamBlock& b) { writer.write(b.text); });
    bar.clear();
    const int64_t done = bar.done();
    SAN_CHECK(done + skipped > 0, "{}: nothing to predict in it", flags_.data);
    writer.commit();
    if (bar.seconds() >= 1) {
      say("{} graphs in {:.1f} s, {}/s\n", with_commas(done), bar.seconds(),
          with_commas(std::lround(static_cast<double>(done) / bar.seconds())));
    }
    if (skipped == 0) return kDone;
    say("san: {} of {} records could not be read and have no prediction\n", skipped, skipped + done);
    return kFailed;
  }

 private:
  void work(StreamBlock& block) const {
    std::vector<const ModelConfig*> models;
    for (const Predictor& network : networks_) models.push_back(&network.description().model);
    fill_block(block, models,
               [this](std::span<const Graph* const> graphs, std::string& text) { append_rows(graphs, text); });
  }

  void append_rows(std::span<const Graph* const> graphs, std::string& text) const {
    PredictOptions options;
    options.raw = flags_.raw;
    options.batch_size = flags_.batch_size;
    std::vector<Predictions> results;
    for (const Predictor& network : networks_) results.push_back(network.predict(graphs, options));
    const Predictions& first = results[0];
    const auto members = static_cast<double>(results.size());
    for (size_t g = 0; g < graphs.size(); ++g) {
      for (int64_t row = first.row_offsets[g]; row < first.row_offsets[g + 1]; ++row) {
        append_csv_field(text, graphs[g]->id);
        if (networks_[0].node_task()) fmt::format_to(std::back_inserter(text), ",{}", row - first.row_offsets[g]);
        const auto add = [&](double value) { fmt::format_to(std::back_inserter(text), ",{:.9g}", value); };
        std::vector<double> deviations;
        for (int64_t i = row * first.columns; i < (row + 1) * first.columns; ++i) {
          const auto at = static_cast<size_t>(i);
          double mean = 0, squares = 0;
          for (const Predictions& result : results) mean += result.values[at] / members;
          for (const Predictions& result : results) squares += (result.values[at] - mean) * (result.values[at] - mean);
          add(results.size() == 1 ? first.values[at] : mean);
          if (results.size() > 1) deviations.push_back(std::sqrt(squares / (members - 1)));
        }
        for (const double deviation : deviations) add(deviation);
        text += '\n';
      }
    }
  }

  const PredictFlags& flags_;
  std::vector<Predictor> networks_;
};

}  // namespace

int run_predict(int argc, char** argv) {
  PredictFlags flags;
  CLI::App app(kPredictHelp);
  add_predict_flags(app, flags);
  int exit_code = 0;
  if (!parse_flags(app, argc, argv, exit_code)) return exit_code;
  if (flags.precision == "double") return start_torch_program("predict", argc, argv);
  std::vector<StoredModel> members = read_members(flags.model);
  for (const StoredModel& member : members) {
    if (!Network::unsupported(member.description.model).empty()) return start_torch_program("predict", argc, argv);
    if (flags.precision != "auto" || !imported(member.description)) continue;
    if (torch_program_present()) return start_torch_program("predict", argc, argv);
    say("san: an imported model is predicted in double precision, but san-torch is not here: in float\n");
    break;
  }
  return Predicting(flags, std::move(members)).run();
}

}  // namespace san::cli
