#include "san/chem/molecule.h"

#include <GraphMol/ChemTransforms/ChemTransforms.h>
#include <GraphMol/MolOps.h>
#include <GraphMol/RingInfo.h>
#include <GraphMol/SmilesParse/SmilesParse.h>
#include <GraphMol/SmilesParse/SmilesWrite.h>
#include <RDGeneral/RDLog.h>
#include <pthread.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <ostream>
#include <streambuf>

#include "san/chem/rdkit_bridge.h"

namespace san {
namespace rdkit_bridge {
namespace {

// Measured with Debian's RDKit 2022.09: writing the SMILES of 10,000 nested branches overflows a stack of 4
// MB.
constexpr size_t kLargeStack = size_t{32} << 20;
constexpr int kAtomsForLargeStack = 300;
constexpr size_t kMaxReason = 200;

// --- RDKit's log

// Where RDKit's messages of this thread go while a guarded() call runs; null: nowhere.
thread_local std::string* captured_log = nullptr;

// The streambuf has no state of its own, so threads that log at the same moment do not meet in it.
class CapturingBuffer : public std::streambuf {
 protected:
  int_type overflow(int_type c) override {
    if (captured_log != nullptr && captured_log->size() < 4 * kMaxReason && c != traits_type::eof())
      captured_log->push_back(traits_type::to_char_type(c));
    return traits_type::not_eof(c);
  }
  std::streamsize xsputn(const char* text, std::streamsize size) override {
    if (captured_log != nullptr && captured_log->size() < 4 * kMaxReason)
      captured_log->append(text, static_cast<size_t>(std::min<std::streamsize>(size, 4 * kMaxReason)));
    return size;
  }
};

void take_over_logs() {
  static std::once_flag once;
  std::call_once(once, [] {
    // Never destroyed: RDKit may log while the program's other statics are going.
    static auto* stream = new std::ostream(new CapturingBuffer);
    for (RDLogger* log : {&rdAppLog, &rdDebugLog, &rdInfoLog, &rdErrorLog, &rdWarningLog, &rdStatusLog}) {
      *log = std::make_shared<boost::logging::rdLogger>(stream);
      (*log)->df_enabled = log == &rdErrorLog;
    }
  });
}

// The first message of a log such as
//   [12:00:00] SMILES Parse Error: syntax error while parsing: C1C(
// without the stamp, the kind and the SMILES, which our own message has.
std::string reason_in_log(std::string_view log) {
  log = log.substr(0, log.find('\n'));
  if (log.starts_with('[')) {
    if (const size_t end = log.find("] "); end != log.npos) log.remove_prefix(end + 2);
  }
  constexpr std::string_view kKind = "SMILES Parse Error: ";
  if (log.starts_with(kKind)) log.remove_prefix(kKind.size());
  for (const std::string_view tail : {" while parsing:", " for input:"}) log = log.substr(0, log.find(tail));
  return printable(log, kMaxReason);
}

// --- A stack of our own

void* run_work(void* argument) {
  (*static_cast<const std::function<void()>*>(argument))();
  return nullptr;
}

// `work` must not throw. False when the system has no thread or memory left.
bool run_on_large_stack(const std::function<void()>& work) {
  pthread_attr_t attributes;
  if (pthread_attr_init(&attributes) != 0) return false;
  pthread_t thread;
  const bool started =
      pthread_attr_setstacksize(&attributes, kLargeStack) == 0 &&
      pthread_create(&thread, &attributes, run_work, const_cast<void*>(static_cast<const void*>(&work))) == 0;
  pthread_attr_destroy(&attributes);
  if (started) pthread_join(thread, nullptr);
  return started;
}

}  // namespace

bool has_stereo_marks(std::string_view smiles) {
  return smiles.find_first_of("@/\\") != smiles.npos;
}

// Exactly the steps of RDKit's SmilesToMol (remove hydrogens, sanitize, assign stereochemistry), one by one
// so that those without effect can be left out. tests/chem compares the outcome with the recorded graphs of
// all ZINC and molhiv molecules.
void sanitize(RDKit::RWMol& molecule, bool stereo, bool chemistry, bool clean) {
  namespace ops = RDKit::MolOps;
  bool hydrogens = false;
  for (const auto* atom : molecule.atoms()) hydrogens = hydrogens || atom->getAtomicNum() == 1;
  if (hydrogens) ops::removeHs(molecule, false, true, false);
  molecule.clearComputedProps();
  if (clean) ops::cleanUp(molecule);
  molecule.updatePropertyCache(true);
  ops::symmetrizeSSSR(molecule);
  ops::Kekulize(molecule, true);
  ops::assignRadicals(molecule);
  ops::setAromaticity(molecule);
  if (stereo || chemistry) {
    ops::setConjugation(molecule);
    ops::setHybridization(molecule);
  }
  if (stereo) ops::cleanupChirality(molecule);
  ops::adjustHs(molecule);
  // Without marks in the text there is nothing to assign, but RDKit would still rank the atoms.
  if (stereo) ops::assignStereochemistry(molecule, true);
}

std::unique_ptr<RDKit::RWMol> parse_raw(const std::string& smiles, int max_atoms) {
  RDKit::SmilesParserParams parameters;
  parameters.sanitize = false;
  parameters.removeHs = false;
  parameters.allowCXSMILES = false;
  parameters.parseName = false;
  std::unique_ptr<RDKit::RWMol> molecule(RDKit::SmilesToMol(smiles, parameters));
  if (molecule == nullptr) throw Refused{};
  // admissible() counted letters; this is the parser's own count.
  if (static_cast<int64_t>(molecule->getNumAtoms()) > max_atoms) fail("more than {} atoms", max_atoms);
  return molecule;
}

std::string_view smiles_proper(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r\n\v\f";
  text.remove_prefix(std::min(text.find_first_not_of(kBlanks), text.size()));
  return text.substr(0, text.find_first_of(kBlanks));
}

bool guarded(std::string_view smiles, bool large, std::string& error, const std::function<void()>& work) {
  take_over_logs();
  std::string reason;
  bool done = false;
  const std::function<void()> body = [&] {
    std::string log;
    captured_log = &log;
    try {
      work();
      done = true;
    } catch (const Refused&) {
      reason = reason_in_log(log);
    } catch (const std::bad_alloc&) {
      reason = "not enough memory";
    } catch (const std::exception& exception) {
      // RDKit's exceptions all derive from std::exception.
      reason = printable(exception.what(), kMaxReason);
    }
    captured_log = nullptr;
  };
  if (!large) {
    body();
  } else if (!run_on_large_stack(body)) {
    reason = "no thread could be started for so large a molecule";
  }
  if (!done) error = fmt::format("'{}': {}", printable(smiles), reason.empty() ? "is not a valid SMILES" : reason);
  return done;
}

bool admissible(std::string_view smiles, int max_atoms, bool& large, std::string& error) {
  max_atoms = std::min(max_atoms, kMaxAtoms);
  if (smiles.empty()) {
    error = "'': the SMILES is empty";
    return false;
  }
  if (smiles.size() > kMaxSmilesLength) {
    error = fmt::format("'{}': a SMILES of {} characters; at most {} are allowed", printable(smiles), smiles.size(),
                        kMaxSmilesLength);
    return false;
  }
  int atoms = 0;
  bool bracket = false;
  for (size_t i = 0; i < smiles.size(); ++i) {
    const char c = smiles[i];
    if (c <= ' ' || c > '~') {
      error = fmt::format("'{}': character {} is not one of a SMILES", printable(smiles), i + 1);
      return false;
    }
    if (c == '[') {
      bracket = true;
      ++atoms;
    } else if (c == ']') {
      bracket = false;
    } else if (!bracket && ((c >= 'A' && c <= 'Z') || std::string_view("bcnops*").find(c) != std::string_view::npos)) {
      ++atoms;
    }
  }
  if (atoms > max_atoms) {
    error = fmt::format("'{}': {} atoms; at most {} are allowed", printable(smiles), atoms, max_atoms);
    return false;
  }
  large = atoms > kAtomsForLargeStack;
  return true;
}

std::unique_ptr<RDKit::RWMol> parse(const std::string& smiles, int max_atoms, bool chemistry) {
  auto molecule = parse_raw(smiles, max_atoms);
  sanitize(*molecule, has_stereo_marks(smiles), chemistry);
  if (molecule->getNumAtoms() == 0) fail("there is no atom in it");
  return molecule;
}

}  // namespace rdkit_bridge

namespace {

using RDKit::Atom;
using RDKit::Bond;
using RDKit::RWMol;

// Place of `value` in low..high, or the row after them ("misc").
int32_t in_range(int value, int low, int high) {
  return value >= low && value <= high ? value - low : high - low + 1;
}

int32_t ogb_chirality(const Atom& atom) {
  switch (atom.getChiralTag()) {
    case Atom::CHI_UNSPECIFIED:
      return 0;
    case Atom::CHI_TETRAHEDRAL_CW:
      return 1;
    case Atom::CHI_TETRAHEDRAL_CCW:
      return 2;
    case Atom::CHI_OTHER:
      return 3;
    default:
      return 4;
  }
}

int32_t ogb_hybridisation(const Atom& atom) {
  switch (atom.getHybridization()) {
    case Atom::SP:
      return 0;
    case Atom::SP2:
      return 1;
    case Atom::SP3:
      return 2;
    case Atom::SP3D:
      return 3;
    case Atom::SP3D2:
      return 4;
    default:
      return 5;
  }
}

int32_t ogb_bond_type(const Bond& bond) {
  switch (bond.getBondType()) {
    case Bond::SINGLE:
      return 0;
    case Bond::DOUBLE:
      return 1;
    case Bond::TRIPLE:
      return 2;
    case Bond::AROMATIC:
      return 3;
    default:
      return 4;
  }
}

int32_t ogb_stereo(const Bond& bond) {
  switch (bond.getStereo()) {
    case Bond::STEREONONE:
      return 0;
    case Bond::STEREOZ:
      return 1;
    case Bond::STEREOE:
      return 2;
    case Bond::STEREOCIS:
      return 3;
    case Bond::STEREOTRANS:
      return 4;
    case Bond::STEREOANY:
      return 5;
  }
  return 0;
}

Graph ogb_graph(const RWMol& molecule) {
  Graph graph;
  graph.num_nodes = static_cast<int32_t>(molecule.getNumAtoms());
  graph.node_features.category_columns = static_cast<int>(ogb_atom_sizes().size());
  graph.edge_features.category_columns = static_cast<int>(ogb_bond_sizes().size());
  auto& nodes = graph.node_features.categories;
  nodes.reserve(molecule.getNumAtoms() * ogb_atom_sizes().size());
  const RDKit::RingInfo* rings = molecule.getRingInfo();
  for (const Atom* atom : molecule.atoms()) {
    nodes.insert(nodes.end(),
                 {in_range(atom->getAtomicNum(), 1, 118), ogb_chirality(*atom),
                  in_range(static_cast<int>(atom->getTotalDegree()), 0, 10), in_range(atom->getFormalCharge(), -5, 5),
                  in_range(static_cast<int>(atom->getTotalNumHs()), 0, 8),
                  in_range(static_cast<int>(atom->getNumRadicalElectrons()), 0, 4), ogb_hybridisation(*atom),
                  int32_t{atom->getIsAromatic()}, int32_t{rings->numAtomRings(atom->getIdx()) > 0}});
  }
  auto& edges = graph.edge_features.categories;
  edges.reserve(2 * molecule.getNumBonds() * ogb_bond_sizes().size());
  graph.edges.reserve(2 * molecule.getNumBonds());
  for (const Bond* bond : molecule.bonds()) {
    const auto a = static_cast<int32_t>(bond->getBeginAtomIdx()), b = static_cast<int32_t>(bond->getEndAtomIdx());
    graph.edges.push_back({a, b});
    graph.edges.push_back({b, a});
    for (int direction = 0; direction < 2; ++direction)
      edges.insert(edges.end(), {ogb_bond_type(*bond), ogb_stereo(*bond), int32_t{bond->getIsConjugated()}});
  }
  return graph;
}

std::string scaffold_of(const RWMol& molecule) {
  const std::unique_ptr<RDKit::ROMol> scaffold(RDKit::MurckoDecompose(molecule));
  scaffold->clearComputedProps();
  scaffold->updatePropertyCache();
  RDKit::MolOps::symmetrizeSSSR(*scaffold);
  return RDKit::MolToSmiles(*scaffold);
}

}  // namespace

std::string_view featuriser_name(Featuriser featuriser) {
  return featuriser == Featuriser::kZinc ? "zinc" : "ogb";
}

Featuriser featuriser_from_name(std::string_view name) {
  if (name == "zinc") return Featuriser::kZinc;
  SAN_CHECK(name == "ogb", "no featuriser is called '{}'; there are zinc and ogb", printable(name));
  return Featuriser::kOgb;
}

const std::vector<int>& ogb_atom_sizes() {
  static const std::vector<int> sizes = {119, 5, 12, 12, 10, 6, 6, 2, 2};
  return sizes;
}

const std::vector<int>& ogb_bond_sizes() {
  static const std::vector<int> sizes = {5, 6, 2};
  return sizes;
}

std::vector<int> node_category_sizes(const FeaturiserOptions& options) {
  if (options.featuriser == Featuriser::kOgb) return ogb_atom_sizes();
  return {rdkit_bridge::kZincAtomTypes + (options.unknown == UnknownType::kBucket ? 1 : 0)};
}

std::vector<int> edge_category_sizes(const FeaturiserOptions& options) {
  if (options.featuriser == Featuriser::kOgb) return ogb_bond_sizes();
  return {rdkit_bridge::kZincBondTypes + (options.unknown == UnknownType::kBucket ? 1 : 0)};
}

std::optional<Graph> smiles_to_graph(std::string_view text, const FeaturiserOptions& options, std::string& error) {
  const std::string_view smiles = rdkit_bridge::smiles_proper(text);
  bool large = false;
  if (!rdkit_bridge::admissible(smiles, options.max_atoms, large, error)) return std::nullopt;
  std::optional<Graph> graph;
  const bool done = rdkit_bridge::guarded(smiles, large, error, [&] {
    if (options.featuriser == Featuriser::kOgb)
      graph = ogb_graph(*rdkit_bridge::parse(std::string(smiles), options.max_atoms, true));
    else
      graph = rdkit_bridge::zinc_graph(std::string(smiles), options);
  });
  return done ? std::move(graph) : std::nullopt;
}

std::optional<std::string> murcko_scaffold(std::string_view text, std::string& error) {
  const auto molecule = Molecule::parse(text, error);
  return molecule ? molecule->scaffold(error) : std::nullopt;
}

// --- Molecule

struct Molecule::Impl {
  std::string smiles;
  bool large = false;
  std::unique_ptr<RWMol> molecule;
};

Molecule::Molecule(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Molecule::~Molecule() = default;
Molecule::Molecule(Molecule&&) noexcept = default;
Molecule& Molecule::operator=(Molecule&&) noexcept = default;

std::optional<Molecule> Molecule::parse(std::string_view text, std::string& error, int max_atoms) {
  auto impl = std::make_unique<Impl>();
  impl->smiles = rdkit_bridge::smiles_proper(text);
  if (!rdkit_bridge::admissible(impl->smiles, max_atoms, impl->large, error)) return std::nullopt;
  if (!rdkit_bridge::guarded(impl->smiles, impl->large, error,
                             [&] { impl->molecule = rdkit_bridge::parse(impl->smiles, max_atoms, true); })) {
    return std::nullopt;
  }
  return Molecule(std::move(impl));
}

const std::string& Molecule::smiles() const {
  return impl_->smiles;
}

int Molecule::num_atoms() const {
  return static_cast<int>(impl_->molecule->getNumAtoms());
}

std::optional<Graph> Molecule::to_graph(const FeaturiserOptions& options, std::string& error) const {
  std::optional<Graph> graph;
  const bool done = rdkit_bridge::guarded(impl_->smiles, impl_->large, error, [&] {
    if (num_atoms() > options.max_atoms) fail("{} atoms; at most {} are allowed", num_atoms(), options.max_atoms);
    if (options.featuriser == Featuriser::kOgb) {
      graph = ogb_graph(*impl_->molecule);
    } else {
      graph = rdkit_bridge::zinc_graph(*impl_->molecule, options);
    }
  });
  return done ? std::move(graph) : std::nullopt;
}

std::optional<std::string> Molecule::scaffold(std::string& error) const {
  std::optional<std::string> scaffold;
  const bool done =
      rdkit_bridge::guarded(impl_->smiles, impl_->large, error, [&] { scaffold = scaffold_of(*impl_->molecule); });
  return done ? std::move(scaffold) : std::nullopt;
}

std::optional<std::string> Molecule::canonical_smiles(std::string& error) const {
  std::optional<std::string> smiles;
  const bool done =
      rdkit_bridge::guarded(impl_->smiles, impl_->large, error, [&] { smiles = RDKit::MolToSmiles(*impl_->molecule); });
  return done ? std::move(smiles) : std::nullopt;
}

}  // namespace san
