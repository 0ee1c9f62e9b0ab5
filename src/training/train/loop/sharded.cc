#include "sharded.h"

#include "headroom/core/error.h"
#include "training/tasks/task.h"
#include "training/train/record/run_folder.h"
#include "training/train/step/step.h"

namespace headroom::train {

void require_shardable(const config::Config& config) {
  const config::TrainOptions& t = config.train;
  const auto refuse = [](bool wrong, const char* key, const std::string& wanted) {
    if (wrong) {
      user_error("{}: must be {} with sharded parameters; `headroom train` has no such limit", key, wanted);
    }
  };
  refuse(config.model.kind != config::ModelKind::language_model, "model.kind", "\"language_model\"");
  refuse(config.model.memory_length > 0, "model.memory_length", "0");
  refuse(tasks::task_for(config, "train").name() != "language modelling", "data", "text");
  refuse(t.optimizer != config::Optimizer::adamw, "train.optimizer", "\"adamw\"");
  refuse(!t.teacher.empty(), "train.teacher", "empty");
  refuse(t.seconds > 0.0, "train.seconds", "0");
  refuse(t.sample_every > 0, "train.sample_every", "0");
  refuse(t.verify_every > 0, "train.verify_every", "0");
  refuse(t.gradient_accumulators > 0, "train.gradient_accumulators", "0");
}

store::Checkpoint newest_sharded(const ShardedCall& call, const std::filesystem::path& out) {
  const Json found = call("newest", {{"folder", (out / kShardedFolder).string()}}, {}).values;
  return {.config = read_run_config(out),
          .step = found.at("step"),
          .tokenizer = nullptr,
          .tensors = {},
          .metadata = found.at("metadata").get<std::map<std::string, std::string>>()};
}

namespace {

class ShardedModel : public models::Model {
 public:
  ShardedModel(const config::Config& config, const ShardedCall& call)
      : Model(std::make_unique<Parts>(), config.model, config.model.kind), call_(call) {
    parameters() = models::make_model(config.model, 0, at::TensorOptions(at::kFloat).device(at::kMeta))->parameters();
  }

  at::Device device() const override { return at::kCPU; }  // of batches
  models::Loss loss(const models::Batch& batch, models::Memory& /*memory*/, const nn::Context& context) const override {
    *context.token_losses = call_("losses", {}, {batch.at("tokens"), batch.at("targets")}).tensors.at(0);
    return {.cross_entropy = context.token_losses->mean(), .regulariser = {}};
  }
  models::Batch example(std::int64_t /*rows*/, std::uint64_t /*seed*/) const override {
    fail("train: a sharded model has no example");
  }

 private:
  ShardedCall call_;
};

}  // namespace

std::unique_ptr<models::Model> make_sharded_model(const config::Config& config, const ShardedCall& call) {
  return std::make_unique<ShardedModel>(config, call);
}

void open_sharded(const ShardedCall& call, const config::Config& config, const std::filesystem::path& out,
                  std::int64_t step, const store::Checkpoint* initial) {
  std::vector<at::Tensor> values;
  if (initial != nullptr) {
    const auto shapes = models::make_model(config.model, 0, at::TensorOptions(at::kFloat).device(at::kMeta));
    for (const nn::Parameter& parameter : shapes->parameters().in_creation_order()) {
      values.push_back(initial->tensors.at("model." + parameter.name));
    }
  }
  Json keys = Json::object();
  for (const auto& [key, value] : config::flatten(config)) {
    keys[key] = value;
  }
  call("open", {{"config", keys}, {"folder", (out / kShardedFolder).string()}, {"step", step}}, values);
}

StepOutcome sharded_step(const ShardedCall& call, const models::Batch& batch, TrainState& state,
                         const config::TrainOptions& options, const parallel::GlooGroup& group, bool stop) {
  std::vector<std::int64_t> micro_batches;
  for (const MicroBatchRange& range : ranges_of(options, group.rank(), group.size())) {
    micro_batches.push_back(range.first);
  }
  StepOutcome outcome{.learning_rate = learning_rate(options, state.step)};
  const Json values = {
      {"step", state.step}, {"learning_rate", outcome.learning_rate}, {"stop", stop}, {"micro_batches", micro_batches}};
  const at::Tensor reply = call("step", values, {batch.at("tokens")}).tensors.at(0).contiguous();
  const double* const sums = reply.const_data_ptr<double>();
  outcome.loss = sums[0];
  outcome.regulariser = sums[1];
  outcome.gradient_norm = sums[2];
  outcome.stop = sums[3] > 0.0;
  state.step += outcome.finite() ? 1 : 0;
  return outcome;
}

void add_shards(const ShardedCall& call, store::Checkpoint& checkpoint) {
  const ShardedReply reply = call("shards", {}, {});
  checkpoint.shards.clear();
  for (std::size_t i = 0; i < reply.tensors.size(); ++i) {
    const std::string name = reply.values.at(i).at(0);
    const at::Tensor& values = reply.tensors[i];
    if (at::Tensor& whole = checkpoint.tensors.at(name); values.numel() == whole.numel()) {
      whole = values.view(whole.sizes());
    } else {
      checkpoint.shards[name].push_back({.begin = reply.values.at(i).at(1), .values = values});
    }
  }
}

}  // namespace headroom::train
