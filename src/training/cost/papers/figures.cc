#include "figures.h"

#include <algorithm>

#include "headroom/config/config.h"
#include "headroom/core/error.h"
#include "training/cost/count.h"

namespace headroom::cost {

namespace {

struct Unit {
  char letter;
  std::int64_t size;
};
constexpr Unit kUnits[] = {{'K', 1'000}, {'M', 1'000'000}, {'G', 1'000'000'000}, {'T', 1'000'000'000'000}};

// Formats `count` >= 0 in units of `unit`, with at most 6 decimals. Halves round up, or extra digits are truncated.
std::string in_unit(std::int64_t count, std::int64_t unit, int decimals, Digits digits = Digits::nearest) {
  std::int64_t parts = 1;
  for (int i = 0; i < decimals; ++i) {
    parts *= 10;
  }
  const std::int64_t whole = count / unit;
  const std::int64_t fraction = (count % unit * parts + (digits == Digits::nearest ? unit / 2 : 0)) / unit;
  const std::int64_t carried = whole + fraction / parts;
  return decimals == 0 ? fmt::format("{}", carried) : fmt::format("{}.{:0{}}", carried, fraction % parts, decimals);
}

}  // namespace

bool rounds_to(std::int64_t computed, std::string_view printed, Digits rule) {
  std::string_view digits = printed;
  std::int64_t unit = 1;
  for (const Unit& candidate : kUnits) {
    if (!digits.empty() && digits.back() == candidate.letter) {
      unit = candidate.size;
      digits.remove_suffix(1);
      break;
    }
  }
  const std::size_t point = std::min(digits.find('.'), digits.size());
  const std::string_view whole = digits.substr(0, point);
  const std::string_view decimals = point < digits.size() ? digits.substr(point + 1) : std::string_view();
  const auto is_number = [](std::string_view text) {
    return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
  };
  const bool sound = is_number(whole) && (point == digits.size() || is_number(decimals)) && decimals.size() <= 6;
  if (!sound) {
    user_error("cost: \"{}\" is no printed figure: expected digits and perhaps K, M, G or T, as in 453.4M", printed);
  }
  return in_unit(computed, unit, static_cast<int>(decimals.size()), rule) == digits;
}

bool ratio_rounds_to(double ratio, std::string_view printed) {
  const bool percent = printed.ends_with('%');
  const std::string_view digits = printed.substr(0, printed.size() - (percent ? 1 : 0));
  const std::size_t point = digits.find('.');
  const int decimals = point == std::string_view::npos ? 0 : static_cast<int>(digits.size() - point - 1);
  return fmt::format("{:.{}f}", ratio * (percent ? 100 : 1), decimals) == digits;
}

std::string short_count(std::int64_t count) {
  const Unit* chosen = nullptr;
  for (const Unit& unit : kUnits) {
    // 999,950 is 1.0M, not 1000.0K.
    if (count >= unit.size - (chosen != nullptr ? chosen->size / 20 : 0)) {
      chosen = &unit;
    }
  }
  return chosen == nullptr ? fmt::format("{}", count) : in_unit(count, chosen->size, 1) + chosen->letter;
}

std::vector<PaperFigure> paper_figures(std::string_view paper) {
  constexpr std::pair<std::string_view, detail::Figures (*)()> kPapers[] = {{"switchhead", detail::switchhead_figures},
                                                                            {"moa", detail::moa_figures},
                                                                            {"dcmha", detail::dcmha_figures},
                                                                            {"mgk", detail::mgk_figures}};
  for (const auto& [name, figures] : kPapers) {
    if (name == paper) {
      return figures();
    }
  }
  user_error("cost: --paper {}: unknown paper, expected switchhead, moa, dcmha or mgk", paper);
}

namespace detail {

config::ModelOptions model_of(const std::string& recipe, const std::vector<std::string>& changes) {
  return config::load_config(recipe, changes).model;
}

Exact attention_parameters(const config::ModelOptions& model) {
  const std::unique_ptr<models::Model> built = on_meta_device(model);
  Exact n = 0;
  for (const nn::Parameter& parameter : built->parameters().all()) {
    const std::string_view name = parameter.name;
    n += name.starts_with("layer0.attention.") || name.starts_with("encoder.layer0.attention.")
             ? parameter.tensor.numel()
             : 0;
  }
  return n;
}

PaperFigure count(std::string row, std::string quantity, std::string printed, Exact computed, Digits digits) {
  const bool agrees = rounds_to(computed.value(), printed, digits);
  return {.row = std::move(row),
          .quantity = std::move(quantity),
          .printed = std::move(printed),
          .computed = computed.value(),
          .agrees = agrees,
          .reason = {}};
}

PaperFigure ratio(std::string row, std::string quantity, std::string printed, double computed) {
  const bool agrees = ratio_rounds_to(computed, printed);
  return {.row = std::move(row),
          .quantity = std::move(quantity),
          .printed = std::move(printed),
          .computed = computed,
          .agrees = agrees,
          .reason = {}};
}

PaperFigure underivable(std::string row, std::string quantity, std::string printed, std::string reason, Exact ours) {
  return {.row = std::move(row),
          .quantity = std::move(quantity),
          .printed = std::move(printed),
          .computed = ours.value(),
          .derivable = false,
          .reason = std::move(reason)};
}

PaperFigure because(PaperFigure figure, std::string reason) {
  figure.reason = std::move(reason);
  return figure;
}

}  // namespace detail
}  // namespace headroom::cost
