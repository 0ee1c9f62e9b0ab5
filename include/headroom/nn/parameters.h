// Named parameters and their initialisation. Names follow the golden cases: `layer0.attention.w_q`, matrices [in, out].
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/nn/initialisation.h"

namespace headroom::nn {

// How a parameter's axes are those of a batch of matrices: first the batch's, then rows', then columns'.
struct MatrixAxes {
  std::int64_t batch = 0, rows = 1;
};

struct Parameter {
  std::string name;
  at::Tensor tensor;                      // leaf, requires_grad
  bool in_products = false;               // a matrix that is only ever read in the compute type
  bool buffer = false;                    // has no gradient: it replaces itself while training
  std::optional<MatrixAxes> hidden = {};  // matrices from one hidden vector of a layer to another
};

// How a model's parameters are initialised: by a seed's random numbers of some type on some device, or by given
// tensors, which must be those that the model makes, in their order and all of one type on one device.
struct Beginning {
  explicit Beginning(std::uint64_t with_seed, at::TensorOptions of = at::kFloat) : seed(with_seed), options(of) {}
  explicit Beginning(std::vector<at::Tensor> tensors);
  std::uint64_t seed = 0;
  at::TensorOptions options;
  std::optional<std::vector<at::Tensor>> given;
};

// The parameters of a model in the order they were made. Tensors are shared handles: parts keep their own copy.
class Parameters {
 public:
  at::Tensor add(std::string name, at::Tensor value, bool in_products = false, std::optional<MatrixAxes> hidden = {});
  // A tensor that belongs to the model and its checkpoints, but has no gradient: it replaces itself while training.
  at::Tensor add_buffer(std::string name, at::Tensor value);
  const std::vector<Parameter>& all() const { return all_; }
  std::vector<Parameter> stored() const;  // parameters, then buffers: what a checkpoint holds
  // Parameters and buffers in the order they were made.
  const std::vector<Parameter>& made() const { return made_; }
  // A tensor that somebody else owns, unchanged.
  at::Tensor adopt(Parameter parameter);
  at::Tensor at(std::string_view name) const;  // throws Error naming it
  std::int64_t count() const;                  // numbers, all together
  void zero_grad();                            // discards gradients
  // A copy for products of a parameter that is read in its own type as well (a tied embedding): empty until
  // keep_products_in() fills it.
  at::Tensor add_copy(const at::Tensor& parameter);
  // Keeps the matrices of products in `type` from here on, so that models which decode in it need not cast them for
  // every token: the products are the same bit for bit. Not for training, whose parameters keep their own type.
  void keep_products_in(at::ScalarType type);

 private:
  struct Copy {
    at::Tensor of, copy;
  };
  std::vector<Parameter> all_, buffers_, made_;
  std::vector<Copy> copies_;
};

// Makes parameters under a name prefix with one random generator, so that a seed fixes the whole model. Numbers are
// drawn on the CPU, in the options' type, and moved to the options' device: a seed means the same model everywhere.
// Nothing is drawn or allocated for the meta device.
class Builder {
 public:
  Builder(Parameters& parameters, at::Generator generator, at::TensorOptions options,
          Initialisation initialisation = {})
      : parameters_(&parameters),
        generator_(std::move(generator)),
        options_(options),
        initialisation_(initialisation) {}
  Builder(Parameters& parameters, const Beginning& beginning, Initialisation initialisation = {});
  Builder in(std::string_view child) const;  // "layer0" -> names "layer0.*"
  Builder for_products() const;              // its parameters are only ever read through to_compute() or linear()

  Builder for_hidden(MatrixAxes axes) const;  // the same; its matrices are from hidden vectors to hidden vectors

  // By the model's rule; `scaled` is the part's own start.
  at::Tensor matrix(std::string_view name, at::IntArrayRef shape, const Start& scaled, const Fan& fan) const;
  at::Tensor embedding(std::string_view name, at::IntArrayRef shape, const Start& scaled) const;  // [n, d_model]
  at::Tensor bias(std::string_view name, at::IntArrayRef shape, std::int64_t fan_in,
                  const std::optional<Start>& scaled = {}) const;
  // Independent of the rule.
  at::Tensor started(std::string_view name, at::IntArrayRef shape, const Start& start) const;
  at::Tensor constant(std::string_view name, at::IntArrayRef shape, double value) const;
  // What make() gives, moved to the device.
  at::Tensor made(std::string_view name, at::IntArrayRef shape, const std::function<at::Tensor()>& make) const;
  at::Tensor buffer(std::string_view name, at::IntArrayRef shape, double value) const;
  at::Tensor copy_for_products(const at::Tensor& parameter) const { return parameters_->add_copy(parameter); }
  // Numbers for made(), not yet on the device.
  at::Tensor draw(at::IntArrayRef shape, const Start& start) const;
  const Initialisation& initialisation() const { return initialisation_; }
  const at::TensorOptions& options() const { return options_; }
  // Throws Error where tensors were given that no part took.
  void require_all_taken() const;

 private:
  struct Given {
    std::vector<at::Tensor> tensors;
    std::size_t next = 0;
  };
  // A tensor that fill(tensor) filled on the CPU; without numbers on the meta device.
  template <class Fill>
  at::Tensor drawn(at::IntArrayRef shape, at::ScalarType type, const Fill& fill) const;
  at::Tensor draw_truncated(at::IntArrayRef shape, double std) const;
  // A parameter of that shape: the next tensor that was given, or what make() makes.
  template <class Make>
  at::Tensor parameter(std::string_view name, at::IntArrayRef shape, bool buffer, const Make& make) const;
  at::ScalarType type() const { return c10::typeMetaToScalarType(options_.dtype()); }

  Parameters* parameters_;
  at::Generator generator_;
  std::shared_ptr<Given> given_;  // null: parameters are made
  at::TensorOptions options_;
  Initialisation initialisation_;
  std::string prefix_;
  bool for_products_ = false;
  std::optional<MatrixAxes> hidden_;
};

// A layer's place in the model, on which its parts' initialisation depends.
struct LayerInit {
  std::int64_t d_model = 0;
  std::int64_t n_layers = 1;
  // Deviation of the `scaled` rule for a product that sums up fan_in numbers (SwitchHead, section 2.2).
  double scaled(std::int64_t fan_in) const;
};

}  // namespace headroom::nn
