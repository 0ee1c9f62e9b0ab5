#include "variation.h"

#include <algorithm>

#include "headroom/core/error.h"

namespace headroom::config {

namespace {

// Where a value ends: at the next comma outside brackets and quotes.
std::size_t value_end(std::string_view text, std::size_t at) {
  int depth = 0;
  char quote = 0;
  for (; at < text.size(); ++at) {
    const char c = text[at];
    if (quote != 0) {
      quote = c == quote ? 0 : quote;
    } else if (c == '"' || c == '\'') {
      quote = c;
    } else if (c == '[' || c == ']') {
      depth += c == '[' ? 1 : -1;
    } else if (c == ',' && depth <= 0) {
      break;
    }
  }
  return at;
}

}  // namespace

Variation parse_variation(std::string_view text, std::string_view option) {
  const std::size_t equals = text.find('=');
  Variation variation;
  if (equals != std::string_view::npos) {
    variation.key = text.substr(0, equals);
    for (std::size_t begin = equals + 1; begin <= text.size();) {
      const std::size_t end = value_end(text, begin);
      variation.values.emplace_back(text.substr(begin, end - begin));
      begin = end + 1;
    }
  }
  const bool empty = std::any_of(variation.values.begin(), variation.values.end(),
                                 [](const std::string& value) { return value.empty(); });
  if (variation.key.empty() || variation.values.empty() || empty) {
    user_error("{} {}: must be KEY=VALUE,VALUE,..., as in train.learning_rate=3e-4,1e-3", option, text);
  }
  return variation;
}

}  // namespace headroom::config
