// The report of `headroom analyse`: analysis.json, analysis.safetensors and report.html.
#include <fmt/format.h>

#include <filesystem>
#include <system_error>

#include "analyse.h"
#include "foundation/core/text/format.h"
#include "foundation/core/transformed.h"
#include "foundation/draw/page.h"
#include "headroom/core/error.h"
#include "headroom/core/files.h"
#include "headroom/core/safetensors.h"

namespace headroom::analyse {
namespace {

namespace fs = std::filesystem;

constexpr const char *kDocument = "analysis.json", *kReport = "report.html", *kTensors = "analysis.safetensors";

// Figures of less than the full width share a grid.
Json section(const std::string& id, const AnalysisKind& kind, const Findings& findings) {
  Json blocks = {{{"note", kind.about}}};
  for (const Figure& one : findings.figures) {
    Json figure = {{"figure", one.caption}, {"remark", one.remark}, {"blocks", one.blocks}, {"whole", one.full_width}};
    if (one.full_width) {
      blocks.push_back(std::move(figure));
    } else if (blocks.back().contains("grid")) {
      blocks.back()["grid"].push_back(std::move(figure));
    } else {
      blocks.push_back({{"grid", Json::array({std::move(figure)})}});
    }
  }
  return {{"section", kind.name}, {"id", id}, {"blocks", std::move(blocks)}};
}

std::string render_page(const std::vector<ModelFindings>& all, const AnalyseRequest& request) {
  Json contents = Json::array(), blocks = Json::array();
  for (std::size_t i = 0; i < all.size(); ++i) {
    const ModelFindings& one = all[i];
    const std::string id = fmt::format("m{}", i);
    Json items = Json::array();
    blocks.push_back({{"heading", one.name}, {"small", fmt::format("step {}", one.step)}, {"id", id}});
    for (const auto& [kind, findings] : one.analyses) {
      const std::string of_kind = fmt::format("{}-{}", id, kind->name);
      items.push_back({{"id", of_kind}, {"name", kind->name}, {"about", findings.summary}});
      blocks.push_back(section(of_kind, *kind, findings));
    }
    contents.push_back(
        {{"id", id}, {"name", one.name}, {"about", fmt::format(", step {}", one.step)}, {"items", std::move(items)}});
  }
  blocks.push_back({{"heading", "About this report"}});
  blocks.push_back({{"entries", Json::array({{"Command", request.command},
                                             {"Text", request.text.name()},
                                             {"Made by", fmt::format("headroom {}", HEADROOM_VERSION)}})}});
  return draw::block_page(
      {{"title", "Analyses"}, {"header", {{{"contents", std::move(contents)}}}}, {"blocks", std::move(blocks)}});
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
