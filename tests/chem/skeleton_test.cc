#include "san/chem/skeleton.h"

#include <bit>

#include "tests/testing.h"

namespace san::chem {
namespace {

Skeleton skeleton_of(int atoms, const std::vector<std::pair<int, int>>& bonds) {
  Skeleton skeleton;
  skeleton.atoms = atoms;
  for (const auto& [a, b] : bonds) EXPECT_TRUE(skeleton.add_bond(a, b));
  return skeleton;
}

Skeleton cycle(int atoms) {
  std::vector<std::pair<int, int>> bonds;
  for (int i = 0; i < atoms; ++i) bonds.emplace_back(i, (i + 1) % atoms);
  return skeleton_of(atoms, bonds);
}

// Naphthalene: a ring of ten and a bond across.
Skeleton naphthalene() {
  Skeleton skeleton = cycle(10);
  EXPECT_TRUE(skeleton.add_bond(0, 5));
  return skeleton;
}

TEST(Rings, OfAChainThereAreNone) {
  const auto rings = find_rings(skeleton_of(3, {{0, 1}, {1, 2}}));
  ASSERT_TRUE(rings);
  EXPECT_TRUE(rings->empty());
}

TEST(Rings, AreTheSmallestOnesAndGoAround) {
  const Skeleton skeleton = naphthalene();
  const auto rings = find_rings(skeleton);
  ASSERT_TRUE(rings);
  ASSERT_EQ(rings->size(), 2u);
  for (const Ring& ring : *rings) {
    EXPECT_EQ(ring.size, 6);
    EXPECT_EQ(std::popcount(ring.atom_set), 6);
    EXPECT_EQ(std::popcount(ring.bond_set), 6);
    for (int i = 0; i < ring.size; ++i) {
      const int a = ring.atoms[i], b = ring.atoms[(i + 1) % ring.size];
      bool joined = false;
      for (int k = 0; k < skeleton.degree[a]; ++k) joined = joined || skeleton.links[a][k].atom == b;
      EXPECT_TRUE(joined) << a << " " << b;
    }
  }
  EXPECT_EQ((*rings)[0].bond_set & (*rings)[1].bond_set, uint64_t{1} << 10);
}

TEST(Rings, BesideAChainAndOfTheFullSizeAreFound) {
  Skeleton skeleton = cycle(60);
  skeleton.atoms = 64;
  for (int a = 60; a < 64; ++a) ASSERT_TRUE(skeleton.add_bond(a == 60 ? 7 : a - 1, a));
  const auto rings = find_rings(skeleton);
  ASSERT_TRUE(rings);
  ASSERT_EQ(rings->size(), 1u);
  EXPECT_EQ((*rings)[0].size, 60);
  EXPECT_FALSE(skeleton.add_bond(1, 63) && skeleton.add_bond(2, 63));  // the 65th bond has no place
}

TEST(Rings, OfACageAreLeftToRdkit) {
  // Cubane: six squares, five of which would do.
  EXPECT_FALSE(find_rings(skeleton_of(
      8, {{0, 1}, {1, 2}, {2, 3}, {3, 0}, {4, 5}, {5, 6}, {6, 7}, {7, 4}, {0, 4}, {1, 5}, {2, 6}, {3, 7}})));
}

// Every atom of `wanting` has exactly one of the chosen bonds, no other has any.
void expect_matching(const Skeleton& skeleton, uint64_t chosen, uint64_t wanting) {
  for (int a = 0; a < skeleton.atoms; ++a) {
    int doubles = 0;
    for (int k = 0; k < skeleton.degree[a]; ++k) doubles += static_cast<int>(chosen >> skeleton.links[a][k].bond & 1);
    EXPECT_EQ(doubles, static_cast<int>(wanting >> a & 1)) << a;
  }
}

TEST(DoubleBonds, GiveEveryAtomThatWantsOneExactlyOne) {
  for (const Skeleton& skeleton : {cycle(6), naphthalene()}) {
    const uint64_t all = (uint64_t{1} << skeleton.atoms) - 1, bonds = (uint64_t{1} << skeleton.bonds) - 1;
    const auto chosen = choose_double_bonds(skeleton, *find_rings(skeleton), all, bonds, all);
    ASSERT_TRUE(chosen);
    expect_matching(skeleton, *chosen, all);
  }
  // Pyrrole: the last atom wants none.
  const Skeleton five = cycle(5);
  const auto chosen = choose_double_bonds(five, *find_rings(five), 0x1f, 0x1f, 0x0f);
  ASSERT_TRUE(chosen);
  expect_matching(five, *chosen, 0x0f);
}

TEST(DoubleBonds, AreFoundWhereTheFirstWayIsADeadEnd) {
  // Naphthalene without its atoms 1 and 4, and so on: whatever can be matched is, for every set of atoms that want one.
  const Skeleton skeleton = naphthalene();
  const auto rings = find_rings(skeleton);
  int possible = 0;
  for (uint64_t wanting = 0; wanting < 1024; ++wanting) {
    // By trying all sets of bonds.
    bool exists = false;
    for (uint64_t bonds = 0; bonds < 2048 && !exists; ++bonds) {
      uint64_t covered = 0;
      bool matching = true;
      for (int a = 0; a < 10 && matching; ++a) {
        int count = 0;
        for (int k = 0; k < skeleton.degree[a]; ++k) count += static_cast<int>(bonds >> skeleton.links[a][k].bond & 1);
        matching = count <= 1;
        covered |= uint64_t(count > 0) << a;
      }
      exists = matching && covered == wanting;
    }
    const auto chosen = choose_double_bonds(skeleton, *rings, 0x3ff, 0x7ff, wanting);
    EXPECT_EQ(chosen.has_value(), exists) << wanting;
    if (chosen) expect_matching(skeleton, *chosen, wanting);
    possible += exists;
  }
  EXPECT_GT(possible, 50);
}

TEST(DoubleBonds, ThatCannotBeAreRefused) {
  const Skeleton five = cycle(5);
  EXPECT_FALSE(choose_double_bonds(five, *find_rings(five), 0x1f, 0x1f, 0x1f));
}

}  // namespace
}  // namespace san::chem
