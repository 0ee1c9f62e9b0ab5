// The report of `headroom analyse`: analysis.json, analysis.safetensors and report.html.
#include <fmt/format.h>

#include <filesystem>
#include <system_error>

#include "analyse.h"
#include "foundation/core/text/message.h"
#include "foundation/core/transformed.h"
#include "foundation/draw/page.h"
#include "foundation/draw/svg.h"
#include "headroom/core/error.h"
#include "headroom/core/files.h"
#include "headroom/core/safetensors.h"

namespace headroom::analyse {
namespace {

namespace fs = std::filesystem;

constexpr const char *kDocument = "analysis.json", *kReport = "report.html", *kTensors = "analysis.safetensors";

// Appended to the stylesheet shared by all pages.
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

std::string figure(const Figure& one) {
  return fmt::format("<figure class='card{}'><figcaption>{} <small>{}</small></figcaption>{}</figure>\n",
                     one.full_width ? " whole" : "", draw::escape(one.caption), draw::escape(one.remark), one.markup);
}

std::string section(const std::string& id, const AnalysisKind& kind, const Findings& findings) {
  std::string body, grid;
  const auto close_grid = [&] {
    body += grid.empty() ? "" : "<div class='grid'>" + grid + "</div>\n";
    grid.clear();
  };
  for (const Figure& one : findings.figures) {
    if (one.full_width) {
      close_grid();
      body += figure(one);
    } else {
      grid += figure(one);
    }
  }
  close_grid();
  return fmt::format("<section><h3 id='{}'>{}</h3><p class='note'>{}</p>{}</section>\n", id, kind.name,
                     draw::escape(kind.about), body);
}

std::string render_page(const std::vector<ModelFindings>& all, const AnalyseRequest& request) {
  std::string body, contents;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const ModelFindings& one = all[i];
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
      "{}<header><p class='brand'>Headroom</p><h1>Analyses</h1><ul class='contents'>{}</ul></header>\n{}<h2>About this "
      "report</h2><div class='card'><dl><dt>Command</dt><dd>{}</dd><dt>Text</dt><dd>{}</dd><dt>Made "
      "by</dt><dd>headroom {}</dd></dl></div></main></body></html>\n",
      draw::page_beginning("Analyses", kAnalysisStyle), contents, body, draw::escape(request.command),
      draw::escape(request.text.name()), HEADROOM_VERSION);
}

Json metrics_of(const ModelFindings& one) {
  Json metrics = Json::object();
  for (const auto& [kind, findings] : one.analyses) {
    metrics[std::string(kind->name)] = findings.metrics;
  }
  return metrics;
}

// Tensors are named "rank.layer0", or "1.rank.layer0" if there are several models.
void write_tensors(const std::vector<ModelFindings>& all, const fs::path& file) {
  SafetensorsWriter writer;
  std::vector<at::Tensor> kept;  // owns the bytes until they are written
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::string prefix = all.size() == 1 ? "" : fmt::format("{}.", i);
    for (const auto& [kind, findings] : all[i].analyses) {
      for (const auto& [name, tensor] : findings.tensors) {
        const bool integral = at::isIntegralType(tensor.scalar_type(), /*includeBool=*/true);
        kept.push_back(tensor.detach().to(at::kCPU, integral ? at::kLong : at::kFloat).contiguous());
        const at::Tensor& held = kept.back();
        writer.add(fmt::format("{}{}.{}", prefix, kind->name, name), integral ? DType::i64 : DType::f32,
                   held.sizes().vec(), {static_cast<const std::byte*>(held.const_data_ptr()), held.nbytes()});
      }
    }
  }
  writer.set_metadata("format", "headroom.analysis.1");
  writer.write(file);
}

}  // namespace

void check_output_folder(const fs::path& out, bool force) {
  std::error_code ignored;
  if (!force && fs::exists(out / kDocument, ignored)) {
    user_error("analyse: --out: {} already holds an analysis; overwrite it with --force, or choose another folder",
               printable(out.string()));
  }
  if (fs::exists(out / kReport, ignored) && !fs::exists(out / kDocument, ignored)) {
    user_error(
        "analyse: --out: {} holds the report of another command, which would be overwritten; choose another folder",
        printable(out.string()));
  }
  fs::path there = out;  // the folder, or the nearest one above it that exists
  while (there.has_relative_path() && !fs::exists(there, ignored)) {
    there = there.parent_path();
  }
  if (!there.empty() && !fs::is_directory(there, ignored)) {
    user_error("analyse: --out: {} is a file; expected a folder", printable(there.string()));
  }
  require_writable(there / kDocument, "analyse: --out");
}

Json write_analyses(const std::vector<ModelFindings>& all, const AnalyseRequest& request, const fs::path& out) {
  make_folder(out);
  Json document = Json::object();
  document["analyses"] = metrics_of(all.front());
  document["command"] = request.command;
  document["runs"] = transformed(all, [](const ModelFindings& one) -> Json {
    return {{"checkpoint", one.name}, {"step", one.step}, {"analyses", metrics_of(one)}};
  });
  write_tensors(all, out / kTensors);
  write_text_file(out / kReport, render_page(all, request));
  write_text_file(out / kDocument, document.dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
  document["report"] = (out / kReport).string();
  return document;
}

}  // namespace headroom::analyse
