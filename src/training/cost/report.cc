#include "report.h"

#include <algorithm>
#include <variant>

#include "cost.h"
#include "foundation/core/text/format.h"
#include "headroom/core/error.h"
#include "ranks.h"
#include "training/cost/papers/figures.h"

namespace headroom::cost {

namespace {

using Cells = std::vector<std::string>;

// Formats a count with thousands separators: 47,260,120.
std::string grouped(std::int64_t count) {
  std::string digits = fmt::format("{}", count);
  for (std::size_t i = digits.size(); i > 3; i -= 3) {
    digits.insert(i - 3, 1, ',');
  }
  return digits;
}

// Formats with three significant digits; small models need only a few MiB.
std::string gibibytes(std::int64_t bytes) {
  const double number = static_cast<double>(bytes) / (1 << 30);
  return fmt::format("{:.{}f}", number, number < 0.1 ? 3 : number < 10 ? 2 : number < 100 ? 1 : 0);
}

struct Costs {
  std::int64_t parameters = 0;
  PaperCost paper;
  ExecutedCost executed;
  std::int64_t cache = 0;
  StepMemory memory;
};

Costs costs_of(const config::Config& config) {
  return {.parameters = count_parameters(config.model),
          .paper = paper_cost(config.model),
          .executed = executed_cost(config.model, config.whole_sequences()),
          .cache = decoding_cache_elements(config.model),
          .memory = step_memory(config)};
}

}  // namespace

Json cost_json(std::string_view name, const config::Config& config) {
  const Costs costs = costs_of(config);
  return {{"name", name},
          {"parameters", costs.parameters},
          {"attention_macs", costs.paper.attention_macs},
          {"attention_memory", costs.paper.attention_memory},
          {"executed",
           {{"attention_macs", costs.executed.attention_macs},
            {"mlp_macs", costs.executed.mlp_macs},
            {"head_macs", costs.executed.head_macs},
            {"step_macs", costs.executed.step_macs},
            {"visible_macs", costs.executed.visible_macs}}},
          {"decoding_cache_numbers", costs.cache},
          {"step_memory",
           {{"parameters", costs.memory.parameters},
            {"gradients", costs.memory.gradients},
            {"moments", costs.memory.moments},
            {"activations", costs.memory.activations},
            {"total", costs.memory.total}}}};
}

std::string cost_table(const std::vector<NamedConfig>& configs) {
  std::vector<Cells> rows = {
      {"model", "parameters", "MACs", "floats", "attention", "MLP", "head", "step", "visible", "cache", "GiB"}};
  for (const auto& [name, config] : configs) {
    const Costs costs = costs_of(config);
    rows.push_back({name, grouped(costs.parameters), short_count(costs.paper.attention_macs),
                    short_count(costs.paper.attention_memory), short_count(costs.executed.attention_macs),
                    short_count(costs.executed.mlp_macs), short_count(costs.executed.head_macs),
                    short_count(costs.executed.step_macs), short_count(costs.executed.visible_macs),
                    short_count(costs.cache), gibibytes(costs.memory.total)});
  }
  return text_table(rows, {true}) +
         "\nMACs, floats: attention in the papers' accounting, per layer and sequence.\n"
         "attention, MLP, head: MACs of the whole model per sequence, forward;\n"
         "attention counts every pair of tokens, also those hidden by a mask or a\n"
         "window. step: a training step of train.batch_size sequences, or of as many\n"
         "as fit train.batch_tokens; visible: without the hidden pairs. cache:\n"
         "elements cached per sequence while decoding. GiB: the minimum memory of\n"
         "such a step: parameters, gradients, optimizer and activations.\n";
}

namespace {

RanksCost cost_of(const config::Config& config, std::int64_t ranks, const Devices& devices) {
  return devices.sharded ? sharded_cost(config, ranks) : ranks_cost(config, ranks);
}

}  // namespace

Json ranks_json(const config::Config& config, const Devices& devices) {
  Json list = Json::array();
  for (const std::int64_t n : devices.ranks) {
    const RanksCost cost = cost_of(config, n, devices);
    Json ranks = Json::array();
    for (const RankCost& one : cost.all) {
      ranks.push_back({{"numbers", one.elements},
                       {"memory",
                        {{"parameters", one.parameters},
                         {"gradients", one.gradients},
                         {"moments", one.moments},
                         {"running_sums", one.running_sums},
                         {"staging", one.staging},
                         {"activations", one.activations},
                         {"total", one.total}}},
                       {"sent", {{"gradients", one.gradients_sent}, {"parameters", one.parameters_sent}}},
                       {"received", {{"gradients", one.gradients_received}, {"parameters", one.parameters_received}}}});
    }
    list.push_back({{"processes", n},
                    {"sums", cost.accumulators},
                    {"rounds", cost.rounds},
                    {"imbalance", cost.imbalance()},
                    {"of_all_reduce", cost.of_all_reduce()},
                    {"hiding_bandwidth", cost.hiding_bandwidth(devices.macs_per_second)},
                    {"macs_per_second", devices.macs_per_second},
                    {"ranks", std::move(ranks)}});
  }
  return list;
}

namespace {

std::string gibibytes_or_dash(std::int64_t bytes) {
  return bytes == 0 ? "-" : gibibytes(bytes);
}

// Returns the maximum number of bytes that any rank sends or receives.
std::int64_t most_of(const RanksCost& cost, std::int64_t RankCost::*sent, std::int64_t RankCost::*received) {
  std::int64_t most = 0;
  for (const RankCost& one : cost.all) {
    most = std::max({most, one.*sent, one.*received});
  }
  return most;
}

}  // namespace

std::string ranks_table(const std::vector<NamedConfig>& configs, const Devices& devices) {
  std::vector<Cells> rows = {{"model", "N", "K", "share", "weights", "grads", "moments", "sums", "staging", "activ.",
                              "GiB", "gradients", "parameters", "x", "Gbit/s"}};
  for (const auto& [name, config] : configs) {
    for (const std::int64_t n : devices.ranks) {
      const RanksCost cost = cost_of(config, n, devices);
      const RankCost& one = cost.largest();
      rows.push_back({name, grouped(n), grouped(cost.accumulators), fmt::format("{:.2f}", cost.imbalance()),
                      gibibytes(one.parameters), gibibytes(one.gradients), gibibytes(one.moments),
                      gibibytes_or_dash(one.running_sums), gibibytes_or_dash(one.staging), gibibytes(one.activations),
                      gibibytes(one.total),
                      gibibytes_or_dash(most_of(cost, &RankCost::gradients_sent, &RankCost::gradients_received)),
                      gibibytes_or_dash(most_of(cost, &RankCost::parameters_sent, &RankCost::parameters_received)),
                      fmt::format("{:.2f}", cost.of_all_reduce()),
                      fmt::format("{:.1f}", cost.hiding_bandwidth(devices.macs_per_second) * 8e-9)});
    }
  }
  return text_table(rows, {true}) +
         fmt::format(
             "\nMemory in GiB, of the rank that needs the most. K: gradient accumulators per\n"
             "step. share: the largest rank's part of the optimizer's work divided by the\n"
             "mean. sums, staging: gradients reduced so far, and in transit. GiB: all of it\n"
             "and the program. gradients, parameters: the most GiB that a rank sends or\n"
             "receives per step; x: both divided by an unordered all-reduce of gradients.\n"
             "Gbit/s: the bandwidth, each way, at which sending gradients takes no longer than\n"
             "the backward passes, on devices of {:.3g} MACs per second.\n",
             devices.macs_per_second);
}

Json paper_json(std::string_view paper) {
  Json rows = Json::array();
  for (const PaperFigure& figure : paper_figures(paper)) {
    Json row = {{"row", figure.row},
                {"quantity", figure.quantity},
                {"printed", figure.printed},
                {"agrees", figure.agrees},
                {"derivable", figure.derivable}};
    std::visit([&row](auto computed) { row["computed"] = computed; }, figure.computed);
    if (!figure.reason.empty()) {
      row["reason"] = figure.reason;
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

namespace {

std::string computed_text(const PaperFigure& figure) {
  if (const double* const value = std::get_if<double>(&figure.computed)) {
    return figure.printed.ends_with('%') ? fmt::format("{:.3f}%", *value * 100) : fmt::format("{:.3f}", *value);
  }
  const std::int64_t number = std::get<std::int64_t>(figure.computed);
  return number == 0 && !figure.derivable ? "" : grouped(number);
}

// Returns each distinct remark on the figures, with the first row to which it applies.
std::string remarks(const std::vector<PaperFigure>& figures) {
  std::string text;
  std::vector<std::string> seen;
  for (const PaperFigure& figure : figures) {
    if (!figure.reason.empty() && std::ranges::find(seen, figure.reason) == seen.end()) {
      seen.push_back(figure.reason);
      const auto same = [&](const PaperFigure& other) { return other.reason == figure.reason; };
      const auto more = std::ranges::count_if(figures, same) - 1;
      text += fmt::format("{}, {}{}: {}{}\n", figure.row, figure.quantity,
                          more > 0 ? fmt::format(" and {} more", more) : "", figure.derivable ? "" : "not derivable, ",
                          figure.reason);
    }
  }
  return text.empty() ? "" : "\n" + text;
}

}  // namespace

std::string paper_table(std::string_view paper) {
  std::vector<Cells> rows = {{"model", "quantity", "printed", "computed", "agrees"}};
  const std::vector<PaperFigure> figures = paper_figures(paper);
  std::size_t agreeing = 0, derivable = 0;
  for (const PaperFigure& figure : figures) {
    const std::string quantity = figure.quantity == "attention_macs"     ? "MACs"
                                 : figure.quantity == "attention_memory" ? "floats"
                                                                         : figure.quantity;
    rows.push_back({figure.row, quantity, figure.printed, computed_text(figure),
                    !figure.derivable ? "not derivable" : (figure.agrees ? "yes" : "NO")});
    agreeing += figure.agrees ? 1 : 0;
    derivable += figure.derivable ? 1 : 0;
  }
  std::string text = text_table(rows, {true, true}) + remarks(figures);
  text += fmt::format("\n{} of {} derivable figures agree", agreeing, derivable);
  if (derivable < figures.size()) {
    text += fmt::format("; {} are not derivable", figures.size() - derivable);
  }
  return text + " (MACs and floats: attention, per layer and sequence).\n";
}

Json match_json(const MatchResult& result) {
  Json list = Json::array();
  for (const Candidate& candidate : result.candidates) {
    list.push_back({{"n_heads", candidate.n_heads},
                    {"n_experts", candidate.n_experts},
                    {"top_k", candidate.top_k},
                    {"d_head", candidate.d_head},
                    {"d_hidden", candidate.d_hidden},
                    {"parameters", candidate.parameters},
                    {"attention_macs", candidate.attention_macs}});
  }
  const bool by_macs = result.by == MatchBy::macs;
  return {{"config", config::to_toml(result.config)},
          {"by", by_macs ? "macs" : "parameters"},
          {"parameters", result.parameters},
          {"target", by_macs ? result.target_attention_macs : result.target_parameters},
          {"attention_macs", result.attention_macs},
          {"target_parameters", result.target_parameters},
          {"target_attention_macs", result.target_attention_macs},
          {"candidates", list}};
}

std::string match_summary(const MatchResult& result) {
  std::vector<Cells> rows = {{"", "parameters", "attention MACs"},
                             {"target", grouped(result.target_parameters), grouped(result.target_attention_macs)},
                             {"matched", grouped(result.parameters), grouped(result.attention_macs)}};
  std::string text = text_table(rows, {true});
  if (!result.candidates.empty()) {
    rows = {{"n_heads", "n_experts", "top_k", "d_head", "d_hidden", "parameters", "attention MACs"}};
    for (const Candidate& c : result.candidates) {
      rows.push_back({fmt::format("{}", c.n_heads), fmt::format("{}", c.n_experts), fmt::format("{}", c.top_k),
                      fmt::format("{}", c.d_head), fmt::format("{}", c.d_hidden), grouped(c.parameters),
                      grouped(c.attention_macs)});
    }
    text += "\nThe papers try these in order and take the first that reaches the target's perplexity:\n" +
            text_table(rows, {});
  }
  return text;
}

}  // namespace headroom::cost
