// The zinc featuriser: a molecule's Kekule form in the order of its canonical SMILES.
#include <GraphMol/Canon.h>
#include <GraphMol/MolOps.h>
#include <GraphMol/PeriodicTable.h>
#include <GraphMol/RingInfo.h>
#include <GraphMol/SmilesParse/SmilesWrite.h>
#include <GraphMol/new_canon.h>
#include <RDGeneral/versions.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdlib>

#include "san/chem/rdkit_bridge.h"
#include "san/chem/skeleton.h"

namespace san {
namespace rdkit_bridge {
namespace {

using RDKit::Atom;
using RDKit::Bond;
using RDKit::RWMol;

// Types are looked up by (atomic number, explicit hydrogens, charge class) in place of the string they spell.
struct ZincType {
  int atomic_number, hydrogens, charge;
};
constexpr std::array<ZincType, kZincAtomTypes> kZincTypes = {{
    {6, 0, 0},   {8, 0, 0},  {7, 0, 0},  {9, 0, 0},  {6, 1, 0},  {16, 0, 0}, {17, 0, 0},
    {8, 0, -1},  {7, 1, 1},  {35, 0, 0}, {7, 3, 1},  {7, 2, 1},  {7, 0, 1},  {7, 0, -1},
    {16, 0, -1}, {53, 0, 0}, {15, 0, 0}, {8, 1, 1},  {7, 1, -1}, {8, 0, 1},  {16, 0, 1},
    {15, 1, 0},  {15, 2, 0}, {6, 2, -1}, {15, 0, 1}, {16, 1, 1}, {6, 1, -1}, {15, 1, 1},
}};

std::string zinc_type_name(std::string symbol, int hydrogens, int charge) {
  if (hydrogens > 0) symbol += fmt::format(" H{}", hydrogens);
  if (charge == 1) symbol += " +";
  if (charge == -1) symbol += " -";
  return symbol;
}

int32_t zinc_atom_type(const Atom& atom, int hydrogens, const FeaturiserOptions& options) {
  const int charge = std::abs(atom.getFormalCharge()) == 1 ? atom.getFormalCharge() : 0;
  int type = 0;
  while (type < kZincAtomTypes && !(kZincTypes[type].atomic_number == atom.getAtomicNum() &&
                                    kZincTypes[type].hydrogens == hydrogens && kZincTypes[type].charge == charge)) {
    ++type;
  }
  if (type == kZincAtomTypes && options.unknown == UnknownType::kError) {
    fail("the atom type '{}' is not one of the {} that the zinc featuriser knows",
         zinc_type_name(atom.getSymbol(), hydrogens, charge), kZincAtomTypes);
  }
  return type;
}

// Of a molecule in zinc form.
Graph graph_of(const RWMol& molecule, const FeaturiserOptions& options) {
  Graph graph;
  graph.num_nodes = static_cast<int32_t>(molecule.getNumAtoms());
  graph.node_features.category_columns = graph.edge_features.category_columns = 1;
  graph.node_features.categories.reserve(molecule.getNumAtoms());
  for (const Atom* atom : molecule.atoms()) {
    graph.node_features.categories.push_back(
        zinc_atom_type(*atom, static_cast<int>(atom->getNumExplicitHs()), options));
  }
  struct TypedEdge {
    Edge edge;
    int32_t type;
  };
  std::vector<TypedEdge> edges;
  edges.reserve(2 * molecule.getNumBonds());
  for (const Bond* bond : molecule.bonds()) {
    int32_t type = kZincBondTypes;
    switch (bond->getBondType()) {
      case Bond::SINGLE:
        type = 1;
        break;
      case Bond::DOUBLE:
        type = 2;
        break;
      case Bond::TRIPLE:
        type = 3;
        break;
      default:
        if (options.unknown == UnknownType::kError)
          fail("a bond that is neither single, double nor triple, which the zinc featuriser does not know");
    }
    const auto a = static_cast<int32_t>(bond->getBeginAtomIdx()), b = static_cast<int32_t>(bond->getEndAtomIdx());
    edges.push_back({{a, b}, type});
    edges.push_back({{b, a}, type});
  }
  std::sort(edges.begin(), edges.end(), [](const TypedEdge& x, const TypedEdge& y) {
    return std::pair(x.edge.source, x.edge.target) < std::pair(y.edge.source, y.edge.target);
  });
  graph.edges.reserve(edges.size());
  graph.edge_features.categories.reserve(edges.size());
  for (const TypedEdge& e : edges) {
    graph.edges.push_back(e.edge);
    graph.edge_features.categories.push_back(e.type);
  }
  return graph;
}

// --- The same graph without writing and reading the Kekule SMILES

using chem::Ring;
using chem::Skeleton;

// What the shortcut takes, as far as it can be told before: one fragment whose atoms come back from the SMILES as they were.
bool ordinary(const RWMol& molecule) {
  const unsigned atoms = molecule.getNumAtoms();
  if (atoms > Skeleton::kMost || molecule.getNumBonds() > Skeleton::kMost) return false;
  for (const Atom* atom : molecule.atoms()) {
    switch (atom->getAtomicNum()) {
      case 6:
      case 7:
      case 8:
      case 9:
      case 15:
      case 16:
      case 17:
      case 35:
      case 53:
        break;
      default:
        return false;
    }
    if (atom->getIsotope() != 0 || atom->getNumRadicalElectrons() != 0 || atom->getAtomMapNum() != 0) return false;
    // A stereocentre with a CIP code has four different neighbours and keeps its mark whatever the order of atoms. Others (two
    // in a ring, for example, that are one only together) may lose it, and with it their hydrogen.
    if (atom->getChiralTag() != Atom::CHI_UNSPECIFIED && !atom->hasProp(RDKit::common_properties::_CIPCode))
      return false;
  }
  std::array<uint64_t, Skeleton::kMost> neighbours{};
  for (const Bond* bond : molecule.bonds()) {
    // An aromatic triple bond (benzyne) has no place in the choice of double bonds.
    switch (bond->getBondType()) {
      case Bond::SINGLE:
      case Bond::DOUBLE:
      case Bond::TRIPLE:
        if (bond->getIsAromatic()) return false;
        break;
      case Bond::AROMATIC:
        break;
      default:
        return false;
    }
    neighbours[bond->getBeginAtomIdx()] |= uint64_t{1} << bond->getEndAtomIdx();
    neighbours[bond->getEndAtomIdx()] |= uint64_t{1} << bond->getBeginAtomIdx();
  }
  uint64_t reached = 1;
  for (uint64_t todo = 1; todo != 0;) {
    const int atom = std::countr_zero(todo);
    todo = (todo | (neighbours[atom] & ~reached)) & ~(uint64_t{1} << atom);
    reached |= neighbours[atom];
  }
  return std::popcount(reached) == static_cast<int>(atoms);
}

// A valence, hydrogens included, that the reader would accept and refill with the same hydrogens.
bool ordinary_valence(int atomic_number, int charge, int valence) {
  if (charge < -1 || charge > 1) return false;
  switch (atomic_number) {
    case 6:
      return valence == (charge == 0 ? 4 : 3);
    case 7:
      return valence == 3 + charge;
    case 8:
      return valence == 2 + charge;
    case 15:
      return charge == 0 ? valence == 3 || valence == 5 : charge == 1 && valence == 4;
    case 16:
      return charge == 0 ? valence == 2 || valence == 4 || valence == 6 : valence == 2 + charge;
    default:
      return charge == 0 && valence == 1;
  }
}

// Hydrogens that the canonical SMILES spells out: those of atoms in brackets. `valence` includes them.
int spelled_hydrogens(const Atom& atom, int valence) {
  const bool expands = (atom.getAtomicNum() == 15 && valence > 3) || (atom.getAtomicNum() == 16 && valence > 2);
  const bool brackets = atom.getFormalCharge() != 0 || atom.getChiralTag() != Atom::CHI_UNSPECIFIED || expands;
  return brackets ? static_cast<int>(atom.getTotalNumHs()) : 0;
}

// The canonical SMILES as a skeleton: what reading it would give, in its order.
struct Canonical {
  std::array<const Atom*, Skeleton::kMost> atoms;
  std::array<const Bond*, Skeleton::kMost> bonds;
  Skeleton skeleton;
};

bool canonical_form(RWMol& molecule, Canonical& out) {
  namespace canon = RDKit::Canon;
  std::vector<unsigned> ranks;
  canon::rankMolAtoms(molecule, ranks);
  std::vector<canon::AtomColors> colors(ranks.size(), canon::WHITE_NODE);
  canon::MolStack text;
  text.reserve(molecule.getNumAtoms() + molecule.getNumBonds());
  const auto first = std::min_element(ranks.begin(), ranks.end()) - ranks.begin();
  canon::canonicalizeFragment(molecule, static_cast<int>(first), colors, ranks, text, nullptr, nullptr, true);

  // A ring bond is closed with the number that was free when it was opened; the reader makes ring bonds after all others, by
  // number, those of one number as they come.
  struct Closure {
    int id, number, begin, end;
    const Bond* bond;
  };
  std::array<Closure, Skeleton::kMost> closures;
  int opened = 0;
  uint64_t used = 0, closing = 0;  // numbers; those closed at an atom are free from the next atom on
  std::array<int, Skeleton::kMost> branches;
  int depth = 0, here = -1;
  const Bond* bond = nullptr;
  for (const canon::MolStackElem& element : text) {
    switch (element.type) {
      case canon::MOL_STACK_ATOM: {
        used &= ~closing;
        closing = 0;
        const int atom = out.skeleton.atoms++;
        out.atoms[atom] = element.obj.atom;
        if (here >= 0) {
          out.bonds[out.skeleton.bonds] = bond;
          if (!out.skeleton.add_bond(here, atom)) return false;
        }
        here = atom;
        break;
      }
      case canon::MOL_STACK_BOND:
        bond = element.obj.bond;
        break;
      case canon::MOL_STACK_RING: {
        Closure* const end = closures.data() + opened;
        Closure* const at =
            std::find_if(closures.data(), end, [&](const Closure& c) { return c.id == element.number && c.end < 0; });
        if (at != end) {
          closing |= uint64_t{1} << at->number;
          at->end = here;
          at->bond = molecule.getBondBetweenAtoms(out.atoms[at->begin]->getIdx(), out.atoms[here]->getIdx());
        } else {
          const int number = std::countr_one(used);
          used |= uint64_t{1} << number;
          closures[opened++] = {element.number, number, here, -1, nullptr};
        }
        break;
      }
      case canon::MOL_STACK_BRANCH_OPEN:
        branches[depth++] = here;
        break;
      case canon::MOL_STACK_BRANCH_CLOSE:
        here = branches[--depth];
        break;
    }
  }
  std::stable_sort(closures.data(), closures.data() + opened,
                   [](const Closure& a, const Closure& b) { return a.number < b.number; });
  for (int i = 0; i < opened; ++i) {
    out.bonds[out.skeleton.bonds] = closures[i].bond;
    if (!out.skeleton.add_bond(closures[i].begin, closures[i].end)) return false;
  }
  return true;
}

// What graph_of gives after to_zinc_form, for most molecules that are ordinary(), at half the cost; nothing for the others.
// Spoils `molecule`.
//
// The text would be read into the same Kekule structure, whose aromatic bonds are the same again; only which of them are double
// is then chosen anew, for the new order of atoms.
std::optional<Graph> direct_graph(RWMol& molecule, const FeaturiserOptions& options) {
  uint64_t aromatic_bonds = 0;
  for (const Bond* bond : molecule.bonds())
    if (bond->getIsAromatic()) aromatic_bonds |= uint64_t{1} << bond->getIdx();
  // Rings that are aromatic only together (azulene) are found or not depending on the order of rings.
  uint64_t in_aromatic_ring = 0;
  for (const auto& ring : molecule.getRingInfo()->bondRings()) {
    uint64_t set = 0;
    for (const int b : ring) set |= uint64_t{1} << b;
    if ((set & ~aromatic_bonds) == 0) in_aromatic_ring |= set;
  }
  if (in_aromatic_ring != aromatic_bonds) return std::nullopt;
  RDKit::MolOps::Kekulize(molecule, true);

  Canonical form;
  if (!canonical_form(molecule, form)) return std::nullopt;
  const Skeleton& skeleton = form.skeleton;
  std::array<int32_t, Skeleton::kMost> types, hydrogens;
  uint64_t aromatic_atoms = 0, aromatic = 0, wanting = 0;
  for (int a = 0; a < skeleton.atoms; ++a) {
    const Atom& atom = *form.atoms[a];
    auto valence = static_cast<int>(atom.getTotalNumHs());
    for (int k = 0; k < skeleton.degree[a]; ++k) {
      const auto [other, b] = skeleton.links[a][k];
      const Bond& bond = *form.bonds[b];
      const bool two = bond.getBondType() == Bond::DOUBLE;
      types[b] = two ? 2 : bond.getBondType() == Bond::TRIPLE ? 3 : 1;
      valence += types[b];
      if (!(aromatic_bonds >> bond.getIdx() & 1)) continue;
      aromatic |= uint64_t{1} << b;
      aromatic_atoms |= uint64_t{1} << a;
      if (two) wanting |= uint64_t{1} << a;
    }
    if (!ordinary_valence(atom.getAtomicNum(), atom.getFormalCharge(), valence)) return std::nullopt;
    hydrogens[a] = spelled_hydrogens(atom, valence);
  }
  if (aromatic != 0) {
    const auto rings = chem::find_rings(skeleton);
    if (!rings) return std::nullopt;
    const auto chosen = chem::choose_double_bonds(skeleton, *rings, aromatic_atoms, aromatic, wanting);
    if (!chosen) return std::nullopt;
    for (uint64_t rest = aromatic; rest != 0; rest &= rest - 1) {
      const int b = std::countr_zero(rest);
      types[b] = *chosen >> b & 1 ? 2 : 1;
    }
  }

  Graph graph;
  graph.num_nodes = skeleton.atoms;
  graph.node_features.category_columns = graph.edge_features.category_columns = 1;
  graph.node_features.categories.reserve(skeleton.atoms);
  graph.edges.reserve(2 * skeleton.bonds);
  graph.edge_features.categories.reserve(2 * skeleton.bonds);
  for (int32_t a = 0; a < skeleton.atoms; ++a) {
    graph.node_features.categories.push_back(zinc_atom_type(*form.atoms[a], hydrogens[a], options));
    auto links = skeleton.links[a];
    std::sort(links.begin(), links.begin() + skeleton.degree[a],
              [](const Skeleton::Link& x, const Skeleton::Link& y) { return x.atom < y.atom; });
    for (int k = 0; k < skeleton.degree[a]; ++k) {
      graph.edges.push_back({a, links[k].atom});
      graph.edge_features.categories.push_back(types[links[k].bond]);
    }
  }
  return graph;
}

// The shortcut repeats choices of this RDKit; another one may choose otherwise and is asked itself.
bool known_rdkit() {
  static const bool known = std::string_view(RDKit::rdkitVersion).starts_with("2022.09.");
  return known;
}

}  // namespace

void to_zinc_form(std::unique_ptr<RDKit::RWMol>& molecule) {
  RDKit::MolOps::Kekulize(*molecule, true);
  // After Kekulize nothing is aromatic any more, so the plain SMILES is the Kekule SMILES.
  const std::string kekule = RDKit::MolToSmiles(*molecule);
  molecule = parse_raw(kekule, kMaxAtoms);
  // Bond directions (/, \) have no part in the graph; chirality decides whether an explicit H stays.
  // What cleanUp mends was mended before the text was written.
  sanitize(*molecule, kekule.find('@') != kekule.npos, false, false);
  RDKit::MolOps::Kekulize(*molecule, true);
}

Graph zinc_graph(const RDKit::RWMol& molecule, const FeaturiserOptions& options) {
  auto copy = std::make_unique<RWMol>(molecule);
  to_zinc_form(copy);
  return graph_of(*copy, options);
}

Graph zinc_graph(const std::string& smiles, const FeaturiserOptions& options) {
  auto molecule = parse(smiles, options.max_atoms, false);
  if (known_rdkit() && ordinary(*molecule)) {
    if (auto graph = direct_graph(*molecule, options)) return *std::move(graph);
    molecule = parse(smiles, options.max_atoms, false);
  }
  to_zinc_form(molecule);
  return graph_of(*molecule, options);
}

}  // namespace rdkit_bridge

const std::vector<std::string>& zinc_atom_types() {
  static const std::vector<std::string> types = [] {
    std::vector<std::string> names;
    for (const rdkit_bridge::ZincType& type : rdkit_bridge::kZincTypes) {
      names.push_back(rdkit_bridge::zinc_type_name(
          RDKit::PeriodicTable::getTable()->getElementSymbol(type.atomic_number), type.hydrogens, type.charge));
    }
    return names;
  }();
  return types;
}

}  // namespace san
