// The inspector's page, of the files in this folder: made by the build (cmake/embed.cmake).
#pragma once

#include <string_view>

namespace headroom::inspect {

extern const std::string_view kInspectorHtml;  // with places in double braces
extern const std::string_view kInspectorCss;
extern const std::string_view kInspectorJs;

}  // namespace headroom::inspect
