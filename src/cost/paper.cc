#include "headroom/cost/paper.h"

#include <algorithm>

#include "headroom/config/config.h"
#include "headroom/core/error.h"
#include "headroom/cost/cost.h"

namespace headroom::cost {

namespace {

struct Row {
  const char* name;
  const char* recipe;
  const char* macs;
  const char* memory;
  const char* change = nullptr;  // an override that the recipe needs to be the printed row
};

// SwitchHead draft, Tables 2, 3 and 5.
constexpr Row kSwitchHead[] = {
    {"Transformer-XL 47M H=10", "switchhead/wt103_47m_dense_h10", "453.4M", "3.5M"},
    {"Transformer-XL 47M H=2", "switchhead/wt103_47m_dense_h2", "453.4M", "1.4M"},
    {"SwitchHead 47M H=2 k=2", "switchhead/wt103_47m", "170.4M", "0.8M"},
    {"SwitchHead 47M H=2 k=3", "switchhead/c4_47m", "202.5M", "0.8M"},
    {"MoA 47M n=2", "switchhead/wt103_47m_moa_h2", "140.1M", "0.7M"},
    {"MoA 47M n=4", "switchhead/wt103_47m_moa_h4", "223.5M", "1.3M"},
    {"MoA 47M n=6", "switchhead/wt103_47m_moa_h6", "306.8M", "1.9M"},
    {"MoA 47M n=8", "switchhead/wt103_47m_moa_h8", "390.2M", "2.6M"},
    {"Transformer-XL 262M H=16", "switchhead/wt103_262m_dense_h16", "5.4G", "21.0M"},
    {"Transformer-XL 262M H=2", "switchhead/wt103_262m_dense_h2", "5.4G", "6.3M"},
    {"SwitchHead 262M H=2 E=8 k=4", "switchhead/wt103_262m", "2.0G", "2.9M"},
    {"SwitchHead 262M H=4 E=4 k=2", "switchhead/c4_262m", "2.4G", "5.6M"},
    {"MoA 262M n=2", "switchhead/wt103_262m_moa_h2", "1.1G", "2.7M"},
    {"MoA 262M n=4", "switchhead/wt103_262m_moa_h4", "1.7G", "5.1M"},
    {"MoA 262M n=8", "switchhead/wt103_262m_moa_h8", "2.9G", "9.9M"},
    {"MoA 262M n=12", "switchhead/wt103_262m_moa_h12", "4.1G", "14.7M"},
    {"Transformer-XL Enwik8 41M H=8", "switchhead/enwik8_41m_dense_h8", "1.6G", "10.5M"},
    {"Transformer-XL Enwik8 41M H=2", "switchhead/enwik8_41m_dense_h2", "1.6G", "4.2M"},
    {"SwitchHead Enwik8 41M H=2", "switchhead/enwik8_41m", "709.3M", "2.8M"},
    {"Transformer RoPE 45M H=10", "switchhead/wt103_45m_rope_dense_h10", "560.9M", "6.1M"},
    {"Transformer RoPE 45M H=2", "switchhead/wt103_45m_rope_dense_h2", "560.9M", "1.9M"},
    {"SwitchHead RoPE 45M H=2", "switchhead/wt103_45m_rope", "285.6M", "1.3M"},
    {"Transformer RoPE 244M H=16", "switchhead/wt103_244m_rope_dense_h16", "6.4G", "37.7M"},
    {"Transformer RoPE 244M H=2", "switchhead/wt103_244m_rope_dense_h2", "6.4G", "8.4M"},
    // RoPE models have no memory (C = 1), yet this one row was printed with C = 2.
    {"SwitchHead RoPE 243M H=4 (C=2)", "switchhead/wt103_243m_rope", "4.2G", "18.4M", "model.memory_length=1024"},
};

struct Unit {
  char letter;
  std::int64_t size;
};
constexpr Unit kUnits[] = {{'K', 1'000}, {'M', 1'000'000}, {'G', 1'000'000'000}, {'T', 1'000'000'000'000}};

// `count` in units of `unit` with so many decimals (at most 6), halves rounded up. Not for negative numbers.
std::string in_unit(std::int64_t count, std::int64_t unit, int decimals) {
  std::int64_t parts = 1;
  for (int i = 0; i < decimals; ++i) {
    parts *= 10;
  }
  const std::int64_t whole = count / unit;
  const std::int64_t fraction = (count % unit * parts + unit / 2) / unit;
  const std::int64_t carried = whole + fraction / parts;
  return decimals == 0 ? fmt::format("{}", carried) : fmt::format("{}.{:0{}}", carried, fraction % parts, decimals);
}

}  // namespace

bool rounds_to(std::int64_t computed, std::string_view printed) {
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
    misuse("cost: \"{}\" is no printed figure: expected digits and perhaps K, M, G or T, as in 453.4M", printed);
  }
  return in_unit(computed, unit, static_cast<int>(decimals.size())) == digits;
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
  if (paper == "moa" || paper == "dcmha" || paper == "mgk") {
    misuse("cost: --paper {}: the tables of this paper are not there yet, only those of switchhead", paper);
  }
  if (paper != "switchhead") {
    misuse("cost: --paper {}: unknown paper, expected switchhead, moa, dcmha or mgk", paper);
  }
  std::vector<PaperFigure> figures;
  for (const Row& row : kSwitchHead) {
    std::vector<std::string> changes;
    if (row.change != nullptr) {
      changes.emplace_back(row.change);
    }
    const PaperCost cost = paper_cost(config::load_config(row.recipe, changes).model);
    const auto add = [&](const char* quantity, const char* printed, std::int64_t computed) {
      figures.push_back({.row = row.name,
                         .quantity = quantity,
                         .printed = printed,
                         .computed = computed,
                         .agrees = rounds_to(computed, printed)});
    };
    add("attention_macs", row.macs, cost.attention_macs);
    add("attention_memory", row.memory, cost.attention_memory);
  }
  return figures;
}

}  // namespace headroom::cost
