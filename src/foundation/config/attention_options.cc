#include "headroom/config/attention_options.h"

#include <fmt/format.h>

#include "headroom/config/attention_part.h"
#include "headroom/config/part_options.h"

namespace headroom::config {

bool AttentionOptions::has_experts(char which) const {
  return projection->is_bank(*this, which);
}

std::int64_t AttentionOptions::attention_matrices() const {
  return computed_heads() * composition->maps_per_head(*this);
}

std::int64_t AttentionOptions::projected_width(char which) const {
  return which == 'q'   ? d_head * composition->maps_per_head(*this)
         : which == 'k' ? d_head * composition->keys_per_head(*this)
                        : value_width();
}

std::int64_t AttentionOptions::key_components() const {
  return score->key_components(*this);
}

std::int64_t AttentionOptions::key_projections() const {
  return score->key_projections(*this);
}

std::int64_t AttentionOptions::computed_kv_heads() const {
  return projection->kv_heads(*this);
}

std::int64_t AttentionOptions::computed_heads() const {
  return projection->computed_heads(*this);
}

std::int64_t AttentionOptions::value_width() const {
  return projection->value_width(*this);
}

AttentionOptions AttentionOptions::across_sequences() const {
  AttentionOptions across = *this;
  if (position->has_distances()) {
    across.position = "none";
    across.of<PositionOptions>().position_bias = false;
  }
  auto& dot = across.of<DotOptions>();
  dot.formula = dot.mask = dot.learned = "";  // positions of two sequences are not comparable
  dot.normalise = Normalise::softmax;
  across.of<OutputGateOptions>().exclusive = false;  // a query has no value in the other sequence
  return across;
}

namespace {

// Adds the key that selects a part, then the options of all parts of its kind.
template <class Part>
void describe_parts(Fields& fields, PartName<Part>& chosen, AttentionOptions& o, std::string about) {
  const std::string key(Part::kKey);
  Choice choice;
  for (const Part* part : all_parts<Part>()) {
    choice.names.emplace_back(part->name());
    about += fmt::format("; {}: {}", part->name(), part->about());
  }
  choice.get = [&chosen] { return std::string(chosen.name()); };
  choice.set = [&chosen](const std::string& name) { chosen = name; };
  fields.add(key, std::move(choice), std::move(about));
  for (const Part* part : all_parts<Part>()) {
    fields.only_with(key, {part->name()}, [&](Fields& own) { part->describe(own, o); });
  }
}

}  // namespace

void describe(Fields& fields, AttentionOptions& o) {
  fields.add("n_heads", o.n_heads, between(0, 65536),
             "attention matrices that a layer computes (routed_heads: heads per token; routed_queries: of all groups); "
             "0: a layer without attention");
  fields.add("d_head", o.d_head, between(1, 65536), "channels of a head");
  fields.add("n_kv_heads", o.n_kv_heads, between(0, 65536),
             "key and value heads; fewer than n_heads: grouped-query, 1: multi-query, 0: n_heads (routed_heads: 1)");
  fields.add("share_kv", o.share_kv, between(0, 65536),
             "use the keys and values of the layer below (1), of the one below that (2), and so on, or of the layer "
             "whose keys and values that one uses; 0: its own");
  fields.add("bias", o.bias, "biases in the query, key, value and output projections");

  describe_parts(fields, o.projection, o, "how queries, keys, values and the output are projected");
  describe_parts(fields, o.score, o, "how a query scores a key");
  describe_parts(fields, o.composition, o, "how heads mix");
  describe_parts(fields, o.position, o, "position scheme");
  describe_parts(fields, o.gate_output, o, "gate on the head outputs before the output projection");
  fields.add("scale", o.scale, "factor of the scores: 1/sqrt(d_head), or a learned scalar per layer that starts there");
  fields.add("qk_norm", o.qk_norm, "normalise the queries and keys of each head before their dot product");
  fields.add("qk_norm_epsilon", o.qk_norm_epsilon, above(0), "epsilon of that norm, under the square root");
  fields.add("dropout", o.dropout, at_least_below(0, 1),
             "dropout probability of attention weights in training (uses the reference implementation, which stores T "
             "x S floats)");
  fields.add("window", o.window, between(0, 1 << 30),
             "keys that a query of a local layer sees, its own included; 0: all");
  fields.add("window_pattern", o.window_pattern,
             "pattern of local:global layers; \"1:0\": all local, \"1:1\": alternating, local first, \"3:1\": the "
             "second of every 4 is global");
}

}  // namespace headroom::config
