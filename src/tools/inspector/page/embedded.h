// The inspector's page, of the files in this folder: made by the build (cmake/embed.cmake).
#pragma once

#include <string_view>

namespace headroom::inspector {

extern const std::string_view kInspectorHtml;  // with places in double braces
extern const std::string_view kInspectorCss;

// The script, in the order that its files need.
extern const std::string_view kPackedJs, kAddressJs, kLiveJs, kWordsJs, kTextJs, kMapJs, kContributionsJs,
    kPredictionsJs, kPanelJs, kStartJs;

}  // namespace headroom::inspector
