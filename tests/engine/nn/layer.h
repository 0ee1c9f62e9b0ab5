// Builds attention layers with their parameters for tests, and decodes with them.
#pragma once

#include <ATen/CPUGeneratorImpl.h>

#include <cmath>

#include "engine/ops/gradients.h"
#include "headroom/nn/attention.h"
#include "tiny/options.h"

namespace headroom::nn {

// Returns the options with these keys of [model.attention]: "score=sigmoid n_heads=4".
inline config::AttentionOptions attention_options(const std::string& keys) {
  return tiny::changed(config::ModelOptions(), keys).attention;
}

// Returns the place of a model's only attention layer.
inline AttentionPlace place_in(const config::ModelOptions& m) {
  return {.d_model = m.d_model,
          .n_layers = 1,
          .causal = m.kind == config::ModelKind::language_model,
          .window = m.attention.window,
          .context_length = m.context_length,
          .memory_length = m.memory_length};
}

struct Layer {
  Parameters parameters;
  Attention attention;

  // Adds noise with the standard deviation `noise` to all parameters. Biases and gains start as constants, which would
  // hide mistakes.
  Layer(const config::AttentionOptions& options, const AttentionPlace& place, at::ScalarType type = at::kDouble,
        double noise = 0.0)
      : Layer(options, place, ParameterSource(1, type), noise) {}
  Layer(const config::AttentionOptions& options, const AttentionPlace& place, const ParameterSource& source,
        double noise = 0.0)
      : attention(options, place, Builder(parameters, source)) {
    const at::NoGradGuard no_grad;
    const at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(std::uint64_t{4});
    for (const Parameter& p : parameters.all()) {
      if (noise > 0.0 && p.name != "prior") {
        p.tensor.add_(at::randn(p.tensor.sizes(), generator, at::TensorOptions(at::kDouble)).to(p.tensor.scalar_type()),
                      noise);
      }
    }
  }
  at::Tensor at(std::string_view name) const { return parameters.at(name); }

  // Returns the output for the last `n` tokens of `all` [B, S, d].
  at::Tensor last(const at::Tensor& all, std::int64_t n, const Context& context = {},
                  std::optional<at::Tensor> valid = std::nullopt) const {
    AttentionInput input{.x = all.narrow(1, all.size(1) - n, n), .source = all};
    input.valid_keys = std::move(valid);
    return attention(input, context);
  }
};

// Rotates channels (c, c + n/2) of x [..., n] by position * base^(-2c/n).
inline at::Tensor rotated(const at::Tensor& x, std::int64_t position, double base) {
  const auto n = static_cast<double>(x.size(-1));
  std::vector<at::Tensor> first, second;
  for (std::int64_t c = 0; c < x.size(-1) / 2; ++c) {
    const double angle = static_cast<double>(position) * std::pow(base, -2.0 * static_cast<double>(c) / n);
    const at::Tensor a = x.select(-1, c), b = x.select(-1, c + x.size(-1) / 2);
    first.push_back(a * std::cos(angle) - b * std::sin(angle));
    second.push_back(b * std::cos(angle) + a * std::sin(angle));
  }
  first.insert(first.end(), second.begin(), second.end());
  return at::stack(first, -1);
}

// Decodes a batch with one layer and one cache for each row.
class RowCaches {
 public:
  RowCaches(const Attention& layer, std::int64_t rows) : all_(static_cast<std::size_t>(rows), layer.make_cache()) {
    for (AttentionCache& cache : all_) {
      each_.push_back(&cache);
    }
  }
  RowCaches(const RowCaches&) = delete;
  RowCaches& operator=(const RowCaches&) = delete;

  // Returns the layer's output for the next tokens x [B, n, d] of all rows.
  at::Tensor read(const Attention& layer, const at::Tensor& x, const Context& context = {}) {
    const AttentionInput step{.x = x, .caches = each_};
    return layer(step, context);
  }
  // Reads all tokens [B, S, d], in pieces of the given sizes and then one by one.
  at::Tensor read_all(const Attention& layer, const at::Tensor& all, const std::vector<std::int64_t>& pieces,
                      const Context& context = {}) {
    std::vector<at::Tensor> rows;
    for (std::int64_t at = 0; at < all.size(1); at += rows.back().size(1)) {
      const std::int64_t n = rows.size() < pieces.size() ? pieces[rows.size()] : 1;
      rows.push_back(read(layer, all.narrow(1, at, std::min(n, all.size(1) - at)), context));
    }
    return at::cat(rows, 1);
  }
  // Returns the number of elements of each row's cache at capacity.
  std::int64_t elements() const { return all_.front().elements(); }

 private:
  std::vector<AttentionCache> all_;
  std::vector<AttentionCache*> each_;
};

}  // namespace headroom::nn
