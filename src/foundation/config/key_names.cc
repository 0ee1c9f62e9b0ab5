// Alternative names of keys: names in earlier versions and other tools, and misspellings.
#include <fmt/format.h>

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

// Keys in files and checkpoints of earlier versions, with their current names.
constexpr KeyName kEarlierNames[] = {
    {"train.parts", "train.gradient_accumulators"}, {"data.most_words", "data.max_words"},
    {"data.length_ratio", "data.max_length_ratio"}, {"data.validation_share", "data.validation_fraction"},
    {"data.pixel_deviation", "data.pixel_std"},     {"model.attention.shift_deviation", "model.attention.shift_std"},
    {"decoding.beam", "decoding.beam_size"},
};

// Keys of other tools, separated by spaces, that are too different from ours to be suggested by similarity.
constexpr KeyName kNamesElsewhere[] = {
    {"model.n_layers", "n_layer num_layers num_hidden_layers depth"},
    {"model.d_model", "n_embd n_embed embed_dim hidden_size dim"},
    {"model.context_length", "block_size seq_len seq_length max_seq_len n_ctx n_positions max_position_embeddings"},
    {"model.vocabulary_size", "vocab_size"},
    {"model.attention.n_heads", "n_head num_heads nhead num_attention_heads"},
    {"model.attention.n_kv_heads", "n_kv_head num_key_value_heads"},
    {"model.attention.d_head", "head_dim"},
    {"model.attention.rope_base", "rope_theta"},
    {"model.attention.window", "sliding_window"},
    {"model.mlp.d_hidden", "intermediate_size ffn_dim d_ff n_inner"},
    {"model.mlp.activation", "hidden_act"},
    {"train.learning_rate", "lr max_lr"},
    {"train.final_learning_rate", "min_lr"},
    {"train.schedule", "lr_scheduler lr_scheduler_type"},
    {"train.steps", "max_iters max_steps num_steps iters iterations epochs num_epochs num_train_epochs"},
    {"train.batch_size", "bs per_device_train_batch_size"},
    {"train.accumulate", "micro_batches grad_accum gradient_accumulation_steps"},
    {"train.weight_decay", "wd"},
    {"train.clip_norm", "grad_clip max_grad_norm"},
    {"train.warmup_steps", "warmup warmup_iters"},
    {"train.precision", "dtype"},
    {"train.evaluate_every", "eval_interval eval_steps"},
    {"train.evaluate_tokens", "eval_iters"},
    {"train.checkpoint_every", "save_interval save_steps"},
    {"train.keep_checkpoints", "save_total_limit"},
    {"train.log_every", "log_interval logging_steps"},
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
  std::vector<std::string> known;  // dotted names of all keys and tables
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
  for (const auto& [key, elsewhere] : kNamesElsewhere) {
    if (fmt::format(" {} ", elsewhere).find(fmt::format(" {} ", wrong)) != std::string::npos) {
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
