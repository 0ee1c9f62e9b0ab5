// Attention with composed heads and with mixtures of keys, each against the reference and against plain attention.
#include <ATen/ATen.h>
#include <fmt/format.h>

#include "engine/ops/attention/cases.h"
#include "engine/ops/linear_attention/cases.h"
#include "operator_work.h"
#include "timing.h"

namespace headroom::bench {
namespace {

std::string name_of(std::int64_t b, std::int64_t h, std::int64_t t, std::int64_t e) {
  return fmt::format("B{} H{} T{} e{}", b, h, t, e);
}

Work fused_attention(const ops::AttentionCase& z, const BenchOptions& options) {
  return fused_forward_backward(z.problem(setting_of(options)));
}

Row row(const std::string& name, double seconds, double reference) {
  Row made{.name = name, .seconds = seconds};
  if (!made.none_here()) {
    made.ratio_to_reference = reference / seconds;
  }
  return made;
}

}  // namespace

std::vector<Row> composition(const BenchOptions& options) {
  std::vector<Row> rows;
  for (const ops::AttentionCase& z : ops::attention_cases(ops::Role::timed)) {
    if (!z.composed) {
      continue;
    }
    ops::AttentionCase plain = z;
    plain.composed.reset();
    const ops::Problem composed = z.problem(setting_of(options));
    const std::vector<double> times =
        medians_in_turn({forward_backward(composed, Implementation::reference), fused_forward_backward(composed),
                         fused_attention(plain, options)},
                        options);
    const std::string name = name_of(z.b, z.h, z.t, z.e);
    rows.push_back(row(name + ": reference", times[0], times[0]));
    rows.push_back(row(name + ": fused", times[1], times[0]));
    rows.push_back(row(name + ": fused, not composed", times[2], times[0]));
  }
  return rows;
}

// Two keys at each position with half of the heads, and plain attention with all.
std::vector<Row> mixture(const BenchOptions& options) {
  std::vector<Row> rows;
  for (const ops::AttentionCase& half : ops::attention_cases(ops::Role::timed)) {
    if (!half.mixture) {
      continue;
    }
    ops::AttentionCase shifted_keys = half, all = half;
    shifted_keys.mixture->keys = ops::MixtureCase::shifted;
    all.mixture.reset();
    all.h = all.g = 2 * half.h;
    const ops::Problem own = half.problem(setting_of(options)), shifted = shifted_keys.problem(setting_of(options));
    const std::vector<double> times =
        medians_in_turn({forward_backward(own, Implementation::reference), fused_forward_backward(own),
                         forward_backward(shifted, Implementation::reference), fused_forward_backward(shifted),
                         fused_attention(all, options)},
                        options);
    const std::string name = name_of(half.b, half.h, half.t, half.e);
    rows.push_back(row(name + " own keys: reference", times[0], times[0]));
    rows.push_back(row(name + " own keys: fused", times[1], times[0]));
    rows.push_back(row(name + " shifted keys: reference", times[2], times[2]));
    rows.push_back(row(name + " shifted keys: fused", times[3], times[2]));
    rows.push_back(row(name_of(all.b, all.h, all.t, all.e) + " one key: fused", times[4], times[0]));
  }
  return rows;
}

std::vector<Row> linear_attention(const BenchOptions& options) {
  std::vector<Row> rows;
  for (const ops::LinearAttentionCase& z : ops::linear_attention_cases(ops::Role::timed)) {
    const ops::Problem linear = z.problem(setting_of(options));
    const ops::AttentionCase softmax{z.b, z.h, z.g, z.t, z.s, z.e};
    const std::vector<double> times =
        medians_in_turn({forward_backward(linear, Implementation::reference), fused_forward_backward(linear),
                         fused_attention(softmax, options)},
                        options);
    const std::string name = name_of(z.b, z.h, z.t, z.e);
    rows.push_back(row(name + ": reference", times[0], times[0]));
    rows.push_back(row(name + ": fused", times[1], times[0]));
    rows.push_back(row(name + ": softmax attention, fused", times[2], times[0]));
  }
  return rows;
}

}  // namespace headroom::bench
