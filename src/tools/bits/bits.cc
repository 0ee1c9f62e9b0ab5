#include "bits.h"

#include <fmt/format.h>

#include <algorithm>

namespace headroom::bits {

bool all_equal(const std::vector<Check>& checks) {
  return std::ranges::all_of(checks, [](const Check& check) { return check.equal; });
}

std::string render_table(const std::vector<Check>& checks) {
  std::size_t name = 0, compared = 0;
  for (const Check& check : checks) {
    name = std::max(name, check.name.size());
    compared = std::max(compared, check.compared.size());
  }
  std::string text;
  for (const Check& check : checks) {
    text += fmt::format("{:<{}}  {:<{}}  {}\n", check.name, name, check.compared, compared,
                        check.equal ? "equal" : "DIFFERENT: " + check.different);
  }
  return text;
}

Json to_json(const std::vector<Check>& checks) {
  Json all = Json::array();
  for (const Check& check : checks) {
    all.push_back({{"name", check.name},
                   {"compared", check.compared},
                   {"equal", check.equal},
                   {"different", check.different.empty() ? Json() : Json(check.different)}});
  }
  return all;
}

}  // namespace headroom::bits
