#include "page.h"

#include <fmt/format.h>

#include "style.h"
#include "svg.h"

namespace headroom::draw {

std::string page_beginning(std::string_view title, std::string_view style, std::string_view head) {
  return fmt::format(
      "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'>{}<meta name='viewport' "
      "content='width=device-width, initial-scale=1'><title>{}</title><style>{}{}{}</style></head>\n<body><main>",
      head, escape(title), kStyleSheet, kPageStyle, style);
}

}  // namespace headroom::draw
