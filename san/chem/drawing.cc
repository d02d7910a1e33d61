#include "san/chem/drawing.h"

#include <GraphMol/MolDraw2D/MolDraw2DSVG.h>
#include <GraphMol/MolDraw2D/MolDraw2DUtils.h>

#include <algorithm>
#include <cmath>

#include "san/chem/rdkit_bridge.h"

namespace san {
namespace {

// -1 blue, 0 white, 1 red; the ends are the dark tones of the usual red-blue scale, softened so that atom
// labels stay readable on them.
RDKit::DrawColour diverging(double x) {
  const double strength = std::abs(x);
  const auto towards = [strength](double end) { return 1.0 + strength * (end - 1.0); };
  if (x < 0) return {towards(0.26), towards(0.49), towards(0.90)};
  return {towards(0.91), towards(0.33), towards(0.28)};
}

}  // namespace

std::optional<std::string> draw_svg(std::string_view text, const std::vector<Panel>& panels,
                                    const DrawingOptions& options, std::string& error) {
  SAN_CHECK(!panels.empty() && panels.size() <= static_cast<size_t>(kMaxPanels), "a drawing has 1 to {} panels, not {}",
            kMaxPanels, panels.size());
  SAN_CHECK(options.columns >= 1, "a drawing has at least one panel per row, not {}", options.columns);
  for (const int side : {options.panel_width, options.panel_height})
    SAN_CHECK(side >= 50 && side <= 4000, "a panel is 50 to 4000 pixels wide and high, not {}", side);

  const std::string_view smiles = rdkit_bridge::smiles_proper(text);
  bool large = false;
  if (!rdkit_bridge::admissible(smiles, kMaxDrawnAtoms, large, error)) return std::nullopt;
  std::unique_ptr<RDKit::RWMol> molecule;
  if (!rdkit_bridge::guarded(smiles, large, error, [&] {
        molecule = rdkit_bridge::parse(std::string(smiles), kMaxDrawnAtoms, true);
        if (options.featuriser == Featuriser::kZinc) rdkit_bridge::to_zinc_form(molecule);
      })) {
    return std::nullopt;
  }
  const int atoms = static_cast<int>(molecule->getNumAtoms());
  for (const Panel& panel : panels) {
    SAN_CHECK(panel.values.empty() || panel.values.size() == static_cast<size_t>(atoms),
              "'{}' has {} atoms, but {} values were given to colour them by", printable(smiles), atoms,
              panel.values.size());
    for (const double value : panel.values)
      SAN_CHECK(std::isfinite(value), "atoms can be coloured by finite numbers only");
  }

  std::optional<std::string> svg;
  const bool done = rdkit_bridge::guarded(smiles, large, error, [&] {
    // Hydrogens at stereocentres would be atoms without values: none are added.
    RDKit::MolDraw2DUtils::prepareMolForDrawing(*molecule, true, false);
    const size_t columns = std::min(panels.size(), static_cast<size_t>(options.columns));
    const size_t rows = (panels.size() + columns - 1) / columns;
    RDKit::MolDraw2DSVG drawer(static_cast<int>(columns) * options.panel_width,
                               static_cast<int>(rows) * options.panel_height, options.panel_width, options.panel_height,
                               true);
    auto& drawing = drawer.drawOptions();
    drawing.padding = 0.12;  // the discs reach beyond the atoms
    drawing.prepareMolsBeforeDrawing = false;
    drawing.atomHighlightsAreCircles = true;
    drawing.continuousHighlight = false;
    drawing.includeMetadata = false;
    drawing.highlightRadius = 0.38;

    std::vector<RDKit::ROMol*> molecules(panels.size(), molecule.get());
    std::vector<std::string> legends;
    std::vector<std::vector<int>> highlighted;
    std::vector<std::map<int, RDKit::DrawColour>> colours;
    for (const Panel& panel : panels) {
      legends.push_back(printable(panel.legend, 200));
      auto& indices = highlighted.emplace_back();
      auto& palette = colours.emplace_back();
      double largest = 0;
      for (const double value : panel.values) largest = std::max(largest, std::abs(value));
      for (size_t j = 0; j < panel.values.size(); ++j) {
        indices.push_back(static_cast<int>(j));
        palette[static_cast<int>(j)] = diverging(largest > 0 ? panel.values[j] / largest : 0);
      }
    }
    drawer.drawMolecules(molecules, &legends, &highlighted, nullptr, &colours);
    drawer.finishDrawing();
    svg = drawer.getDrawingText();
  });
  return done ? std::move(svg) : std::nullopt;
}

}  // namespace san
