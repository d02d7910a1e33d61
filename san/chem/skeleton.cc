#include "san/chem/skeleton.h"

#include <algorithm>
#include <bit>

namespace san::chem {
namespace {

constexpr uint64_t bit(int i) {
  return uint64_t{1} << i;
}

// Figueras' search as RDKit has it (J. Chem. Inf. Comput. Sci. 36, 986, 1996): atoms outside rings are cut off, then all smallest
// rings through one atom of each chain of degree-two atoms are found and these atoms cut off, until nothing is left.
class RingSearch {
 public:
  explicit RingSearch(const Skeleton& skeleton) : s_(skeleton) {
    active_ = s_.bonds == 64 ? ~uint64_t{0} : bit(s_.bonds) - 1;
    std::copy_n(s_.degree.begin(), s_.atoms, degree_.begin());
  }

  bool run() {
    uint64_t changed = 0;  // lost a bond, or had fewer than two to begin with
    for (int i = 0; i < s_.atoms; ++i)
      if (degree_[i] < 2) changed |= bit(i);
    uint64_t done = 0;
    for (;;) {
      while (changed != 0) {
        const int atom = std::countr_zero(changed);
        changed &= changed - 1;
        if (done & bit(atom)) continue;
        done |= bit(atom);
        cut(atom, active_, degree_, changed);
      }
      if (std::popcount(done) == s_.atoms) break;
      pick_starts();
      if (starts_.size == 0) return false;
      search_from_starts();
      for (int i = 0; i < starts_.size; ++i) {
        done |= bit(starts_.atoms[i]);
        cut(starts_.atoms[i], active_, degree_, changed);
      }
    }
    return static_cast<int>(rings.size()) == s_.bonds - s_.atoms + 1;
  }

  std::vector<Ring> rings;

 private:
  using Degrees = std::array<uint8_t, Skeleton::kMost>;
  struct AtomList {
    int size = 0;
    std::array<uint8_t, Skeleton::kMost> atoms;
    void push(int atom) { atoms[size++] = static_cast<uint8_t>(atom); }
  };
  struct Found {
    uint64_t atom_set;
    uint64_t starts;    // that found it,
    AtomList in_order;  // in the order in which they did
  };

  // Takes away the bonds of `atom`.
  void cut(int atom, uint64_t& active, Degrees& degree, uint64_t& changed) const {
    for (int k = 0; k < s_.degree[atom]; ++k) {
      const auto [other, bond] = s_.links[atom][k];
      if (!(active & bit(bond))) continue;
      if (degree[other] <= 2) changed |= bit(other);
      active &= ~bit(bond);
      --degree[other];
      --degree[atom];
    }
  }

  // The first atom of every chain of atoms of degree two.
  void pick_starts() {
    starts_.size = 0;
    uint64_t seen = 0;
    for (int i = 0; i < s_.atoms; ++i) {
      if (degree_[i] != 2 || (seen & bit(i))) continue;
      starts_.push(i);
      uint64_t todo = bit(i);
      seen |= todo;
      while (todo != 0) {
        const int atom = std::countr_zero(todo);
        todo &= todo - 1;
        for (int k = 0; k < s_.degree[atom]; ++k) {
          const auto [other, bond] = s_.links[atom][k];
          if (!(active_ & bit(bond)) || (seen & bit(other)) || degree_[other] != 2) continue;
          seen |= bit(other);
          todo |= bit(other);
        }
      }
    }
  }

  bool known(uint64_t atom_set) const {
    return std::any_of(rings.begin(), rings.end(), [&](const Ring& ring) { return ring.atom_set == atom_set; });
  }

  void search_from_starts() {
    std::vector<Found> all;
    for (int i = 0; i < starts_.size; ++i) {
      const int start = starts_.atoms[i];
      smallest_.clear();
      search(start, active_);
      for (const Ring& ring : smallest_) {
        if (!known(ring.atom_set)) rings.push_back(ring);
        auto at = std::find_if(all.begin(), all.end(), [&](const Found& f) { return f.atom_set == ring.atom_set; });
        if (at == all.end()) at = all.insert(all.end(), {ring.atom_set, 0, {}});
        at->starts |= bit(start);
        at->in_order.push(start);
      }
    }
    // Two starts that found the same ring may hide another one: each searches again without the others.
    std::sort(all.begin(), all.end(), [](const Found& a, const Found& b) { return a.atom_set < b.atom_set; });
    for (const Found& found : all) {
      if (found.in_order.size < 2) continue;
      smallest_.clear();
      for (int i = 0; i < found.in_order.size; ++i) {
        const int start = found.in_order.atoms[i];
        uint64_t others = 0;
        for (const Found& other : all)
          if (other.starts & bit(start)) others |= other.starts;
        others &= ~bit(start);
        uint64_t active = active_, changed = 0;
        Degrees degree = degree_;
        for (; others != 0; others &= others - 1) cut(std::countr_zero(others), active, degree, changed);
        search(start, active);
      }
      int least = Skeleton::kMost + 1;
      for (const Ring& ring : smallest_) least = std::min(least, ring.size);
      for (const Ring& ring : smallest_)
        if (ring.size == least && !known(ring.atom_set)) rings.push_back(ring);
    }
  }

  // Breadth first: appends all smallest rings through `root` to smallest_.
  void search(int root, uint64_t active) {
    enum : uint8_t { kNew, kQueued, kDone };
    std::array<uint8_t, Skeleton::kMost> state, depth, parent, parent_bond;
    std::fill_n(state.begin(), s_.atoms, kNew);
    AtomList queue;
    queue.push(root);
    depth[root] = 0;
    int least = Skeleton::kMost + 1;
    for (int next = 0; next < queue.size; ++next) {
      const int here = queue.atoms[next];
      state[here] = kDone;
      if (depth[here] + 1 > least) return;
      for (int k = 0; k < s_.degree[here]; ++k) {
        const auto [other, bond] = s_.links[here][k];
        if (!(active & bit(bond)) || state[other] == kDone || (here != root && parent[here] == other)) continue;
        if (state[other] == kNew) {
          state[other] = kQueued;
          parent[other] = static_cast<uint8_t>(here);
          parent_bond[other] = bond;
          depth[other] = static_cast<uint8_t>(depth[here] + 1);
          queue.push(other);
          continue;
        }
        Ring ring;  // root ... here, other ... back to the root
        ring.bond_set = bit(bond);
        int back = other;
        for (; back != root; back = parent[back]) {
          ring.atom_set |= bit(back);
          ring.bond_set |= bit(parent_bond[back]);
        }
        bool meets = false;  // the two ways before they are at the root
        for (int a = here; a != root; a = parent[a]) {
          meets = meets || (ring.atom_set & bit(a));
          ring.bond_set |= bit(parent_bond[a]);
        }
        if (meets) continue;
        ring.size = depth[here] + 1;
        for (int a = here; a != root; a = parent[a]) {
          ring.atom_set |= bit(a);
          ring.atoms[depth[a]] = static_cast<uint8_t>(a);
        }
        ring.atoms[0] = static_cast<uint8_t>(root);
        ring.atom_set |= bit(root);
        for (int a = other; a != root; a = parent[a]) ring.atoms[ring.size++] = static_cast<uint8_t>(a);
        if (ring.size > least) return;
        least = ring.size;
        smallest_.push_back(ring);
      }
    }
  }

  const Skeleton& s_;
  uint64_t active_ = 0;
  Degrees degree_{};
  AtomList starts_;
  std::vector<Ring> smallest_;
};

// RDKit's way through a system of fused rings: breadth first, and whoever wants a double bond takes it to the first neighbour that
// wants one too. Who finds none makes it go back to the last atom that had a choice.
class DoubleBondChoice {
 public:
  DoubleBondChoice(const Skeleton& skeleton, uint64_t aromatic_bonds, uint64_t wanting)
      : wanting(wanting), s_(skeleton), aromatic_bonds_(aromatic_bonds) {}

  // `atoms` [0 .. size): the aromatic atoms of the system in the order in which RDKit starts from them.
  bool run(const uint8_t* atoms, int size) {
    system_ = done_ = open_ = 0;
    for (int i = 0; i < size; ++i) system_ |= bit(atoms[i]);
    done_count_ = queue_begin_ = queue_end_ = decisions_ = 0;
    int returns = 0;
    while (done_count_ < size) {
      const int here = queue_begin_ < queue_end_ ? queue_[queue_begin_++] : first_left(atoms);
      done_list_[done_count_++] = static_cast<uint8_t>(here);
      done_ |= bit(here);
      const unsigned choices = has(open_, here) ? choices_[here] : meet_neighbours(here);
      if (!has(wanting, here)) continue;
      if (choices != 0) {
        take(here, choices);
      } else {
        if (decisions_ == 0 || returns++ == kMostReturns) return false;
        go_back(decided_[decisions_ - 1]);
      }
    }
    return true;
  }

  uint64_t chosen = 0;   // bonds
  uint64_t wanting = 0;  // atoms that have none yet

 private:
  static constexpr int kMostReturns = 100;  // RDKit's limit
  static bool has(uint64_t set, int i) { return (set >> i & 1) != 0; }

  int first_left(const uint8_t* atoms) const {
    while (has(done_, *atoms)) ++atoms;
    return *atoms;
  }

  // Queues the neighbours; returns those that a double bond could go to, as a set of places in links.
  unsigned meet_neighbours(int here) {
    unsigned choices = 0;
    for (int k = 0; k < s_.degree[here]; ++k) {
      const auto [other, bond] = s_.links[here][k];
      if (!has(system_ & ~done_, other)) continue;
      const auto queue = queue_.begin();
      if (std::find(queue + queue_begin_, queue + queue_end_, other) == queue + queue_end_)
        queue_[queue_end_++] = other;
      if (has(wanting, here) && has(wanting, other) && has(aromatic_bonds_, bond)) choices |= 1U << k;
    }
    return choices;
  }

  void take(int here, unsigned choices) {
    const auto [other, bond] = s_.links[here][std::countr_zero(choices)];
    choices &= choices - 1;
    chosen |= bit(bond);
    wanting &= ~(bit(here) | bit(other));
    if (choices != 0) {
      if (!has(open_, here)) decided_[decisions_++] = static_cast<uint8_t>(here);
      open_ |= bit(here);
      choices_[here] = static_cast<uint8_t>(choices);
    } else if (has(open_, here)) {
      open_ &= ~bit(here);
      --decisions_;
    }
  }

  // To the moment before `atom` took its double bond: what was done since is to be done again, before the rest.
  void go_back(int atom) {
    const int kept =
        static_cast<int>(std::find(done_list_.begin(), done_list_.begin() + done_count_, atom) - done_list_.begin());
    std::array<uint8_t, Skeleton::kMost> queue;
    auto end = std::copy(done_list_.begin() + kept, done_list_.begin() + done_count_, queue.begin());
    end = std::copy(queue_.begin() + queue_begin_, queue_.begin() + queue_end_, end);
    queue_ = queue;
    queue_begin_ = 0;
    queue_end_ = static_cast<int>(end - queue.begin());
    done_count_ = kept;
    done_ = 0;
    for (int i = 0; i < kept; ++i) done_ |= bit(done_list_[i]);
    for (uint64_t rest = system_ & ~done_; rest != 0; rest &= rest - 1) {
      const int a = std::countr_zero(rest);
      for (int k = 0; k < s_.degree[a]; ++k) {
        const auto [other, bond] = s_.links[a][k];
        if (!has(chosen, bond) || has(done_, other)) continue;
        chosen &= ~bit(bond);
        wanting |= bit(a) | bit(other);
      }
    }
  }

  const Skeleton& s_;
  const uint64_t aromatic_bonds_;
  uint64_t system_ = 0, done_ = 0;
  std::array<uint8_t, Skeleton::kMost> done_list_, queue_;
  int done_count_ = 0, queue_begin_ = 0, queue_end_ = 0;
  uint64_t open_ = 0;                                       // atoms with choices left,
  std::array<uint8_t, Skeleton::kMost> choices_, decided_;  // the choices, and the atoms in order
  int decisions_ = 0;
};

}  // namespace

std::optional<std::vector<Ring>> find_rings(const Skeleton& skeleton) {
  if (skeleton.bonds < skeleton.atoms) return std::vector<Ring>{};
  RingSearch search(skeleton);
  if (!search.run()) return std::nullopt;
  return std::move(search.rings);
}

std::optional<uint64_t> choose_double_bonds(const Skeleton& skeleton, const std::vector<Ring>& rings,
                                            uint64_t aromatic_atoms, uint64_t aromatic_bonds, uint64_t wanting) {
  DoubleBondChoice choice(skeleton, aromatic_bonds, wanting);
  std::vector<char> taken(rings.size(), 0);
  std::array<uint8_t, Skeleton::kMost> atoms;
  for (size_t first = 0; first < rings.size(); ++first) {
    if (taken[first]) continue;
    // Rings that share bonds, depth first, give their atoms in turn.
    int size = 0;
    uint64_t listed = 0;
    const auto visit = [&](auto& self, size_t r) -> void {
      taken[r] = 1;
      for (int i = 0; i < rings[r].size; ++i) {
        const int atom = rings[r].atoms[i];
        if ((aromatic_atoms & ~listed & bit(atom)) != 0) atoms[size++] = static_cast<uint8_t>(atom);
        listed |= bit(atom);
      }
      for (size_t other = 0; other < rings.size(); ++other)
        if (!taken[other] && (rings[r].bond_set & rings[other].bond_set) != 0) self(self, other);
    };
    visit(visit, first);
    if (!choice.run(atoms.data(), size)) return std::nullopt;
  }
  if (choice.wanting != 0) return std::nullopt;
  return choice.chosen;
}

}  // namespace san::chem
