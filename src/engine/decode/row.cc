#include "row.h"

#include <algorithm>

namespace headroom::decode {
namespace {

constexpr std::string_view kIndex = ".index";

}  // namespace

bool RouteRecorder::wants(std::string_view name) const {
  return name.ends_with(kIndex);
}

at::Tensor RouteRecorder::observe(std::string_view name, at::Tensor value) {
  name.remove_suffix(kIndex.size());
  auto found = std::find_if(indices_.begin(), indices_.end(), [&](const auto& entry) { return entry.first == name; });
  if (found == indices_.end()) {
    found = indices_.insert(found, {std::string(name), {}});
  }
  found->second.push_back(value);
  return value;
}

std::vector<std::vector<TokenRoute>> RouteRecorder::of_last(std::int64_t n) const {
  std::vector<std::vector<TokenRoute>> tokens(static_cast<std::size_t>(n));
  for (const auto& [name, chunks] : indices_) {
    const at::Tensor all = at::cat(chunks), last = all.narrow(0, all.size(0) - n, n).cpu().contiguous();
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
