// SMILES in, Graph out: the only door to RDKit.
//
// A SMILES that cannot be used is a value, not an exception: functions return std::nullopt and put one line
// into `error` that starts with the SMILES in quotes ("'C1CC': unclosed ring"). Everything here may be called
// from any number of threads at once; a Molecule is immutable and may be shared between them.
//
// RDKit's log: on first use RDKit's process-wide loggers are replaced by ones that never write to the
// terminal; what it says about a SMILES becomes the text of `error`. RDKit's stamp in front of each message
// uses localtime(), which is the one thing threads share there; its text is thrown away.
//
// What goes in, and what becomes of it
//   blanks around               trimmed; text after the first inner blank (a name, a CXSMILES extension) is ignored
//   empty or only blanks        error
//   bytes other than printable ASCII   error
//   too long                    longer than kMaxSmilesLength or more atoms than FeaturiserOptions::max_atoms: error, before
//                               RDKit sees it (it recurses atom by atom and needs time quadratic in the size)
//   explicit hydrogens          "[H]C" is C: merged into their heavy atom, as RDKit does by default. Kept as nodes: isotopic
//                               ones ([2H]), H2, protons, and those bound to nothing or to several atoms
//   several fragments (salts)   kept: one graph with several components
//   a single atom               a graph of one node and no edges
//   charges                     features (zinc: +1 and -1 are part of the type; ogb: -5..5, else misc)
//   isotopes                    no feature of either featuriser: [13C] equals [C]
//   stereo                      zinc: only through the explicit H of a stereocentre (type "C H1"); ogb: features
//   dummy atoms (*)             zinc: unknown type; ogb: atomic number misc
//   bad valence, rings that cannot be kekulised, unclosed rings, ...   error, with RDKit's reason
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "san/graph/graph.h"

namespace san {

inline constexpr size_t kMaxSmilesLength = 100'000;
inline constexpr int kMaxAtoms = 10'000;

enum class Featuriser {
  // The ZINC benchmark's graphs. One node category (atom type), one edge category (bond type 1 single, 2 double, 3 triple;
  // 0 is left to added pairs). Nodes are in the order of the canonical Kekule SMILES, not of the SMILES given: the molecule
  // is kekulised, written as Kekule SMILES, read again and kekulised again, as for the published data. An atom's type is its
  // symbol, then " H<n>" for n > 0 explicit hydrogens, then " +" or " -" for a charge of +1 or -1: see zinc_atom_types().
  // Edges: both directions, sorted by (source, target).
  kZinc,
  // OGB's molecules. Nine node and three edge categories (see ogb_atom_sizes() and ogb_bond_sizes()), values out of range in
  // each column's last, "misc", row. Nodes as in the SMILES given; edges in bond order, the inverse right after each.
  kOgb,
};

// "zinc" or "ogb". featuriser_from_name throws Error for another name.
std::string_view featuriser_name(Featuriser featuriser);
Featuriser featuriser_from_name(std::string_view name);

// What zinc does with an atom or bond type that is not in its tables (ogb has rows for everything).
enum class UnknownType {
  kError,   // the molecule is refused: sizes 28 and 4 are exactly the published ones
  kBucket,  // atoms get category 28, bonds category 4: the tables then have 29 and 5 rows
};

struct FeaturiserOptions {
  Featuriser featuriser = Featuriser::kZinc;
  UnknownType unknown = UnknownType::kError;
  int max_atoms = 2'000;  // at most kMaxAtoms; hydrogens that are written out count
};

// Number of categories per column of the graphs made with `options`: the sizes of the embedding tables.
std::vector<int> node_category_sizes(const FeaturiserOptions& options);
std::vector<int> edge_category_sizes(const FeaturiserOptions& options);

// The 28 atom types of the zinc featuriser by category ("C", "O", ..., "P H1 +").
const std::vector<std::string>& zinc_atom_types();
// atomic number 1..118, chiral tag, total degree, formal charge, number of H, radical electrons,
// hybridisation, aromatic, in a ring: 119, 5, 12, 12, 10, 6, 6, 2, 2 categories.
const std::vector<int>& ogb_atom_sizes();
// type, stereo, conjugated: 5, 6, 2 categories.
const std::vector<int>& ogb_bond_sizes();

// The graph of a molecule: num_nodes, edges and categorical features are set, id and labels are left empty.
std::optional<Graph> smiles_to_graph(std::string_view smiles, const FeaturiserOptions& options, std::string& error);

// Murcko scaffold as canonical SMILES with chirality: what OGB's and DeepChem's scaffold splits group by. A
// molecule without rings has the scaffold "" (all such molecules are one group).
std::optional<std::string> murcko_scaffold(std::string_view smiles, std::string& error);

// A parsed molecule, for those who want several things of one SMILES without parsing it again.
class Molecule {
 public:
  // Limits as in smiles_to_graph with `max_atoms`.
  static std::optional<Molecule> parse(std::string_view smiles, std::string& error,
                                       int max_atoms = FeaturiserOptions{}.max_atoms);
  ~Molecule();
  Molecule(Molecule&&) noexcept;
  Molecule& operator=(Molecule&&) noexcept;

  const std::string& smiles() const;  // as given, trimmed
  int num_atoms() const;
  // The same as the functions above.
  std::optional<Graph> to_graph(const FeaturiserOptions& options, std::string& error) const;
  std::optional<std::string> scaffold(std::string& error) const;
  std::optional<std::string> canonical_smiles(std::string& error) const;

 private:
  struct Impl;
  explicit Molecule(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace san
