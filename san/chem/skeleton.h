// Inside chem/ only: RDKit's ring search and its choice of double bonds on plain arrays, for molecules of up to 64 atoms and 64
// bonds. Nothing here allocates per atom, which is what most of RDKit's time goes into.
//
// Both depend on the order of atoms and bonds, and the outcome is the one RDKit 2022.09 has for the same order. Where RDKit
// goes on to rarer ways (cages) the answer is "no", and the caller asks RDKit.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

namespace san::chem {

// Atoms and bonds by number; sets of either are the bits of one word.
struct Skeleton {
  static constexpr int kMost = 64, kMostLinks = 6;
  struct Link {
    uint8_t atom, bond;
  };

  int atoms = 0, bonds = 0;
  std::array<uint8_t, kMost> degree{};
  std::array<std::array<Link, kMostLinks>, kMost> links;  // [atom][0 .. degree): in the order of the bonds

  // False when it is one too many.
  bool add_bond(int a, int b) {
    if (bonds == kMost || degree[a] == kMostLinks || degree[b] == kMostLinks) return false;
    links[a][degree[a]++] = {static_cast<uint8_t>(b), static_cast<uint8_t>(bonds)};
    links[b][degree[b]++] = {static_cast<uint8_t>(a), static_cast<uint8_t>(bonds)};
    ++bonds;
    return true;
  }
};

struct Ring {
  uint64_t atom_set = 0, bond_set = 0;
  int size = 0;
  std::array<uint8_t, Skeleton::kMost> atoms;  // [0 .. size): around the ring
};

// The smallest set of smallest rings of a connected molecule, in RDKit's order (MolOps::symmetrizeSSSR), each from the same atom
// in the same direction. Nothing when the molecule has rings that could replace others of the set, or no atom of degree two
// to start from.
std::optional<std::vector<Ring>> find_rings(const Skeleton& skeleton);

// Which of `aromatic_bonds` MolOps::Kekulize makes double: a set in which each of the atoms `wanting` has exactly one. Nothing
// when there is no such set, or RDKit does not find it.
std::optional<uint64_t> choose_double_bonds(const Skeleton& skeleton, const std::vector<Ring>& rings,
                                            uint64_t aromatic_atoms, uint64_t aromatic_bonds, uint64_t wanting);

}  // namespace san::chem
