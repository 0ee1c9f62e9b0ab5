// Position tables, and the position schemes that add no term to the scores: none, position vectors added to the
// embeddings (learned, sinusoidal), and rotary (RoPE; Su et al. 2021).
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <string>
#include <tuple>

#include "engine/ops/one_pass.h"
#include "engine/ops/shapes.h"
#include "headroom/config/attention_part.h"
#include "headroom/config/part_options.h"
#include "headroom/core/error.h"
#include "headroom/nn/attention_parts.h"
#include "position_table.h"

namespace headroom::nn {
namespace {

struct CachedTable {
  std::int64_t first = 0, end = 0;
  at::Tensor rows;
};

// Extends the range of `table` to [first, end). At least doubles it, so that a growing sequence rarely extends it.
CachedTable extended(const CachedTable& table, std::int64_t first, std::int64_t end) {
  if (!table.rows.defined()) {
    return {first, end, {}};
  }
  const std::int64_t n = table.end - table.first;
  return {first < table.first ? std::min(first, table.first - n) : table.first,
          end > table.end ? std::max(end, table.end + n) : table.end,
          {}};
}

}  // namespace

at::Tensor angles(const c10::SymInt& first, const c10::SymInt& n, std::int64_t count, std::int64_t width, double base) {
  const at::TensorOptions wide(at::kDouble);
  const at::Tensor frequency =
      at::pow(at::full({}, base, wide), at::arange(count, wide) * (-2.0 / static_cast<double>(width)));
  return at::arange(at::Scalar(first), at::Scalar(first + n), wide).unsqueeze(1) * frequency;
}

at::Tensor rows_of(const PositionTable& table, const c10::SymInt& first, const c10::SymInt& n,
                   const at::TensorOptions& options, bool traced) {
  if (options.device().is_meta()) {
    return table.make(first, 1, table).to(options).expand_symint({-1, n, -1});  // only the shape matters
  }
  if (traced) {
    return table.make(first, n, table).to(options);
  }
  const std::int64_t begin = first.expect_int(), end = begin + n.expect_int();
  using Key =
      std::tuple<decltype(table.make), std::int64_t, double, config::RopeScalingOptions, at::ScalarType, std::string>;
  static std::mutex mutex;
  static auto& tables = *new std::map<Key, CachedTable>;  // never destroyed: its tensors must not outlive torch
  const std::lock_guard lock(mutex);
  CachedTable& cached = tables[{table.make, table.width, table.base, table.scaling,
                                c10::typeMetaToScalarType(options.dtype()), options.device().str()}];
  if (!cached.rows.defined() || begin < cached.first || end > cached.end) {
    cached = extended(cached, begin, end);
    const c10::InferenceMode usable_in_training(false);
    cached.rows = table.make(cached.first, cached.end - cached.first, table).to(options);
  }
  return cached.rows.narrow(1, begin - cached.first, end - begin);
}

namespace {

class AddedPosition : public Position {
 public:
  AddedPosition(const config::AttentionOptions& /*options*/, const LayerInit& /*init*/, const Builder& /*build*/) {}
  std::optional<Rotary> rotary() const override { return std::nullopt; }
  bool depends_on_key_order() const override { return false; }
  void add_to(ops::AttentionInputs&, const at::Tensor&, AttentionCache*, const Context&) const override {}
};

const Factory<MakePosition> kNoPosition("none", make_part<Position, AddedPosition>);
const Factory<MakePosition> kLearnedPosition("learned", make_part<Position, AddedPosition>);
const Factory<MakePosition> kSinusoidalPosition("sinusoidal", make_part<Position, AddedPosition>);

}  // namespace

at::Tensor sinusoids(const c10::SymInt& first, const c10::SymInt& n, std::int64_t width, double base,
                     at::TensorOptions options) {
  if (options.device().is_meta()) {
    return at::empty_symint({n, width}, options);  // has a shape but no memory
  }
  const at::Tensor angle = angles(first, n, (width + 1) / 2, width, base);
  return at::stack({angle.sin(), angle.cos()}, 2).flatten(1).narrow(1, 0, width).to(options);
}

namespace {

// Returns the factors by which YaRN multiplies the frequencies, [channels / 2].
at::Tensor yarn_factors(const PositionTable& table) {
  const config::RopeScalingOptions& s = table.scaling;
  const auto width = static_cast<double>(table.width);
  const auto channel_of = [&](double turns) {
    const double length = static_cast<double>(s.rope_original_length) / (2.0 * M_PI * turns);
    return width * std::log(length) / (2.0 * std::log(table.base));
  };
  double low = channel_of(s.rope_beta_fast), high = channel_of(s.rope_beta_slow);
  low = std::max(s.rope_truncate ? std::floor(low) : low, 0.0);
  high = std::min(s.rope_truncate ? std::ceil(high) : high, width - 1.0);
  high = high == low ? low + 0.001 : high;
  const at::Tensor channel = at::arange(table.width / 2, at::TensorOptions(at::kDouble));
  const at::Tensor ramp = ((channel - low) / (high - low)).clamp(0.0, 1.0);
  return 1.0 - ramp + ramp / s.rope_factor;
}

// Returns the factors by which LLaMA 3.1 multiplies the frequencies, [channels / 2].
at::Tensor llama3_factors(const PositionTable& table) {
  const config::RopeScalingOptions& s = table.scaling;
  const at::Tensor turns = angles(1, 1, table.width / 2, table.width, table.base)[0] *
                           (static_cast<double>(s.rope_original_length) / (2.0 * M_PI));
  const double low = s.rope_low_freq_factor, high = s.rope_high_freq_factor;
  const at::Tensor kept = ((turns - low) / (high - low)).clamp(0.0, 1.0);
  return (1.0 - kept) / s.rope_factor + kept;
}

// Returns cosines and sines, [2, n, width / 2].
at::Tensor make_rotations(const c10::SymInt& first, const c10::SymInt& n, const PositionTable& table) {
  const at::Tensor angle = angles(first, n, table.width / 2, table.width, table.base);
  const config::RopeScalingOptions& s = table.scaling;
  const auto rotations = [](const at::Tensor& angles) { return at::stack({angles.cos(), angles.sin()}); };
  switch (s.rope_scaling) {
    case config::RopeScaling::none:
      return rotations(angle);
    case config::RopeScaling::linear:
      return rotations(angle / s.rope_factor);
    case config::RopeScaling::llama3:
      return rotations(angle * llama3_factors(table));
    case config::RopeScaling::yarn:
      return rotations(angle * yarn_factors(table)) *
             (s.rope_attention_factor > 0.0 ? s.rope_attention_factor : 0.1 * std::log(s.rope_factor) + 1.0);
  }
  fail("rope_scaling: has no rotations");
}

class RotaryPosition : public Position {
 public:
  RotaryPosition(const config::AttentionOptions& o, const LayerInit& /*init*/, const Builder& /*build*/)
      : rotary_{.channels = o.projection->rotary_channels(o) / 2 * 2,
                .base = o.of<config::PositionOptions>().rope_base,
                .scaling = o.of<config::PositionOptions>()} {}
  std::optional<Rotary> rotary() const override { return rotary_; }
  bool depends_on_key_order() const override { return false; }
  void add_to(ops::AttentionInputs&, const at::Tensor&, AttentionCache*, const Context&) const override {}

 private:
  Rotary rotary_;
};

const Factory<MakePosition> kRotaryPosition("rope", make_part<Position, RotaryPosition>);

// Rotates x [B, H, n, e] by cosines and sines [n, channels / 2] or [B, 1, n, channels / 2].
at::Tensor rotated(const at::Tensor& x, std::int64_t channels, const at::Tensor& cos, const at::Tensor& sin) {
  const std::int64_t half = channels / 2, rest = x.sym_size(3).guard_int(__FILE__, __LINE__) - channels;
  const at::ScalarType type = x.scalar_type(), wide = cos.scalar_type();
  const at::Tensor a = x.narrow(3, 0, half).to(wide), b = x.narrow(3, half, half).to(wide);
  std::vector<at::Tensor> pieces = {(a * cos - b * sin).to(type), (b * cos + a * sin).to(type)};
  if (rest > 0) {
    pieces.push_back(x.narrow(3, channels, rest));
  }
  return at::cat(pieces, 3);
}

at::TensorOptions at_least_single(const at::Tensor& x) {
  return x.options().dtype(x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat);
}

}  // namespace

at::Tensor Rotary::operator()(const at::Tensor& x, const c10::SymInt& first) const {
  const at::Tensor rotations =
      rows_of({make_rotations, channels, base, scaling}, first, x.sym_size(2), at_least_single(x), !ops::has_values(x));
  return rotated(x, channels, rotations[0], rotations[1]);
}

at::Tensor Rotary::rotate_rows(const at::Tensor& x, at::IntArrayRef first) const {
  const auto [least, most] = std::ranges::minmax_element(first);
  if (*least == *most && !ops::suits_one_pass(x)) {
    return (*this)(x, *least);
  }
  const std::int64_t n = x.size(2), count = *most - *least + n;
  const at::Tensor all =
      rows_of({make_rotations, channels, base, scaling}, *least, count, at_least_single(x), /*traced=*/false);
  if (ops::suits_one_pass(x)) {
    std::vector<std::int64_t> rows(first.begin(), first.end());
    std::ranges::transform(rows, rows.begin(), [&](std::int64_t position) { return position - *least; });
    return ops::rotate_once(x, all, rows);
  }
  std::vector<std::int64_t> places;
  for (const std::int64_t position : first) {
    for (std::int64_t i = 0; i < n; ++i) {
      places.push_back(position - *least + i);
    }
  }
  const at::Tensor rotations = all.index_select(1, at::tensor(places, at::kLong).to(all.device()))
                                   .view({2, std::ssize(first), 1, n, channels / 2});
  return rotated(x, channels, rotations[0], rotations[1]);
}

}  // namespace headroom::nn
