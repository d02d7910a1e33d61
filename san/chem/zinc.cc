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

// What graph_of gives after to_zinc_form, for most molecules and at a third of the cost. RDKit reads the text, computes valences,
// assigns stereochemistry and ranks the atoms; rings, Kekule forms and most decisions about aromaticity are made here, as RDKit
// would make them, on plain arrays. Then the canonical text is not written and read: it would give the same atoms, bonds and
// aromatic bonds in another order, and only which of those are double is chosen anew, for that order.
//
// Every step may find that the molecule is not of the usual kind; then there is no graph, and the molecule is spoiled.
class Shortcut {
 public:
  explicit Shortcut(RWMol& molecule) : molecule_(molecule) {}

  // `molecule` is from parse_raw(); `stereo`: its text has marks of stereochemistry.
  std::optional<Graph> graph(bool stereo, const FeaturiserOptions& options) {
    if (!take_atoms() || !take_bonds() || !kekulize() || !find_aromatic_bonds()) return std::nullopt;
    if (stereo && !assign_stereo()) return std::nullopt;
    if (!kekulize_again() || !ordinary_valences()) return std::nullopt;
    return reordered_graph(options);
  }

 private:
  static constexpr uint64_t bit(unsigned i) { return uint64_t{1} << i; }
  static bool has(uint64_t set, unsigned i) { return (set >> i & 1) != 0; }

  // Elements of the organic subset, without isotopes and radicals.
  bool take_atoms() {
    const unsigned atoms = molecule_.getNumAtoms();
    if (atoms == 0 || atoms > Skeleton::kMost || molecule_.getNumBonds() > Skeleton::kMost) return false;
    for (Atom* atom : molecule_.atoms()) {
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
      if (atom->getIsotope() != 0 || atom->getAtomMapNum() != 0) return false;
      atoms_[atom->getIdx()] = atom;
    }
    RDKit::MolOps::cleanUp(molecule_);
    molecule_.updatePropertyCache(true);
    RDKit::MolOps::assignRadicals(molecule_);
    for (unsigned a = 0; a < atoms; ++a) {
      const Atom& atom = *atoms_[a];
      if (atom.getNumRadicalElectrons() != 0) return false;
      number_[a] = static_cast<int8_t>(atom.getAtomicNum());
      charge_[a] = static_cast<int8_t>(atom.getFormalCharge());
      hydrogens_[a] = static_cast<int8_t>(atom.getTotalNumHs());
      if (atom.getIsAromatic()) aromatic_atoms_ |= bit(a);
    }
    skeleton_.atoms = static_cast<int>(atoms);
    return true;
  }

  // Single, double, triple and aromatic bonds, the last in rings of the plain kind; one fragment.
  bool take_bonds() {
    for (Bond* bond : molecule_.bonds()) {
      const unsigned b = bond->getIdx(), begin = bond->getBeginAtomIdx(), end = bond->getEndAtomIdx();
      switch (bond->getBondType()) {
        case Bond::SINGLE:
          order_[b] = 1;
          break;
        case Bond::DOUBLE:
          order_[b] = 2;
          break;
        case Bond::TRIPLE:
          order_[b] = 3;
          break;
        case Bond::AROMATIC:
          order_[b] = 1;
          if (!has(aromatic_atoms_, begin) || !has(aromatic_atoms_, end)) return false;
          aromatic_bonds_ |= bit(b);
          break;
        default:
          return false;
      }
      if (bond->getIsAromatic() != has(aromatic_bonds_, b)) return false;
      bonds_[b] = bond;
      if (!skeleton_.add_bond(static_cast<int>(begin), static_cast<int>(end))) return false;
    }
    uint64_t reached = 1;
    for (uint64_t todo = 1; todo != 0;) {
      const int a = std::countr_zero(todo);
      todo &= todo - 1;
      for (int k = 0; k < skeleton_.degree[a]; ++k) {
        const int other = skeleton_.links[a][k].atom;
        if (!has(reached, other)) todo |= bit(other);
        reached |= bit(other);
      }
    }
    if (std::popcount(reached) != skeleton_.atoms) return false;
    auto rings = chem::find_rings(skeleton_);
    if (!rings) return false;
    rings_ = *std::move(rings);
    for (const Ring& ring : rings_) {
      ring_atoms_ |= ring.atom_set;
      ring_bonds_ |= ring.bond_set;
    }
    // For whoever asks RDKit about rings from here on.
    RDKit::RingInfo& info = *molecule_.getRingInfo();
    info.initialize();
    for (const Ring& ring : rings_) {
      std::vector<int> atoms(ring.atoms.begin(), ring.atoms.begin() + ring.size), bonds(ring.size);
      for (int i = 0; i < ring.size; ++i) bonds[i] = bond_between(ring.atoms[i], ring.atoms[(i + 1) % ring.size]);
      info.addRing(atoms, bonds);
    }
    return (aromatic_atoms_ & ~ring_atoms_) == 0;
  }

  int bond_between(int a, int b) const {
    for (int k = 0;; ++k)
      if (skeleton_.links[a][k].atom == b) return skeleton_.links[a][k].bond;
  }

  // Double bonds for the aromatic ones of the text.
  bool kekulize() {
    if (aromatic_atoms_ == 0) return true;
    uint64_t wanting = 0;
    for (uint64_t rest = aromatic_atoms_; rest != 0; rest &= rest - 1) {
      const int a = std::countr_zero(rest);
      int bonds = hydrogens_[a];
      for (int k = 0; k < skeleton_.degree[a]; ++k) bonds += order_[skeleton_.links[a][k].bond];
      const int free = usual_valence(a) - bonds;
      if (free == 1)
        wanting |= bit(a);
      else if (free != 0)
        return false;
    }
    const auto chosen =
        chem::choose_double_bonds(skeleton_, rings_, aromatic_atoms_, aromatic_bonds_ & ring_bonds_, wanting);
    if (!chosen) return false;
    set_orders(aromatic_bonds_, *chosen);
    for (uint64_t rest = aromatic_atoms_; rest != 0; rest &= rest - 1) {
      Atom& atom = *atoms_[std::countr_zero(rest)];
      atom.setIsAromatic(false);
      // As Kekulize does: the hydrogen of pyrrole is spelled out only because it is aromatic.
      if ((atom.getAtomicNum() == 7 || atom.getAtomicNum() == 15) && atom.getFormalCharge() == 0 &&
          atom.getNumExplicitHs() == 1) {
        atom.setNoImplicit(false);
        atom.setNumExplicitHs(0);
        atom.updatePropertyCache(false);
      }
    }
    return true;
  }

  // Bonds of an atom as aromatic ones usually have it; 0 for others, which nothing then fits.
  int usual_valence(int a) const {
    switch (number_[a]) {
      case 6:
        return charge_[a] == 0 ? 4 : 0;
      case 7:
        return charge_[a] >= -1 && charge_[a] <= 1 ? 3 + charge_[a] : 0;
      case 8:
      case 16:
        return charge_[a] == 0 || charge_[a] == 1 ? 2 + charge_[a] : 0;
      default:
        return 0;
    }
  }

  void set_orders(uint64_t bonds, uint64_t doubles) {
    for (uint64_t rest = bonds; rest != 0; rest &= rest - 1) {
      const int b = std::countr_zero(rest);
      order_[b] = has(doubles, b) ? 2 : 1;
      bonds_[b]->setBondType(order_[b] == 2 ? Bond::DOUBLE : Bond::SINGLE);
      bonds_[b]->setIsAromatic(false);
    }
  }

  // Electrons that an atom gives to the ring system, by RDKit's rules; kNone: it cannot be part of one; kUnclear: ask RDKit.
  enum Donor : int8_t { kUnclear = -2, kNone = -1 };
  int electrons(int a) const {
    const int connections = skeleton_.degree[a] + hydrogens_[a];
    if (connections > 3) return kNone;
    int doubles = 0;
    bool outside = false;
    int partner = -1;
    for (int k = 0; k < skeleton_.degree[a]; ++k) {
      const auto [other, b] = skeleton_.links[a][k];
      if (order_[b] == 3) return kUnclear;
      if (order_[b] != 2) continue;
      ++doubles;
      partner = number_[other];
      outside = !has(ring_bonds_, b);
    }
    if (doubles > 1) return kUnclear;
    switch (number_[a]) {
      case 6:
        if (charge_[a] != 0 || doubles == 0) return kUnclear;
        if (!outside) return 1;
        // The electron goes to the more electronegative atom outside; to another carbon it does not.
        return partner == 7 || partner == 8 || partner == 16 ? 0 : kUnclear;
      case 7:
        if (outside) return kUnclear;
        if (doubles == 1) return charge_[a] == 0 || charge_[a] == 1 ? 1 : kUnclear;
        return charge_[a] == 0 ? 2 : kUnclear;
      case 8:
      case 16:
        return charge_[a] == 0 && doubles == 0 && connections == 2 ? 2 : kUnclear;
      default:
        return kUnclear;
    }
  }

  // A ring is aromatic if it has 4n + 2 electrons. So are, for RDKit, some groups of rings that are not by themselves: groups
  // with such a ring in it are left to RDKit.
  bool find_aromatic_bonds() {
    spelled_aromatic_ = aromatic_bonds_;
    aromatic_bonds_ = 0;
    std::array<int8_t, Skeleton::kMost> given;
    for (uint64_t rest = ring_atoms_; rest != 0; rest &= rest - 1) {
      const int a = std::countr_zero(rest);
      given[a] = static_cast<int8_t>(electrons(a));
    }
    uint64_t others = 0;  // bonds of rings that could be aromatic and are not
    bool unclear = false;
    for (const Ring& ring : rings_) {
      int sum = 0;
      bool candidate = true, sure = ring.size >= 5 && ring.size <= 7;
      for (int i = 0; i < ring.size; ++i) {
        const int e = given[ring.atoms[i]];
        if (e == kNone) candidate = false;
        if (e == kUnclear) sure = false;
        sum += e;
      }
      if (!candidate) continue;
      if (!sure) {
        unclear = true;
      } else if (sum == 2 || sum == 6) {
        aromatic_bonds_ |= ring.bond_set;
      } else {
        // With another such ring, or with an aromatic one that comes later, it may be part of a group.
        unclear = unclear || (others & ring.bond_set) != 0;
        others |= ring.bond_set;
      }
    }
    if (unclear || (others & aromatic_bonds_) != 0) return ask_for_aromatic_bonds();
    aromatic_atoms_ = 0;
    for (const Ring& ring : rings_)
      if ((ring.bond_set & ~aromatic_bonds_) == 0) aromatic_atoms_ |= ring.atom_set;
    return true;
  }

  bool ask_for_aromatic_bonds() {
    RDKit::MolOps::setAromaticity(molecule_);
    asked_ = true;
    aromatic_atoms_ = aromatic_bonds_ = 0;
    for (int b = 0; b < skeleton_.bonds; ++b) {
      if (!bonds_[b]->getIsAromatic()) continue;
      if (order_[b] == 3) return false;  // benzyne
      aromatic_bonds_ |= bit(b);
    }
    // Rings that are aromatic only together (azulene) are found or not depending on the order of rings.
    uint64_t in_aromatic_ring = 0;
    for (const Ring& ring : rings_) {
      if ((ring.bond_set & ~aromatic_bonds_) != 0) continue;
      in_aromatic_ring |= ring.bond_set;
      aromatic_atoms_ |= ring.atom_set;
    }
    return in_aromatic_ring == aromatic_bonds_;
  }

  bool assign_stereo() {
    for (uint64_t rest = asked_ ? 0 : aromatic_bonds_; rest != 0; rest &= rest - 1) {
      Bond& bond = *bonds_[std::countr_zero(rest)];
      bond.setBondType(Bond::AROMATIC);
      bond.setIsAromatic(true);
    }
    for (uint64_t rest = asked_ ? 0 : aromatic_atoms_; rest != 0; rest &= rest - 1)
      atoms_[std::countr_zero(rest)]->setIsAromatic(true);
    // RDKit takes marks off atoms that are not tetrahedral; with four neighbours they are, and it need not be asked.
    bool clear = true;
    for (int a = 0; a < skeleton_.atoms; ++a)
      clear = clear && (atoms_[a]->getChiralTag() == Atom::CHI_UNSPECIFIED || skeleton_.degree[a] + hydrogens_[a] == 4);
    if (!clear) {
      RDKit::MolOps::setConjugation(molecule_);
      RDKit::MolOps::setHybridization(molecule_);
      RDKit::MolOps::cleanupChirality(molecule_);
    }
    RDKit::MolOps::assignStereochemistry(molecule_, true);
    // A stereocentre with a CIP code has four different neighbours and keeps its mark whatever the order of atoms. Others (two
    // in a ring, for example, that are one only together) may lose it, and with it their hydrogen.
    return std::all_of(atoms_.begin(), atoms_.begin() + skeleton_.atoms, [](const Atom* atom) {
      return atom->getChiralTag() == Atom::CHI_UNSPECIFIED || atom->hasProp(RDKit::common_properties::_CIPCode);
    });
  }

  bool kekulize_again() {
    uint64_t doubles = 0;
    if (aromatic_bonds_ == spelled_aromatic_) {
      doubles = doubles_among(aromatic_bonds_);  // the same choice, made before
    } else {
      const auto chosen = chem::choose_double_bonds(skeleton_, rings_, aromatic_atoms_, aromatic_bonds_, wanting());
      if (!chosen) return false;
      doubles = *chosen;
    }
    set_orders(aromatic_bonds_, doubles);
    for (uint64_t rest = aromatic_atoms_; rest != 0; rest &= rest - 1)
      atoms_[std::countr_zero(rest)]->setIsAromatic(false);
    return true;
  }

  uint64_t doubles_among(uint64_t bonds) const {
    uint64_t doubles = 0;
    for (uint64_t rest = bonds; rest != 0; rest &= rest - 1)
      if (order_[std::countr_zero(rest)] == 2) doubles |= rest & -rest;
    return doubles;
  }

  // Atoms with a double bond among the aromatic ones: they have one in every Kekule form.
  uint64_t wanting() const {
    const uint64_t doubles = doubles_among(aromatic_bonds_);
    uint64_t set = 0;
    for (int a = 0; a < skeleton_.atoms; ++a)
      for (int k = 0; k < skeleton_.degree[a]; ++k)
        if (has(doubles, skeleton_.links[a][k].bond)) set |= bit(a);
    return set;
  }

  bool ordinary_valences() {
    for (int a = 0; a < skeleton_.atoms; ++a) {
      int valence = hydrogens_[a];
      for (int k = 0; k < skeleton_.degree[a]; ++k) valence += order_[skeleton_.links[a][k].bond];
      if (!ordinary_valence(number_[a], charge_[a], valence)) return false;
      spelled_[a] = static_cast<int8_t>(spelled_hydrogens(*atoms_[a], valence));
    }
    return true;
  }

  std::optional<Graph> reordered_graph(const FeaturiserOptions& options) {
    Canonical form;
    if (!canonical_form(molecule_, form)) return std::nullopt;
    const Skeleton& skeleton = form.skeleton;
    std::array<int32_t, Skeleton::kMost> types;
    uint64_t aromatic = 0;
    for (int b = 0; b < skeleton.bonds; ++b) {
      types[b] = order_[form.bonds[b]->getIdx()];
      if (has(aromatic_bonds_, form.bonds[b]->getIdx())) aromatic |= bit(b);
    }
    if (aromatic != 0) {
      const uint64_t wanted = wanting();
      uint64_t aromatic_atoms = 0, wanting = 0;
      for (int a = 0; a < skeleton.atoms; ++a) {
        if (has(aromatic_atoms_, form.atoms[a]->getIdx())) aromatic_atoms |= bit(a);
        if (has(wanted, form.atoms[a]->getIdx())) wanting |= bit(a);
      }
      const auto rings = chem::find_rings(skeleton);
      if (!rings) return std::nullopt;
      const auto chosen = chem::choose_double_bonds(skeleton, *rings, aromatic_atoms, aromatic, wanting);
      if (!chosen) return std::nullopt;
      for (uint64_t rest = aromatic; rest != 0; rest &= rest - 1) {
        const int b = std::countr_zero(rest);
        types[b] = has(*chosen, b) ? 2 : 1;
      }
    }

    Graph graph;
    graph.num_nodes = skeleton.atoms;
    graph.node_features.category_columns = graph.edge_features.category_columns = 1;
    graph.node_features.categories.reserve(skeleton.atoms);
    graph.edges.reserve(2 * skeleton.bonds);
    graph.edge_features.categories.reserve(2 * skeleton.bonds);
    for (int32_t a = 0; a < skeleton.atoms; ++a) {
      const Atom& atom = *form.atoms[a];
      graph.node_features.categories.push_back(zinc_atom_type(atom, spelled_[atom.getIdx()], options));
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

  RWMol& molecule_;
  std::array<Atom*, Skeleton::kMost> atoms_;
  std::array<Bond*, Skeleton::kMost> bonds_;
  std::array<int8_t, Skeleton::kMost> number_, charge_, hydrogens_, spelled_;  // of atoms
  std::array<int8_t, Skeleton::kMost> order_;                                  // of bonds in the Kekule form
  Skeleton skeleton_;
  std::vector<Ring> rings_;
  uint64_t ring_atoms_ = 0, ring_bonds_ = 0;
  uint64_t aromatic_atoms_ = 0, aromatic_bonds_ = 0;  // as spelled, then as found
  uint64_t spelled_aromatic_ = 0;
  bool asked_ = false;  // RDKit for aromaticity, which then has set its own flags
};

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
  if (known_rdkit()) {
    const auto molecule = parse_raw(smiles, options.max_atoms);
    if (auto graph = Shortcut(*molecule).graph(has_stereo_marks(smiles), options)) return *std::move(graph);
  }
  auto molecule = parse(smiles, options.max_atoms, false);
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
