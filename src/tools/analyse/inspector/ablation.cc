#include "ablation.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "attribution.h"
#include "foundation/core/text/format.h"
#include "headroom/config/attention_part.h"
#include "headroom/config/part_options.h"
#include "headroom/core/error.h"

namespace headroom::inspector {
namespace {

constexpr const char* kField = "switched_off";

// Returns the index stored under `key`, or -1 if the key is missing.
std::int64_t index_in(const SortedJson& object, const char* key, std::int64_t size, const char* what) {
  const auto found = object.find(key);
  if (found == object.end()) {
    return -1;
  }
  if (!found->is_number_unsigned() || found->get<std::uint64_t>() >= static_cast<std::uint64_t>(size)) {
    user_error("{}: {}: must be the index of one of the {} {}, from 0, got {}", kField, key, size, what,
               printable(found->dump(-1, ' ', false, SortedJson::error_handler_t::replace)));
  }
  return found->get<std::int64_t>();
}

std::string one_of(const SortedJson& object, const char* key, const std::vector<std::string_view>& names) {
  const auto found = object.find(key);
  if (found == object.end()) {
    return {};
  }
  if (!found->is_string() || std::ranges::find(names, found->get_ref<const std::string&>()) == names.end()) {
    std::string all;
    for (const std::string_view name : names) {
      all += (all.empty() ? "\"" : ", \"") + std::string(name) + '"';
    }
    user_error("{}: {}: must be one of {}", kField, key, all);
  }
  return found->get<std::string>();
}

void require_valid_keys(const std::set<std::string>& keys) {
  static const std::set<std::set<std::string>> kKinds = {{"layer", "head"},
                                                         {"layer", "head", "query", "source"},
                                                         {"layer", "head", "value_expert"},
                                                         {"layer", "head", "output_expert"},
                                                         {"layer", "expert"},
                                                         {"layer", "stage", "term"}};
  if (!kKinds.contains(keys)) {
    user_error(
        "{}: each object must have a layer and one of: a head; a head, query and source; a head and value_expert; a "
        "head and output_expert; an expert; a stage and term",
        kField);
  }
}

void require_in_model(const Ablation& off, const config::AttentionOptions& a) {
  const bool routed = !a.projection->has_fixed_heads();
  if (off.query >= 0 && !a.score->has_scores()) {
    user_error("{}: query: attention with this score has no attention matrix", kField);
  }
  if (off.value_expert >= 0 && !a.has_experts('v')) {
    user_error("{}: value_expert: the model has no value experts", kField);
  }
  if (off.output_expert >= 0 && !a.has_experts('o')) {
    user_error("{}: output_expert: the model has no output experts", kField);
  }
  if (off.expert >= 0 && !routed) {
    user_error("{}: expert: the model has no routed heads", kField);
  }
  if (!off.stage.empty() && !a.composition->has_maps(a, off.stage == "before" ? "pre" : "post")) {
    user_error("{}: stage: the model does not compose heads {} the softmax", kField, off.stage);
  }
}

// Returns the routing weights [N, H, K] with one head's expert set to 0.
at::Tensor without_expert(at::Tensor weight, const at::Tensor& index, std::int64_t head, std::int64_t expert) {
  at::Tensor hit = index.eq(expert);
  if (index.size(1) > 1) {
    hit = hit.logical_and(at::arange(index.size(1), index.options()).eq(head).view({1, -1, 1}));
  }
  return weight.masked_fill(hit, 0.0);
}

bool is_query_term(const std::string& term) {
  return term.starts_with("query");
}

// Returns the index of the term's map in query_terms and key_terms.
std::int64_t map_index(const std::string& term) {
  return term.ends_with("gate") ? 1 : 0;
}

}  // namespace

std::vector<Ablation> parse_ablations(const SortedJson& list, const config::ModelOptions& options,
                                      std::int64_t n_tokens) {
  constexpr std::size_t kMost = 256;
  if (!list.is_array() || list.size() > kMost) {
    user_error("{}: must be a list of at most {} objects", kField, kMost);
  }
  const std::vector<std::string_view> terms(std::begin(kAblatedTerms), std::end(kAblatedTerms));
  std::vector<Ablation> all;
  for (const SortedJson& object : list) {
    if (!object.is_object()) {
      user_error("{}: must be a list of objects", kField);
    }
    std::set<std::string> keys;
    for (const auto& [key, value] : object.items()) {
      keys.insert(key);
    }
    require_valid_keys(keys);
    const std::int64_t layer = index_in(object, "layer", options.n_layers, "layers");
    const config::AttentionOptions a = options.of_layer(layer).attention;
    Ablation off{
        .layer = layer,
        .head = index_in(object, "head", a.computed_heads(), "heads"),
        .query = index_in(object, "query", n_tokens, "tokens"),
        .source = index_in(object, "source", n_tokens, "tokens"),
        .value_expert = index_in(object, "value_expert", a.of<config::RoutingOptions>().n_experts, "experts"),
        .output_expert = index_in(object, "output_expert", a.of<config::RoutingOptions>().n_experts, "experts"),
        .expert = index_in(object, "expert", attributed_experts(a), "experts"),
        .stage = one_of(object, "stage", {"before", "after"}),
        .term = one_of(object, "term", terms)};
    require_in_model(off, a);
    all.push_back(std::move(off));
  }
  return all;
}

AblationObserver::AblationObserver(const std::vector<Ablation>& off, const config::ModelOptions& options) {
  for (const Ablation& one : off) {
    parts_.push_back({.off = one,
                      .attention = options.of_layer(one.layer).attention,
                      .scope = fmt::format("layer{}.attention.", one.layer)});
  }
}

// Whether an ablation reads or changes this value of its layer.
bool AblationObserver::concerns(const Part& part, std::string_view what) {
  const Ablation& off = part.off;
  if (!off.stage.empty()) {
    const bool before = off.stage == "before";
    return what == (before ? "scores" : "probs") || what == (before ? "scores_composed" : "probs_composed") ||
           what == (is_query_term(off.term) ? "query_terms" : "key_terms");
  }
  if (off.expert >= 0) {
    return what == "select.index" || what == "select.weight";
  }
  if (off.value_expert >= 0) {
    return what == "select_in.index" || what == "select_in.weight";
  }
  if (off.output_expert >= 0) {
    return what == "select_out.index" || what == "select_out.weight";
  }
  // Linear attention ignores changes of its weights, so its head outputs are changed instead.
  return part.attention.score->has_scores() ? what == "probs_composed"
                                            : what == "probs" || what == "o" || what == "value_sum";
}

bool AblationObserver::wants(std::string_view name) const {
  return std::ranges::any_of(parts_, [&](const Part& part) {
    return name.starts_with(part.scope) && concerns(part, name.substr(part.scope.size()));
  });
}

at::Tensor AblationObserver::ablate(const Part& part, std::string_view what, at::Tensor value) {
  const Ablation& off = part.off;
  if (!off.stage.empty()) {
    const bool before = off.stage == "before";
    if (what == "query_terms" || what == "key_terms") {
      // Dimension 2 holds one or both stages.
      const std::int64_t stage = before ? 0 : value.size(2) - 1;
      value = value.clone();
      value.select(2, stage).select(2, map_index(off.term)).zero_();
      return value;
    }
    if (what == (before ? "scores_composed" : "probs_composed")) {
      const at::Tensor& from = before ? scores_ : probs_;
      const bool queries = is_query_term(off.term);
      const at::Tensor& terms = queries ? query_terms_ : key_terms_;
      const at::Tensor map =
          terms.select(2, before ? 0 : terms.size(2) - 1).select(2, map_index(off.term));  // [B, n, H, H]
      return value - at::einsum(queries ? "bhts,bthk->bkts" : "bhts,bshk->bkts", {from, map.to(from.scalar_type())});
    }
    return value;
  }
  if (what.ends_with(".index")) {
    return value;
  }
  if (what.ends_with(".weight")) {
    if (off.expert >= 0) {  // a head of any group
      const std::int64_t width = part.attention.projection->router_width(part.attention);
      return without_expert(std::move(value), index_, off.expert / width, off.expert % width);
    }
    return without_expert(std::move(value), index_, off.head, std::max(off.value_expert, off.output_expert));
  }
  value = value.clone();
  at::Tensor head = value.select(1, off.head);
  if (off.query >= 0) {
    head.select(1, off.query).select(1, off.source).zero_();
  } else {
    head.zero_();
  }
  return value;
}

at::Tensor AblationObserver::observe(std::string_view name, at::Tensor value) {
  const std::string_view what = name.substr(name.find('.', name.find('.') + 1) + 1);
  if (what == "query_terms") {
    query_terms_ = value;
  } else if (what == "key_terms") {
    key_terms_ = value;
  } else if (what == "scores") {
    scores_ = value;
  } else if (what == "probs") {
    probs_ = value;
  } else if (what.ends_with(".index")) {
    index_ = value;
  }
  for (const Part& part : parts_) {
    if (name.starts_with(part.scope) && concerns(part, what)) {
      value = ablate(part, what, std::move(value));
    }
  }
  return value;
}

}  // namespace headroom::inspector
