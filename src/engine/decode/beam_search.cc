#include "headroom/decode/beam_search.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "headroom/core/error.h"

namespace headroom::decode {
namespace {

constexpr double kImpossible = -std::numeric_limits<double>::infinity();

struct Beginning {
  std::vector<std::int32_t> tokens;
  double log_probability = kImpossible;  // impossible: fills a place that nothing else has
};

struct Sentence {
  std::int64_t longest = 0;           // tokens that its translation may have
  std::vector<Beginning> beginnings;  // as many as the beam is wide, one a row
  std::vector<Hypothesis> finished;
};

class Search {
 public:
  Search(const models::EncoderDecoder& model, const SearchOptions& options, nn::Context context)
      : model_(model), options_(options), context_(std::move(context)), beam_(options.decoding.beam_size) {
    context_.training = false;
    context_.batched = true;  // many beams of many sentences: half the time
  }

  std::vector<Hypothesis> run(const at::Tensor& source, const at::Tensor& valid_source) {
    start(source, valid_source);
    std::vector<models::DecodeState> states;
    for (const models::DecodeState& state : model_.start_decoding(source, valid_source, context_)) {
      states.insert(states.end(), static_cast<std::size_t>(beam_), state);
    }
    at::Tensor tokens = at::full({std::ssize(live_) * beam_, 1}, options_.begin_id, at::kLong);
    while (true) {
      const at::Tensor logits = model_.decode(models::decode_rows(tokens, states), context_);
      const std::vector<std::int64_t> rows = advance(at::log_softmax(logits.to(at::kFloat), 1));
      if (rows.empty()) {
        break;
      }
      states = models::chosen_states(std::move(states), rows);
      tokens = last_tokens();
    }
    std::vector<Hypothesis> best;
    for (Sentence& sentence : sentences_) {
      if (sentence.finished.empty()) {
        fail("beam search: the model gives every continuation the probability 0");
      }
      best.push_back(
          std::move(*std::max_element(sentence.finished.begin(), sentence.finished.end(),
                                      [](const Hypothesis& a, const Hypothesis& b) { return a.score < b.score; })));
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
      sentence.beginnings.resize(static_cast<std::size_t>(beam_));
      sentence.beginnings.front().log_probability = 0.0;
      sentences_.push_back(std::move(sentence));
      live_.push_back(static_cast<std::size_t>(row));
    }
  }

  // One token more for every sentence that is not done. The rows to continue, of those that were decoded.
  std::vector<std::int64_t> advance(at::Tensor log_probability) {
    const std::int64_t vocabulary = log_probability.size(1), n = std::ssize(live_);
    const at::Tensor ends = log_probability.select(1, options_.end_id).to(at::kDouble).cpu().contiguous();
    if (sentences_[live_.front()].beginnings.front().tokens.empty()) {
      log_probability.select(1, options_.end_id).fill_(kImpossible);  // a translation has a token at least
    }
    // The likeliest of all beginnings are among the likeliest of each.
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
      const std::size_t which = live_[static_cast<std::size_t>(place)];
      Sentence& sentence = sentences_[which];
      if (std::ssize(sentence.beginnings.front().tokens) == sentence.longest) {
        for (std::int64_t b = 0; b < beam_; ++b) {
          const Beginning& beginning = sentence.beginnings[static_cast<std::size_t>(b)];
          finish(beginning, beginning.log_probability + ends.data_ptr<double>()[place * beam_ + b], sentence);
        }
        continue;
      }
      const std::vector<std::int64_t> chosen =
          choose(sentence, values[place].data_ptr<double>(), indices[place].data_ptr<std::int64_t>(), values.size(1),
                 vocabulary);
      for (const std::int64_t beginning : chosen) {
        rows.push_back(place * beam_ + beginning);
      }
      if (!chosen.empty()) {
        still.push_back(which);
      }
    }
    live_ = std::move(still);
    return rows;
  }

  // [n, beam, 1] log-probabilities of the beginnings.
  at::Tensor so_far(const at::Tensor& like) const {
    std::vector<float> sums;
    for (const std::size_t which : live_) {
      for (const Beginning& beginning : sentences_[which].beginnings) {
        sums.push_back(static_cast<float>(beginning.log_probability));
      }
    }
    return at::tensor(sums, at::kFloat).to(like.device()).view({std::ssize(live_), beam_, 1});
  }

  void finish(const Beginning& beginning, double log_probability, Sentence& sentence) const {
    if (log_probability == kImpossible) {
      return;
    }
    const auto length = static_cast<double>(beginning.tokens.size() + 1);
    sentence.finished.push_back({.tokens = beginning.tokens,
                                 .log_probability = log_probability,
                                 .score = log_probability / std::pow(length, options_.decoding.length_penalty)});
  }

  // Which beginnings of the sentence the new ones continue; empty: it is done.
  std::vector<std::int64_t> choose(Sentence& sentence, const double* values, const std::int64_t* indices,
                                   std::int64_t count, std::int64_t vocabulary) const {
    std::vector<Beginning> next;
    std::vector<std::int64_t> chosen;
    for (std::int64_t rank = 0; rank < count && std::ssize(next) < beam_; ++rank) {
      if (std::isnan(values[rank])) {
        fail("beam search: the model's logits are not finite");
      }
      if (values[rank] == kImpossible) {
        break;
      }
      const std::int64_t from = indices[rank] / vocabulary, token = indices[rank] % vocabulary;
      const Beginning& beginning = sentence.beginnings[static_cast<std::size_t>(from)];
      if (token != options_.end_id) {
        next.push_back({.tokens = beginning.tokens, .log_probability = values[rank]});
        next.back().tokens.push_back(static_cast<std::int32_t>(token));
        chosen.push_back(from);
      } else if (rank < beam_) {
        finish(beginning, values[rank], sentence);
      }
    }
    if (std::ssize(sentence.finished) >= beam_ || next.empty()) {
      return {};
    }
    while (std::ssize(next) < beam_) {
      next.push_back({.tokens = next.front().tokens, .log_probability = kImpossible});
      chosen.push_back(chosen.front());
    }
    sentence.beginnings = std::move(next);
    return chosen;
  }

  at::Tensor last_tokens() const {
    std::vector<std::int64_t> last;
    for (const std::size_t which : live_) {
      for (const Beginning& beginning : sentences_[which].beginnings) {
        last.push_back(beginning.tokens.back());
      }
    }
    return at::tensor(last, at::kLong).unsqueeze(1);
  }

  const models::EncoderDecoder& model_;
  SearchOptions options_;
  nn::Context context_;
  std::int64_t beam_;
  std::vector<Sentence> sentences_;
  std::vector<std::size_t> live_;  // those that are not done, in the order of the decoded rows
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
