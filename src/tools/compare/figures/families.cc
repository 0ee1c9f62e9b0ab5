// Families of models: how they are named, and which of them a line can be fitted to.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "headroom/core/error.h"
#include "scaling.h"
#include "training/cost/cost.h"

namespace headroom::compare {
namespace {

struct NamedFamily {
  std::string name;
  std::vector<std::string> configs;
};

// "dense=a.toml,b.toml".
NamedFamily parse_family(const std::string& text) {
  const std::size_t equals = text.find('=');
  NamedFamily family{.name = text.substr(0, equals), .configs = {}};
  for (std::size_t begin = equals; begin < text.size();) {  // at "=" or a comma
    const std::size_t end = std::min(text.find(',', begin + 1), text.size());
    family.configs.push_back(text.substr(begin + 1, end - begin - 1));
    begin = end;
  }
  const bool empty = std::any_of(family.configs.begin(), family.configs.end(),
                                 [](const std::string& config) { return config.empty(); });
  if (family.name.empty() || family.configs.empty() || empty) {
    user_error("compare: --family {}: must be NAME=CONFIG,CONFIG,..., as in dense=small.toml,large.toml", text);
  }
  return family;
}

}  // namespace

std::vector<NamedConfig> load_families(const std::vector<std::string>& families,
                                       const std::vector<std::string>& overrides) {
  std::vector<std::string> paths, names;
  for (const std::string& text : families) {
    const NamedFamily family = parse_family(text);
    if (std::find(names.begin(), names.end(), family.name) != names.end()) {
      user_error("compare: --family {}: is named twice: give it all its configs at once", family.name);
    }
    paths.insert(paths.end(), family.configs.begin(), family.configs.end());
    names.resize(paths.size(), family.name);
  }
  std::vector<NamedConfig> configs = load_configs(paths, overrides);
  for (std::size_t i = 0; i < configs.size(); ++i) {
    configs[i].family = names[i];
  }
  return configs;
}

void check_families(const std::vector<NamedConfig>& configs) {
  std::vector<std::pair<std::string, std::set<double>>> families;  // with the different amounts of compute
  for (const NamedConfig& named : configs) {
    if (named.family.empty()) {
      continue;
    }
    const std::optional<double> flops = cost::training_flops(named.config);
    if (!flops) {
      user_error(
          "compare: --family {}: {} reads sentences of different lengths, whose compute is not counted: there is "
          "nothing to fit its loss against",
          named.family, named.name);
    }
    auto family =
        std::find_if(families.begin(), families.end(), [&](const auto& known) { return known.first == named.family; });
    if (family == families.end()) {
      family = families.insert(families.end(), {named.family, {}});
    }
    family->second.insert(*flops);
  }
  if (families.size() == 1) {
    user_error("compare: --family {}: needs another family to be compared with", families.front().first);
  }
  for (const auto& [name, amounts] : families) {
    if (amounts.size() < 2) {
      user_error("compare: --family {}: a line needs models of at least two amounts of training compute, got {}", name,
                 amounts.size());
    }
  }
}

}  // namespace headroom::compare
