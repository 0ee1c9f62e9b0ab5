#include "state.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include <span>

#include "foundation/core/machine/log.h"
#include "headroom/core/error.h"
#include "headroom/core/files.h"
#include "headroom/core/json.h"
#include "headroom/store/huggingface.h"

namespace headroom::train {
namespace {

constexpr const char* kStateKey = "train_state";
constexpr const char* kDataKey = "train_data";

Json to_json(const TrainState& state) {
  const LogInterval& interval = state.interval;
  return {{"epoch", state.position.epoch},
          {"epoch_step", state.position.step},
          {"tokens", state.tokens},
          {"seconds", state.seconds},
          {"cpu_seconds", state.cpu_seconds},
          {"steady_tokens", state.steady_tokens},
          {"steady_seconds", state.steady_seconds},
          {"threads", at::get_num_threads()},
          {"interval",
           {{"steps", interval.steps},
            {"tokens", interval.tokens},
            {"seconds", interval.seconds},
            {"loss", interval.loss},
            {"regulariser", interval.regulariser}}}};
}

// Checked access to a JSON object from a file.
struct Reader {
  const Json& object;
  const std::string& origin;

  const Json& at(const char* key) const {
    if (!object.is_object() || !object.contains(key)) {
      user_error("{}: {}: \"{}\" is missing", origin, kStateKey, key);
    }
    return object.at(key);
  }
  void read(const char* key, std::int64_t& value) const {
    if (!at(key).is_number_integer() || at(key).get<std::int64_t>() < 0) {
      user_error("{}: {}: \"{}\" must be an integer of at least 0", origin, kStateKey, key);
    }
    value = at(key).get<std::int64_t>();
  }
  void read(const char* key, double& value) const {
    if (!at(key).is_number()) {
      user_error("{}: {}: \"{}\" must be a number", origin, kStateKey, key);
    }
    value = at(key).get<double>();
  }
};

void from_json(const Json& json, const std::string& origin, TrainState& state) {
  const Reader all{json, origin};
  all.read("epoch", state.position.epoch);
  all.read("epoch_step", state.position.step);
  all.read("tokens", state.tokens);
  all.read("seconds", state.seconds);
  if (json.contains("cpu_seconds")) {  // not in files of earlier versions
    all.read("cpu_seconds", state.cpu_seconds);
  }
  all.read("steady_tokens", state.steady_tokens);
  all.read("steady_seconds", state.steady_seconds);
  if (std::int64_t threads = 0; json.contains("threads")) {  // not in files of earlier versions
    all.read("threads", threads);
    if (threads != at::get_num_threads()) {
      log_warning(
          "{}: was trained with {} threads per rank, and continues with {}: sums round differently, so the result will "
          "not be bit-identical to an uninterrupted run",
          origin, threads, at::get_num_threads());
    }
  }
  const Reader interval{all.at("interval"), origin};
  interval.read("steps", state.interval.steps);
  interval.read("tokens", state.interval.tokens);
  interval.read("seconds", state.interval.seconds);
  interval.read("loss", state.interval.loss);
  interval.read("regulariser", state.interval.regulariser);
}

const std::string& metadata_at(const store::Checkpoint& checkpoint, const char* key, const std::string& origin) {
  const auto found = checkpoint.metadata.find(key);
  if (found == checkpoint.metadata.end()) {
    user_error("{}: cannot be resumed: \"{}\" is missing", origin, key);
  }
  return found->second;
}

// Copies a shard of the checkpoint's tensor, because the tensor's memory is the mapped file.
at::Tensor copy_of(const store::Checkpoint& checkpoint, const std::string& name, const Shard& shard,
                   const at::Tensor& like, const std::string& origin) {
  const auto found = checkpoint.tensors.find(name);
  if (found == checkpoint.tensors.end()) {
    user_error("{}: cannot be resumed: tensor \"{}\" is missing", origin, name);
  }
  if (found->second.sizes() != like.sizes() || found->second.scalar_type() != like.scalar_type()) {
    user_error("{}: cannot be resumed: tensor \"{}\" is {} {}, expected {} {}", origin, name,
               c10::toString(found->second.scalar_type()), c10::str(found->second.sizes()),
               c10::toString(like.scalar_type()), c10::str(like.sizes()));
  }
  const at::Tensor own = view_of(like, shard);
  return at::empty_like(own, own.options().requires_grad(false)).copy_(view_of(found->second, shard));
}

// Returns the name of a layer's Transformer-XL memory in checkpoints.
std::string memory_name(std::size_t layer) {
  return fmt::format("memory.layer{}", layer);
}

models::Memory read_memory(const store::Checkpoint& checkpoint, const models::Model& model, const std::string& origin) {
  const models::MemoryShape most = model.memory_shape();
  const std::int64_t rows = checkpoint.config.train.batch_size;
  models::Memory memory;
  if (!checkpoint.tensors.contains(memory_name(0))) {
    return memory;
  }
  for (std::size_t layer = 0; layer < static_cast<std::size_t>(most.layers); ++layer) {
    const auto found = checkpoint.tensors.find(memory_name(layer));
    if (found == checkpoint.tensors.end()) {
      user_error("{}: cannot be resumed: tensor \"{}\" is missing", origin, memory_name(layer));
    }
    const at::Tensor& stored = found->second;
    if (stored.dim() != 3 || stored.size(0) != rows || stored.size(1) > most.length || stored.size(2) != most.width) {
      user_error("{}: cannot be resumed: tensor \"{}\" is {}, expected [{}, at most {}, {}]", origin,
                 memory_name(layer), c10::str(stored.sizes()), rows, most.length, most.width);
    }
    memory.layers.push_back(stored.to(stored.options().device(model.device()), /*non_blocking=*/false, /*copy=*/true));
  }
  return memory;
}

}  // namespace

TrainState initial_state(const nn::Parameters& parameters, config::Optimizer optimizer, const ProcessGroup& group) {
  TrainState state;
  for (const Shard& shard : owned_shards(parameters, optimizer, group)) {
    const nn::Parameter& parameter = parameters.all()[shard.tensor];
    const bool squares = config::has_second_moment(optimizer, parameter.hidden.has_value());
    const at::Tensor own = view_of(parameter.tensor, shard);
    const at::Tensor zeros = at::zeros_like(own, own.options().requires_grad(false));
    state.moments.m.push_back(zeros);
    state.moments.v.push_back(squares ? at::zeros_like(zeros) : at::Tensor());
  }
  return state;
}

store::Checkpoint to_checkpoint(const TrainState& state, const CheckpointParts& parts) {
  const config::Config& config = parts.config;
  store::Checkpoint checkpoint{
      .config = config, .step = state.step, .tokenizer = parts.tokenizer, .tensors = {}, .metadata = {}};
  const nn::Parameters& parameters = parts.model.parameters();
  const auto shape_of = [](const at::Tensor& tensor) {
    return at::empty(tensor.sizes(), tensor.options().device(at::kMeta).requires_grad(false));
  };
  for (const nn::Parameter& parameter : parameters.all()) {
    checkpoint.tensors.emplace("model." + parameter.name, shape_of(parameter.tensor));
    checkpoint.tensors.emplace("optimizer.m." + parameter.name, shape_of(parameter.tensor));
    if (config::has_second_moment(config.train.optimizer, parameter.hidden.has_value())) {
      checkpoint.tensors.emplace("optimizer.v." + parameter.name, shape_of(parameter.tensor));
    }
  }
  const std::vector<Shard> shards = owned_shards(parameters, config.train.optimizer, parts.group);
  for (std::size_t k = 0; k < shards.size(); ++k) {
    const nn::Parameter& parameter = parameters.all()[shards[k].tensor];
    const auto add = [&](const std::string& key, const at::Tensor& tensor) {
      if (is_whole(shards[k], parameter.tensor)) {
        checkpoint.tensors[key] = tensor;
      } else {
        checkpoint.shards[key].push_back({.begin = shards[k].begin, .values = tensor});
      }
    };
    add("model." + parameter.name, view_of(parameter.tensor, shards[k]));
    add("optimizer.m." + parameter.name, state.moments.m[k]);
    if (state.moments.v[k].defined()) {
      add("optimizer.v." + parameter.name, state.moments.v[k]);
    }
  }
  for (const nn::Parameter& stored : parameters.stored()) {
    // Buffers are identical on all ranks. (Parameters have been added above.)
    checkpoint.tensors.emplace("model." + stored.name, parts.group.leads() ? stored.tensor : shape_of(stored.tensor));
  }
  for (std::size_t layer = 0; layer < state.memory.layers.size(); ++layer) {
    checkpoint.tensors.emplace(memory_name(layer), state.memory.layers[layer]);
  }
  checkpoint.metadata.emplace(kStateKey, to_json_line(to_json(state)));
  checkpoint.metadata.emplace(kDataKey, parts.data);
  if (!parts.special_tokens.empty()) {
    checkpoint.metadata.emplace(store::kSpecialTokens, parts.special_tokens);
  }
  return checkpoint;
}

TrainState from_checkpoint(const store::Checkpoint& checkpoint, const models::Model& model, const std::string& origin,
                           const ProcessGroup& group) {
  const at::NoGradGuard no_grad;
  TrainState state;
  state.step = checkpoint.step;
  from_json(parse_json(metadata_at(checkpoint, kStateKey, origin), origin), origin, state);
  const config::Optimizer optimizer = checkpoint.config.train.optimizer;
  for (const Shard& shard : owned_shards(model.parameters(), optimizer, group)) {
    const nn::Parameter& parameter = model.parameters().all()[shard.tensor];
    if (parameter.tensor.is_meta()) {  // a sharded model (train/loop/sharded.h), which has its own moments
      state.moments = initial_state(model.parameters(), optimizer, group).moments;
      break;
    }
    const auto copy = [&](const char* kind) {
      return copy_of(checkpoint, kind + parameter.name, shard, parameter.tensor, origin);
    };
    const bool squares = config::has_second_moment(optimizer, parameter.hidden.has_value());
    state.moments.m.push_back(copy("optimizer.m."));
    state.moments.v.push_back(squares ? copy("optimizer.v.") : at::Tensor());
  }
  state.memory = read_memory(checkpoint, model, origin);
  return state;
}

void check_data(const store::Checkpoint& checkpoint, const std::string& identity, const std::string& origin) {
  const std::string& was = metadata_at(checkpoint, kDataKey, origin);
  if (was != identity) {
    user_error("{}: cannot be resumed: it was trained on other data ({}) than data.train has now ({})", origin, was,
               identity);
  }
}

std::string parameters_sha256(const nn::Parameters& parameters) {
  Sha256 hash;
  for (const nn::Parameter& parameter : parameters.stored()) {
    const at::Tensor bytes = parameter.tensor.detach().cpu().contiguous();
    hash.update(parameter.name);
    hash.update(std::span(static_cast<const std::byte*>(bytes.const_data_ptr()), bytes.nbytes()));
  }
  return hash.hex();
}

}  // namespace headroom::train
