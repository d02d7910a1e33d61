#include "san/train/page.h"

#include <fmt/format.h>

#include <cmath>
#include <iterator>

#include "san/train/charts.h"

namespace san::page {
namespace {

using charts::escape;
using charts::grouped;

// Text in both schemes has a contrast of at least 4.5 against its ground, lines at least 3.
constexpr std::string_view kStyle = R"css(
:root{color-scheme:light dark;--page:#f5f6f8;--card:#fff;--edge:#dfe3e8;--text:#1b2430;--soft:#566273;--grid:#e8ebef;--base:#98a3b0;
--accent:#2457d6;--accent-soft:#e9effd;--heat:#1d4fd0;--train:#2563eb;--valid:#c2410c;--test:#0f766e;--rate:#6d4bc9;--code:#f0f2f5;
--c0:#2563eb;--c1:#c2410c;--c2:#0f766e;--c3:#7c3aed;--c4:#be185d;--c5:#4d7c0f;--c6:#a16207;--c7:#475569;--c8:#0e7490;--c9:#15803d;--c10:#92400e;--c11:#1e3a8a}
@media(prefers-color-scheme:dark){:root{--page:#0e1217;--card:#161b22;--edge:#2a323d;--text:#e6eaf0;--soft:#9aa7b6;--grid:#252d37;--base:#5b6878;
--accent:#7aa5ff;--accent-soft:#1a2740;--heat:#6c97f2;--train:#6aa6ff;--valid:#ff9b5c;--test:#3ed0b8;--rate:#b59cff;--code:#0f141a;
--c0:#6aa6ff;--c1:#ff9b5c;--c2:#3ed0b8;--c3:#b59cff;--c4:#f582b8;--c5:#a9d94f;--c6:#e9c14a;--c7:#b8c4d2;--c8:#4fd2ea;--c9:#5fd98a;--c10:#dba67c;--c11:#a9bfff}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--text);font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue","Liberation Sans",Arial,sans-serif;
font-variant-numeric:tabular-nums;-webkit-text-size-adjust:100%}
main,header,footer{max-width:1140px;margin:0 auto;padding:0 20px}
header{padding-top:36px}
h1{font-size:28px;line-height:1.2;margin:2px 0 0;letter-spacing:-.01em;overflow-wrap:anywhere}
h2{font-size:19px;margin:38px 0 12px;letter-spacing:-.005em}
h3{font-size:15px;margin:0;font-weight:600;overflow-wrap:anywhere}
.kicker{margin:0;color:var(--soft);font-size:14px}
.note{color:var(--soft);font-size:14px;margin:4px 0 0}
.card{background:var(--card);border:1px solid var(--edge);border-radius:12px;padding:16px 18px;min-width:0}
.empty{color:var(--soft)}
.tiles{display:flex;flex-wrap:wrap;gap:12px;margin:20px 0 14px}
.tile{background:var(--card);border:1px solid var(--edge);border-radius:12px;padding:12px 18px;min-width:128px}
.tile b{display:block;font-size:24px;line-height:1.25;font-weight:600}
.tile span{display:block;color:var(--soft);font-size:13px}
.tile.hero{background:var(--accent-soft);border-color:var(--accent);padding-right:30px}
.tile.hero b{font-size:38px;line-height:1.15;color:var(--accent)}
.tile:not(.hero){display:flex;flex-direction:column;justify-content:center}
.command{display:flex;gap:10px;align-items:flex-start;background:var(--code);border:1px solid var(--edge);border-radius:10px;padding:10px 12px 10px 16px}
.command code{flex:1;user-select:all;padding:3px 0}
code,pre{font:13px/1.55 ui-monospace,SFMono-Regular,Menlo,Consolas,"Liberation Mono",monospace}
code,pre{white-space:pre-wrap;overflow-wrap:anywhere}
button{font:inherit;font-size:13px;color:var(--text);background:var(--card);border:1px solid var(--edge);border-radius:7px;padding:3px 12px;cursor:pointer}
button:hover,button:focus-visible{border-color:var(--accent);color:var(--accent)}
.grid{display:grid;gap:16px;grid-template-columns:repeat(auto-fit,minmax(min(100%,440px),1fr))}
.grid.below{margin-top:16px}
.grid.three{grid-template-columns:repeat(auto-fit,minmax(min(100%,300px),1fr))}
.head{display:flex;flex-wrap:wrap;gap:2px 18px;align-items:baseline;justify-content:space-between;margin-bottom:8px}
.legend{display:flex;flex-wrap:wrap;gap:2px 14px;font-size:13px;color:var(--soft)}
.key::before{content:"";display:inline-block;width:16px;height:3px;border-radius:2px;margin-right:6px;vertical-align:middle;background:var(--line)}
.key.dashed::before{background:repeating-linear-gradient(90deg,var(--line) 0 5px,transparent 5px 8px)}
.wide{grid-column:1/-1}
.scroll{overflow:auto;max-height:620px}
.figure{overflow-x:auto}
svg.chart{display:block;width:100%;height:auto;min-width:400px;margin:0 auto}
svg.scatter,svg.histogram{max-width:500px;min-width:320px}
svg.confusion{width:auto;max-width:100%;min-width:0}
svg text{font-size:12px;fill:var(--text);font-family:inherit}
svg .tick,svg .label{fill:var(--soft)}
svg path{fill:none}
.axes .grid{stroke:var(--grid)}.axes .base{stroke:var(--base)}
.line{stroke:var(--line);stroke-width:2;stroke-linejoin:round;stroke-linecap:round}
.line.dashed{stroke-dasharray:6 4}
.unit:hover .line{stroke-opacity:.25}.unit .line:hover{stroke-opacity:1;stroke-width:3}
.guide{stroke:var(--base);stroke-dasharray:5 4;stroke-width:1.25}
.best path{stroke:var(--base);stroke-dasharray:2 3;stroke-width:1.25}.best text{fill:var(--soft)}.epochs:hover .best text{opacity:0}
.ring{fill:var(--card);stroke:var(--line);stroke-width:2}
.columns>g{opacity:0}.columns>g:hover{opacity:1}
.columns rect{fill:transparent}.columns path{stroke:var(--base)}.columns circle{fill:var(--line);stroke:var(--card)}
.columns tspan{fill:var(--line)}.columns text{paint-order:stroke;stroke:var(--card);stroke-width:4px}
.points{stroke:var(--c0);stroke-linecap:round}
.bar{fill:var(--c0);fill-opacity:.75}.bar:hover{fill-opacity:1}
.pillar{fill:var(--line);fill-opacity:.45}.box{fill:var(--line);fill-opacity:.2;stroke:var(--line)}
.whisker{stroke:var(--line);stroke-width:1.5}.median{stroke:var(--line);stroke-width:3}.dot{fill:var(--line);stroke:var(--card)}
svg .value{font-weight:600;paint-order:stroke;stroke:var(--card);stroke-width:4px}
.cell .ground{fill:var(--grid);fill-opacity:.5}.cell .heat{fill:var(--heat)}.cell text{text-anchor:middle;pointer-events:none}
.cell .count{font-size:13px;font-weight:600}.cell .share{font-size:11.5px}
.cell:hover .ground{stroke:var(--text)}
.train{--line:var(--train)}.valid{--line:var(--valid)}.test{--line:var(--test)}.rate{--line:var(--rate)}
.c0{--line:var(--c0)}.c1{--line:var(--c1)}.c2{--line:var(--c2)}.c3{--line:var(--c3)}.c4{--line:var(--c4)}.c5{--line:var(--c5)}
.c6{--line:var(--c6)}.c7{--line:var(--c7)}.c8{--line:var(--c8)}.c9{--line:var(--c9)}.c10{--line:var(--c10)}.c11{--line:var(--c11)}
table{border-collapse:collapse;width:100%;font-size:14px}
th,td{text-align:right;padding:6px 0 6px 16px;border-bottom:1px solid var(--grid);vertical-align:top}
th:first-child,td:first-child{text-align:left;padding-left:0;overflow-wrap:anywhere}
thead th{color:var(--soft);font-weight:500;font-size:13px;white-space:nowrap;position:sticky;top:0;background:var(--card)}
tbody th{font-weight:400}tbody tr:last-child>*{border-bottom:0}
.facts td{overflow-wrap:anywhere}.facts th{color:var(--soft);min-width:9em}
td.strong{font-weight:600}
.results td,.results th:first-child{white-space:nowrap}.results td:last-child{white-space:normal}
details summary{cursor:pointer;font-weight:600}details pre{margin:12px 0 0}
footer{color:var(--soft);font-size:13px;padding-top:26px;padding-bottom:40px}
@media print{body{background:#fff}.card,.tile{break-inside:avoid}button{display:none}.scroll{max-height:none}}
)css";

// The content policy allows exactly this text: its SHA-256 below must change with it (the browser test notices).
constexpr std::string_view kScript =
    "(function(){var "
    "b=document.getElementById('copy'),c=document.getElementById('command');if(!b||!c)return;b.hidden=false;"
    "b.onclick=function(){var s=getSelection(),r=document.createRange();r.selectNodeContents(c);s.removeAllRanges();"
    "s.addRange(r);document.execCommand('copy');b.textContent='Copied';"
    "setTimeout(function(){b.textContent='Copy'},1500)}})();";
constexpr std::string_view kScriptHash = "w7yZSZ0fU7TQow4mflzOIATStmrDP7cfDC3vvfFDVW0=";

template <typename... Args>
void add(std::string& out, fmt::format_string<Args...> format, Args&&... args) {
  fmt::format_to(std::back_inserter(out), format, std::forward<Args>(args)...);
}

}  // namespace

std::string document(std::string_view title, std::string_view body) {
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
      "img-src data:; script-src 'sha256-{}'\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta name=\"color-scheme\" content=\"light dark\">\n<link rel=\"icon\" href=\"data:,\">\n"
      "<title>{}</title>\n<style>{}</style>\n</head>\n<body>\n{}"
      "<footer>Written by san. This page is one file: it loads nothing and sends nothing.</footer>\n"
      "<script>{}</script>\n</body>\n</html>\n",
      kScriptHash, escape(title), kStyle, body, kScript);
}

std::string title_of(const std::string& metric) {
  static constexpr std::pair<std::string_view, std::string_view> kTitles[] = {
      {"mae", "MAE"},
      {"rmse", "RMSE"},
      {"mse", "MSE"},
      {"r2", "R\u00b2"},
      {"roc_auc", "ROC-AUC"},
      {"average_precision", "average precision"},
      {"accuracy", "accuracy"},
      {"mean_class_recall", "mean class recall (%)"},
      {"published_sbm_accuracy", "published SBM accuracy (%)"},
      {"loss", "loss"},
  };
  for (const auto& [name, title] : kTitles) {
    if (name == metric) return std::string(title);
  }
  return metric;
}

std::string heading_of(const std::string& metric) {
  std::string title = title_of(metric);
  const bool ours = title != metric || metric == "accuracy" || metric == "loss";
  if (ours && title[0] >= 'a' && title[0] <= 'z') title[0] = static_cast<char>(title[0] - 'a' + 'A');
  return title;
}

std::string tile(std::string_view name, std::string_view value) {
  return fmt::format("<div class=\"tile\"><b>{}</b><span>{}</span></div>\n", escape(value), escape(name));
}

std::string duration(double seconds) {
  if (!(seconds >= 0) || seconds > 1e10) return "n/a";
  const auto total = static_cast<int64_t>(std::llround(seconds));
  if (total < 1) return fmt::format("{:.2f} s", seconds);
  if (total < 60) return fmt::format("{} s", total);
  if (total < 3600) return fmt::format("{} min {} s", total / 60, total % 60);
  return fmt::format("{} h {} min", grouped(total / 3600), total % 3600 / 60);
}

std::string figure(std::string_view title, const std::vector<std::pair<std::string, std::string>>& legend,
                   std::string_view drawing, std::string_view note, bool wide) {
  std::string out =
      fmt::format("<section class=\"card{}\"><div class=\"head\"><h3>{}</h3>", wide ? " wide" : "", escape(title));
  if (!legend.empty()) {
    out += "<div class=\"legend\">";
    for (const auto& [css, name] : legend) {
      add(out, "<span{}>{}</span>", css.empty() ? "" : fmt::format(" class=\"key {}\"", css), escape(name));
    }
    out += "</div>";
  }
  add(out, "</div>\n<div class=\"figure\">{}</div>", drawing);
  if (!note.empty()) add(out, "<p class=\"note\">{}</p>", escape(note));
  return out + "</section>\n";
}

std::string table(std::string_view id, const std::vector<std::string>& head,
                  const std::vector<std::vector<std::string>>& rows) {
  std::string out = fmt::format("<div class=\"scroll\"><table id=\"{}\"><thead><tr>", id);
  for (const std::string& cell : head) add(out, "<th scope=\"col\">{}</th>", escape(cell));
  out += "</tr></thead><tbody>\n";
  for (const auto& row : rows) {
    out += "<tr>";
    for (size_t i = 0; i < row.size(); ++i) {
      add(out, "{}{}{}", i == 0 ? "<th scope=\"row\">" : "<td>", escape(row[i]), i == 0 ? "</th>" : "</td>");
    }
    out += "</tr>\n";
  }
  return out + "</tbody></table></div>";
}

}  // namespace san::page
