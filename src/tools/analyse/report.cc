#include "page.h"

#include <fmt/format.h>

#include "foundation/draw/page.h"
#include "foundation/draw/svg.h"

namespace headroom::inspect {
namespace {

// After the sheets of all pages: maps side by side, as many as there is room for.
constexpr const char* kAnalysisStyle = R"css(
h2 { overflow-wrap: anywhere; } h2 small { color: var(--faint); font-weight: 400; font-size: .8em; }
section { margin-bottom: 2.2rem; } section > h3 { font-size: 1.1rem; margin-top: 1.6rem; }
section > * + .card.whole, section > .card.whole + * { margin-top: 1rem; }
.contents { list-style: none; padding: 0; margin: 0; font-size: .92rem; overflow-wrap: anywhere; }
.contents ul { padding-left: 1.1rem; margin: .2rem 0 .8rem; color: var(--faint); }
a { color: var(--accent); }
.maps { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 190px), 1fr)); gap: .8rem; }
.maps .large { grid-column: span 2; grid-row: span 2; } .maps .name { margin: 0 0 .2rem; font-size: .82rem; color: var(--faint); }
.maps .chart { max-width: none; } .scroll { overflow-x: auto; }
td { white-space: normal; min-width: 3rem; } td.text:not(:first-child) { min-width: 10rem; }
@media (max-width: 560px) { .maps { grid-template-columns: 1fr 1fr; } }
)css";

std::string picture(const Picture& one) {
  return fmt::format("<figure class='card{}'><figcaption>{} <small>{}</small></figcaption>{}</figure>\n",
                     one.whole ? " whole" : "", draw::escape(one.caption), draw::escape(one.remark), one.markup);
}

std::string section(const std::string& id, const AnalysisKind& kind, const Findings& findings) {
  std::string body, grid;
  for (const Picture& one : findings.pictures) {
    if (one.whole) {
      body += grid.empty() ? "" : "<div class='grid'>" + grid + "</div>\n";
      grid.clear();
      body += picture(one);
    } else {
      grid += picture(one);
    }
  }
  body += grid.empty() ? "" : "<div class='grid'>" + grid + "</div>\n";
  return fmt::format("<section><h3 id='{}'>{}</h3><p class='note'>{}</p>{}</section>\n", id, kind.name,
                     draw::escape(kind.about), body);
}

}  // namespace

std::string render_page(const std::vector<Analysed>& all, const AnalyseRequest& request) {
  std::string body, contents;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Analysed& one = all[i];
    contents += fmt::format("<li><a href='#m{}'>{}</a>, step {}<ul>", i, draw::escape(one.name), one.step);
    body += fmt::format("<h2 id='m{}'>{} <small>step {}</small></h2>\n", i, draw::escape(one.name), one.step);
    for (const auto& [kind, findings] : one.analyses) {
      const std::string id = fmt::format("m{}-{}", i, kind->name);
      contents += fmt::format("<li><a href='#{}'>{}</a> {}</li>", id, kind->name, draw::escape(findings.summary));
      body += section(id, *kind, findings);
    }
    contents += "</ul></li>\n";
  }
  return fmt::format(
      "{}<header><p class='brand'>Headroom</p><h1>Analyses</h1><ul class='contents'>{}</ul></header>\n{}"
      "<h2>How it was made</h2><div class='card'><dl><dt>Command</dt><dd>{}</dd><dt>Read</dt><dd>{}</dd>"
      "<dt>This page</dt><dd>made by headroom {}</dd></dl></div></main></body></html>\n",
      draw::page_beginning("Analyses", kAnalysisStyle), contents, body, draw::escape(request.command),
      draw::escape(request.text.name()), HEADROOM_VERSION);
}

}  // namespace headroom::inspect
