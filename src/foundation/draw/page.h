// Self-contained HTML pages: a JSON document, and the scripts and style sheets of page/, which draw it in the browser.
#pragma once

#include <string>
#include <string_view>

#include "headroom/core/json.h"

namespace headroom::draw {

struct Page {
  std::string title;
  Json document;          // `page` in the scripts
  std::string_view body;  // HTML that the scripts fill
  std::string_view style;
  std::string script;            // follows page/dom.js
  std::string before, packed{};  // elements with packed bytes before and after the script
};
std::string render_page(const Page& page);

// Returns a page that consists of blocks. The first key of a block is its kind (page/blocks.js); texts are plain:
//   {"heading", "small", "id"}, {"subheading"}, {"note"}, {"code"}, {"sentences": [..], "kind": "lead" | "warn"}
//   {"chart"} of charts.h; {"maps": [heat maps, each also "name" and "large"]}
//   {"table": {"columns", "rows"}, "card"}: a column is a name or {"name", "above" or "style", "text", "cost"}, a cell
//   a
//     text or {"text", "style", "small", "best", "bar": [share, style]}
//   {"figure": caption, "remark", "blocks", "whole"}, {"details": summary, "blocks", "open"}, {"card": [blocks]}
//   {"grid": [blocks], "kind"}, {"section", "id", "blocks"}
//   {"facts": [[name, text]]}, {"entries": [[name, text, is a command]]}: those without text are left out
//   {"legend": [{"name", "style", "text"}]}, {"samples": [{"name", "style", "texts": [{"step", "prompt", "text"}]}]}
//   {"contents": [{"id", "name", "about", "items": [{"id", "name", "about"}]}]}
// `document`: "title", "header" (blocks), "blocks" and "refresh" (seconds after which the page loads again).
std::string block_page(Json document);

// Compresses bytes in zlib format, for inflate() of page/dom.js.
std::string deflated(std::string_view bytes);

}  // namespace headroom::draw
