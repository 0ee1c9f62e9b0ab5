// The papers' own cost tables, row by row, beside what this library computes for the same model.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/config/model_options.h"

namespace headroom::cost {

// One printed figure.
struct PaperFigure {
  std::string row;       // the model as the paper calls it
  std::string quantity;  // "attention_macs" or "attention_memory": paper_cost(), per layer and sequence
  std::string printed;   // "453.4M"
  std::int64_t computed = 0;
  bool agrees = false;  // `computed`, rounded to the printed digits, is `printed`
};

// The tables of `paper`: "switchhead" (SwitchHead draft, Tables 2, 3, 5; the same figures in SwitchHead). The models
// are the shipped recipes. Throws MisuseError for the papers whose tables are not there yet ("moa", "dcmha", "mgk"),
// for other names, and when a recipe is missing.
std::vector<PaperFigure> paper_figures(std::string_view paper);

// Whether `computed` rounds to `printed`: digits with or without a decimal point, then nothing, K, M, G or T.
// Throws MisuseError when `printed` is no such figure.
bool rounds_to(std::int64_t computed, std::string_view printed);

// "512", "47.3K", "170.4M", "5.4G": one decimal from a thousand on, halves rounded up.
std::string short_count(std::int64_t count);

}  // namespace headroom::cost
