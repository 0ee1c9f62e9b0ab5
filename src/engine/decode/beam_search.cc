#include "headroom/decode/generate.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "headroom/core/error.h"

namespace headroom::decode {
namespace {

constexpr double kImpossible = -std::numeric_limits<double>::infinity();

struct Sentence {
  std::int64_t longest = 0;      // maximum number of tokens in its translation
  std::vector<Hypothesis> live;  // one per beam row; log_probability is kImpossible in unused rows
  std::vector<Hypothesis> finished;
};

class Search {
 public:
  Search(const models::EncoderDecoder& model, const SearchOptions& options, nn::Context context)
      : model_(model), options_(options), context_(std::move(context)), beam_(options.decoding.beam_size) {
    context_.training = false;
    context_.batched = true;  // twice as fast with many rows
  }

  std::vector<Hypothesis> run(const at::Tensor& source, const at::Tensor& valid_source) {
    start(source, valid_source);
    std::vector<models::DecodeState> states;
    for (const models::DecodeState& state : model_.start_decoding(source, valid_source, context_)) {
      states.insert(states.end(), static_cast<std::size_t>(beam_), state);
    }
    at::Tensor tokens = at::full({std::ssize(running_) * beam_, 1}, options_.begin_id, at::kLong);
    while (true) {
      const at::Tensor logits = model_.decode(models::decode_rows(tokens, states), context_);
      const std::vector<std::int64_t> rows = advance(at::log_softmax(logits.to(at::kFloat), 1));
      if (rows.empty()) {
        break;
      }
      states = models::gather_states(std::move(states), rows);
      tokens = last_tokens();
    }
    std::vector<Hypothesis> best;
    for (Sentence& sentence : sentences_) {
      if (sentence.finished.empty()) {
        fail("beam search: the model gives every continuation probability 0");
      }
      best.push_back(std::move(*std::ranges::max_element(
          sentence.finished, [](const Hypothesis& a, const Hypothesis& b) { return a.score < b.score; })));
    }
    return best;
  }

 private:
  void start(const at::Tensor& source, const at::Tensor& valid_source) {
    const at::Tensor lengths = valid_source.defined() ? valid_source.sum(1).cpu() : at::Tensor();
    for (std::int64_t row = 0; row < source.size(0); ++row) {
      const std::int64_t length = lengths.defined() ? lengths[row].item<std::int64_t>() : source.size(1);
      Sentence sentence;
      sentence.longest = std::min(model_.options().context_length - 1, length - 1 + options_.decoding.extra_length);
      sentence.live.assign(static_cast<std::size_t>(beam_), {.tokens = {}, .log_probability = kImpossible});
      sentence.live.front().log_probability = 0.0;
      sentences_.push_back(std::move(sentence));
      running_.push_back(static_cast<std::size_t>(row));
    }
  }

  // Extends the hypotheses of all running sentences by one token. Returns the indices of the decoded rows to continue.
  std::vector<std::int64_t> advance(at::Tensor log_probability) {
    const std::int64_t vocabulary = log_probability.size(1), n = std::ssize(running_);
    const at::Tensor ends = log_probability.select(1, options_.end_id).to(at::kDouble).cpu().contiguous();
    if (sentences_[running_.front()].live.front().tokens.empty()) {
      log_probability.select(1, options_.end_id).fill_(kImpossible);  // a translation has at least one token
    }
    // The best continuations overall are among the best continuations of each hypothesis.
    const auto [own_value, token] = log_probability.topk(std::min(2 * beam_, vocabulary), 1);
    const at::Tensor all = (own_value.view({n, beam_, -1}) + so_far(log_probability)).view({n, -1});
    const auto [value, place_of] = all.topk(std::min(2 * beam_, all.size(1)), 1);
    const std::int64_t each = token.size(1);
    const at::Tensor row = place_of.div(each, "floor");
    const at::Tensor index = row * vocabulary + token.reshape({n, -1}).gather(1, place_of);
    const at::Tensor values = value.to(at::kDouble).cpu().contiguous(), indices = index.cpu().contiguous();
    std::vector<std::int64_t> rows;
    std::vector<std::size_t> still;
    for (std::int64_t place = 0; place < n; ++place) {
      const std::size_t which = running_[static_cast<std::size_t>(place)];
      Sentence& sentence = sentences_[which];
      if (std::ssize(sentence.live.front().tokens) == sentence.longest) {
        for (std::int64_t b = 0; b < beam_; ++b) {
          const Hypothesis& hypothesis = sentence.live[static_cast<std::size_t>(b)];
          finish(hypothesis, hypothesis.log_probability + ends.data_ptr<double>()[place * beam_ + b], sentence);
        }
        continue;
      }
      const std::vector<std::int64_t> continued =
          extend(sentence, values[place].data_ptr<double>(), indices[place].data_ptr<std::int64_t>(), values.size(1),
                 vocabulary);
      for (const std::int64_t hypothesis : continued) {
        rows.push_back(place * beam_ + hypothesis);
      }
      if (!continued.empty()) {
        still.push_back(which);
      }
    }
    running_ = std::move(still);
    return rows;
  }

  // Returns the log-probabilities of the live hypotheses, [n, beam, 1].
  at::Tensor so_far(const at::Tensor& like) const {
    std::vector<float> sums;
    for (const std::size_t which : running_) {
      for (const Hypothesis& hypothesis : sentences_[which].live) {
        sums.push_back(static_cast<float>(hypothesis.log_probability));
      }
    }
    return at::tensor(sums, at::kFloat).to(like.device()).view({std::ssize(running_), beam_, 1});
  }

  void finish(const Hypothesis& hypothesis, double log_probability, Sentence& sentence) const {
    if (log_probability == kImpossible) {
      return;
    }
    const auto length = static_cast<double>(hypothesis.tokens.size() + 1);
    sentence.finished.push_back({.tokens = hypothesis.tokens,
                                 .log_probability = log_probability,
                                 .score = log_probability / std::pow(length, options_.decoding.length_penalty)});
  }

  // Extends the sentence's live hypotheses. Returns for each new hypothesis the index of the hypothesis that it
  // extends; empty if the sentence is done.
  std::vector<std::int64_t> extend(Sentence& sentence, const double* values, const std::int64_t* indices,
                                   std::int64_t count, std::int64_t vocabulary) const {
    std::vector<Hypothesis> next;
    std::vector<std::int64_t> continued;
    for (std::int64_t rank = 0; rank < count && std::ssize(next) < beam_; ++rank) {
      if (std::isnan(values[rank])) {
        fail("beam search: the model's logits are not finite");
      }
      if (values[rank] == kImpossible) {
        break;
      }
      const std::int64_t from = indices[rank] / vocabulary, token = indices[rank] % vocabulary;
      const Hypothesis& hypothesis = sentence.live[static_cast<std::size_t>(from)];
      if (token != options_.end_id) {
        next.push_back({.tokens = hypothesis.tokens, .log_probability = values[rank]});
        next.back().tokens.push_back(static_cast<std::int32_t>(token));
        continued.push_back(from);
      } else if (rank < beam_) {
        finish(hypothesis, values[rank], sentence);
      }
    }
    if (std::ssize(sentence.finished) >= beam_ || next.empty()) {
      return {};
    }
    while (std::ssize(next) < beam_) {
      next.push_back({.tokens = next.front().tokens, .log_probability = kImpossible});
      continued.push_back(continued.front());
    }
    sentence.live = std::move(next);
    return continued;
  }

  at::Tensor last_tokens() const {
    std::vector<std::int64_t> last;
    for (const std::size_t which : running_) {
      for (const Hypothesis& hypothesis : sentences_[which].live) {
        last.push_back(hypothesis.tokens.back());
      }
    }
    return at::tensor(last, at::kLong).unsqueeze(1);
  }

  const models::EncoderDecoder& model_;
  SearchOptions options_;
  nn::Context context_;
  std::int64_t beam_;
  std::vector<Sentence> sentences_;
  std::vector<std::size_t> running_;  // unfinished sentences, in the order of the decoded rows
};

}  // namespace

std::vector<Hypothesis> beam_search(const models::EncoderDecoder& model, const at::Tensor& source,
                                    const at::Tensor& valid_source, const SearchOptions& options,
                                    const nn::Context& context) {
  const std::int64_t vocabulary = model.options().vocabulary_size;
  const auto is_token = [&](std::int64_t id) { return id >= 0 && id < vocabulary; };
  if (options.decoding.beam_size < 1 || options.decoding.extra_length < 0 || !is_token(options.begin_id) ||
      !is_token(options.end_id)) {
    fail(
        "beam search: beam must be at least 1, extra_length at least 0, begin and end tokens of {}, got {}, {}, {}, {}",
        vocabulary, options.decoding.beam_size, options.decoding.extra_length, options.begin_id, options.end_id);
  }
  const at::NoGradGuard no_grad;
  return source.size(0) == 0 ? std::vector<Hypothesis>() : Search(model, options, context).run(source, valid_source);
}

}  // namespace headroom::decode
