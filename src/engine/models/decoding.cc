#include "headroom/models/decoding.h"

#include <algorithm>
#include <set>

#include "foundation/core/transformed.h"
#include "headroom/core/error.h"

namespace headroom::models {
namespace {

void check_rows(std::span<const DecodeRow> rows) {
  if (rows.empty()) {
    fail("decoding: rows must not be empty");
  }
  std::set<const DecodeState*> states;
  for (const DecodeRow& row : rows) {
    if (row.tokens.empty()) {
      fail("decoding: each row must read at least one token");
    }
    if (!states.insert(row.state).second) {
      fail("decoding: a state must not occur in two rows");
    }
  }
}

}  // namespace

bool DecodeState::rewind(std::int64_t count) {
  std::vector<nn::AttentionCache> earlier = caches;
  // Reread tokens were computed together with the tokens after them, so the caches hold no intermediate states.
  if (count > position || (read_again > 0 && count >= position - read_again) ||
      !std::ranges::all_of(earlier, [&](nn::AttentionCache& cache) { return cache.rewind(count); })) {
    return false;
  }
  caches = std::move(earlier);
  position -= count;
  chunk.resize(chunk.empty() ? 0 : chunk.size() - static_cast<std::size_t>(count));
  return true;
}

std::int64_t DecodeState::cache_elements() const {
  std::int64_t total = 0;
  for (const std::vector<nn::AttentionCache>* all : {&caches, &cross_caches}) {
    for (const nn::AttentionCache& cache : *all) {
      total += cache.elements();
    }
  }
  return total;
}

std::vector<DecodeRow> decode_rows(const at::Tensor& tokens, std::span<DecodeState> states) {
  if (tokens.dim() != 2 || tokens.scalar_type() != at::kLong || !tokens.is_cpu() || !tokens.is_contiguous() ||
      tokens.size(0) != std::ssize(states)) {
    fail("decoding: tokens must be contiguous int64 [{}, n] on the CPU, got {} {}", states.size(),
         at::toString(tokens.scalar_type()), c10::str(tokens.sizes()));
  }
  const auto n = static_cast<std::size_t>(tokens.size(1));
  std::vector<DecodeRow> rows;
  for (DecodeState& state : states) {
    rows.push_back({&state, {tokens.const_data_ptr<std::int64_t>() + rows.size() * n, n}});
  }
  return rows;
}

std::vector<DecodeState> gather_states(std::vector<DecodeState> states, std::span<const std::int64_t> places) {
  std::vector<std::int64_t> times(states.size(), 0);
  for (const std::int64_t place : places) {
    ++times[static_cast<std::size_t>(place)];
  }
  std::vector<DecodeState> chosen;
  chosen.reserve(places.size());
  for (const std::int64_t place : places) {
    DecodeState& state = states[static_cast<std::size_t>(place)];
    if (--times[static_cast<std::size_t>(place)] == 0) {
      chosen.push_back(std::move(state));
    } else {
      chosen.push_back(state);
    }
  }
  return chosen;
}

nn::Context decode_context(const nn::Context& context) {
  nn::Context rows = context;
  rows.batch_invariant = !context.batched && !context.split_invariant;
  return rows;
}

at::Tensor read_rows(std::span<const DecodeRow> rows, const std::function<bool(const DecodeRow&)>& alone,
                     const ReadRows& together, const ReadRows& by_itself, const nn::Context& context) {
  check_rows(rows);
  const bool of_one_length = std::ranges::all_of(
      rows, [&](const DecodeRow& row) { return row.tokens.size() == rows[0].tokens.size() && !alone(row); });
  if (context.split_invariant && rows.size() > 1 && of_one_length) {
    const at::Tensor h = together(rows, decode_context(context));
    return h.narrow(1, h.size(1) - 1, 1);
  }
  std::vector<DecodeRow> single;
  std::vector<at::Tensor> last(rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].tokens.size() > 1 || context.split_invariant || alone(rows[i])) {
      last[i] = by_itself(rows.subspan(i, 1), context);
    } else {
      single.push_back(rows[i]);
    }
  }
  if (!single.empty()) {
    const at::Tensor h = together(single, decode_context(context));
    if (single.size() == rows.size()) {
      return h;
    }
    std::int64_t next = 0;
    for (at::Tensor& row : last) {
      row = row.defined() ? row : h.narrow(0, next++, 1);
    }
  }
  return at::cat(last);
}

at::Tensor tokens_of(std::span<const DecodeRow> rows, at::Device device) {
  const auto n = static_cast<std::int64_t>(rows[0].tokens.size());
  const at::Tensor tokens = at::empty({std::ssize(rows), n}, at::kLong);
  std::int64_t* to = tokens.mutable_data_ptr<std::int64_t>();
  for (const DecodeRow& row : rows) {
    to = std::ranges::copy(row.tokens, to).out;
  }
  return tokens.to(device);
}

std::vector<std::int64_t> positions_of(std::span<const DecodeRow> rows) {
  return transformed(rows, [&](const DecodeRow& row) { return row.state->position; });
}

std::vector<nn::AttentionCache*> caches_of(std::span<const DecodeRow> rows, std::size_t layer,
                                           std::vector<nn::AttentionCache> DecodeState::*which) {
  return transformed(rows, [&](const DecodeRow& row) { return &(row.state->*which)[layer]; });
}

}  // namespace headroom::models
