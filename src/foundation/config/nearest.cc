#include "nearest.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "foundation/core/text/nearest.h"
#include "headroom/config/config.h"
#include "suggest_key.h"

namespace headroom::config::detail {
namespace {

// What other tools call our keys, where no similar letters lead from one to the other.
constexpr std::pair<std::string_view, std::string_view> kNamesElsewhere[] = {
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

struct Known {
  std::string table, key;  // "model.attention", "n_heads"
  std::string dotted() const { return table.empty() ? key : table + "." + key; }
};

void collect(const std::string& table, const std::vector<Field>& fields, const std::vector<Fields::Table>& tables,
             std::vector<Known>& known) {
  for (const Field& field : fields) {
    known.push_back({table, field.key});
  }
  for (const Fields::Table& inner : tables) {
    known.push_back({table, inner.key});
    collect(known.back().dotted(), inner.fields, inner.tables, known);
  }
}

}  // namespace

std::string nearest_key(const Fields& all, const std::string& table, std::string_view wrong) {
  std::vector<Known> known;
  collect("", all.fields(), all.tables(), known);
  std::vector<std::string> neighbours, others;
  for (const Known& candidate : known) {
    if (candidate.key == wrong) {  // the right key in the wrong table
      return candidate.dotted();
    }
    (candidate.table == table ? neighbours : others).push_back(candidate.key);
  }
  for (const auto& [elsewhere, key] : kNamesElsewhere) {
    if (elsewhere == wrong) {
      return std::string(key);
    }
  }
  if (std::string key = nearest(wrong, neighbours); !key.empty()) {
    return Known{table, std::move(key)}.dotted();
  }
  const std::string key = nearest(wrong, others);
  const auto where = std::find_if(known.begin(), known.end(), [&key](const Known& k) { return k.key == key; });
  return where == known.end() ? "" : where->dotted();
}

}  // namespace headroom::config::detail

namespace headroom::config {

std::string suggest_key(std::string_view wrong) {
  Config config;
  Fields fields;
  describe(fields, config);
  return detail::nearest_key(fields, "", wrong);
}

}  // namespace headroom::config
