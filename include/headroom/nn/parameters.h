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

#include "headroom/config/model_options.h"

namespace headroom::nn {

// The distribution of initial values.
struct Distribution {
  enum class Law { normal, truncated_normal, uniform };  // truncated at 2 deviations, then rescaled to `scale`
  Law law = Law::normal;
  double scale = 1.0;  // standard deviation; uniform: values are in [-scale, scale]

  static Distribution normal(double std) { return {Law::normal, std}; }
  static Distribution truncated_normal(double std) { return {Law::truncated_normal, std}; }
  static Distribution uniform(double bound) { return {Law::uniform, bound}; }
};

// Fan-in and fan-out of a matrix; heads and experts that together replace one matrix count as one.
struct Fan {
  std::int64_t in = 1, out = 1;
  double gain = 1.0;         // glorot: multiplies the bound
  bool into_stream = false;  // pythia: the output is added to the residual stream
};

// The gain for queries, keys and values, which Glorot initialises as one matrix [d, 3d]: 1/sqrt 2 relative to [d, d].
inline constexpr double kQkvGain = 0.70710678118654752;

// The rule `model.initialisation` for a whole model. Under `scaled` each part has its own distributions; any other rule
// replaces them:
//
//            matrices                       biases            embeddings, learned positions   the head's bias
//   normal   N(0, std^2)                    0                 N(0, std^2)                     0
//   glorot   U(+-gain sqrt(6 / (in + out))) 0                 N(0, 1/d)                       0
//   torch    U(+-1/sqrt(in))                U(+-1/sqrt(in))   N(0, 1)                         U(+-1/sqrt(in))
//   pythia   N(0, std^2), into the residual 0                 N(0, std^2)                     0
//            stream N(0, stream_std^2)
//
// Pythia's std follows Nguyen and Salazar ("small"), its stream_std Wang and Komatsuzaki ("wang").
struct Initialisation {
  config::Initialisation rule = config::Initialisation::scaled;
  double std = 0.02, stream_std = 0.02;
  double embedding_std = 0.0;  // above 0: for embeddings and learned positions, under any rule
  bool seeds_by_name = false;  // a parameter's random numbers depend only on the seed and its name

  Distribution matrix(const Distribution& scaled, const Fan& fan) const;
  Distribution embedding(const Distribution& scaled, std::int64_t d_model) const;
  // Returns nullopt for zeros.
  std::optional<Distribution> bias(const std::optional<Distribution>& scaled, std::int64_t fan_in) const;
};

// How the axes of a parameter form a batch of matrices: first the batch axes, then the row axes, then the column axes.
struct MatrixAxes {
  std::int64_t batch = 0, rows = 1;
};

struct Parameter {
  std::string name;
  at::Tensor tensor;                      // leaf, requires_grad
  bool matmul_only = false;               // a matrix that is only read in the compute type
  bool buffer = false;                    // has no gradient; the training step writes it (BufferUpdate)
  std::optional<MatrixAxes> hidden = {};  // set for matrices between hidden vectors of a layer
};

// Where a model's parameters come from.
struct ParameterSource {
  // Initialises parameters with the seed `with_seed`, in the type and on the device of `of`.
  explicit ParameterSource(std::uint64_t with_seed, at::TensorOptions of = at::kFloat) : seed(with_seed), options(of) {}
  // Uses given tensors in creation order, all of one type and on one device.
  explicit ParameterSource(std::vector<at::Tensor> tensors);
  // Looks parameters up: find(wanted) returns a tensor with the name and shape of `wanted`, or throws. `wanted.tensor`
  // is on the meta device.
  using Find = std::function<at::Tensor(const Parameter& wanted)>;
  ParameterSource(Find with_find, at::TensorOptions of) : options(of), find(std::move(with_find)) {}

  std::uint64_t seed = 0;
  at::TensorOptions options;
  std::optional<std::vector<at::Tensor>> given;
  Find find;
  // If set, replaces each initial value, for example to store only a part of it.
  std::function<at::Tensor(const at::Tensor& value, bool buffer)> keep;
};

// The parameters of a model. Tensors are shared handles: layers hold the same tensors.
class Parameters {
 public:
  at::Tensor add(std::string name, at::Tensor value, bool matmul_only = false, std::optional<MatrixAxes> hidden = {});
  at::Tensor add_buffer(std::string name, at::Tensor value);
  // Adds a tensor that is owned elsewhere, unchanged.
  at::Tensor adopt(Parameter parameter);
  const std::vector<Parameter>& all() const { return all_; }                    // without buffers
  std::vector<Parameter> stored() const;                                        // parameters, then buffers
  const std::vector<Parameter>& in_creation_order() const { return created_; }  // parameters and buffers
  // throws Error naming the missing parameter
  at::Tensor at(std::string_view name) const;
  std::int64_t count() const;  // elements of all parameters
  void zero_grad();            // discards gradients
  // Returns a copy in the compute type of a parameter that is also read in its own type (a tied embedding). Empty until
  // cache_weights_in() fills it.
  at::Tensor add_cached_copy(const at::Tensor& parameter);
  // Converts matmul_only matrices to `type` once, so that decoding need not cast them for every token; the results are
  // bit-identical. Not for training.
  void cache_weights_in(at::ScalarType type);

 private:
  struct CachedCopy {
    at::Tensor of, copy;
  };
  std::vector<Parameter> all_, buffers_, created_;
  std::vector<CachedCopy> copies_;
};

// Creates parameters under a name prefix, with one random generator for the whole model. Initial values are drawn on
// the CPU and copied to the device, so a seed gives the same model on every device. On the meta device nothing is drawn
// or allocated.
class Builder {
 public:
  Builder(Parameters& parameters, const ParameterSource& source, Initialisation initialisation = {});
  Builder in(std::string_view child) const;   // prefix "layer0" gives names "layer0.*"
  Builder for_matmul() const;                 // for parameters that only to_compute() and linear() read
  Builder for_hidden(MatrixAxes axes) const;  // for_matmul(), for matrices between hidden vectors

  // Follows the model's rule; under `scaled`, the part's distribution `scaled` applies.
  at::Tensor matrix(std::string_view name, at::IntArrayRef shape, const Distribution& scaled, const Fan& fan) const;
  at::Tensor embedding(std::string_view name, at::IntArrayRef shape, const Distribution& scaled) const;  // [n, d_model]
  at::Tensor bias(std::string_view name, at::IntArrayRef shape, std::int64_t fan_in,
                  const std::optional<Distribution>& scaled = {}) const;
  // These functions ignore the model's rule.
  at::Tensor random(std::string_view name, at::IntArrayRef shape, const Distribution& distribution) const;
  at::Tensor constant(std::string_view name, at::IntArrayRef shape, double value) const;
  at::Tensor custom(std::string_view name, at::IntArrayRef shape, const std::function<at::Tensor()>& make) const;
  at::Tensor buffer(std::string_view name, at::IntArrayRef shape, double value) const;
  at::Tensor cached_copy(const at::Tensor& parameter) const { return parameters_->add_cached_copy(parameter); }
  // Draws values for custom() on the CPU.
  at::Tensor draw(at::IntArrayRef shape, const Distribution& distribution) const;
  const Initialisation& initialisation() const { return initialisation_; }
  const at::TensorOptions& options() const { return options_; }
  // Throws Error if more tensors were given than parameters were created.
  void require_all_taken() const;

 private:
  struct Given {
    std::vector<at::Tensor> tensors;
    std::size_t next = 0;
  };
  // Returns a tensor that fill(tensor) has filled on the CPU; on the meta device it has no values.
  template <class Fill>
  at::Tensor drawn(at::IntArrayRef shape, at::ScalarType type, const Fill& fill) const;
  at::Tensor draw_truncated(at::IntArrayRef shape, double std) const;
  // Returns the parameter from its source: a given tensor, one looked up, or one created by make().
  template <class Make>
  at::Tensor parameter(std::string_view name, at::IntArrayRef shape, bool buffer, const Make& make) const;
  at::Tensor next_given(const std::string& name, at::IntArrayRef shape) const;
  at::ScalarType type() const { return c10::typeMetaToScalarType(options_.dtype()); }

  Parameters* parameters_;
  at::Generator generator_;
  std::uint64_t seed_ = 0;
  std::shared_ptr<Given> given_;  // shared by all builders of a model
  ParameterSource::Find find_;
  std::function<at::Tensor(const at::Tensor&, bool)> keep_;
  at::TensorOptions options_;
  Initialisation initialisation_;
  std::string prefix_;
  bool matmul_only_ = false;
  std::optional<MatrixAxes> hidden_;
};

// A layer's place in the model, on which its parts and their initialisation depend.
struct LayerInit {
  std::int64_t d_model = 0;
  std::int64_t n_layers = 1;
  std::int64_t layer = 0;  // index of the layer
  // Returns the standard deviation of a matrix with this fan-in under the `scaled` rule: sqrt(2 / (n_layers fan_in))
  // (SwitchHead, section 2.2).
  double scaled(std::int64_t fan_in) const;
};

}  // namespace headroom::nn
