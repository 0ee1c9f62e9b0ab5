// The inspector's page: its data as JSON and packed arrays, with the files of page/.
#include "inspector.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <set>
#include <string_view>
#include <utility>

#include "foundation/core/text/format.h"
#include "foundation/core/text/utf8.h"
#include "foundation/draw/page.h"
#include "foundation/draw/svg.h"
#include "tools/inspector/page/embedded.h"

namespace headroom::inspector {
namespace {

// JSON for a script element, in which "</script>" must not occur.
std::string inside_script(const Json& document) {
  std::string text = to_json_line(document), safe;
  if (!text.empty() && text.back() == '\n') {
    text.pop_back();
  }
  for (const char c : text) {
    c == '<' ? safe += "\\u003c" : safe += c;
  }
  return safe;
}

std::string packed_elements(const InspectorPage& page, bool first) {
  // The arrays that are drawn first precede the script.
  static const std::set<std::string, std::less<>> kFirst = {"thumbnails", "predictions", "logits"};
  std::string elements;
  for (std::size_t i = 0; i < page.views.size(); ++i) {
    for (const PackedArray& packed : page.views[i].text.packed) {
      if (kFirst.contains(packed.name) == first) {
        elements += fmt::format("<script type=\"application/octet-stream\" id=\"v{}.{}\">", i, packed.name);
        elements += to_base64(packed.bytes);
        elements += "</script>\n";
      }
    }
  }
  return elements;
}

// A token of the text that ends with a letter or digit, after which other tokens are spelled with their blanks.
std::int32_t word_token(const InspectorPage& page) {
  const auto found = std::find_if(page.ids.begin(), page.ids.end(), [&](std::int32_t id) {
    const std::string text = page.tokenizer.decode({{id}});
    return !text.empty() && std::isalnum(static_cast<unsigned char>(text.back())) != 0;
  });
  return found != page.ids.end() ? *found : page.ids.empty() ? 0 : page.ids.front();
}

Json description(const InspectorPage& page) {
  Json document = {{"title", page.title}, {"ids", page.ids}};
  Json& tokens = document["tokens"] = Json::array();
  const std::int32_t after = word_token(page);
  for (const std::int32_t id : page.ids) {
    tokens.push_back(token_text(page.tokenizer, after, id));
  }
  std::set<std::int64_t> ids;
  Json& views = document["views"] = Json::array();
  for (const InspectorView& view : page.views) {
    Json about = view.text.about;
    about["run"] = view.run;
    about["step"] = view.step;
    if (!view.class_names.empty()) {
      about["class_names"] = view.class_names;
    }
    views.push_back(std::move(about));
    ids.insert(view.text.vocabulary.begin(), view.text.vocabulary.end());
  }
  Json& vocabulary = document["vocabulary"] = Json::object();
  for (const std::int64_t id : ids) {
    // A model may have more tokens than its tokenizer.
    if (id < page.tokenizer.vocabulary_size()) {
      vocabulary[std::to_string(id)] = token_text(page.tokenizer, after, static_cast<std::int32_t>(id));
    }
  }
  if (page.live) {
    const LivePage& live = *page.live;
    document["live"] = {{"path", live.path},
                        {"models", live.models},
                        {"model", live.model},
                        {"text", live.text},
                        {"switched_off", live.switched_off}};
  }
  return document;
}

// All files in one function scope, in the order that they need.
std::string script() {
  std::string all = "'use strict';\n(() => {\n";
  for (const std::string_view file : {kPackedJs, kLiveJs, kTextJs, kMapJs, kTablesJs, kPanelJs, kStartJs}) {
    all += file;
  }
  return all + "})();\n";
}

}  // namespace

std::string token_text(const tokenizers::Tokenizer& tokenizer, std::int32_t after, std::int32_t id) {
  std::string bytes = tokenizers::text_after(tokenizer, {&after, 1}, id);
  if (is_utf8(bytes)) {
    return bytes;
  }
  std::string text;
  for (std::string_view rest = bytes; !rest.empty();) {
    const CodePoint next = first_code_point(rest);
    if (next.size > 0) {
      text += rest.substr(0, next.size);
    } else {
      text += fmt::format("<{:02x}>", static_cast<unsigned char>(rest.front()));
    }
    rest.remove_prefix(next.size > 0 ? next.size : 1);
  }
  return text;
}

std::string render_inspector(const InspectorPage& page) {
  const std::vector<std::pair<std::string_view, std::string>> places = {
      {"{{title}}", draw::escape(page.title)},
      {"{{style}}", std::string(draw::kStyleSheet) + std::string(kInspectorCss)},
      {"{{page}}", inside_script(description(page))},
      {"{{first}}", packed_elements(page, true)},
      {"{{script}}", script()},
      {"{{packed}}", packed_elements(page, false)}};
  std::string html;
  std::string_view rest = kInspectorHtml;
  while (!rest.empty()) {
    const std::size_t open = rest.find("{{");
    html += rest.substr(0, open);
    if (open == std::string_view::npos) {
      break;
    }
    rest.remove_prefix(open);
    for (const auto& [place, text] : places) {
      if (rest.starts_with(place)) {
        html += text;
        rest.remove_prefix(place.size());
        break;
      }
    }
  }
  return html;
}

}  // namespace headroom::inspector
