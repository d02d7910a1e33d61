#include "san/chem/drawing.h"

#include "tests/testing.h"

namespace san {
namespace {

using testing::error_of;

std::string drawing(std::string_view smiles, const std::vector<Panel>& panels, const DrawingOptions& options = {}) {
  std::string error;
  auto svg = draw_svg(smiles, panels, options, error);
  EXPECT_TRUE(svg) << error;
  return svg.value_or("");
}

size_t count(const std::string& text, std::string_view what) {
  size_t found = 0;
  for (size_t at = text.find(what); at != text.npos; at = text.find(what, at + 1)) ++found;
  return found;
}

TEST(Drawing, ColoursAtomsBlueToRedAndWritesLegends) {
  DrawingOptions options;
  options.featuriser = Featuriser::kOgb;
  const std::string svg = drawing("CCO", {{{-1, 0, 1}, "lambda_2 = 0.5"}}, options);
  EXPECT_EQ(svg.find("<?xml"), 0u);
  EXPECT_NE(svg.find("</svg>"), svg.npos);
  EXPECT_NE(svg.find("#427CE5"), svg.npos);  // full blue
  EXPECT_NE(svg.find("#E85447"), svg.npos);  // full red
  EXPECT_EQ(count(svg, "<ellipse"), 3u);
}

TEST(Drawing, LaysPanelsOutInAGrid) {
  DrawingOptions options;
  options.columns = 2;
  const Panel panel{{0.1, 0.2, -0.3}, "x"};
  const std::string svg = drawing("CCO", {panel, panel, panel}, options);
  EXPECT_NE(svg.find("width='600px' height='520px'"), svg.npos);
  EXPECT_EQ(count(svg, "<ellipse"), 9u);
}

TEST(Drawing, FollowsTheNodeOrderOfTheFeaturiser) {
  // zinc's order of OCC is that of CCO: the first value belongs to the methyl carbon, not to the oxygen.
  DrawingOptions zinc, ogb;
  ogb.featuriser = Featuriser::kOgb;
  const std::vector<Panel> panels = {{{1, 0, 0}, ""}};
  EXPECT_EQ(drawing("OCC", panels, zinc), drawing("CCO", panels, zinc));
  EXPECT_NE(drawing("OCC", panels, ogb), drawing("CCO", panels, ogb));
}

TEST(Drawing, TakesAllZeroValuesNoValuesAndSpecialCharactersInLegends) {
  const std::string svg = drawing("c1ccccc1[C@H](N)O.[Na+]", {{{}, "a < b & c"}, {std::vector<double>(10, 0.0), ""}});
  EXPECT_EQ(svg.find("a < b"), svg.npos);
  EXPECT_EQ(svg.find("b & c"), svg.npos);
}

TEST(Drawing, SaysWhatDoesNotFit) {
  std::string error;
  EXPECT_FALSE(draw_svg("C1CC", {{}}, {}, error));
  EXPECT_EQ(error, "'C1CC': unclosed ring");
  EXPECT_FALSE(draw_svg(std::string(600, 'C'), {{}}, {}, error));
  EXPECT_NE(error.find("at most 500"), error.npos);
  EXPECT_NE(error_of([&] {
              draw_svg("CCO", {{{1, 2}, ""}}, {}, error);
            }).find("3 atoms, but 2 values"),
            std::string::npos);
  EXPECT_NE(error_of([&] { draw_svg("CCO", {}, {}, error); }).find("panels"), std::string::npos);
  EXPECT_NE(error_of([&] { draw_svg("C", {{{1.0 / 0.0}, ""}}, {}, error); }).find("finite"), std::string::npos);
}

}  // namespace
}  // namespace san
