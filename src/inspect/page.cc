#include "page.h"

#include <fmt/format.h>

#include "headroom/draw/page.h"
#include "headroom/draw/style.h"
#include "headroom/draw/svg.h"

namespace headroom::inspect {
namespace {

std::string picture(const Picture& one) {
  return fmt::format("<figure class='card{}'><figcaption>{} <small>{}</small></figcaption>{}</figure>\n",
                     one.whole ? " whole" : "", draw::escape(one.caption), draw::escape(one.remark), one.markup);
}

std::string section(const AnalysisKind& kind, const Findings& findings) {
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
  return fmt::format("<h3 id='{0}'>{0}</h3><p class='note'>{1}</p>{2}\n", kind.name, draw::escape(kind.about), body);
}

}  // namespace

std::string render_page(const std::vector<Analysed>& all, const AnalyseRequest& request) {
  std::string body, lead;
  for (const Analysed& one : all) {
    body += fmt::format("<h2>{} <small>step {}</small></h2>\n", draw::escape(one.name), one.step);
    for (const auto& [kind, findings] : one.analyses) {
      body += section(*kind, findings);
    }
  }
  return fmt::format(
      "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'><meta name='viewport' "
      "content='width=device-width, initial-scale=1'><title>Analyses</title><style>{}{}</style></head>\n<body><main>"
      "<header><p class='brand'>Headroom</p><h1>Analyses</h1></header>\n{}<h2>How it was made</h2><div class='card'>"
      "<dl><dt>Command</dt><dd>{}</dd><dt>This page</dt><dd>made by headroom {}</dd></dl></div></main></body></html>\n",
      draw::kStyleSheet, draw::kPageStyle, body, draw::escape(request.command), HEADROOM_VERSION);
}

}  // namespace headroom::inspect
