// Inside chem/ only: what molecule.cc and drawing.cc share. The one header of ours that includes RDKit.
#pragma once

#include <GraphMol/RWMol.h>

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "san/chem/molecule.h"

namespace san::rdkit_bridge {

// The SMILES proper: without blanks around and without what follows the first inner blank.
std::string_view smiles_proper(std::string_view text);

// Runs `work` and returns true; false, with `error` set, when it throws or RDKit reported an error by other
// means (then work() must throw Refused{}). Captures RDKit's log of this thread meanwhile. `large`: on a
// stack of its own, because RDKit recurses atom by atom.
struct Refused {};
bool guarded(std::string_view smiles, bool large, std::string& error, const std::function<void()>& work);

// Checks the limits on `smiles` (already proper). False and `error` when it is not to be parsed. `large` says
// whether guarded() should take a large stack.
bool admissible(std::string_view smiles, int max_atoms, bool& large, std::string& error);

// Inside guarded(): the molecule as RDKit's own SmilesToMol would give it. `chemistry` false leaves out
// conjugation and hybridisation where nothing in the zinc featuriser's result can depend on them.
std::unique_ptr<RDKit::RWMol> parse(const std::string& smiles, int max_atoms, bool chemistry);

// The two halves of parse(): the text as it stands, and the chemistry of it. `clean` false leaves out mending of hypervalent
// spellings such as N(=O)=O.
std::unique_ptr<RDKit::RWMol> parse_raw(const std::string& smiles, int max_atoms);
void sanitize(RDKit::RWMol& molecule, bool stereo, bool chemistry, bool clean = true);
bool has_stereo_marks(std::string_view smiles);

// --- zinc.cc

inline constexpr int kZincAtomTypes = 28, kZincBondTypes = 4;

// Inside guarded(): turns `molecule` into the one whose atoms and bonds the zinc graph has, in its order.
void to_zinc_form(std::unique_ptr<RDKit::RWMol>& molecule);

// Inside guarded(): the zinc graph of a SMILES, or of a molecule from parse(). The second is the definition: it goes through
// to_zinc_form(). The first takes a shorter way wherever that is known to give the same graph.
Graph zinc_graph(const std::string& smiles, const FeaturiserOptions& options);
Graph zinc_graph(const RDKit::RWMol& molecule, const FeaturiserOptions& options);

}  // namespace san::rdkit_bridge
