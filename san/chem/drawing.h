// Molecules as SVG, atoms coloured by a value each: the paper's eigenvector figure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "san/chem/molecule.h"

namespace san {

inline constexpr int kMaxDrawnAtoms = 500;
inline constexpr int kMaxPanels = 400;

// One picture of the molecule. Node j of the featuriser's graph gets a disc coloured by values[j]: blue for
// negative, white for zero, red for positive, full colour at the panel's largest magnitude. No values: no
// discs.
struct Panel {
  std::vector<double> values;  // one finite number per node, or none
  std::string legend;          // below the picture, for example "lambda_2 = 0.031"
};

struct DrawingOptions {
  Featuriser featuriser = Featuriser::kZinc;  // whose node order the values have
  int panel_width = 300;                      // pixels, 50..4000
  int panel_height = 260;
  int columns = 4;  // panels per row of the grid
};

// An SVG document with the panels in a grid. A SMILES that cannot be parsed, or has more than kMaxDrawnAtoms
// atoms, gives std::nullopt and `error` as in molecule.h. Throws Error when options or the number of values
// do not fit. Safe from any thread.
std::optional<std::string> draw_svg(std::string_view smiles, const std::vector<Panel>& panels,
                                    const DrawingOptions& options, std::string& error);

}  // namespace san
