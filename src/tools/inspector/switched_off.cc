#include "switched_off.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "foundation/core/text/message.h"
#include "headroom/config/attention_part.h"
#include "headroom/core/error.h"

namespace headroom::inspect {
namespace {

constexpr const char* kField = "switched_off";

std::int64_t place_in(const SortedJson& object, const char* key, std::int64_t there, const char* what) {
  const auto found = object.find(key);
  if (found == object.end()) {
    return -1;
  }
  if (!found->is_number_unsigned() || found->get<std::uint64_t>() >= static_cast<std::uint64_t>(there)) {
    user_error("{}: {}: must be the number of one of the {} {}, from 0 on, got {}", kField, key, there, what,
               printable(found->dump(-1, ' ', false, SortedJson::error_handler_t::replace)));
  }
  return found->get<std::int64_t>();
}

std::string one_of(const SortedJson& object, const char* key, const std::vector<std::string_view>& names) {
  const auto found = object.find(key);
  if (found == object.end()) {
    return {};
  }
  if (!found->is_string() ||
      std::find(names.begin(), names.end(), found->get_ref<const std::string&>()) == names.end()) {
    std::string all;
    for (const std::string_view name : names) {
      all += (all.empty() ? "\"" : ", \"") + std::string(name) + '"';
    }
    user_error("{}: {}: must be one of {}", kField, key, all);
  }
  return found->get<std::string>();
}

// What the fields together must be.
using Given = std::set<std::string>;
void require_known(const Given& given) {
  static const std::set<Given> kKinds = {{"layer", "head"},
                                         {"layer", "head", "query", "source"},
                                         {"layer", "head", "value_expert"},
                                         {"layer", "head", "output_expert"},
                                         {"layer", "expert"},
                                         {"layer", "stage", "term"}};
  if (!kKinds.contains(given)) {
    user_error(
        "{}: each must be a layer with a head (and then a query and its source, a value_expert or an output_expert), "
        "with an expert, or with a stage and a term",
        kField);
  }
}

void require_in_model(const SwitchedOff& off, const config::AttentionOptions& a) {
  const bool routed = !a.projection->has_fixed_heads();
  if (off.query >= 0 && !a.score->has_scores()) {
    user_error("{}: query: attention of this kind has no weights of single pairs", kField);
  }
  if (off.value_expert >= 0 && !a.has_experts('v')) {
    user_error("{}: value_expert: the model's values have no experts", kField);
  }
  if (off.output_expert >= 0 && !a.has_experts('o')) {
    user_error("{}: output_expert: the model's outputs have no experts", kField);
  }
  if (off.expert >= 0 && !routed) {
    user_error("{}: expert: the model routes no token to heads", kField);
  }
  if (!off.stage.empty() &&
      (a.composition->tensors(a, 1).empty() || !a.composes(off.stage == "before" ? "pre" : "post"))) {
    user_error("{}: stage: the model composes no heads {} the softmax", kField, off.stage);
  }
}

// A choice's weights without those of one head's expert, [N, H, K].
at::Tensor without_expert(at::Tensor weight, const at::Tensor& index, std::int64_t head, std::int64_t expert) {
  at::Tensor hit = index.eq(expert);
  if (index.size(1) > 1) {
    hit = hit.logical_and(at::arange(index.size(1), index.options()).eq(head).view({1, -1, 1}));
  }
  return weight.masked_fill(hit, 0.0);
}

bool of_queries(const std::string& term) {
  return term.starts_with("query");
}

std::int64_t axis_of_term(const std::string& term) {
  return term.ends_with("gate") ? 1 : 0;
}

}  // namespace

std::vector<SwitchedOff> read_switched_off(const SortedJson& list, const config::ModelOptions& options,
                                           std::int64_t n_tokens) {
  constexpr std::size_t kMost = 256;
  if (!list.is_array() || list.size() > kMost) {
    user_error("{}: must be a list of at most {} objects", kField, kMost);
  }
  const config::AttentionOptions& a = options.attention;
  const std::int64_t heads = a.projection->has_fixed_heads() ? a.n_heads : a.top_k;
  const std::vector<std::string_view> terms(std::begin(kSwitchedTerms), std::end(kSwitchedTerms));
  std::vector<SwitchedOff> all;
  for (const SortedJson& object : list) {
    if (!object.is_object()) {
      user_error("{}: must be a list of objects", kField);
    }
    Given given;
    for (const auto& [key, value] : object.items()) {
      given.insert(key);
    }
    require_known(given);
    SwitchedOff off{.layer = place_in(object, "layer", options.n_layers, "layers"),
                    .head = place_in(object, "head", heads, "heads"),
                    .query = place_in(object, "query", n_tokens, "tokens"),
                    .source = place_in(object, "source", n_tokens, "tokens"),
                    .value_expert = place_in(object, "value_expert", a.n_experts, "experts"),
                    .output_expert = place_in(object, "output_expert", a.n_experts, "experts"),
                    .expert = place_in(object, "expert", a.n_experts, "experts"),
                    .stage = one_of(object, "stage", {"before", "after"}),
                    .term = one_of(object, "term", terms)};
    require_in_model(off, a);
    all.push_back(std::move(off));
  }
  return all;
}

Switches::Switches(std::vector<SwitchedOff> off, const config::AttentionOptions& options)
    : off_(std::move(off)), options_(options) {}

// Which values of its layer a part needs, to remember or to change.
bool Switches::concerns(const SwitchedOff& off, std::string_view what) const {
  if (!off.stage.empty()) {
    const bool before = off.stage == "before";
    return what == (before ? "scores" : "probs") || what == (before ? "scores_composed" : "probs_composed") ||
           what == (of_queries(off.term) ? "query_terms" : "key_terms");
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
  // Linear attention shows its weights, and uses the heads' results alone.
  return options_.score->has_scores() ? what == "probs_composed"
                                      : what == "probs" || what == "o" || what == "value_sum";
}

bool Switches::wants(std::string_view name) const {
  return std::any_of(off_.begin(), off_.end(), [&](const SwitchedOff& off) {
    const std::string scope = fmt::format("layer{}.attention.", off.layer);
    return name.starts_with(scope) && concerns(off, name.substr(scope.size()));
  });
}

at::Tensor Switches::without(const SwitchedOff& off, std::string_view what, at::Tensor value) {
  if (!off.stage.empty()) {
    const bool before = off.stage == "before";
    if (what == "query_terms" || what == "key_terms") {
      // Both of the layer's stages side by side, if it has both.
      const std::int64_t stage = before ? 0 : value.size(2) - 1;
      value = value.clone();
      value.select(2, stage).select(2, axis_of_term(off.term)).zero_();
      return value;
    }
    if (what == (before ? "scores_composed" : "probs_composed")) {
      const at::Tensor& from = before ? scores_ : probs_;
      const bool queries = of_queries(off.term);
      const at::Tensor& terms = queries ? terms_.query : terms_.key;
      const at::Tensor map =
          terms.select(2, before ? 0 : terms.size(2) - 1).select(2, axis_of_term(off.term));  // [B, n, H, H]
      return value - at::einsum(queries ? "bhts,bthk->bkts" : "bhts,bshk->bkts", {from, map.to(from.scalar_type())});
    }
    return value;
  }
  if (what.ends_with(".index")) {
    return value;
  }
  if (what.ends_with(".weight")) {
    return without_expert(std::move(value), index_, off.head,
                          std::max({off.expert, off.value_expert, off.output_expert}));
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

at::Tensor Switches::observe(std::string_view name, at::Tensor value) {
  const std::string_view what = name.substr(name.find('.', name.find('.') + 1) + 1);
  if (what == "query_terms") {
    terms_.query = value;
  } else if (what == "key_terms") {
    terms_.key = value;
  } else if (what == "scores") {
    scores_ = value;
  } else if (what == "probs") {
    probs_ = value;
  } else if (what.ends_with(".index")) {
    index_ = value;
  }
  for (const SwitchedOff& off : off_) {
    const std::string scope = fmt::format("layer{}.attention.", off.layer);
    if (name.starts_with(scope) && concerns(off, what)) {
      value = without(off, what, std::move(value));
    }
  }
  return value;
}

}  // namespace headroom::inspect
