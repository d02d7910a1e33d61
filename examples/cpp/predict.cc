// Predictions for SMILES given on the command line, and for a graph made by hand: predict_cpp MODEL SMILES...
#include <cstdio>

#include "san/model/predictor.h"

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: %s MODEL SMILES...\n", argv[0]);
    return 2;
  }
  try {
    const san::Predictor model = san::Predictor::load(argv[1]);
    const std::vector<std::string> names = model.output_names();

    if (model.takes_smiles() && argc > 2) {
      const std::vector<std::string> smiles(argv + 2, argv + argc);
      std::vector<std::string> errors;
      const san::Predictions p = model.predict_smiles(smiles, {}, &errors);
      for (size_t i = 0; i < smiles.size(); ++i) {
        std::printf("%s", smiles[i].c_str());
        if (!errors[i].empty()) std::printf(": %s", errors[i].c_str());
        for (int c = 0; errors[i].empty() && c < p.columns; ++c) {
          std::printf(" %s=%.9g", names[static_cast<size_t>(c)].c_str(), p.row(static_cast<int64_t>(i))[c]);
        }
        std::printf("\n");
      }
    }

    // A triangle of nodes of category 0 with edges of category 1.
    san::Graph triangle;
    triangle.id = "triangle";
    triangle.num_nodes = 3;
    triangle.edges = {{0, 1}, {1, 0}, {1, 2}, {2, 1}, {2, 0}, {0, 2}};
    std::printf("triangle %.9g\n", model.predict(triangle).values[0]);
  } catch (const san::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
