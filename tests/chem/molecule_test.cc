#include "san/chem/molecule.h"

#include <sstream>
#include <thread>

#include "san/base/random.h"
#include "tests/testing.h"

namespace san {
namespace {

using testing::error_of;

FeaturiserOptions zinc(UnknownType unknown = UnknownType::kError) {
  FeaturiserOptions options;
  options.unknown = unknown;
  return options;
}
FeaturiserOptions ogb() {
  FeaturiserOptions options;
  options.featuriser = Featuriser::kOgb;
  return options;
}

Graph graph_of(std::string_view smiles, const FeaturiserOptions& options) {
  std::string error;
  auto graph = smiles_to_graph(smiles, options, error);
  EXPECT_TRUE(graph) << error;
  return graph.value_or(Graph{});
}

std::string refusal(std::string_view smiles, const FeaturiserOptions& options = {}) {
  std::string error;
  EXPECT_FALSE(smiles_to_graph(smiles, options, error)) << smiles.substr(0, 100);
  EXPECT_EQ(error.find('\n'), error.npos) << error;
  EXPECT_LT(error.size(), 400u);
  return error;
}

// Feature `column` of every atom.
std::vector<int> column(const Features& features, int column) {
  std::vector<int> out;
  for (size_t i = static_cast<size_t>(column); i < features.categories.size();
       i += static_cast<size_t>(features.category_columns))
    out.push_back(features.categories[i]);
  return out;
}

std::string repeat(std::string_view piece, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += piece;
  return out;
}

TEST(ZincFeaturiser, KekulisesAndListsBothDirectionsRowByRow) {
  const Graph benzene = graph_of("c1ccccc1", zinc());
  EXPECT_EQ(benzene.num_nodes, 6);
  EXPECT_EQ(benzene.edges,
            (std::vector<Edge>{
                {0, 1}, {0, 5}, {1, 0}, {1, 2}, {2, 1}, {2, 3}, {3, 2}, {3, 4}, {4, 3}, {4, 5}, {5, 0}, {5, 4}}));
  int doubles = 0;
  for (const int type : benzene.edge_features.categories) doubles += type == 2;
  EXPECT_EQ(doubles, 6);  // three bonds, both directions
  EXPECT_EQ(graph_of("C#N", zinc()).edge_features.categories, (std::vector<int32_t>{3, 3}));
}

// Molecule::to_graph writes and reads the Kekule SMILES; smiles_to_graph takes a shorter way where it can. Where it takes it on
// the recorded data sets, chem_reference_test compares; these are what else there is.
TEST(ZincFeaturiser, TheShortWayGivesTheGraphOfTheLongOne) {
  const char* const kGroups[] = {
      // aromatic, as Kekule SMILES, and without - between two rings
      "CC(=O)Oc1ccccc1C(=O)O Cn1c(=O)c2c(ncn2C)n(C)c1=O C1=CC=CC=C1C1=CNC=C1 c1ccccc1c1ccccc1 [nH]1cccc1 c1cc[pH]c1",
      // atoms in three rings
      "O=C([O-])c1oc2cccc3c2c1CCC3 c1cc2ccc3cccc4ccc(c1)c2c34 c1ccc2c(c1)-c1cccc3cccc-2c13 "
      "NN1C(=O)c2cccc3cccc(c23)C1=O",
      "CCNc1ncc(C(=O)NCCc2c(C)n3c4c(cccc24)CCC3)cn1 O=C1C(=N)N2CCCCc3cccc1c32 O=C1c2sccc2-c2cccc3cccc1c23",
      // aromatic only together, or hardly; aromatic triple bonds
      "c1ccc2cccc2cc1 O=C1C=CC=CC=C1 C1=CC=CC=CC=C1 O=C1C=CC(=O)C=C1 c1cccc#c1 c1cc2c3c(c1)Ic1cccc(c1-3)I2",
      "Cc1c#cc([S@](=O)[C@@H](C)c2nc(-c3ccccc3)no2)cc1C",
      // cages, and rings behind others
      "C1CC2CCC1C2 C12C3C4C1C5C2C3C45 C1C[C@@H]2C[C@H]1C[C@@H]2n1c2c(cncc2)nc1CCCl",
      "O=C1CCCCCCCCCCC(=O)N2CCOCCOCCN1Cc1cccc(n1)C2",
      // stereocentres: real ones, in pairs, none, of three neighbours
      "C[C@H](F)Cl C[C@H]1CC[C@@H](C)CC1 C[C@H](C)O C[S@](=O)c1ccccc1 [N@]1(C)CC1C C/C=C/[C@H](F)C",
      // charges and valences
      "C[N+](=O)[O-] CN(=O)=O O=n1ccccc1 [O-][n+]1ccccc1 C[n+]1ccccc1 O=[SH](=O)C CS(C)(=O)=O CP(=O)(O)O "
      "C[N-]S(C)(=O)=O",
      "CO[IH2]1NC(=O)c2ccccc21 F[P-](F)(F)(F)(F)F",
      // other hydrogens, isotopes, radicals, numbered atoms, fragments, elements
      "[H]C [2H]C [13CH4] C[CH2] [CH3:1]C [Na+].[Cl-] CC.O C1.C1 C[Si](C)(C)C *c1ccccc1 [Fe] C"};
  for (const std::string group : kGroups) {
    std::istringstream words(group);
    for (std::string smiles; words >> smiles;) {
      for (const UnknownType unknown : {UnknownType::kError, UnknownType::kBucket}) {
        std::string error, other_error;
        const auto graph = smiles_to_graph(smiles, zinc(unknown), error);
        const auto molecule = Molecule::parse(smiles, other_error);
        ASSERT_TRUE(molecule) << other_error;
        EXPECT_EQ(graph, molecule->to_graph(zinc(unknown), other_error)) << smiles;
        EXPECT_EQ(error, other_error);
      }
    }
  }
}

TEST(ZincFeaturiser, TheShortWayRefusesWithTheSameReason) {
  for (const char* smiles : {"CC(C)(C)(C)C", "c1cccc1", "n1cccc1", "cccc", "C1CC", "CC(", "Cc1=n(C)c2c(N)nc(C)nc12",
                             "C[C@H]([NH2+]Cc1cnn(-c2ccc(F)cc2)c#1)C", "O=C1CCCo1C"}) {
    std::string error, other_error;
    EXPECT_FALSE(smiles_to_graph(smiles, zinc(), error)) << smiles;
    const auto molecule = Molecule::parse(smiles, other_error);
    EXPECT_FALSE(molecule && molecule->to_graph(zinc(), other_error)) << smiles;
    EXPECT_EQ(error, other_error);
  }
}

TEST(ZincFeaturiser, SpellsTypesWithExplicitHydrogensAndCharges) {
  const auto type = [](std::string_view smiles) {
    const Graph graph = graph_of(smiles, zinc());
    return zinc_atom_types().at(static_cast<size_t>(graph.node_features.categories.at(0)));
  };
  EXPECT_EQ(type("C"), "C");
  EXPECT_EQ(type("[O-]C"), "C");  // the canonical order puts C first
  EXPECT_EQ(column(graph_of("C[NH3+]", zinc()).node_features, 0), (std::vector<int>{0, 10}));
  EXPECT_EQ(column(graph_of("C[C@H](N)O", zinc()).node_features, 0), (std::vector<int>{0, 4, 2, 1}));
  // No stereocentre: the mark and its hydrogen go.
  EXPECT_EQ(column(graph_of("C[C@H](C)O", zinc()).node_features, 0), (std::vector<int>{0, 0, 0, 1}));
  // The H of a neutral aromatic [nH] is not an explicit one after kekulisation.
  for (const int node : column(graph_of("c1cc[nH]c1", zinc()).node_features, 0)) EXPECT_TRUE(node == 0 || node == 2);
}

TEST(ZincFeaturiser, RefusesUnknownTypesOrPutsThemIntoTheBucket) {
  EXPECT_NE(refusal("C[Si](C)C").find("'C[Si](C)C': the atom type 'Si' is not one of the 28"), std::string::npos);
  EXPECT_NE(refusal("*C").find("'*'"), std::string::npos);
  EXPECT_NE(refusal("N->[Cu]", zinc()).find("Cu"), std::string::npos);
  const Graph silane = graph_of("C[Si](C)C", zinc(UnknownType::kBucket));
  EXPECT_EQ(column(silane.node_features, 0), (std::vector<int>{0, 28, 0, 0}));
  const Graph dative = graph_of("N->[Cu]", zinc(UnknownType::kBucket));
  EXPECT_EQ(dative.edge_features.categories, (std::vector<int32_t>{4, 4}));
  EXPECT_EQ(node_category_sizes(zinc()), (std::vector<int>{28}));
  EXPECT_EQ(edge_category_sizes(zinc()), (std::vector<int>{4}));
  EXPECT_EQ(node_category_sizes(zinc(UnknownType::kBucket)), (std::vector<int>{29}));
  EXPECT_EQ(edge_category_sizes(zinc(UnknownType::kBucket)), (std::vector<int>{5}));
}

TEST(OgbFeaturiser, GivesNineAtomAndThreeBondFeaturesWithTheInverseAfterEachBond) {
  const Graph acid = graph_of("CC(=O)[O-]", ogb());
  EXPECT_EQ(acid.edges, (std::vector<Edge>{{0, 1}, {1, 0}, {1, 2}, {2, 1}, {1, 3}, {3, 1}}));
  EXPECT_EQ(column(acid.node_features, 0), (std::vector<int>{5, 5, 7, 7}));  // atomic number - 1
  EXPECT_EQ(column(acid.node_features, 2), (std::vector<int>{4, 3, 1, 1}));  // degree with hydrogens
  EXPECT_EQ(column(acid.node_features, 3), (std::vector<int>{5, 5, 5, 4}));  // charge + 5
  EXPECT_EQ(column(acid.node_features, 4), (std::vector<int>{3, 0, 0, 0}));  // hydrogens
  EXPECT_EQ(column(acid.edge_features, 0), (std::vector<int>{0, 0, 1, 1, 0, 0}));
  EXPECT_EQ(column(acid.edge_features, 2), (std::vector<int>{0, 0, 1, 1, 1, 1}));
  const Graph pyridine = graph_of("c1ccncc1", ogb());
  EXPECT_EQ(column(pyridine.node_features, 7), std::vector<int>(6, 1));
  EXPECT_EQ(column(pyridine.node_features, 8), std::vector<int>(6, 1));
  EXPECT_EQ(column(pyridine.edge_features, 0), std::vector<int>(12, 3));
}

TEST(OgbFeaturiser, SeesStereo) {
  EXPECT_EQ(column(graph_of("N[C@@H](C)O", ogb()).node_features, 1), (std::vector<int>{0, 1, 0, 0}));
  EXPECT_EQ(column(graph_of("N[C@H](C)O", ogb()).node_features, 1), (std::vector<int>{0, 2, 0, 0}));
  EXPECT_EQ(column(graph_of("F/C=C/F", ogb()).edge_features, 1), (std::vector<int>{0, 0, 2, 2, 0, 0}));
  EXPECT_EQ(column(graph_of("F/C=C\\F", ogb()).edge_features, 1), (std::vector<int>{0, 0, 1, 1, 0, 0}));
  EXPECT_EQ(column(graph_of("FC=CF", ogb()).edge_features, 1), std::vector<int>(6, 0));
}

TEST(OgbFeaturiser, HasARowForEverything) {
  EXPECT_EQ(column(graph_of("*", ogb()).node_features, 0), (std::vector<int>{118}));
  EXPECT_EQ(column(graph_of("[U+6]", ogb()).node_features, 3), (std::vector<int>{11}));
  const std::vector<std::string> odd = {"*C",
                                        "[U+6]",
                                        "[Og]",
                                        "F[P-](F)(F)(F)(F)F",
                                        "[H][H]",
                                        "N->[Cu]",
                                        "[Fe++]",
                                        "[CH3]",
                                        "[C]",
                                        "[2H]O[2H]",
                                        "F[Pt@SP1](F)(Cl)[Br]",
                                        "C$C",
                                        "[13CH4]",
                                        "CC.[Na+].[Cl-]",
                                        "[O-][N+](=O)c1ccccc1"};
  for (const auto& smiles : odd) {
    std::string error;
    const auto graph = smiles_to_graph(smiles, ogb(), error);
    if (!graph) continue;  // whether RDKit takes it is not the point here
    EXPECT_NO_THROW(validate(*graph)) << smiles;
    for (int c = 0; c < 9; ++c)
      for (const int value : column(graph->node_features, c))
        EXPECT_LT(value, ogb_atom_sizes()[static_cast<size_t>(c)]) << smiles;
    for (int c = 0; c < 3; ++c)
      for (const int value : column(graph->edge_features, c))
        EXPECT_LT(value, ogb_bond_sizes()[static_cast<size_t>(c)]) << smiles;
  }
}

TEST(Smiles, SaltsSingleAtomsIsotopesAndExplicitHydrogensAreDefined) {
  const Graph salt = graph_of("CC.[Na+].[Cl-]", ogb());
  EXPECT_EQ(salt.num_nodes, 4);
  EXPECT_EQ(salt.edges.size(), 2u);
  const Graph atom = graph_of("C", zinc());
  EXPECT_EQ(atom.num_nodes, 1);
  EXPECT_TRUE(atom.edges.empty());
  EXPECT_EQ(atom.edge_features.category_columns, 1);
  EXPECT_NO_THROW(validate(atom));
  EXPECT_EQ(graph_of("[H]C([H])([H])[H]", ogb()), graph_of("C", ogb()));
  EXPECT_EQ(graph_of("[13CH4]", ogb()), graph_of("C", ogb()));
  EXPECT_EQ(graph_of("[2H]O[2H]", ogb()).num_nodes, 3);
  EXPECT_EQ(graph_of("[H][H]", ogb()).num_nodes, 2);
}

TEST(Smiles, BlanksAroundAreTrimmedAndWhatFollowsABlankIsIgnored) {
  for (const char* smiles : {"CCO ", " CCO", "\tCCO\r\n", "CCO ethanol", "CCO |$a;b;c$|", "CCO\tname with blanks"})
    EXPECT_EQ(graph_of(smiles, ogb()), graph_of("CCO", ogb())) << smiles;
}

TEST(Smiles, WhatCannotBeParsedIsAValueWithRdkitsReason) {
  EXPECT_EQ(refusal(""), "'': the SMILES is empty");
  EXPECT_EQ(refusal("  \t"), "'': the SMILES is empty");
  EXPECT_EQ(refusal("C1CC"), "'C1CC': unclosed ring");
  EXPECT_EQ(refusal("C(C"), "'C(C': extra open parentheses");
  EXPECT_EQ(refusal("not-a-smiles"), "'not-a-smiles': syntax error");
  EXPECT_NE(refusal("C(C)(C)(C)(C)C").find("Explicit valence for atom # 0 C, 5"), std::string::npos);
  EXPECT_NE(refusal("c1ccc1c").find("'c1ccc1c': "), std::string::npos);
  EXPECT_NE(refusal("c1cccc1").find("kekulize"), std::string::npos);
  EXPECT_NE(refusal(std::string_view("C\0C", 3)).find("character 2"), std::string::npos);
  EXPECT_NE(refusal("C\xC3\xA9").find("character 2"), std::string::npos);
  EXPECT_NE(refusal("\x1b[31mC").find("character 1"), std::string::npos);
}

TEST(Smiles, RdkitsLogNeverReachesTheTerminal) {
  ::testing::internal::CaptureStderr();
  ::testing::internal::CaptureStdout();
  for (const char* smiles : {"C1CC", "C(C", "C[C@](C)(C)C(C)(C)(C)C", "c1cccc1", "[Xx]", "C/C=C/C=C(", "N->[Cu]"}) {
    std::string error;
    smiles_to_graph(smiles, zinc(), error);
    smiles_to_graph(smiles, ogb(), error);
    murcko_scaffold(smiles, error);
  }
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), "");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

TEST(Smiles, HostileTextIsRefusedOrTakenButNeverFatal) {
  EXPECT_NE(refusal(std::string(10'000'000, 'C')).find("10000000 characters; at most 100000"), std::string::npos);
  EXPECT_NE(refusal(std::string(50'000, 'C')).find("50000 atoms; at most 2000"), std::string::npos);
  FeaturiserOptions widest = zinc();
  widest.max_atoms = 1'000'000;  // no more than kMaxAtoms all the same
  EXPECT_NE(refusal(std::string(20'000, 'C'), widest).find("at most 10000"), std::string::npos);
  EXPECT_NE(refusal("C" + std::string(99'000, '(')).find("'C((("), std::string::npos);
  refusal(std::string(99'000, '['), widest);
  refusal(std::string(99'000, '1'), widest);
  refusal("C" + std::string(99'000, '1'), widest);
  refusal("C" + repeat("%11", 30'000), widest);
  refusal(repeat("C%(", 1'900), widest);
  // Deep branches, rings and chains of the size that is allowed by default.
  for (const FeaturiserOptions& options : {zinc(), ogb()}) {
    EXPECT_EQ(graph_of(repeat("C(", 1'999) + "C" + repeat(")", 1'999), options).num_nodes, 2000);
    EXPECT_EQ(graph_of(repeat("C1CC1", 666), options).num_nodes, 1998);
    EXPECT_EQ(graph_of("c1" + repeat("cc", 998) + "c1", options).num_nodes, 1998);
    EXPECT_EQ(graph_of("C" + repeat(".C", 1'999), options).num_nodes, 2000);
  }
  widest.max_atoms = kMaxAtoms;
  EXPECT_EQ(graph_of(repeat("C(", 4'999) + "C" + repeat(")", 4'999), widest).num_nodes, 5000);
}

TEST(Smiles, LargeMoleculesDoNotNeedTheCallersStack) {
  // A thread with a stack on which RDKit's recursion would not fit (measured: 5,000 nested atoms need over 1
  // MB).
  pthread_attr_t attributes;
  ASSERT_EQ(pthread_attr_init(&attributes), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&attributes, size_t{512} << 10), 0);
  pthread_t thread;
  static int nodes = 0;
  ASSERT_EQ(pthread_create(
                &thread, &attributes,
                [](void*) -> void* {
                  FeaturiserOptions options;
                  options.max_atoms = 5000;
                  std::string error;
                  const auto graph = smiles_to_graph(repeat("C(", 4'999) + "C" + repeat(")", 4'999), options, error);
                  nodes = graph ? graph->num_nodes : -1;
                  return nullptr;
                },
                nullptr),
            0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
  EXPECT_EQ(nodes, 5000);
}

TEST(Smiles, MutationsOfGoodOnesNeverCrash) {
  const std::vector<std::string> seeds = {
      "COc1ccc2ccc(O)c(CN3CCN(S(=O)(=O)c4ccn(C)c4)CC3)c2c1", "C[C@@]1(c2ccc(F)cc2)NC(=O)N1/C=C/F",
      "CCC1=[O+][Cu-3]2([O+]=C(CC)C1)[O+]=C(CC)CC(CC)=[O+]2", "[O-][N+](=O)C%12CC%12.[Na+]"};
  constexpr std::string_view kAlphabet = "CNOcnos[]()=#-+@/\\%.0123456789HBrClFI*$:>~";
  Random random(7);
  int taken = 0, refused = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string smiles = seeds[random.below(seeds.size())];
    for (uint64_t edits = 1 + random.below(4); edits > 0; --edits) {
      const size_t at = random.below(smiles.size());
      switch (random.below(3)) {
        case 0:
          smiles[at] = kAlphabet[random.below(kAlphabet.size())];
          break;
        case 1:
          smiles.insert(at, 1, kAlphabet[random.below(kAlphabet.size())]);
          break;
        default:
          smiles.erase(at, 1);
      }
      if (smiles.empty()) smiles.push_back(kAlphabet[0]);
    }
    for (const FeaturiserOptions& options : {zinc(UnknownType::kBucket), ogb()}) {
      std::string error;
      const auto graph = smiles_to_graph(smiles, options, error);
      (graph ? taken : refused) += 1;
      if (graph)
        EXPECT_NO_THROW(validate(*graph)) << smiles;
      else
        EXPECT_EQ(error.find('\n'), error.npos) << error;
    }
  }
  EXPECT_GT(taken, 0);
  EXPECT_GT(refused, 0);
}

TEST(Smiles, ManyThreadsGetTheResultsAndErrorsOfTheirOwn) {
  const std::vector<std::string> smiles = {"c1ccccc1",     "C1CC", "C[C@H](N)O", "C(C",
                                           "CC(C)(C)(C)C", "OCC",  "x",          "F/C=C/F"};
  std::vector<std::optional<Graph>> graphs;
  std::vector<std::string> errors(smiles.size());
  for (size_t i = 0; i < smiles.size(); ++i) graphs.push_back(smiles_to_graph(smiles[i], zinc(), errors[i]));
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      for (int round = 0; round < 200; ++round) {
        const size_t i = static_cast<size_t>(round + t) % smiles.size();
        std::string error;
        const auto graph = smiles_to_graph(smiles[i], zinc(), error);
        if (graph != graphs[i] || error != errors[i]) ++wrong;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST(Molecule, GivesTheSameAsTheFunctions) {
  for (const char* smiles :
       {"COc1ccc2ccc(O)c(CN3CCNCC3)c2c1", "C[C@H](N)C(=O)O", "CC.[Na+].[Cl-]", "c1cc[nH]c1", "F/C=C/F"}) {
    std::string error;
    const auto molecule = Molecule::parse(smiles, error);
    ASSERT_TRUE(molecule) << error;
    for (const FeaturiserOptions& options : {zinc(UnknownType::kBucket), ogb()}) {
      EXPECT_EQ(*molecule->to_graph(options, error), graph_of(smiles, options));
      EXPECT_EQ(molecule->num_atoms(), graph_of(smiles, options).num_nodes);
    }
    EXPECT_EQ(molecule->scaffold(error), murcko_scaffold(smiles, error));
  }
  std::string error;
  EXPECT_FALSE(Molecule::parse("C1", error));
  EXPECT_EQ(Molecule::parse("OCC", error)->canonical_smiles(error), "CCO");
}

TEST(Scaffold, KeepsRingsLinkersAndChirality) {
  const auto scaffold = [](std::string_view smiles) {
    std::string error;
    return murcko_scaffold(smiles, error).value_or("error " + error);
  };
  EXPECT_EQ(scaffold("CC(=O)Oc1ccccc1C(=O)O"), "c1ccccc1");
  EXPECT_EQ(scaffold("CCCC"), "");
  EXPECT_EQ(scaffold("c1ccccc1CCc1ccncc1C"), "c1ccc(CCc2ccncc2)cc1");
  EXPECT_NE(scaffold("OC1CC[C@H]2OCCC[C@@H]2C1"), scaffold("OC1CCC2OCCCC2C1"));
  EXPECT_EQ(scaffold("C1CC").substr(0, 5), "error");
}

TEST(Featuriser, IsFoundByName) {
  EXPECT_EQ(featuriser_from_name("zinc"), Featuriser::kZinc);
  EXPECT_EQ(featuriser_from_name(featuriser_name(Featuriser::kOgb)), Featuriser::kOgb);
  EXPECT_NE(error_of([] { featuriser_from_name("cats"); }).find("zinc and ogb"), std::string::npos);
}

}  // namespace
}  // namespace san
