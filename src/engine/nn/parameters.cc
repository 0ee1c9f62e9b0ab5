#include "headroom/nn/parameters.h"

#include <ATen/CPUGeneratorImpl.h>

#include <cmath>

#include "headroom/core/error.h"

namespace headroom::nn {

Beginning::Beginning(std::vector<at::Tensor> tensors) : given(std::move(tensors)) {
  if (!given->empty()) {
    options = given->front().options().requires_grad(false);
  }
}

at::Tensor Parameters::add(std::string name, at::Tensor value, bool in_products, std::optional<MatrixAxes> hidden) {
  value.requires_grad_(true);
  return adopt({.name = std::move(name), .tensor = std::move(value), .in_products = in_products, .hidden = hidden});
}

at::Tensor Parameters::add_buffer(std::string name, at::Tensor value) {
  return adopt({.name = std::move(name), .tensor = std::move(value), .buffer = true});
}

at::Tensor Parameters::adopt(Parameter parameter) {
  (parameter.buffer ? buffers_ : all_).push_back(parameter);
  made_.push_back(std::move(parameter));
  return made_.back().tensor;
}

at::Tensor Parameters::add_copy(const at::Tensor& parameter) {
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
  std::int64_t total = 0;
  for (const Parameter& parameter : all_) {
    total += parameter.tensor.numel();
  }
  return total;
}

void Parameters::zero_grad() {
  for (const Parameter& parameter : all_) {
    parameter.tensor.mutable_grad().reset();
  }
}

void Parameters::keep_products_in(at::ScalarType type) {
  for (const Parameter& parameter : all_) {
    if (parameter.in_products) {
      at::Tensor shared = parameter.tensor;  // parts hold handles to the same tensor
      shared.set_data(shared.detach().to(type));
    }
  }
  for (Copy& copy : copies_) {
    copy.copy.set_data(copy.of.detach().to(type));
  }
}

Builder::Builder(Parameters& parameters, const Beginning& beginning, Initialisation initialisation)
    : parameters_(&parameters), options_(beginning.options), initialisation_(initialisation) {
  if (beginning.given) {
    given_ = std::make_shared<Given>(Given{*beginning.given});
  } else {
    generator_ = at::make_generator<at::CPUGeneratorImpl>(beginning.seed);
  }
}

void Builder::require_all_taken() const {
  if (given_ != nullptr && given_->next != given_->tensors.size()) {
    fail("parameters: {} were given, but {} are needed", given_->tensors.size(), given_->next);
  }
}

Builder Builder::for_products() const {
  Builder inner = *this;
  inner.for_products_ = true;
  return inner;
}

Builder Builder::for_hidden(MatrixAxes axes) const {
  Builder inner = for_products();
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
  const bool real = !options_.device().is_meta();
  at::Tensor value = at::empty(shape, options_.dtype(type).device(real ? at::kCPU : at::kMeta));
  if (real) {
    fill(value);
  }
  return value;
}

template <class Make>
at::Tensor Builder::parameter(std::string_view name, at::IntArrayRef shape, bool buffer, const Make& make) const {
  std::string full = prefix_ + std::string(name);
  if (given_ == nullptr) {
    at::Tensor value = make().to(options_.device());
    return buffer ? parameters_->add_buffer(std::move(full), std::move(value))
                  : parameters_->add(std::move(full), std::move(value), for_products_, hidden_);
  }
  if (given_->next == given_->tensors.size()) {
    fail("parameters: \"{}\" is missing: only {} were given", full, given_->next);
  }
  const at::Tensor& tensor = given_->tensors[given_->next++];
  if (tensor.sym_sizes() != c10::fromIntArrayRefSlow(shape) || tensor.scalar_type() != type()) {
    fail("parameters: \"{}\" must be {} {}, got {} {}", full, c10::toString(type()), c10::str(shape),
         c10::toString(tensor.scalar_type()), c10::str(tensor.sym_sizes()));
  }
  return parameters_->adopt({.name = std::move(full),
                             .tensor = tensor,
                             .in_products = for_products_ && !buffer,
                             .buffer = buffer,
                             .hidden = hidden_});
}

at::Tensor Builder::made(std::string_view name, at::IntArrayRef shape, const std::function<at::Tensor()>& make) const {
  return parameter(name, shape, /*buffer=*/false, make);
}

at::Tensor Builder::draw(at::IntArrayRef shape, const Start& start) const {
  if (start.law == Start::Law::truncated_normal) {
    return draw_truncated(shape, start.scale);
  }
  return drawn(shape, type(), [&](at::Tensor& value) {
    if (start.law == Start::Law::normal) {
      value.normal_(0.0, start.scale, generator_);
    } else {
      value.uniform_(-start.scale, start.scale, generator_);
    }
  });
}

// Inverse distribution function between -2 and 2 standard deviations, then stretched to the wanted deviation.
at::Tensor Builder::draw_truncated(at::IntArrayRef shape, double std) const {
  const double edge = std::erf(2.0 / std::sqrt(2.0));
  // Deviation of a standard normal cut at +-2: sqrt(1 - 4 phi(2) / erf(sqrt 2)).
  const double density = std::exp(-2.0) / std::sqrt(2.0 * M_PI);
  const double cut = std::sqrt(1.0 - 4.0 * density / edge);
  const at::Tensor value = drawn(shape, at::kDouble, [&](at::Tensor& uniform) {
    uniform = at::erfinv(uniform.uniform_(-edge, edge, generator_)).mul_(std::sqrt(2.0)).clamp_(-2.0, 2.0);
    uniform.mul_(std / cut);
  });
  return value.to(options_.dtype());
}

at::Tensor Builder::started(std::string_view name, at::IntArrayRef shape, const Start& start) const {
  return parameter(name, shape, /*buffer=*/false, [&] { return draw(shape, start); });
}

at::Tensor Builder::matrix(std::string_view name, at::IntArrayRef shape, const Start& scaled, const Fan& fan) const {
  return started(name, shape, initialisation_.matrix(scaled, fan));
}

at::Tensor Builder::embedding(std::string_view name, at::IntArrayRef shape, const Start& scaled) const {
  return started(name, shape, initialisation_.embedding(scaled, shape.back()));
}

at::Tensor Builder::bias(std::string_view name, at::IntArrayRef shape, std::int64_t fan_in,
                         const std::optional<Start>& scaled) const {
  const std::optional<Start> start = initialisation_.bias(scaled, fan_in);
  Builder build = *this;
  build.hidden_.reset();  // no matrix, whatever its neighbours are
  return start ? build.started(name, shape, *start) : build.constant(name, shape, 0.0);
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
