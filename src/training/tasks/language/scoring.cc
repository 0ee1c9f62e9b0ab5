#include "scoring.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <map>
#include <span>
#include <tuple>

#include "foundation/core/text/utf8.h"
#include "headroom/core/error.h"
#include "training/tasks/evaluation_loop.h"

namespace headroom::tasks {
namespace {

// Removes leading tokens that exceed the context of a model without memory. Returns whether it removed any.
bool truncate(Sequence& sequence, std::int64_t context_length) {
  const std::int64_t out = std::ssize(sequence.tokens) - (context_length + 1);
  if (out <= 0) {
    return false;
  }
  sequence.tokens.erase(sequence.tokens.begin(), sequence.tokens.begin() + out);
  for (TokenSpan& span : sequence.scored) {
    span = {.begin = std::max<std::int64_t>(span.begin - out, 1), .end = std::max<std::int64_t>(span.end - out, 1)};
  }
  return true;
}

// A batch of sequences, longest first.
class Group {
 public:
  Group(const std::vector<const Sequence*>& sequences, const models::LanguageModel& model)
      : sequences_(sequences), model_(model), spans_(sequences.size()) {
    for (std::size_t row = 0; row < sequences.size(); ++row) {
      spans_[row].resize(sequences[row]->scored.size());
    }
  }

  void read(const nn::Context& context) {
    const std::int64_t chunk = model_.options().context_length, all = length_of(0);
    models::Memory memory;
    for (std::int64_t begin = 0; begin < all; begin += chunk) {
      std::int64_t rows = std::ssize(sequences_);
      while (length_of(rows - 1) <= begin) {  // shorter sequences have ended
        --rows;
      }
      memory = memory.narrow(0, rows);
      read_chunk(begin, std::min(chunk, all - begin), rows, memory, context);
    }
  }
  std::vector<std::vector<SpanScore>> take() { return std::move(spans_); }

 private:
  std::int64_t length_of(std::int64_t row) const {  // tokens read; the last one is only predicted
    return std::ssize(sequences_[static_cast<std::size_t>(row)]->tokens) - 1;
  }

  void read_chunk(std::int64_t begin, std::int64_t length, std::int64_t rows, models::Memory& memory,
                  const nn::Context& context) {
    const at::Tensor inputs = at::zeros({rows, length}, at::kLong), targets = at::full({rows, length}, -1, at::kLong);
    std::vector<SpanScore*> places;  // of the targets, in row-major order
    for (std::int64_t row = 0; row < rows; ++row) {
      const Sequence& sequence = *sequences_[static_cast<std::size_t>(row)];
      const std::int64_t count = std::min(length, length_of(row) - begin);
      std::copy_n(sequence.tokens.begin() + begin, count, inputs.data_ptr<std::int64_t>() + row * length);
      for (std::int64_t i = 0; i < count; ++i) {
        if (SpanScore* const score = span_at(static_cast<std::size_t>(row), begin + i + 1)) {
          targets.data_ptr<std::int64_t>()[row * length + i] = sequence.tokens[static_cast<std::size_t>(begin + i + 1)];
          places.push_back(score);
        }
      }
    }
    const models::TokenScores scores =
        model_.score(inputs.to(model_.device()), targets.to(model_.device()), memory, context);
    const at::Tensor log_probability = scores.log_probability.cpu().contiguous(),
                     likeliest = scores.likeliest.cpu().contiguous();
    for (std::size_t i = 0; i < places.size(); ++i) {
      places[i]->log_probability += log_probability.const_data_ptr<double>()[i];
      places[i]->likeliest = places[i]->likeliest && likeliest.const_data_ptr<bool>()[i];
      ++places[i]->tokens;
    }
  }

  // Returns the score to which the token at `place` contributes; null if the token is not scored.
  SpanScore* span_at(std::size_t row, std::int64_t place) {
    const std::vector<TokenSpan>& scored = sequences_[row]->scored;
    const auto found =
        std::ranges::find_if(scored, [&](const TokenSpan& span) { return span.begin <= place && place < span.end; });
    return found == scored.end() ? nullptr : &spans_[row][static_cast<std::size_t>(found - scored.begin())];
  }

  std::vector<const Sequence*> sequences_;
  const models::LanguageModel& model_;
  std::vector<std::vector<SpanScore>> spans_;
};

// Returns the prefix tokens for a text with tokens `all`.
std::vector<std::int32_t> prefix_tokens(const tokenizers::Tokenizer& tokenizer, const Prefix& prefix, bool has_context,
                                        const std::vector<std::int32_t>& all) {
  if (prefix.kind == PrefixKind::line_end) {
    return tokenizers::beginning_of_text(tokenizer);
  }
  std::vector<std::int32_t> tokens;
  if (prefix.kind == PrefixKind::bos) {
    tokens = prefix.bos;
  } else if (!has_context && prefix.stand_in >= 0) {
    tokens = {prefix.stand_in};
  }
  const bool begins = all.size() >= tokens.size() && std::equal(tokens.begin(), tokens.end(), all.begin());
  return begins ? std::vector<std::int32_t>() : tokens;
}

struct SequenceOrder {
  bool operator()(const Sequence* a, const Sequence* b) const {
    const auto less = [](const TokenSpan& x, const TokenSpan& y) {
      return std::tie(x.begin, x.end) < std::tie(y.begin, y.end);
    };
    return a->tokens != b->tokens ? a->tokens < b->tokens
                                  : std::lexicographical_compare(a->scored.begin(), a->scored.end(), b->scored.begin(),
                                                                 b->scored.end(), less);
  }
};

// Returns, by sequence, the index of the first equal sequence. Scoring equal sequences once saves time and gives them
// bit-identical scores on every device.
std::vector<std::size_t> first_equals(const std::vector<Sequence>& sequences) {
  std::map<const Sequence*, std::size_t, SequenceOrder> seen;
  std::vector<std::size_t> first(sequences.size());
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    first[i] = seen.try_emplace(&sequences[i], i).first->second;
  }
  return first;
}

// Returns the indices of the distinct sequences, longest first.
std::vector<std::size_t> order_of(const std::vector<Sequence>& sequences, const std::vector<std::size_t>& first) {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    if (first[i] == i) {
      order.push_back(i);
    }
  }
  std::ranges::stable_sort(order, std::greater<>(), [&](std::size_t i) { return sequences[i].tokens.size(); });
  return order;
}

// Merges the scores of all ranks. Floating-point values are sent as bit patterns, because JSON has no NaN or infinity.
void merge(Scores& scores, ProcessGroup& group) {
  Json mine = {{"complete", scores.complete}, {"tokens", scores.tokens}, {"spans", Json::array()}};
  for (std::size_t i = 0; i < scores.spans.size(); ++i) {
    for (std::size_t span = 0; span < scores.spans[i].size(); ++span) {
      const SpanScore& one = scores.spans[i][span];
      mine["spans"].push_back({i, span, std::bit_cast<std::uint64_t>(one.log_probability), one.tokens, one.likeliest});
    }
  }
  scores.tokens = 0;
  for (const Json& theirs : gather(group, mine, "evaluate")) {
    scores.complete = scores.complete && theirs.at("complete").get<bool>();
    scores.tokens += theirs.at("tokens").get<std::int64_t>();
    for (const Json& span : theirs.at("spans")) {
      std::vector<SpanScore>& spans = scores.spans[span[0].get<std::size_t>()];
      spans.resize(std::max(spans.size(), span[1].get<std::size_t>() + 1));
      spans[span[1].get<std::size_t>()] = {.log_probability = std::bit_cast<double>(span[2].get<std::uint64_t>()),
                                           .tokens = span[3].get<std::int64_t>(),
                                           .likeliest = span[4].get<bool>()};
    }
  }
}

}  // namespace

Sequence to_sequence(const tokenizers::Tokenizer& tokenizer, std::string_view context, std::string_view continuation,
                     std::string_view where, const Prefix& prefix) {
  const std::vector<std::int32_t> before = tokenizer.encode(without_trailing_blanks(context)),
                                  all = tokenizer.encode(std::string(context) + std::string(continuation));
  auto first = std::ssize(before);
  if (all.size() <= before.size()) {
    first = std::mismatch(before.begin(), before.end(), all.begin(), all.end()).second - all.begin();
  }
  if (first == std::ssize(all)) {
    user_error("{}: \"{}\" has no tokens in tokenizer {}", where, continuation, tokenizer.name());
  }
  Sequence sequence{.tokens = prefix_tokens(tokenizer, prefix, !context.empty(), all), .scored = {}};
  first = std::max<std::ptrdiff_t>(first + std::ssize(sequence.tokens), 1);
  sequence.tokens.insert(sequence.tokens.end(), all.begin(), all.end());
  if (first == std::ssize(sequence.tokens)) {
    user_error("{}: \"{}\" is a single token without context, which cannot be predicted; use --begin line_end or bos",
               where, continuation);
  }
  sequence.scored.push_back({.begin = first, .end = std::ssize(sequence.tokens)});
  return sequence;
}

Scores score(const models::LanguageModel& model, const std::vector<Sequence>& sequences, const EvaluateOptions& options,
             std::string_view title) {
  const at::NoGradGuard no_grad;
  const config::ModelOptions& o = model.options();
  std::vector<Sequence> shortened = sequences;
  Scores scores;
  if (o.memory_length == 0) {
    scores.truncated =
        std::ranges::count_if(shortened, [&](Sequence& sequence) { return truncate(sequence, o.context_length); });
  }
  const std::vector<std::size_t> first = first_equals(shortened);
  const std::vector<std::size_t> order = order_of(shortened, first);
  nn::Context context = options.context;
  context.training = false;
  context.split_invariant = true;
  scores.spans.resize(shortened.size());
  const auto end_of = [&](std::int64_t begin) {
    return std::min(begin + std::max<std::int64_t>(options.batch_size, 1), std::ssize(order));
  };
  scores.complete = for_each_batch(
      options, {.title = std::string(title), .unit = "text", .units = std::ssize(order), .end_of = end_of},
      [&](std::int64_t begin, std::int64_t end) {
        const std::span batch(order.begin() + begin, order.begin() + end);
        std::vector<const Sequence*> now;
        for (const std::size_t i : batch) {
          now.push_back(&shortened[i]);
          scores.tokens += std::ssize(now.back()->tokens) - 1;
        }
        Group group(now, model);
        group.read(context);
        std::vector<std::vector<SpanScore>> spans = group.take();
        for (std::size_t i = 0; i < spans.size(); ++i) {
          scores.spans[batch[i]] = std::move(spans[i]);
        }
        return std::string();
      });
  if (options.group->size() > 1) {
    merge(scores, *options.group);
  }
  for (std::size_t i = 0; i < first.size(); ++i) {
    if (first[i] != i) {
      scores.spans[i] = scores.spans[first[i]];
    }
  }
  return scores;
}

}  // namespace headroom::tasks
