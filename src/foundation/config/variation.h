// A key that takes several values, one after the other: what models are swept, tuned and drawn over.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace headroom::config {

// A dotted key and values for it, as in a config: "train.learning_rate" and {"3e-4", "1e-3"}.
struct Variation {
  std::string key;
  std::vector<std::string> values;
};

// "train.learning_rate=3e-4,1e-3"; commas within brackets and quotes are part of a value. `option` names it in
// messages. Throws UserError where a key or a value is missing.
Variation parse_variation(std::string_view text, std::string_view option);

}  // namespace headroom::config
