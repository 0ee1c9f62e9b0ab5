#include "headroom/nn/parameters.h"

#include <ATen/CPUGeneratorImpl.h>
#include <cmath>

#include "foundation/core/random.h"
#include "foundation/core/transformed.h"
#include "headroom/core/error.h"

namespace headroom::nn {
namespace {

double one_over_root(std::int64_t n) {
  return 1.0 / std::sqrt(static_cast<double>(n));
}

}  // namespace

Distribution Initialisation::matrix(const Distribution& scaled, const Fan& fan) const {
  switch (rule) {
    case config::Initialisation::normal:
      return Distribution::normal(std);
    case config::Initialisation::glorot:
      return Distribution::uniform(fan.gain * std::sqrt(6.0 / static_cast<double>(fan.in + fan.out)));
    case config::Initialisation::torch:
      return Distribution::uniform(one_over_root(fan.in));
    case config::Initialisation::pythia:
      return Distribution::normal(fan.into_stream ? stream_std : std);
    case config::Initialisation::scaled:
      break;
  }
  return scaled;
}

Distribution Initialisation::embedding(const Distribution& scaled, std::int64_t d_model) const {
  if (embedding_std > 0.0) {
    return Distribution::normal(embedding_std);
  }
  switch (rule) {
    case config::Initialisation::normal:
    case config::Initialisation::pythia:
      return Distribution::normal(std);
    case config::Initialisation::glorot:
      return Distribution::normal(one_over_root(d_model));
    case config::Initialisation::torch:
      return Distribution::normal(1.0);
    case config::Initialisation::scaled:
      break;
  }
  return scaled;
}

std::optional<Distribution> Initialisation::bias(const std::optional<Distribution>& scaled, std::int64_t fan_in) const {
  switch (rule) {
    case config::Initialisation::normal:
    case config::Initialisation::glorot:
    case config::Initialisation::pythia:
      return std::nullopt;
    case config::Initialisation::torch:
      return Distribution::uniform(one_over_root(fan_in));
    case config::Initialisation::scaled:
      break;
  }
  return scaled;
}

ParameterSource::ParameterSource(std::vector<at::Tensor> tensors) : given(std::move(tensors)) {
  if (!given->empty()) {
    options = given->front().options().requires_grad(false);
  }
}

at::Tensor Parameters::add(std::string name, at::Tensor value, bool matmul_only, std::optional<MatrixAxes> hidden) {
  value.requires_grad_(true);
  return adopt({.name = std::move(name), .tensor = std::move(value), .matmul_only = matmul_only, .hidden = hidden});
}

at::Tensor Parameters::add_buffer(std::string name, at::Tensor value) {
  return adopt({.name = std::move(name), .tensor = std::move(value), .buffer = true});
}

at::Tensor Parameters::adopt(Parameter parameter) {
  (parameter.buffer ? buffers_ : all_).push_back(parameter);
  created_.push_back(std::move(parameter));
  return created_.back().tensor;
}

at::Tensor Parameters::add_cached_copy(const at::Tensor& parameter) {
  copies_.push_back({parameter, at::empty({0}, parameter.options().requires_grad(false))});
  return copies_.back().copy;
}

std::vector<Parameter> Parameters::stored() const {
  std::vector<Parameter> everything = all_;
  everything.insert(everything.end(), buffers_.begin(), buffers_.end());
  return everything;
}

at::Tensor Parameters::at(std::string_view name) const {
  for (const Parameter& parameter : all_) {
    if (parameter.name == name) {
      return parameter.tensor;
    }
  }
  fail("parameters: {}: no such parameter", name);
}

std::int64_t Parameters::count() const {
  return sum_over(all_, [](const Parameter& parameter) { return parameter.tensor.numel(); });
}

void Parameters::zero_grad() {
  for (const Parameter& parameter : all_) {
    parameter.tensor.mutable_grad().reset();
  }
}

void Parameters::cache_weights_in(at::ScalarType type) {
  for (const Parameter& parameter : all_) {
    if (parameter.matmul_only) {
      at::Tensor shared = parameter.tensor;  // layers hold handles to the same tensor
      shared.set_data(shared.detach().to(type));
    }
  }
  for (CachedCopy& copy : copies_) {
    copy.copy.set_data(copy.of.detach().to(type));
  }
}

Builder::Builder(Parameters& parameters, const ParameterSource& source, Initialisation initialisation)
    : parameters_(&parameters), keep_(source.keep), options_(source.options), initialisation_(initialisation) {
  if (source.given) {
    given_ = std::make_shared<Given>(Given{*source.given});
  } else if (source.find) {
    find_ = source.find;
  } else {
    generator_ = at::make_generator<at::CPUGeneratorImpl>(source.seed);
    seed_ = source.seed;
  }
}

void Builder::require_all_taken() const {
  if (given_ != nullptr && given_->next != given_->tensors.size()) {
    fail("parameters: the model has {} parameters, got {}", given_->next, given_->tensors.size());
  }
}

Builder Builder::for_matmul() const {
  Builder inner = *this;
  inner.matmul_only_ = true;
  return inner;
}

Builder Builder::for_hidden(MatrixAxes axes) const {
  Builder inner = for_matmul();
  inner.hidden_ = axes;
  return inner;
}

Builder Builder::in(std::string_view child) const {
  Builder inner = *this;
  inner.prefix_ += fmt::format("{}.", child);
  return inner;
}

template <class Fill>
at::Tensor Builder::drawn(at::IntArrayRef shape, at::ScalarType type, const Fill& fill) const {
  const bool has_values = !options_.device().is_meta();
  at::Tensor value = at::empty(shape, options_.dtype(type).device(has_values ? at::kCPU : at::kMeta));
  if (has_values) {
    fill(value);
  }
  return value;
}

template <class Make>
at::Tensor Builder::parameter(std::string_view name, at::IntArrayRef shape, bool buffer, const Make& make) const {
  std::string full = prefix_ + std::string(name);
  if (given_ == nullptr && !find_) {
    if (initialisation_.seeds_by_name) {
      at::Generator(generator_).set_current_seed(mix(seed_, full));
    }
    at::Tensor value = make().to(options_.device());
    value = keep_ ? keep_(value, buffer) : value;
    return buffer ? parameters_->add_buffer(std::move(full), std::move(value))
                  : parameters_->add(std::move(full), std::move(value), matmul_only_, hidden_);
  }
  Parameter parameter{.name = std::move(full),
                      .tensor = {},
                      .matmul_only = matmul_only_ && !buffer,
                      .buffer = buffer,
                      .hidden = hidden_};
  if (find_) {
    parameter.tensor = at::empty(shape, options_.device(at::kMeta));
    parameter.tensor = find_(parameter);
  } else {
    parameter.tensor = next_given(parameter.name, shape);
  }
  return parameters_->adopt(std::move(parameter));
}

at::Tensor Builder::next_given(const std::string& name, at::IntArrayRef shape) const {
  if (given_->next == given_->tensors.size()) {
    fail("parameters: \"{}\" is missing, got only {}", name, given_->next);
  }
  const at::Tensor& tensor = given_->tensors[given_->next++];
  if (tensor.sym_sizes() != c10::fromIntArrayRefSlow(shape) || tensor.scalar_type() != type()) {
    fail("parameters: \"{}\" must be {} {}, got {} {}", name, c10::toString(type()), c10::str(shape),
         c10::toString(tensor.scalar_type()), c10::str(tensor.sym_sizes()));
  }
  return tensor;
}

at::Tensor Builder::custom(std::string_view name, at::IntArrayRef shape,
                           const std::function<at::Tensor()>& make) const {
  return parameter(name, shape, /*buffer=*/false, make);
}

at::Tensor Builder::draw(at::IntArrayRef shape, const Distribution& distribution) const {
  if (distribution.law == Distribution::Law::truncated_normal) {
    return draw_truncated(shape, distribution.scale);
  }
  return drawn(shape, type(), [&](at::Tensor& value) {
    if (distribution.law == Distribution::Law::normal) {
      value.normal_(0.0, distribution.scale, generator_);
    } else {
      value.uniform_(-distribution.scale, distribution.scale, generator_);
    }
  });
}

// Applies the inverse distribution function between -2 and 2 standard deviations, and rescales to the deviation `std`.
at::Tensor Builder::draw_truncated(at::IntArrayRef shape, double std) const {
  const double edge = std::erf(2.0 / std::sqrt(2.0));
  // Deviation of a standard normal distribution truncated at +-2: sqrt(1 - 4 phi(2) / erf(sqrt 2)).
  const double density = std::exp(-2.0) / std::sqrt(2.0 * M_PI);
  const double cut = std::sqrt(1.0 - 4.0 * density / edge);
  const at::Tensor value = drawn(shape, at::kDouble, [&](at::Tensor& uniform) {
    uniform = at::erfinv(uniform.uniform_(-edge, edge, generator_)).mul_(std::sqrt(2.0)).clamp_(-2.0, 2.0);
    uniform.mul_(std / cut);
  });
  return value.to(options_.dtype());
}

at::Tensor Builder::random(std::string_view name, at::IntArrayRef shape, const Distribution& distribution) const {
  return parameter(name, shape, /*buffer=*/false, [&] { return draw(shape, distribution); });
}

at::Tensor Builder::matrix(std::string_view name, at::IntArrayRef shape, const Distribution& scaled,
                           const Fan& fan) const {
  return random(name, shape, initialisation_.matrix(scaled, fan));
}

at::Tensor Builder::embedding(std::string_view name, at::IntArrayRef shape, const Distribution& scaled) const {
  return random(name, shape, initialisation_.embedding(scaled, shape.back()));
}

at::Tensor Builder::bias(std::string_view name, at::IntArrayRef shape, std::int64_t fan_in,
                         const std::optional<Distribution>& scaled) const {
  const std::optional<Distribution> distribution = initialisation_.bias(scaled, fan_in);
  Builder build = *this;
  build.hidden_.reset();  // a bias is not a matrix
  return distribution ? build.random(name, shape, *distribution) : build.constant(name, shape, 0.0);
}

double LayerInit::scaled(std::int64_t fan_in) const {
  return std::sqrt(2.0 / static_cast<double>(n_layers * fan_in));
}

at::Tensor Builder::constant(std::string_view name, at::IntArrayRef shape, double value) const {
  return parameter(name, shape, /*buffer=*/false, [&] { return at::full(shape, value, options_); });
}

at::Tensor Builder::buffer(std::string_view name, at::IntArrayRef shape, double value) const {
  return parameter(name, shape, /*buffer=*/true, [&] { return at::full(shape, value, options_); });
}

}  // namespace headroom::nn
