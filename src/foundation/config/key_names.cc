// Names of keys besides the present ones: those of earlier versions and of other tools, and misspellings.
#include <algorithm>
#include <utility>
#include <vector>

#include "foundation/core/text/message.h"
#include "headroom/config/config.h"
#include "parse.h"

namespace headroom::config {
namespace detail {
namespace {

using KeyName = std::pair<std::string_view, std::string_view>;

// Keys that files and checkpoints of earlier versions have, and their present names.
constexpr KeyName kEarlierNames[] = {
    {"train.parts", "train.gradient_accumulators"}, {"data.most_words", "data.max_words"},
    {"data.length_ratio", "data.max_length_ratio"}, {"data.validation_share", "data.validation_fraction"},
    {"data.pixel_deviation", "data.pixel_std"},     {"model.attention.shift_deviation", "model.attention.shift_std"},
    {"decoding.beam", "decoding.beam_size"},
};

// Names of keys in other tools that are not similar to ours.
constexpr KeyName kNamesElsewhere[] = {
    {"n_layer", "model.n_layers"},
    {"num_layers", "model.n_layers"},
    {"num_hidden_layers", "model.n_layers"},
    {"depth", "model.n_layers"},
    {"n_embd", "model.d_model"},
    {"n_embed", "model.d_model"},
    {"embed_dim", "model.d_model"},
    {"hidden_size", "model.d_model"},
    {"dim", "model.d_model"},
    {"block_size", "model.context_length"},
    {"seq_len", "model.context_length"},
    {"seq_length", "model.context_length"},
    {"max_seq_len", "model.context_length"},
    {"n_ctx", "model.context_length"},
    {"n_positions", "model.context_length"},
    {"max_position_embeddings", "model.context_length"},
    {"vocab_size", "model.vocabulary_size"},
    {"n_head", "model.attention.n_heads"},
    {"num_heads", "model.attention.n_heads"},
    {"nhead", "model.attention.n_heads"},
    {"num_attention_heads", "model.attention.n_heads"},
    {"n_kv_head", "model.attention.n_kv_heads"},
    {"num_key_value_heads", "model.attention.n_kv_heads"},
    {"head_dim", "model.attention.d_head"},
    {"rope_theta", "model.attention.rope_base"},
    {"sliding_window", "model.attention.window"},
    {"intermediate_size", "model.mlp.d_hidden"},
    {"ffn_dim", "model.mlp.d_hidden"},
    {"d_ff", "model.mlp.d_hidden"},
    {"n_inner", "model.mlp.d_hidden"},
    {"hidden_act", "model.mlp.activation"},
    {"lr", "train.learning_rate"},
    {"max_lr", "train.learning_rate"},
    {"min_lr", "train.final_learning_rate"},
    {"lr_scheduler", "train.schedule"},
    {"lr_scheduler_type", "train.schedule"},
    {"max_iters", "train.steps"},
    {"max_steps", "train.steps"},
    {"num_steps", "train.steps"},
    {"iters", "train.steps"},
    {"iterations", "train.steps"},
    {"epochs", "train.steps"},
    {"num_epochs", "train.steps"},
    {"num_train_epochs", "train.steps"},
    {"bs", "train.batch_size"},
    {"per_device_train_batch_size", "train.batch_size"},
    {"micro_batches", "train.accumulate"},
    {"grad_accum", "train.accumulate"},
    {"gradient_accumulation_steps", "train.accumulate"},
    {"wd", "train.weight_decay"},
    {"grad_clip", "train.clip_norm"},
    {"max_grad_norm", "train.clip_norm"},
    {"warmup", "train.warmup_steps"},
    {"warmup_iters", "train.warmup_steps"},
    {"dtype", "train.precision"},
    {"eval_interval", "train.evaluate_every"},
    {"eval_steps", "train.evaluate_every"},
    {"eval_iters", "train.evaluate_tokens"},
    {"save_interval", "train.checkpoint_every"},
    {"save_steps", "train.checkpoint_every"},
    {"save_total_limit", "train.keep_checkpoints"},
    {"log_interval", "train.log_every"},
    {"logging_steps", "train.log_every"},
};

}  // namespace

std::string current_name(const std::string& dotted) {
  for (const auto& [earlier, present] : kEarlierNames) {
    if (earlier == dotted) {
      return std::string(present);
    }
  }
  return dotted;
}

std::string nearest_key(const Table& all, const std::string& table, std::string_view wrong) {
  std::vector<std::string> known;  // dotted names of keys and tables
  const auto add_tables = [&known](const auto& self, const Table& outer, const std::string& prefix) -> void {
    for (const Field& field : outer.fields) {
      known.push_back(prefix + field.key);
    }
    for (const Table& inner : outer.tables) {
      known.push_back(prefix + inner.key);
      self(self, inner, prefix + inner.key + ".");
    }
  };
  add_tables(add_tables, all, "");
  const std::string prefix = table.empty() ? "" : table + ".";
  const auto key_of = [](const std::string& dotted) { return dotted.substr(dotted.rfind('.') + 1); };
  std::vector<std::string> neighbours, others;
  for (const std::string& dotted : known) {
    if (key_of(dotted) == wrong) {  // the right key in the wrong table
      return dotted;
    }
    (dotted == prefix + key_of(dotted) ? neighbours : others).push_back(key_of(dotted));
  }
  for (const auto& [elsewhere, key] : kNamesElsewhere) {
    if (elsewhere == wrong) {
      return std::string(key);
    }
  }
  if (const std::string key = nearest(wrong, neighbours); !key.empty()) {
    return prefix + key;
  }
  const std::string key = nearest(wrong, others);
  const auto where =
      std::find_if(known.begin(), known.end(), [&](const auto& dotted) { return key_of(dotted) == key; });
  return where == known.end() ? "" : *where;
}

}  // namespace detail

std::string suggest_key(std::string_view wrong) {
  Config config;
  Fields fields;
  describe(fields, config);
  return detail::nearest_key(fields.root(), "", wrong);
}

}  // namespace headroom::config
