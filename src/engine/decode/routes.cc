#include "routes.h"

#include <algorithm>

namespace headroom::decode {
namespace {

constexpr std::string_view kChoice = ".index";

}  // namespace

bool RouteRecorder::wants(std::string_view name) const {
  return name.ends_with(kChoice);
}

at::Tensor RouteRecorder::observe(std::string_view name, at::Tensor value) {
  name.remove_suffix(kChoice.size());
  auto known = std::find_if(choices_.begin(), choices_.end(), [&](const auto& choice) { return choice.first == name; });
  if (known == choices_.end()) {
    known = choices_.insert(known, {std::string(name), {}});
  }
  known->second.push_back(value);
  return value;
}

std::vector<std::vector<TokenRoute>> RouteRecorder::of_last(std::int64_t n) const {
  std::vector<std::vector<TokenRoute>> tokens(static_cast<std::size_t>(n));
  for (const auto& [name, pieces] : choices_) {
    const at::Tensor all = at::cat(pieces), last = all.narrow(0, all.size(0) - n, n).cpu().contiguous();
    const std::int64_t heads = last.size(1), each = heads * last.size(2);
    const std::int64_t* from = last.const_data_ptr<std::int64_t>();
    for (std::vector<TokenRoute>& routes : tokens) {
      routes.push_back({.name = name, .n_heads = heads, .experts = {from, from + each}});
      from += each;
    }
  }
  return tokens;
}

}  // namespace headroom::decode
