// san spectrum: what the network will see of each graph, printed.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "san/base/error.h"
#include "san/base/file.h"
#include "san/cli/commands.h"
#include "san/cli/main.h"
#include "san/cli/progress.h"
#include "san/data/source.h"
#include "san/spectral/distances.h"
#include "san/spectral/spectrum.h"
#ifdef SAN_WITH_RDKIT
#include "san/chem/drawing.h"
#endif

namespace san::cli {
namespace {

constexpr const char* kDataEndings[] = {".jsonl", ".json", ".csv", ".gz", ".txt"};

struct Request {
  std::string input;
  std::string graph_id;  // print only this graph; empty: all
  std::string laplacian = "symmetric", norm = "eigenvector", solver = "auto";
  SpectrumOptions options;
  bool vectors = false, distances = false, json = false;
  double time = 1;
  std::string svg;        // where the drawing of a molecule goes; empty: none
  std::vector<int> draw;  // which eigenvectors, from 0; empty: the first eight
};

// A matrix to print beside the spectrum. [nodes, nodes] row-major.
struct Matrix {
  const char* key;
  std::string title;
  std::vector<double> entries;
};

std::vector<Matrix> distance_matrices(const Graph& graph, double time) {
  std::vector<Matrix> matrices;
  matrices.push_back({"green", "Green's function", green_function(graph)});
  matrices.push_back({"green_squared", "Green's function, squared as printed (eq. 1)", green_function_squared(graph)});
  matrices.push_back({"diffusion", fmt::format("diffusion distance, t = {}", time), diffusion_distance(graph, time)});
  matrices.push_back({"biharmonic", "biharmonic distance", biharmonic_distance(graph)});
  return matrices;
}

// Six decimals where they say something, otherwise six digits.
std::string number(double value) {
  return value == 0 || std::abs(value) >= 1e-3 ? fmt::format("{:.6f}", value) : fmt::format("{:.6e}", value);
}

// Rows of entries in columns of equal width, each row led by its node's number.
void print_rows(std::string_view title, const std::vector<double>& entries, size_t columns) {
  fmt::print("  {}\n", title);
  const size_t rows = columns == 0 ? 0 : entries.size() / columns;
  const auto digits = std::to_string(rows).size();
  for (size_t i = 0; i < rows; ++i) {
    fmt::print("  {:>{}}", i, digits + 2);
    for (size_t j = 0; j < columns; ++j) {
      const double x = entries[i * columns + j];
      fmt::print(" {:>11.6f}", std::abs(x) < 5e-7 ? 0.0 : x);  // no "-0.000000"
    }
    fmt::print("\n");
  }
}

void print_text(const Request& request, const Graph& graph, const Spectrum& spectrum,
                const std::vector<Matrix>& matrices) {
  fmt::print("graph {}: {} nodes, {} directed edges\n", graph.id.empty() ? "-" : printable(graph.id), graph.num_nodes,
             graph.edges.size());
  fmt::print("  {} lowest eigenvalues ({} Laplacian, {} solver, residual {:.1e})\n", spectrum.count, request.laplacian,
             enum_name(spectrum.solver), spectrum.residual);
  for (int first = 0; first < spectrum.count;) {
    // Copies of one eigenvalue agree to rounding; distinct ones this close would need a very large graph.
    const double value = spectrum.values[first];
    int end = first + 1;
    while (end < spectrum.count && spectrum.values[end] - value <= 1e-12 + 1e-9 * value) ++end;
    fmt::print("    {:>12}", number(value));
    if (end - first > 1) fmt::print("  x{}", end - first);
    fmt::print("\n");
    first = end;
  }
  if (request.vectors) {
    print_rows(fmt::format("eigenvectors (a row per node, a column per pair; {} norm)", request.norm), spectrum.vectors,
               static_cast<size_t>(spectrum.count));
  }
  for (const Matrix& matrix : matrices) print_rows(matrix.title, matrix.entries, graph.num_nodes);
}

nlohmann::ordered_json rows_of(const std::vector<double>& entries, size_t columns) {
  auto rows = nlohmann::ordered_json::array();
  for (auto begin = entries.begin(); begin != entries.end(); begin += static_cast<std::ptrdiff_t>(columns)) {
    rows.push_back(std::vector<double>(begin, begin + static_cast<std::ptrdiff_t>(columns)));
  }
  return rows;
}

void print_json(const Request& request, const Graph& graph, const Spectrum& spectrum,
                const std::vector<Matrix>& matrices) {
  nlohmann::ordered_json object;
  object["id"] = graph.id;
  object["num_nodes"] = graph.num_nodes;
  object["num_edges"] = graph.edges.size();
  object["laplacian"] = request.laplacian;
  object["norm"] = request.norm;
  object["solver"] = enum_name(spectrum.solver);
  object["residual"] = spectrum.residual;
  // The names that Graph JSONL has for them.
  object["eigvals"] = spectrum.values;
  if (request.vectors) object["eigvecs"] = rows_of(spectrum.vectors, static_cast<size_t>(spectrum.count));
  if (!matrices.empty()) object["diffusion_time"] = request.time;
  for (const Matrix& matrix : matrices) object[matrix.key] = rows_of(matrix.entries, graph.num_nodes);
  fmt::print("{}\n", object.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
}

// The molecule once per chosen eigenvector, atoms coloured by its entries.
void draw_molecule([[maybe_unused]] const Request& request, const Graph& graph, const Spectrum& spectrum) {
  SAN_CHECK(!graph.smiles.empty(), "--svg draws molecules; graph '{}' does not come from SMILES", printable(graph.id));
  std::vector<int> chosen = request.draw;
  for (int i = 0; chosen.size() < 8 && request.draw.empty() && i < spectrum.count; ++i) chosen.push_back(i);
#ifdef SAN_WITH_RDKIT
  std::vector<Panel> panels;
  for (const int i : chosen) {
    SAN_CHECK(i >= 0 && i < spectrum.count, "--draw {}: the molecule has eigenvectors 0..{} here (see --pairs)", i,
              spectrum.count - 1);
    Panel panel;
    panel.legend = fmt::format("lambda_{} = {:.4f}", i, spectrum.values[static_cast<size_t>(i)]);
    for (int32_t node = 0; node < graph.num_nodes; ++node) {
      panel.values.push_back(spectrum.vectors[static_cast<size_t>(node * spectrum.count + i)]);
    }
    panels.push_back(std::move(panel));
  }
  DrawingOptions options;
  options.featuriser = Featuriser::kOgb;  // nodes as in the SMILES
  std::string error;
  const auto svg = draw_svg(graph.smiles, panels, options, error);
  SAN_CHECK(svg, "{}", error);
  write_file(request.svg, *svg);
  say("drawn: {}\n", request.svg);
#else
  fail("this san was built without RDKit and cannot draw molecules");
#endif
}

void print_graph(const Request& request, const Graph& graph) {
  const Spectrum spectrum = compute_spectrum(graph, request.options);
  const std::vector<Matrix> matrices =
      request.distances ? distance_matrices(graph, request.time) : std::vector<Matrix>{};
  (request.json ? print_json : print_text)(request, graph, spectrum, matrices);
  if (!request.svg.empty()) draw_molecule(request, graph, spectrum);
}

// Hands every graph of the input to `use`, which answers whether to go on. Returns how many records were bad
// (reported on stderr and passed over).
int64_t for_each_graph(const std::string& input, const std::function<bool(const Graph&)>& use) {
  SourceOptions options;
  options.labels_required = false;
  const auto source = open_source(input, options);
  int64_t bad = 0;
  for (;;) {
    try {
      Record record;
      if (!source->next(record)) return bad;
      const std::string where = record.where;
      const Graph graph = source->convert(std::move(record));
      try {
        if (!use(graph)) return bad;
      } catch (const Error& error) {
        throw RecordError(fmt::format("{}: {}", where, error.what()));
      }
    } catch (const RecordError& error) {
      say("san: {}\n", error.what());
      ++bad;
    }
  }
}

// Whether the argument names data rather than spelling a molecule: something is there under that name, or it has the form of
// a file name or of a generated set. "C/C=C/C" is a molecule.
bool names_data(const std::string& input) {
  std::error_code ignored;
  if (input == "-" || std::filesystem::exists(input, ignored)) return true;
  for (const char* beginning : {"generate:", "train=", "valid=", "test="}) {
    if (input.starts_with(beginning)) return true;
  }
  return std::any_of(std::begin(kDataEndings), std::end(kDataEndings),
                     [&](const char* ending) { return input.ends_with(ending); });
}

int print_molecule([[maybe_unused]] Request request) {
#ifdef SAN_WITH_RDKIT
  FeaturiserOptions options;
  options.featuriser = Featuriser::kOgb;
  std::string error;
  std::optional<Graph> graph = smiles_to_graph(request.input, options, error);
  SAN_CHECK(graph, "{} (neither a file nor a molecule)", error);
  graph->id = graph->smiles = request.input;
  print_graph(request, *graph);
  return kDone;
#else
  fail("{}: no such file (and this san was built without RDKit: it cannot read SMILES)", printable(request.input));
#endif
}

}  // namespace

int run_spectrum(int argc, char** argv) {
  Request request;
  CLI::App app(
      "The lowest Laplacian eigenvalues of a molecule, or of each graph of a file; a molecule is also drawn, its atoms "
      "coloured by\n"
      "the eigenvectors.\n\n"
      "  san spectrum 'CC(=O)Oc1ccccc1C(=O)O' --draw 1,2,3,10\n"
      "  san spectrum graphs.jsonl --distances");
  app.add_option("input", request.input, "a SMILES, or anything that --data takes elsewhere (- = standard input)")
      ->required();
  app.add_option("--pairs", request.options.num_pairs, "how many of the lowest eigenpairs")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--laplacian", request.laplacian, "symmetric, combinatorial or random-walk")->capture_default_str();
  app.add_option("--norm", request.norm, "eigenvector (unit vectors) or node (unit rows)")->capture_default_str();
  app.add_option("--solver", request.solver, "auto, dense or krylov")->capture_default_str();
  app.add_flag("--vectors", request.vectors, "print the eigenvectors too");
  app.add_flag("--distances", request.distances,
               "print Green's function (also squared, as in the paper), diffusion and biharmonic distances");
  app.add_option("--time", request.time, "time of the diffusion distance")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--graph", request.graph_id, "only the graph of this id");
  const auto* svg =
      app.add_option("--svg", request.svg, "file for the drawing of a molecule; '' = none [spectrum.svg for a SMILES]");
  app.add_option("--draw", request.draw, "which eigenvectors to draw, from 0 [the first eight]")->delimiter(',');
  app.add_flag("--json", request.json, "one JSON object per graph");
  int exit_code = 0;
  if (!parse_flags(app, argc, argv, exit_code)) return exit_code;
  request.options.laplacian = parse_enum<Laplacian>(request.laplacian, "--laplacian");
  request.options.norm = parse_enum<EigenvectorNorm>(request.norm, "--norm");
  request.options.solver = parse_enum<EigenSolver>(request.solver, "--solver");

  if (!names_data(request.input)) {
    if (svg->count() == 0) request.svg = "spectrum.svg";
    if (!request.draw.empty()) {
      request.options.num_pairs =
          std::max(request.options.num_pairs, 1 + *std::max_element(request.draw.begin(), request.draw.end()));
    }
    return print_molecule(request);
  }
  bool found = false;
  const int64_t bad = for_each_graph(request.input, [&](const Graph& graph) {
    if (!request.graph_id.empty() && graph.id != request.graph_id) return true;
    found = true;
    print_graph(request, graph);
    return request.graph_id.empty();
  });
  SAN_CHECK(found || request.graph_id.empty(), "{}: no graph has the id '{}'", request.input,
            printable(request.graph_id));
  SAN_CHECK(found || bad > 0, "{}: there is no graph in it", request.input);
  return bad == 0 ? kDone : kFailed;
}

}  // namespace san::cli
