#include "analysis.h"

namespace headroom::inspect {
namespace {

std::map<std::string_view, AnalysisKind>& registered() {
  static std::map<std::string_view, AnalysisKind> all;
  return all;
}

}  // namespace

const std::map<std::string_view, AnalysisKind>& analysis_kinds() {
  return registered();
}

Registration::Registration(const AnalysisKind& kind) {
  registered().emplace(kind.name, kind);
}

}  // namespace headroom::inspect
