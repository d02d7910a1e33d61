// san import: the authors' weights and configuration in, a model folder out.
#include "san/base/file.h"
#include "san/cli/commands.h"
#include "san/cli/main.h"
#include "san/model/authors_import.h"

namespace san::cli {

int run_import(int argc, char** argv) {
  std::string net_params, weights, out;
  CLI::App app(
      "Turns a network of the authors' PyTorch program into a san model folder.\n"
      "scripts/export_state_dict.py makes the safetensors file from their .pkl or .pt checkpoint.");
  app.add_option("--net-params", net_params, "JSON with \"dataset\" and \"net_params\", the authors' keys")->required();
  app.add_option("--weights", weights, "state dict under the authors' names, as safetensors")->required();
  app.add_option("--out", out, "model folder to write")->required();
  int exit_code = 0;
  if (!parse_flags(app, argc, argv, exit_code)) return exit_code;

  const std::string json = read_file(net_params, size_t{16} << 20);
  const TensorFile state = read_safetensors(weights);
  const StoredModel model = import_authors_model(json, state, net_params + " with " + weights);
  write_model(out, model);
  const ModelConfig& m = model.description.model;
  fmt::print("{}: {} model, {} attention, {} LPE, {} parameters\n", out, enum_name(model.description.task.kind),
             enum_name(m.attention), enum_name(m.lpe.kind), parameter_count(m));
  return kDone;
}

}  // namespace san::cli
