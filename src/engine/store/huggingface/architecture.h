// The kinds of models that both sides know: how options and tensors of one are those of the other.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "headroom/config/model_options.h"
#include "headroom/core/json.h"
#include "settings.h"

namespace headroom::store {

// One parameter and the tensor of a file that holds its numbers, read either way: the tensor's axes are taken apart
// (`view`), of one of them a single index is taken where the tensor holds several parameters (`part`: axis, index), and
// the rest is put in the parameter's order.
struct Link {
  std::string parameter;             // "layer0.attention.w_q"
  std::string tensor;                // "transformer.h.0.attn.c_attn.weight"
  std::vector<std::int64_t> stored;  // the tensor's shape
  std::vector<std::int64_t> view;    // empty: as stored
  std::optional<std::pair<std::int64_t, std::int64_t>> part;
  std::vector<std::int64_t> order;  // empty: as it is
  bool may_be_absent = false;       // a file without the tensor means zeros

  // The place of the parameter in such a tensor, which it shares.
  at::Tensor in(const at::Tensor& tensor_of_file) const;
};

// What keeps options from being of an architecture: the first obstacle is named.
struct Obstacle {
  bool stands = false;
  const char* option = nullptr;  // "attention.window"
};
std::string first_of(std::initializer_list<Obstacle> obstacles);  // empty: none

class Architecture {
 public:
  virtual ~Architecture() = default;
  virtual std::span<const std::string_view> kinds() const = 0;  // model_types
  // What base models, saved without their head, leave out in front of the names of tensors: "transformer.".
  virtual std::string_view prefix() const = 0;
  // Throws UserError naming the setting that has no equivalent.
  virtual config::ModelOptions read(const Settings& settings) const = 0;
  // The option in the way of being one of them, beyond common_obstacle(); empty where there is none.
  virtual std::string obstacle(const config::ModelOptions& options) const = 0;
  // config.json, but for what every model has.
  virtual Json write(const config::ModelOptions& options) const = 0;
  // Every tensor of such a file. Of tensors that the options have no parameter for, zeros; likewise the other way round
  // with the parameters that no link names.
  std::vector<Link> links(const config::ModelOptions& options) const;
  // Tensors that older files hold and that say nothing: names that end so.
  virtual std::span<const std::string_view> ignored() const = 0;

 protected:
  // What a file calls the parts of a model outside its layers, without ".weight"; `layers` in front of a layer's
  // number.
  struct Outside {
    std::string embedding, layers, last_norm, head;
    std::string positions = {};  // a table of them; empty: there is none
  };
  virtual Outside outside() const = 0;
  // The parameters of a layer; `ours`: "layer0.", `theirs`: the same in the file.
  virtual void link_layer(std::vector<Link>& links, const config::ModelOptions& options, const std::string& ours,
                          const std::string& theirs) const = 0;
};

const Architecture& gpt2();
const Architecture& gpt_neox();
const Architecture& llama();
// All of them, in the order that a model to be written is tried with them.
std::span<const Architecture* const> architectures();

// What every architecture asks of a model: the option in the way, or nothing.
std::string common_obstacle(const config::ModelOptions& options);

// Links that the architectures share. `layer`: "layer0."; `tensor`: without ".weight" and ".bias".
void link_norm(std::vector<Link>& links, const config::ModelOptions& o, const std::string& parameter,
               const std::string& tensor);
// A matrix stored [out, in].
Link transposed(std::string parameter, std::string tensor, std::int64_t in, std::int64_t out);
Link same(std::string parameter, std::string tensor, std::vector<std::int64_t> shape);

}  // namespace headroom::store
