#include <algorithm>
#include <functional>
#include <iterator>
#include <limits>

#include "foundation/core/text/format.h"
#include "headroom/core/error.h"
#include "heads.h"

namespace headroom::convert {

std::vector<Limit> parse_budget(const std::string& text) {
  std::vector<Limit> limits;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string part = text.substr(begin, end - begin), key = part.substr(0, part.find('='));
    begin = end + 1;
    if (std::ranges::find(kBudgetKeys, key) == std::end(kBudgetKeys)) {
      user_error("convert: --budget: must be macs, kv_cache, step_time or loss with a value, such as macs=0.5, got {}",
                 text);
    }
    const auto value = as_number(std::string_view(part).substr(std::min(part.size(), key.size() + 1)));
    if (!value || !(*value > 0.0 && *value <= 1.0)) {
      user_error("convert: --budget: {} must be above 0 and at most 1, got {}", key, part);
    }
    if (std::ranges::any_of(limits, [&](const Limit& other) { return other.key == key; })) {
      user_error("convert: --budget: {} is given twice", key);
    }
    limits.push_back({key, *value});
  }
  return limits;
}

namespace {

// A choice for the first layers, with the sums of its values.
struct Partial {
  std::vector<double> values;
  bool gives_keys = false;
  std::size_t before = 0;  // the choice for the layers before
  std::size_t option = 0;
};

// Removes choices for which another choice is equal or better in every value.
std::vector<Partial> best_alike(std::vector<Partial> all) {
  std::ranges::stable_sort(all, [](const Partial& a, const Partial& b) { return a.values < b.values; });
  std::vector<Partial> best;
  for (Partial& next : all) {
    // With two values, the second falls while the first rises, so only the newest choice can be better.
    const std::ptrdiff_t compared =
        next.values.size() == 2 ? std::min<std::ptrdiff_t>(1, std::ssize(best)) : std::ssize(best);
    const bool beaten = std::any_of(best.rbegin(), best.rbegin() + compared, [&](const Partial& other) {
      return std::ranges::equal(other.values, next.values, std::less_equal<>());
    });
    if (!beaten) {
      best.push_back(std::move(next));
    }
  }
  return best;
}

// Choices that give keys to the next layer cannot be replaced by choices that do not, and the reverse.
std::vector<Partial> best_of(std::vector<Partial> all) {
  const auto others = std::ranges::stable_partition(all, &Partial::gives_keys);
  std::vector<Partial> best =
      best_alike({std::make_move_iterator(others.begin()), std::make_move_iterator(others.end())});
  all.erase(others.begin(), others.end());
  std::ranges::move(best_alike(std::move(all)), std::back_inserter(best));
  return best;
}

}  // namespace

std::optional<std::vector<std::size_t>> allocate(const std::vector<LayerOptions>& options,
                                                 const std::vector<double>& limits, std::size_t minimise) {
  const std::size_t n = limits.size();
  // For each layer, the least possible sums of the following layers, for which every choice must leave room.
  std::vector<std::vector<double>> rest(options.size() + 1, std::vector<double>(n, 0.0));
  for (std::size_t layer = options.size(); layer-- > 0;) {
    for (std::size_t i = 0; i < n; ++i) {
      double least = std::numeric_limits<double>::infinity();
      for (const LayerOption& option : options[layer]) {
        least = std::min(least, option.values[i]);
      }
      rest[layer][i] = rest[layer + 1][i] + least;
    }
  }
  std::vector<std::vector<Partial>> best = {{{.values = std::vector<double>(n, 0.0)}}};
  for (std::size_t layer = 0; layer < options.size(); ++layer) {
    std::vector<Partial> next;
    for (std::size_t before = 0; before < best.back().size(); ++before) {
      for (std::size_t option = 0; option < options[layer].size(); ++option) {
        const LayerOption& own = options[layer][option];
        std::vector<double> sum = best.back()[before].values;
        bool fits = best.back()[before].gives_keys || !own.takes_keys;
        for (std::size_t i = 0; i < n; ++i) {
          sum[i] += own.values[i];
          fits = fits && sum[i] + rest[layer + 1][i] <= limits[i];
        }
        if (fits) {
          next.push_back({.values = std::move(sum), .gives_keys = own.gives_keys, .before = before, .option = option});
        }
      }
    }
    best.push_back(best_of(std::move(next)));
  }
  if (best.back().empty()) {
    return std::nullopt;
  }
  const auto least = std::ranges::min_element(
      best.back(), [&](const Partial& a, const Partial& b) { return a.values[minimise] < b.values[minimise]; });
  std::size_t at = static_cast<std::size_t>(least - best.back().begin());
  std::vector<std::size_t> chosen(options.size());
  for (std::size_t layer = options.size(); layer-- > 0;) {
    chosen[layer] = best[layer + 1][at].option;
    at = best[layer + 1][at].before;
  }
  return chosen;
}

}  // namespace headroom::convert
