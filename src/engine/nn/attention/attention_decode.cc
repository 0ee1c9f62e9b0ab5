// How an attention layer decodes: each row of the batch is another sequence with its own cache. attention.h has the
// contract.
#include <iterator>
#include <tuple>

#include "engine/ops/many_rows.h"
#include "engine/ops/one_pass.h"
#include "foundation/core/transformed.h"
#include "headroom/config/attention_part.h"
#include "headroom/core/error.h"
#include "headroom/nn/attention.h"

namespace headroom::nn {

Attention::KeysValues Attention::cached_source(AttentionCache& cache) {
  const std::vector<at::Tensor>& cached = cache.source();
  if (cached.empty()) {
    fail("attention: cross-attention decodes after read_source(), but the cache holds no source");
  }
  return {.keys = {cached.begin(), cached.end() - 2},
          .v = cached[cached.size() - 2],
          .factors = cached.back(),
          .features = {},
          .score_features = {}};
}

Attention::KeysValues Attention::append_to_cache(KeysValues tokens, AttentionCache& cache, ScoreCall& call) const {
  if (!place_.causal) {
    fail("attention: decoding needs a causal layer");
  }
  const std::int64_t n = tokens.keys[0].size(2);
  if (options_.score->has_state() && place_.memory_length == 0) {
    call.first_position = call.first_index = cache.next_position();
    call.state = &cache.state();
    cache.advance(n);
    return tokens;
  }
  if (!shares()) {
    const std::vector<at::Tensor*> tensors = tokens.tensors();
    std::vector<at::Tensor> all = transformed(tensors, [&](const at::Tensor* tensor) { return *tensor; });
    all = cache.append(all);
    for (std::size_t i = 0; i < all.size(); ++i) {
      *tensors[i] = all[i];
    }
  }
  call.first_position = cache.next_position() - tokens.keys[0].size(2);
  call.first_index = cache.first_index() + cache.size() - tokens.keys[0].size(2);
  return tokens;
}

// Returns the shared keys and values of one cache.
std::pair<at::Tensor, at::Tensor> Attention::shared_of_row(const AttentionInput& input, std::int64_t row) const {
  if (input.x.size(1) == 1) {  // the layer that appended the token may have passed a full window in another order
    const std::vector<at::Tensor> all = input.caches[static_cast<std::size_t>(row)]->ordered();
    return {all[0], all[1]};
  }
  const ops::SequenceKeys& shared = *input.shared_entry(row);
  return {shared.k, shared.v};
}

at::Tensor Attention::attend_by_row(const AttentionInput& input, const Heads& heads, const Context& context) const {
  std::vector<at::Tensor> rows;
  for (std::int64_t row = 0; row < input.x.size(0); ++row) {
    const auto part = [&](const at::Tensor& t) { return input.x.size(0) == 1 ? t : ops::narrowed(t, 0, row, 1); };
    AttentionCache& cache = *input.caches[static_cast<std::size_t>(row)];
    const Queries queries{.x = part(input.x),
                          .q = part(heads.q),
                          .valid_keys = place_.cross ? cache.valid_source() : std::nullopt,
                          .valid_queries = {},
                          .key_bias = {},
                          .cache = &cache,
                          .shared_keys = input.shared_entry(row)};
    if (place_.cross) {
      rows.push_back(attend(queries, cached_source(cache), context));
      continue;
    }
    if (const at::Tensor& offsets = input.caches[0]->offsets(); offsets.defined()) {
      cache.offsets() = offsets;  // shared by all caches
    }
    Heads own;
    if (shares()) {
      own.keys.resize(1);
      std::tie(own.keys[0], own.v) = shared_of_row(input, row);
    } else {
      std::ranges::transform(heads.keys, std::back_inserter(own.keys), part);
      own.v = heads.v.defined() ? part(heads.v) : at::Tensor();
    }
    rows.push_back(attend(queries, keys_values(own, queries.x, context), context));
  }
  return rows.size() == 1 ? rows[0] : at::cat(rows);
}

bool Attention::can_batch_rows(const Heads& heads, const Context& context) const {
  return heads.q.size(2) == 1 && !ops::ManyRows::active() && (place_.cross || place_.causal) &&
         score_->supports_sequences() && (composition_ == nullptr || composition_->supports_sequences()) &&
         !projection_->expands() && !pair_values(context) && position_->supports_sequences();
}

at::Tensor Attention::attend_batched(const AttentionInput& input, const Heads& heads, const Context& context) const {
  ops::AttentionInputs in{.q = heads.q};
  in.mask = {.causal = place_.causal, .window = place_.window, .valid_keys = {}};
  std::size_t longest_row = 0;
  at::Tensor offsets;  // shared by all caches
  for (std::size_t row = 0; row < input.caches.size(); ++row) {
    AttentionCache& cache = *input.caches[row];
    if (place_.cross) {
      const KeysValues source = cached_source(cache);
      in.sequences.push_back({source.keys[0], source.v, 0, source.keys[0].size(2), cache.valid_source()});
    } else if (shares()) {
      ops::SequenceKeys all = (*input.shared_keys)[row];
      if (place_.window > 0 && place_.window < all.size) {  // the last keys, so their order matters
        std::tie(all.k, all.v) = shared_of_row(input, static_cast<std::int64_t>(row));
        all.begin = 0;
      }
      in.sequences.push_back(std::move(all));
    } else {
      const AttentionCache::Visible visible = cache.append_row({heads.keys[0], heads.v}, static_cast<std::int64_t>(row),
                                                               !position_->depends_on_key_order());
      in.sequences.push_back({visible.tensors[0], visible.tensors[1], visible.begin, visible.size});
    }
    longest_row = in.sequences[row].size > in.sequences[longest_row].size ? row : longest_row;
    offsets = offsets.defined() ? offsets : cache.offsets();
  }
  if (input.shared_keys != nullptr && !shares()) {
    *input.shared_keys = in.sequences;
  }
  const ops::SequenceKeys& longest = in.sequences[longest_row];
  in.k = ops::narrowed(longest.k, 2, longest.begin, longest.size);
  in.v = ops::narrowed(longest.v, 2, longest.begin, longest.size);
  input.caches[longest_row]->offsets() = offsets;
  position_->add_to(in, {}, input.caches[longest_row], context);
  for (AttentionCache* cache : input.caches) {
    cache->offsets() = input.caches[longest_row]->offsets();
  }
  if (composition_ != nullptr) {
    in.difference = composition_->maps(input.x, {}, context).difference;
  }
  return (*score_)(std::move(in), {}, context);
}

}  // namespace headroom::nn
