// Hugging Face architectures with a Headroom equivalent, and the mapping between their options and tensors.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "headroom/config/model_options.h"
#include "headroom/config/part_options.h"
#include "headroom/core/json.h"

namespace headroom::store {

// Reads a config.json; every error names the file and the key.

class Settings {
 public:
  // `values` must outlive the object. `place` is the prefix of keys in messages: "" or "rope_parameters.".
  Settings(const SortedJson& values, std::string origin, std::string place = "");

  // Throws UserError "<origin>: <place><key> <why>, got <value>".
  [[noreturn]] void refuse(const std::string& key, std::string_view why) const;
  const std::string& origin() const { return origin_; }
  std::string place(const std::string& key) const { return place_ + key; }  // the key as named in messages
  // Whether the key has a value other than null.
  bool has(const std::string& key) const;
  // Whether the key is missing. Some architectures have different defaults for a missing key and for null.
  bool lacks(const std::string& key) const;
  // The functions below throw UserError if the value has a wrong type or range, or is missing without a default
  // `otherwise`.
  std::int64_t size(const std::string& key) const;  // 1 to 2^24
  std::int64_t size(const std::string& key, std::int64_t otherwise) const;
  std::int64_t size_or_none(const std::string& key, std::int64_t otherwise) const;  // 0 if the key is null
  // Returns `whole` / `divisor`. Throws UserError if there is a remainder.
  using Size = std::pair<const char*, std::int64_t>;  // key and value
  std::int64_t quotient(const Size& divisor, const Size& whole) const;
  double number(const std::string& key, double otherwise) const;   // finite
  double epsilon(const std::string& key, double otherwise) const;  // above 0
  bool flag(const std::string& key, bool otherwise) const;
  std::string text(const std::string& key, const std::string& otherwise) const;
  std::vector<std::string> texts(const std::string& key) const;    // a list of strings; empty if missing
  std::vector<std::int64_t> wholes(const std::string& key) const;  // non-negative integers; empty if missing
  config::Activation activation(const std::string& key, const std::string& otherwise) const;
  // Returns the object stored under a key; empty settings if it is missing.
  Settings in(const std::string& key) const;

  // Throws UserError "has no equivalent" unless the key is missing, null, or has no effect.
  void require(const std::string& key, bool no_effect) const;

 private:
  const SortedJson& at(const std::string& key) const;
  const SortedJson& values_;
  std::string origin_, place_;
};

// One of the places where a value may be stored.
struct KeyPlace {
  const Settings& settings;
  std::string key;
};
// Returns the first place that has a value, or the last place if none has. Throws UserError if two places have
// different numbers.
KeyPlace agreed(std::initializer_list<KeyPlace> places);

// Returns the object that describes the scaling of rotary positions: `rope` (rope_parameters) or `scaling`
// (rope_scaling). Throws UserError if they contradict each other.
const Settings& scaling_place(const Settings& rope, const Settings& scaling);

// Reads the scaling that `place` describes, one of the objects rope_parameters and rope_scaling of `settings`.
config::RopeScalingOptions read_rope_scaling(const Settings& settings, const Settings& place);

// Returns rope_parameters for export, without partial_rotary_factor.
Json rope_parameters(const config::PositionOptions& position);

// Reads the keys of a config.json into model options, or writes them from model options, so that an architecture lists
// each key only once.
class Keys {
 public:
  explicit Keys(const Settings* given) : given_(given) {}

  const Settings* given() const { return given_; }  // nullptr: the keys are written
  Json& written() { return written_; }

  // `usual`: the default if the key is missing.
  void size(const char* key, std::int64_t& option, std::int64_t usual);
  void number(const char* key, double& option, double usual);
  void epsilon(const char* key, double& option, double usual);
  void flag(const char* key, bool& option, bool usual);
  void activation(const char* key, config::Activation& option, const char* usual);
  // Accepts only this value (null: only a missing key); any other has no equivalent.
  void only(const char* key, const Json& value);
  // Sets an option that has this value in all models of the architecture. An export reads its config.json again and so
  // detects a model with another value.
  template <class Option, class Value>
  void always(Option& option, const Value& value) const {
    if (given_ != nullptr) {
      option = value;
    }
  }
  // Keys that are written and never read. `name`: the class in transformers.
  void model_type(const std::string& kind, const char* name);
  void only_written(const Json& keys);

 private:
  const Settings* given_;
  Json written_ = Json::object();
};

// The weights file of a model that is not split into shards.
inline constexpr const char* kWeightsFile = "model.safetensors";
// Metadata keys: the folder was exported by Headroom and may be overwritten; Headroom trained the model.
inline constexpr const char *kWrittenBy = "written_by", *kTrainedHere = "trained_here";

// Values of layer_types.
inline constexpr const char *kFullAttention = "full_attention", *kSlidingAttention = "sliding_attention";

// Indices [begin, begin + length) of an axis.
struct Range {
  std::int64_t axis = 0, begin = 0, length = 0;
};

// Maps a parameter, or a part of it, to the tensor of a file that holds its values, for reading and writing. The tensor
// is viewed in the shape `view`; if it holds several parameters, `range` and then `parts`, single indices of axes, are
// selected; then the axes are permuted to the parameter's order. If several tensors hold the parameter, `shape` is the
// whole parameter's shape and `place` the range that this tensor holds.
struct Mapping {
  std::string parameter;                // "layer0.attention.w_q"
  std::string tensor;                   // "transformer.h.0.attn.c_attn.weight"
  std::vector<std::int64_t> stored;     // the tensor's shape
  std::vector<std::int64_t> view = {};  // empty: as stored
  std::optional<Range> range = {};
  std::vector<std::pair<std::int64_t, std::int64_t>> parts = {};  // axis, index; axes ascend
  std::vector<std::int64_t> order = {};                           // empty: as viewed
  std::vector<std::int64_t> shape = {};                           // the parameter's; empty: the tensor's after `order`
  std::optional<Range> place = {};
  double offset = 0.0;     // parameter = tensor + offset
  bool droppable = false;  // an export may leave the tensor out if all values are 0

  // Returns the view of the values in a tensor of shape `stored`.
  at::Tensor parameter_of(const at::Tensor& stored_tensor) const;
  // Copies the values from a stored tensor into the parameter `to`. If `to` is undefined, allocates it in float32, or
  // in half precision for a matrix stored in half precision. If several tensors hold the parameter and their types
  // differ, `to` becomes float32.
  void read(const at::Tensor& stored_tensor, at::Tensor& to) const;
  // Copies the values from the parameter `from` into a stored tensor.
  void write(const at::Tensor& from, const at::Tensor& stored_tensor) const;
};

// Collects the mappings of a model, or of one of its layers.
class MappingList {
 public:
  // Prefixes: "layer0." of parameters and "model.layers.0." of tensors. Axes with known sizes in patterns: v
  // (vocabulary), c (context), d (width), h (heads), k (key/value heads), e (channels of a head), w (channels of its
  // values), g (hidden units of the MLP), n (its experts).
  MappingList(std::vector<Mapping>& all, const config::ModelOptions& options, std::string ours, std::string theirs);

  void set(char axis, std::int64_t size) { sizes_[axis] = size; }
  // Maps a tensor, without the prefix, by a pattern "(3:1 h e) d -> d h e": the tensor's axes, with parentheses around
  // axes that are stored as one, then the parameter's order of axes (by default the same). "3" is an axis of size 3,
  // and ":1" selects index 1 of it. The reference is valid until the next call.
  Mapping& add(const std::string& parameter, const std::string& tensor, std::string_view pattern);
  // "{}_q" stands for the matrix "w_q" and, if `bias` is a pattern, the bias "b_q".
  void linear(const std::string& parameter, const std::string& tensor, std::string_view matrix,
              const char* bias = nullptr);
  // A norm of layer inputs or outputs: gain = weight + `offset`.
  void norm(const std::string& parameter, const std::string& tensor, double offset = 0.0);
  // Attention with one matrix for each of queries, keys and values ("self_attn.q_proj"), and the norms of queries and
  // keys, gain = weight + `norm_offset`.
  void heads(bool output_bias = true, double norm_offset = 0.0);
  // An MLP with "gate_proj", "up_proj" and "down_proj".
  void gated_mlp(const std::string& parameter = "ffn.", const std::string& tensor = "mlp.");
  // Maps an expert MLP without biases: the router "gate", the gated experts "experts.0.", "experts.1.", ..., and the
  // MLP `shared` that every token uses in addition.
  void experts(const std::string& shared);

 private:
  std::vector<Mapping>& all_;
  const config::ModelOptions& o_;
  std::string ours_, theirs_;
  std::map<char, std::int64_t> sizes_;
};

struct ModelType {
  std::string_view name = {};
  std::int64_t eos = 2;  // eos_token_id of a config.json without this key; -1: none
};

// Names in an architecture's files, by default LLaMA's. Tensor names are without ".weight".
struct ArchitectureNames {
  std::vector<ModelType> kinds;
  std::string prefix = "model.";  // of the tensors, missing in base models saved without a head: "transformer."
  std::string embedding = "model.embed_tokens";
  std::string layers = "model.layers.";  // followed by a layer's number
  std::string last_norm = "model.norm";
  std::string head = "lm_head";
  std::string positions = {};                  // empty: none
  std::string other_head = {};                 // the head's name in other versions of transformers; empty: none
  std::vector<std::string_view> ignored = {};  // suffixes of tensors in older files that hold no parameters
  double norm_offset = 0.0;                    // of the final norm: gain = weight + norm_offset
  // Aliases that transformers accepts for keys of config.json, each with the key that is read instead.
  std::vector<std::pair<const char*, const char*>> aliases = {};
};

class Architecture {
 public:
  explicit Architecture(ArchitectureNames names) : names_(std::move(names)) {}
  virtual ~Architecture() = default;
  const ArchitectureNames& names() const { return names_; }
  // Returns the options for a config.json. Throws UserError naming a setting that has no equivalent.
  config::ModelOptions read(const Settings& settings) const;
  // Returns the config.json. `kind`: the model_type that the model was imported as, used if it can describe the model.
  // Options without an equivalent are lost.
  Json write(config::ModelOptions options, const std::string& kind) const;
  // Returns mappings for all tensors of the file. Tensors without a parameter, and parameters without a tensor, are 0.
  std::vector<Mapping> mappings(const config::ModelOptions& options) const;
  // Returns mappings for optional tensors that repeat parameters, or that must be identity matrices (an empty
  // `parameter`). An import compares the values; an export omits them.
  std::vector<Mapping> redundant(const config::ModelOptions& options) const;

 protected:
  // Reads or writes the keys. `kind`: the model_type read, or the one that the model was imported as. n_kv_heads is not
  // 0 when keys are written.
  virtual void describe(Keys& keys, config::ModelOptions& options, const std::string& kind) const = 0;
  // Adds the parameters of a layer with `options` (ModelOptions::of_layer()).
  virtual void map_layer(MappingList& layer, const config::ModelOptions& options) const = 0;
  // Adds the redundant() tensors of a layer.
  virtual void map_redundant(MappingList& /*layer*/, const config::ModelOptions& /*options*/) const {}

 private:
  ArchitectureNames names_;
};

const Architecture& gpt2();
const Architecture& gpt_neox();
const Architecture& llama();
const Architecture& gemma3();
const Architecture& gpt_oss();
const Architecture& deepseek_v2();
const Architecture& jetmoe();
const Architecture& dcformer();
const Architecture& qwen3_next();
// Returns all architectures, in the order in which an export tries them.
std::span<const Architecture* const> architectures();

// Values of keys that a config.json lacks.
struct DecoderDefaults {
  std::int64_t vocabulary_size = 0, n_layers = 0, d_model = 0, context_length = 0;
  double norm_epsilon = 1e-6;
  bool tied_embeddings = false;
  std::int64_t n_heads = 0, n_kv_heads = 0, d_head = 0;  // 0: the caller describes the heads
};
// Describes the keys that LLaMA and most other architectures share. The models have RMS norms and a head without bias.
void describe_decoder(Keys& keys, config::ModelOptions& options, const DecoderDefaults& usual);
// Describes use_parallel_residual.
void describe_parallel(Keys& keys, config::ModelOptions& options);
struct RopeDefaults {
  double fraction = 1.0;  // fraction of channels that are rotated; 1: the architecture always rotates all
  double base = 10000.0;
};
// Describes rotary positions and their scaling: reads `rope_theta`, `partial_rotary_factor` and their older names from
// the top level, rope_parameters or rope_scaling; writes rope_theta and rope_parameters. Throws UserError if two places
// contradict each other, or if the scaling has no equivalent.
void describe_rope(Keys& keys, config::AttentionOptions& attention, const RopeDefaults& usual);

// Throws UserError unless num_key_value_heads divides num_attention_heads.
void check_groups(const Settings& settings, const config::AttentionOptions& attention);

// Returns the window of each layer; 0: none.
std::vector<std::int64_t> windows_of(const config::ModelOptions& options);

// Returns the windows of the layers that layer_types names ("sliding_attention" has `window`, "full_attention" none)
// or, without this key, of those that `is_local` names by number.
std::vector<std::int64_t> read_windows(const Settings& settings, std::int64_t n_layers, std::int64_t window,
                                       const std::function<bool(std::int64_t layer)>& is_local);
// Returns the list layer_types for these windows.
Json layer_types(const std::vector<std::int64_t>& windows);
// Sets model.layers to the shortest pattern in which layer i differs from model.attention and model.mlp by keys[i].
void set_layers(config::ModelOptions& options, const std::vector<config::LayerOptions>& keys);
// Sets the windows of all layers, with model.layers if they differ.
void set_windows(config::ModelOptions& options, const std::vector<std::int64_t>& windows);

}  // namespace headroom::store
