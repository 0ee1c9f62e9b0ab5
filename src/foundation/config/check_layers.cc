// Checks attention layers and MLPs, and finds keys that have no effect.
#include <algorithm>
#include <cstddef>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "checker.h"
#include "headroom/config/attention_part.h"
#include "headroom/config/part_options.h"
#include "parse.h"

namespace headroom::config {
namespace {

using detail::Checker;

// A key with a non-default value that has no effect with the current choices.
struct UnusedKey {
  std::string table, key, value;       // "model.attention.", "n_experts", "8"
  std::string choice, chosen, needed;  // the key that decides, its value, and the values that give the key an effect
  bool refuse;                         // Field::refuse_unused

  std::string dotted_choice() const { return is_dotted(choice) ? choice : table + choice; }
  static bool is_dotted(std::string_view key) { return key.find('.') != std::string_view::npos; }
};

std::string list_of(const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t i = 0; i < names.size(); ++i) {
    text += (i == 0 ? "" : i + 1 == names.size() ? " or " : ", ") + detail::in_quotes(names[i]);
  }
  return text;
}

// Returns the value of the key that decides whether `field` of `table` has an effect.
std::string chosen_for(const Field& field, const Table& table, const Table& root) {
  const std::size_t dot = field.choice.find('.');
  const Field* const choice = dot == std::string::npos
                                  ? table.find(field.choice)
                                  : root.find_table(field.choice.substr(0, dot))->find(field.choice.substr(dot + 1));
  return std::get<Choice>(choice->slot).get();
}

// `defaults` describes another object of the same type with its default values. `root` contains `table`.
void add_unused(const std::string& path, const Table& table, const Table& defaults, const Table& root,
                std::vector<UnusedKey>& unused) {
  for (std::size_t i = 0; i < table.fields.size(); ++i) {
    const Field& field = table.fields[i];
    if (field.readers.empty()) {
      continue;
    }
    const std::string chosen = chosen_for(field, table, root);
    if (std::ranges::find(field.readers, chosen) != field.readers.end()) {
      continue;
    }
    if (const std::string value = detail::spelled(field); value != detail::spelled(defaults.fields[i])) {
      unused.push_back({path, field.key, value, field.choice, chosen, list_of(field.readers), field.refuse_unused});
    }
  }
  for (std::size_t i = 0; i < table.tables.size(); ++i) {
    add_unused(path + table.tables[i].key + ".", table.tables[i], defaults.tables[i], root, unused);
  }
}

// Returns the description of a config with its default values.
const Table& default_values() {
  struct Described {
    Described() { describe(fields, config); }
    Config config;
    Fields fields;
  };
  static Described described;
  return described.fields.root();
}

std::vector<UnusedKey> unused_by_one(ModelOptions model) {
  Fields fields;
  describe(fields, model);
  std::vector<UnusedKey> unused;
  add_unused("model.", fields.root(), *default_values().find_table("model"), fields.root(), unused);
  return unused;
}

std::vector<UnusedKey> unused_apart_from_model(Config config) {
  Fields fields;
  describe(fields, config);
  const Table &root = fields.root(), &usual_root = default_values();
  std::vector<UnusedKey> unused;
  for (std::size_t i = 0; i < root.tables.size(); ++i) {
    if (const Table& table = root.tables[i]; table.key != "model") {
      add_unused(table.key + ".", table, usual_root.tables[i], root, unused);
    }
  }
  return unused;
}

// Returns the keys of model.attention and model.mlp that no layer reads, and the keys of each entry of model.layers
// that the entry's layers do not read.
std::vector<UnusedKey> unused_in(const ModelOptions& model) {
  if (model.layers.empty()) {
    return unused_by_one(model);
  }
  std::vector<UnusedKey> all;
  std::map<std::string, std::size_t> inherited;  // the number of entries that inherit the key and do not read it
  for (std::size_t entry = 0; entry < model.layers.size(); ++entry) {
    for (UnusedKey& key : unused_by_one(detail::of_entry(model, entry))) {
      const LayerOptions& layer = model.layers[entry];
      if ((key.table == "model.mlp." ? layer.mlp : layer.attention).contains(key.key)) {
        key.table.replace(0, std::string_view("model").size(), detail::entry_name(entry));
        all.push_back(std::move(key));
      } else if (++inherited[key.table + key.key] == model.layers.size()) {
        all.push_back(std::move(key));
      }
    }
  }
  return all;
}

// Returns whether a value set at `place` is meant for the current choice. A value from a base file that made another
// choice is not.
bool is_meant(const GivenKeys& given, std::string_view place, const UnusedKey& unused) {
  const auto file_of = [](std::string_view at) { return at.substr(0, at.rfind(':')); };  // strips the line number
  const auto chosen = given.find(unused.dotted_choice());
  return chosen == given.end() || detail::is_option(place) || file_of(chosen->second) == file_of(place);
}

void check_scores(const Checker& check, const ModelOptions& model) {
  const AttentionOptions& a = model.attention;
  const bool causal = model.kind == ModelKind::language_model || model.kind == ModelKind::encoder_decoder;
  check.require(a.window == 0 || causal, "window", "must be 0 with {}, whose attention is not causal",
                detail::setting("kind", model.kind));
  check.require(a.window == 0 || a.score->has_scores(), "window", "must be 0 with {}, which sums over all keys",
                detail::setting("score", a.score));
  check.require(a.dropout == 0.0 || a.score->has_scores(), "dropout",
                "must be 0 with {}, which has no attention weights", detail::setting("score", a.score));
  check.require(detail::is_window_pattern(a.window_pattern), "window_pattern",
                "must be local:global layers such as \"1:0\", \"1:1\" or \"3:1\", got \"{}\"", a.window_pattern);
  check.require(a.window > 0 || a.window_pattern == AttentionOptions().window_pattern, "window",
                "must be above 0 for the local layers of window_pattern = \"{}\"", a.window_pattern);
}

void check_parts(const ModelOptions& model, const std::string& name, detail::Origin origin) {
  const std::string table = name + ".attention";
  const Checker check(origin, table);
  const AttentionOptions& a = model.attention;
  if (!a.has_heads()) {
    check.require(model.kind != ModelKind::encoder_decoder, "n_heads",
                  "must be above 0 with {}, whose layers attend to the source", detail::setting("kind", model.kind));
    return;
  }
  a.projection->check(check, model);
  a.score->check(check, model);
  a.composition->check(check, model);
  a.position->check(check, model);
  a.gate_output->check(check, model);
}

void refuse(const std::vector<UnusedKey>& keys, detail::Origin origin) {
  for (const UnusedKey& unused : keys) {
    const std::string_view table = std::string_view(unused.table).substr(0, unused.table.size() - 1);
    Checker(origin, table)
        .require(!unused.refuse, unused.key, "needs {} = {}, not \"{}\"", unused.choice, unused.needed, unused.chosen);
  }
}

// The norms of peri layers do not reach values and MLPs, which must therefore be separable from keys and routing.
void check_peri(const ModelOptions& layer, const std::string& name, detail::Origin origin) {
  if (layer.norm_position != NormPosition::peri) {
    return;
  }
  const Checker here(origin, "model");
  here.require(layer.kind != ModelKind::encoder_decoder && layer.arrangement == Arrangement::sequential,
               "norm_position", "must be \"pre\" or \"post\" with {}, got \"peri\"",
               layer.kind == ModelKind::encoder_decoder ? detail::setting("kind", layer.kind)
                                                        : detail::setting("arrangement", layer.arrangement));
  here.require(layer.mlp.kind == MlpKind::experts, "norm_position",
               "must not be \"peri\" with {}.mlp.kind = \"{}\": its norm is for the routing of experts alone", name,
               name_of(layer.mlp.kind));
  here.require(!layer.attention.projection->has_latent(), "norm_position",
               "must not be \"peri\" with {}.attention.projection = \"{}\", whose keys and values share a latent", name,
               name_of(layer.attention.projection));
}

void check_repetition(const ModelOptions& model, detail::Origin origin) {
  const Checker here(origin, "model");
  const std::int64_t groups = model.n_groups;
  if (groups == 0) {
    return;
  }
  here.require(model.kind != ModelKind::encoder_decoder, "n_groups", "must be 0 with {}",
               detail::setting("kind", model.kind));
  here.require(model.n_layers % groups == 0, "n_groups", "must be 0 or divide n_layers = {}, got {}", model.n_layers,
               groups);
  const std::int64_t period = detail::period_of(model);
  here.require(groups % period == 0, "n_groups",
               "must be a multiple of the {} layers of the pattern (model.layers or window_pattern), got {}", period,
               groups);
}

// The parts that use keys and values as they are: one plain key and value per token and key head.
bool has_plain_keys(const AttentionOptions& a) {
  return a.projection->has_projected_heads() && a.score->has_scores() && a.score->is_bilinear() &&
         !a.score->is_recurrent() && a.key_components() == 1;
}

bool has_token_formula(const AttentionOptions& a) {
  const std::vector<LearnedValue> all = formulas_of(a.of<DotOptions>(), a.computed_heads(), a.d_head).learned;
  return std::ranges::any_of(all, &LearnedValue::of_tokens);
}

// Checks the parts of a layer that uses the keys and values of another layer.
void check_sharing_parts(const Checker& check, const AttentionOptions& a) {
  constexpr const char* kWhy = "must be {} with share_kv = {}: the layer has no {} of its own";
  check.require(has_plain_keys(a), "share_kv",
                "must be 0 with {} and {}, got {}; dense heads and their dot products share",
                detail::setting("projection", a.projection), detail::setting("score", a.score), a.share_kv);
  check.require(!a.has_experts('k') && !a.has_experts('v'), "experts", kWhy, "queries or outputs", a.share_kv,
                "keys and values");
  check.require(a.composition == "none" || a.composition == "static", "composition", kWhy, "\"none\" or \"static\"",
                a.share_kv, "keys to map");
  check.require(!a.position->has_offsets() && a.position != "forgetting", "position", kWhy,
                "none, added, rotary or alibi", a.share_kv, "terms of keys");
  check.require(!a.of<OutputGateOptions>().exclusive, "exclusive", kWhy, "false", a.share_kv, "values");
  check.require(!has_token_formula(a), "learned", kWhy, "without values of tokens", a.share_kv, "features of keys");
}

// Checks a layer with options `a` that uses the keys and values of layer `owner`, whose options are `from`.
void check_shared_pair(const Checker& check, const AttentionOptions& a, const AttentionOptions& from,
                       std::int64_t owner) {
  check.require(has_plain_keys(from), "share_kv",
                "must not lead to layer {} with {} and {}, whose keys no layer shares", owner,
                detail::setting("projection", from.projection), detail::setting("score", from.score));
  const auto equal = [&](std::string_view key, std::int64_t own, std::int64_t wanted) {
    check.require(own == wanted, key, "must be {}, as in layer {}, whose keys and values the layer uses, got {}",
                  wanted, owner, own);
  };
  equal("d_head", a.projected_width('k'), from.projected_width('k'));
  equal("d_head", a.value_width(), from.value_width());
  equal("n_kv_heads", a.kv_heads(), from.kv_heads());
  const auto& own = a.of<PositionOptions>();
  const auto& wanted = from.of<PositionOptions>();
  const bool rotates = a.position == "rope";
  check.require(a.position == from.position &&
                    (!rotates || (own.rope_base == wanted.rope_base && own.rope_fraction == wanted.rope_fraction &&
                                  static_cast<const RopeScalingOptions&>(own) == wanted)),
                "position", "must have the same settings as in layer {}, whose keys the layer uses as they are rotated",
                owner);
  check.require(from.window == 0 || (a.window > 0 && a.window <= from.window), "window",
                "must be above 0 and at most {}, the window of layer {}, whose cache keeps no older keys, got {}",
                from.window, owner, a.window);
}

void check_sharing(const ModelOptions& model, detail::Origin origin) {
  const std::int64_t n = model.n_layers, period = detail::period_of(model);
  const std::vector<std::int64_t> owners = model.key_owners(n);
  std::set<std::pair<std::int64_t, std::int64_t>> checked;
  for (std::int64_t layer = 0; layer < n; ++layer) {
    const std::int64_t owner = owners[static_cast<std::size_t>(layer)];
    if (owner == layer || !checked.emplace(layer % period, layer - owner).second) {
      continue;
    }
    const AttentionOptions a = model.of_layer(layer).attention;
    if (!a.has_heads()) {
      continue;
    }
    const std::string name = model.layers.empty() ? "model" : detail::entry_name(detail::entry_at(model.layers, layer));
    const std::string table = name + ".attention";
    const Checker check(origin, table);
    check.require(model.kind != ModelKind::encoder_decoder, "share_kv", "must be 0 with {}, got {}",
                  detail::setting("kind", model.kind), a.share_kv);
    check.require(owner >= 0, "share_kv",
                  "must be 0 in layer {}, got {}: the layer that far below does not exist or has no keys", layer,
                  a.share_kv);
    check_sharing_parts(check, a);
    check_shared_pair(check, a, model.of_layer(owner).attention, owner);
  }
}

void check_rest(const ModelOptions& model, const std::string& name, detail::Origin origin) {
  const std::string of_attention = name + ".attention", of_mlp = name + ".mlp";
  check_scores(Checker(origin, of_attention), model);
  check_peri(model, name, origin);
  const Checker mlp(origin, of_mlp);
  const bool experts = model.mlp.kind == MlpKind::experts;
  mlp.require(model.mlp.kind != MlpKind::none || model.attention.has_heads(), "kind",
              "must not be \"none\" with attention.n_heads = 0, which leaves nothing of the layer");
  mlp.require(!experts || model.mlp.top_k <= model.mlp.n_experts, "top_k", "must be at most n_experts = {}, got {}",
              model.mlp.n_experts, model.mlp.top_k);
  mlp.require(!experts || !model.mlp.shared_gate || model.mlp.d_shared > 0, "shared_gate",
              "must be false without a shared MLP (d_shared = 0), got true");
  mlp.require(model.mlp.hidden_groups == 0 || model.mlp.d_hidden % model.mlp.hidden_groups == 0, "hidden_groups",
              "must divide d_hidden = {}, got {}", model.mlp.d_hidden, model.mlp.hidden_groups);
  mlp.require(!experts || model.mlp.dropout <= 0.0, "dropout",
              "must be at most 0 with {}, whose hidden layers have no dropout, got {}",
              detail::setting("kind", model.mlp.kind), model.mlp.dropout);
}

// Checks what a layer must have in common with model.attention and the other layers.
void check_together(const ModelOptions& model, const std::vector<BalanceLoss>& losses, const ModelOptions& layer,
                    const std::string& name, detail::Origin origin) {
  const std::string of_attention = name + ".attention";
  const Checker check(origin, of_attention);
  const auto added = [](const ModelOptions& m) { return m.attention.position->added_vectors(); };
  check.require(added(layer) == added(model), "position",
                "must be \"{}\" as in model.attention, or both must add no vectors to the embeddings, got \"{}\"",
                name_of(model.attention.position), name_of(layer.attention.position));
  for (const BalanceLoss& loss : layer.layer_balance_losses()) {
    for (const BalanceLoss& other : losses) {
      check.require(loss.name != other.name || loss.coefficient == other.coefficient, "projection",
                    "has the balance loss \"{}\" with another coefficient than other layers, {} instead of {}",
                    loss.name, loss.coefficient, other.coefficient);
    }
  }
}

}  // namespace

namespace detail {

void check_unused(const Config& config, Origin origin, bool with_model) {
  std::vector<UnusedKey> keys = unused_apart_from_model(config);
  std::erase_if(keys, [&](const UnusedKey& key) { return !with_model && key.choice.starts_with("model."); });
  refuse(keys, origin);
}

void check_layers(const ModelOptions& model, Origin origin) {
  if (model.layers.empty()) {
    check_parts(model, "model", origin);
    refuse(unused_in(model), origin);
    check_rest(model, "model", origin);
    check_repetition(model, origin);
    check_sharing(model, origin);
    return;
  }
  const Checker here(origin, "model"), attention(origin, "model.attention");
  const std::int64_t period = period_of(model.layers), least = std::min(model.n_layers, model.decoder_layers());
  here.require(period <= least, "layers", "the pattern must have at most {} layers, as many as the model, got {}",
               least, period);
  attention.require(model.attention.window_pattern == AttentionOptions().window_pattern, "window_pattern",
                    "must not be set with model.layers, whose entries set window");
  const std::vector<BalanceLoss> losses = model.balance_losses();
  for (std::size_t entry = 0; entry < model.layers.size(); ++entry) {
    const ModelOptions layer = of_entry(model, entry);
    check_parts(layer, entry_name(entry), origin);
    check_rest(layer, entry_name(entry), origin);
    check_together(model, losses, layer, entry_name(entry), origin);
  }
  refuse(unused_in(model), origin);
  check_repetition(model, origin);
  check_sharing(model, origin);
}

}  // namespace detail

std::vector<std::string> unused_keys(const Config& config) {
  std::vector<std::string> warnings;
  std::vector<UnusedKey> all = unused_in(config.model);
  std::ranges::move(unused_apart_from_model(config), std::back_inserter(all));
  for (const UnusedKey& unused : all) {
    auto given = config.given.find(unused.table + unused.key);
    if (given == config.given.end() && unused.table.starts_with("model.layers.")) {
      given = config.given.find("model.layers");
    }
    if (given != config.given.end() && is_meant(config.given, given->second, unused)) {
      warnings.push_back(fmt::format("{}: {} = {} has no effect with {} = \"{}\", only with {}", given->second,
                                     unused.table + unused.key, unused.value, unused.choice, unused.chosen,
                                     unused.needed));
    }
  }
  return warnings;
}

}  // namespace headroom::config
