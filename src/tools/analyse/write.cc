// What analyses found, as files.
#include <system_error>

#include "analyse.h"
#include "foundation/core/text/message.h"
#include "headroom/core/error.h"
#include "headroom/core/files.h"
#include "headroom/core/safetensors.h"
#include "page.h"

namespace headroom::inspect {
namespace {

namespace fs = std::filesystem;

constexpr const char *kDocument = "analysis.json", *kReport = "report.html", *kTensors = "analysis.safetensors";

bool is_there(const fs::path& file) {
  std::error_code ignored;
  return fs::exists(file, ignored);
}

Json figures_of(const Analysed& one) {
  Json figures = Json::object();
  for (const auto& [kind, findings] : one.analyses) {
    figures[std::string(kind->name)] = findings.figures;
  }
  return figures;
}

// "rank.layer0", of several models "1.rank.layer0".
void write_tensors(const std::vector<Analysed>& all, const fs::path& file) {
  SafetensorsWriter writer;
  std::vector<at::Tensor> kept;  // their bytes, until they are written
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::string prefix = all.size() == 1 ? "" : fmt::format("{}.", i);
    for (const auto& [kind, findings] : all[i].analyses) {
      for (const auto& [name, tensor] : findings.tensors) {
        const bool whole = at::isIntegralType(tensor.scalar_type(), /*includeBool=*/true);
        kept.push_back(tensor.detach().to(at::kCPU, whole ? at::kLong : at::kFloat).contiguous());
        const at::Tensor& held = kept.back();
        writer.add(fmt::format("{}{}.{}", prefix, kind->name, name), whole ? DType::i64 : DType::f32,
                   held.sizes().vec(), {static_cast<const std::byte*>(held.const_data_ptr()), held.nbytes()});
      }
    }
  }
  writer.set_metadata("format", "headroom.analysis.1");
  writer.write(file);
}

}  // namespace

void require_room_for_analyses(const fs::path& out) {
  if (is_there(out / kReport) && !is_there(out / kDocument)) {
    user_error("analyse: --out: {} holds the page of another command, which would be lost: choose another folder",
               printable(out.string()));
  }
  std::error_code ignored;
  if (is_there(out) && !fs::is_directory(out, ignored)) {
    user_error("analyse: --out: {} is a file, where a folder is wanted", printable(out.string()));
  }
}

Json write_analyses(const std::vector<Analysed>& all, const AnalyseRequest& request, const fs::path& out) {
  make_folder(out);
  Json document = Json::object();
  document["analyses"] = figures_of(all.front());
  Json runs = Json::array();
  for (const Analysed& one : all) {
    runs.push_back({{"checkpoint", one.name}, {"step", one.step}, {"analyses", figures_of(one)}});
  }
  document["command"] = request.command;
  document["runs"] = std::move(runs);
  write_tensors(all, out / kTensors);
  write_text_file(out / kReport, render_page(all, request));
  write_text_file(out / kDocument, document.dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
  document["report"] = (out / kReport).string();
  return document;
}

}  // namespace headroom::inspect
