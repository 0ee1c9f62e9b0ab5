// Measures time and memory of one attention layer, forward and backward, over the number of tokens, heads and experts.
#include <fmt/format.h>

#include "foundation/core/machine/system.h"
#include "foundation/draw/charts.h"
#include "headroom/config/attention/routing_options.h"
#include "headroom/core/files.h"
#include "timing.h"
#include "workload.h"

namespace headroom::bench {
namespace {

constexpr std::int64_t kModel = 512;
constexpr double kMebibyte = 1048576.0;

struct Variant {
  std::string name;
  config::AttentionOptions attention;
  Implementation implementation = Implementation::automatic;
  std::int64_t most = 8192;  // largest measured number of tokens
};

struct LayerCost {
  double seconds, mebibytes;
};

config::AttentionOptions dense(std::int64_t heads) {
  config::AttentionOptions o;
  o.n_heads = heads;
  o.d_head = kModel / heads;
  o.position = "rope";
  return o;
}

config::AttentionOptions switchhead(std::int64_t experts) {
  config::AttentionOptions o = dense(2);
  o.d_head = 96;
  o.projection = "experts";
  o.of<config::RoutingOptions>().n_experts = experts;
  o.of<config::RoutingOptions>().top_k = 2;
  return o;
}

LayerCost measure(const Variant& variant, std::int64_t tokens, const BenchOptions& options) {
  const at::Device device(options.device);
  const Work work = layer_training(variant.attention, {1, tokens, kModel}, options, variant.implementation);
  work();
  reset_peak_memory();
  const std::int64_t before = resident_memory_bytes();
  std::vector<double> seconds;
  for (std::int64_t i = 0; i < options.repeats; ++i) {
    seconds.push_back(seconds_of(work, device));
  }
  return {median(std::move(seconds)), static_cast<double>(peak_memory_bytes() - before) / kMebibyte};
}

struct Series {
  std::string name;
  std::vector<draw::Point> time, memory;
};

// Measures variant_at(x) with tokens_at(x) tokens for each x.
template <class VariantAt, class TokensAt>
Series grow(const std::string& name, const std::vector<double>& xs, const VariantAt& variant_at,
            const TokensAt& tokens_at, const std::string& unit, const BenchOptions& options, std::vector<Row>& rows) {
  Series series{.name = name, .time = {}, .memory = {}};
  for (const double x : xs) {
    const Variant variant = variant_at(static_cast<std::int64_t>(x));
    const std::int64_t tokens = tokens_at(static_cast<std::int64_t>(x));
    if (tokens > variant.most) {
      continue;
    }
    const LayerCost m = measure(variant, tokens, options);
    rows.push_back({.name = fmt::format("{}: {} {}", name, x, unit), .seconds = m.seconds, .peak_memory_bytes = {}});
    if (at::Device(options.device).is_cpu()) {
      rows.back().peak_memory_bytes = static_cast<std::int64_t>(m.mebibytes * kMebibyte);
    }
    series.time.push_back({x, m.seconds * 1e3});
    series.memory.push_back({x, std::max(m.mebibytes, 0.1)});
  }
  rows.push_back({.name = fmt::format("{}: time ~ {}^{:.2f}, memory ~ {}^{:.2f}", name, unit,
                                      growth_exponent(series.time, 3), unit, growth_exponent(series.memory, 3)),
                  .seconds = series.time.back().y * 1e-3});
  return series;
}

draw::LineChart chart_of(std::string title, const std::string& x_label) {
  return {.title = std::move(title), .x_label = x_label, .lines = {}, .logarithmic_x = true, .name_room = 20};
}

void plot(const std::string& path, const std::string& x_label, const std::vector<Series>& all) {
  draw::LineChart time = chart_of("Time, forward and backward, ms", x_label),
                  memory = chart_of("Peak memory, MiB", x_label);
  for (std::size_t i = 0; i < all.size(); ++i) {
    time.lines.push_back({.name = all[i].name, .points = all[i].time, .style = i});
    memory.lines.push_back({.name = all[i].name, .points = all[i].memory, .style = i});
  }
  write_text_file(path, draw::standalone({time, memory}));
}

std::vector<Series> by_tokens(const BenchOptions& options, std::vector<Row>& rows) {
  config::AttentionOptions composed = dense(8), linear = dense(8);
  composed.composition = "dynamic";
  linear.score = "linear";
  const std::vector<Variant> variants = {{"dense H8, reference", dense(8), Implementation::reference, 4096},
                                         {"dense H8", dense(8)},
                                         {"SwitchHead H2 E4", switchhead(4)},
                                         {"composed H8", composed},
                                         {"linear H8", linear}};
  std::vector<Series> all;
  for (const Variant& variant : variants) {
    all.push_back(grow(
        variant.name, {256, 512, 1024, 2048, 4096, 8192}, [&](std::int64_t) { return variant; },
        [](std::int64_t t) { return t; }, "T", options, rows));
  }
  return all;
}

}  // namespace

std::vector<Row> scaling(const BenchOptions& options) {
  BenchOptions few = options;
  few.repeats = std::min<std::int64_t>(options.repeats, 5);
  few.precision = "fp32";
  const auto fixed = [](std::int64_t) { return std::int64_t{2048}; };
  std::vector<Row> rows;
  const std::vector<Series> tokens = by_tokens(few, rows);
  const std::vector<Series> heads = {grow(
      "dense, d_head 512/H", {1, 2, 4, 8, 16, 32},
      [](std::int64_t h) {
        return Variant{"", dense(h)};
      },
      fixed, "H", few, rows)};
  const std::vector<Series> experts = {grow(
      "SwitchHead H2, top 2", {2, 4, 8, 16, 32},
      [](std::int64_t e) {
        return Variant{"", switchhead(e)};
      },
      fixed, "E", few, rows)};
  if (!options.plots.empty()) {
    make_folder(options.plots);
    plot(options.plots + "/scaling_tokens.svg", "tokens T", tokens);
    plot(options.plots + "/scaling_heads.svg", "heads H (T = 2048)", heads);
    plot(options.plots + "/scaling_experts.svg", "experts E (T = 2048)", experts);
  }
  return rows;
}

}  // namespace headroom::bench
