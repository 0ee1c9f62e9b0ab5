#include "masked_language_modelling.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "data/tokens/example_order.h"
#include "foundation/core/random.h"
#include "headroom/core/error.h"
#include "language_modelling.h"
#include "training/tasks/evaluation_loop.h"

namespace headroom::tasks {
namespace {

constexpr double kMasked = 0.8, kReplaced = 0.1;  // fractions of the hidden tokens

double uniform(std::uint64_t seed) {
  return Random(seed).uniform();
}

// Packs sentences into rows.
class Packer {
 public:
  explicit Packer(std::int64_t longest) : longest_(longest) {}

  void add_sentence(std::int64_t length) {
    if (now_.length + length > longest_) {
      close();
    }
    for (; length > longest_; length -= longest_) {
      now_.length = longest_;
      close();
    }
    now_.length += length;
  }
  std::vector<RowSpan> finish() {
    close();
    return std::move(spans_);
  }

 private:
  void close() {
    if (now_.length > 0) {
      spans_.push_back(now_);
      now_ = {.begin = now_.begin + now_.length, .length = 0};
    }
  }
  std::int64_t longest_;
  RowSpan now_;
  std::vector<RowSpan> spans_;
};

// Returns the `count` positions in [0, length) with the smallest hashes.
std::vector<std::int64_t> chosen_places(std::int64_t length, std::int64_t count, std::uint64_t row_seed) {
  const std::uint64_t seed = mix(row_seed, "place");
  std::vector<std::pair<std::uint64_t, std::int64_t>> order;
  for (std::int64_t place = 0; place < length; ++place) {
    order.emplace_back(mix(seed, static_cast<std::uint64_t>(place)), place);
  }
  std::nth_element(order.begin(), order.begin() + (count - 1), order.end());
  std::vector<std::int64_t> places;
  for (std::int64_t i = 0; i < count; ++i) {
    places.push_back(order[static_cast<std::size_t>(i)].second);
  }
  return places;
}

// Validation hides the same tokens for every train.seed.
constexpr std::uint64_t kValidationSeed = mix(0, "masked validation");

// The rows of a text, and batches of them.
class MaskedText {
 public:
  MaskedText(std::shared_ptr<const data::TokenFile> file, const tokenizers::Tokenizer& tokenizer,
             std::int64_t context_length)
      : file_(std::move(file)), ids_(file_->vocabulary_size() + config::n_special_tokens(kKind)) {
    constexpr std::int64_t kMarkers = 2;
    if (context_length <= kMarkers) {
      user_error("model.context_length: must be above {}, because a row starts and ends with <separator>, got {}",
                 kMarkers, context_length);
    }
    spans_ = pack_sentences(*file_, line_ends(tokenizer), context_length - kMarkers);
  }

  const data::TokenFile& file() const { return *file_; }
  std::int64_t rows() const { return std::ssize(spans_); }
  std::int64_t hidden(std::int64_t row, std::uint64_t seed) const {
    return hidden_count(spans_[static_cast<std::size_t>(row)].length, row_seed(row, seed));
  }

  // Returns "tokens" and "hidden", [rows, longest row], and "valid" if lengths differ.
  models::Batch batch(std::span<const std::int64_t> rows, std::uint64_t seed) const {
    std::vector<MaskedRow> masked;
    std::size_t longest = 0;
    for (const std::int64_t row : rows) {
      const RowSpan& span = spans_[static_cast<std::size_t>(row)];
      std::vector<std::int32_t> tokens(static_cast<std::size_t>(span.length));
      file_->copy(span.begin, span.length, tokens.data());
      masked.push_back(mask_row(tokens, ids_, row_seed(row, seed)));
      longest = std::max(longest, masked.back().tokens.size());
    }
    return stack(masked, static_cast<std::int64_t>(longest));
  }

 private:
  static constexpr config::ModelKind kKind = config::ModelKind::masked_language_model;

  static std::uint64_t row_seed(std::int64_t row, std::uint64_t seed) {
    return mix(seed, static_cast<std::uint64_t>(row));
  }

  models::Batch stack(const std::vector<MaskedRow>& rows, std::int64_t longest) const {
    const auto n = static_cast<std::int64_t>(rows.size());
    const at::Tensor tokens = at::full({n, longest}, ids_.separator, at::kLong);
    const at::Tensor hidden = at::full({n, longest}, -1, at::kLong), valid = at::zeros({n, longest}, at::kBool);
    models::Batch batch;
    for (std::int64_t i = 0; i < n; ++i) {
      const MaskedRow& row = rows[static_cast<std::size_t>(i)];
      std::ranges::copy(row.tokens, tokens.data_ptr<std::int64_t>() + i * longest);
      std::ranges::copy(row.hidden, hidden.data_ptr<std::int64_t>() + i * longest);
      std::fill_n(valid.data_ptr<bool>() + i * longest, row.tokens.size(), true);
      batch.targets.push_back(std::ranges::count_if(row.hidden, [](auto id) { return id >= 0; }));
      batch.tokens += std::ssize(row.tokens);
    }
    batch.tensors["tokens"] = tokens;
    batch.tensors["hidden"] = hidden;
    if (batch.tokens < n * longest) {
      batch.tensors["valid"] = valid;
    }
    batch.resets_memory = true;
    return batch;
  }

  std::shared_ptr<const data::TokenFile> file_;
  MaskingTokens ids_;
  std::vector<RowSpan> spans_;
};

class MaskedTraining : public TrainingData {
 public:
  MaskedTraining(MaskedText text, const config::TrainOptions& options)
      : text_(std::move(text)),
        seed_(static_cast<std::uint64_t>(options.seed)),
        order_({.examples = text_.rows(), .batch = options.batch_size, .seed = seed_, .length = {}},
               fmt::format("{}: rows of model.context_length tokens", text_.file().name())) {
    set(data_identity(text_.file()), &order_);
  }

  models::Batch next() override {
    const std::uint64_t seed = mix(seed_, static_cast<std::uint64_t>(order_.position().epoch));
    return text_.batch(order_.next(), mix(seed, "mask"));
  }

 private:
  MaskedText text_;
  std::uint64_t seed_;
  data::ExampleOrder order_;
};

std::unique_ptr<EvaluationData> evaluate_on(MaskedText masked) {
  const auto text = std::make_shared<const MaskedText>(std::move(masked));
  return evaluation_of({.unit = "row",
                        .size = text->rows(),
                        .cost = [text](std::int64_t row) { return text->hidden(row, kValidationSeed); },
                        .evaluate = [text](const models::Model& model, std::span<const std::int64_t> rows,
                                           std::int64_t begin, const nn::Context& context) -> PlacedSums {
                          const models::Batch batch = text->batch(rows, kValidationSeed);
                          models::Memory none;
                          return {{begin, cross_entropy(model, batch, batch.n_targets(), none, context)}};
                        },
                        .identity = [text] { return content_identity(text->file()); }});
}

TaskData open_masked_text(const config::Config& config, const std::filesystem::path& cache) {
  const TextData text = open_text_data(config, cache);
  const auto rows_of = [&](const std::shared_ptr<const data::TokenFile>& file) {
    return MaskedText(file, *text.tokenizer, config.model.context_length);
  };
  return {.tokenizer = text.tokenizer,
          .training = std::make_unique<MaskedTraining>(rows_of(text.train.front()), config.train),
          .validation = evaluate_on(rows_of(text.validation))};
}

}  // namespace

const Task& masked_language_modelling() {
  static const Task kTask({.name = "masked language modelling",
                           .protocol = "perplexity is exp(cross-entropy per hidden token); 15% of the validation "
                                       "tokens are hidden, the same for every model",
                           .figures = {loss_kind("hidden token"), loss_error_kind(),
                                       perplexity_kind(Shown::headline, "perplexity of hidden tokens")},
                           .figures_of = loss_and_perplexity,
                           .open = open_masked_text,
                           .open_evaluation = [](const EvaluationRequest& request) {
                             return evaluate_on(MaskedText(open_evaluation_text(request), *request.tokenizer,
                                                           request.config.model.context_length));
                           }});
  return kTask;
}

std::vector<bool> line_ends(const tokenizers::Tokenizer& tokenizer) {
  std::vector<bool> ends(static_cast<std::size_t>(tokenizer.vocabulary_size()), false);
  if (const std::int32_t line_end = tokenizer.line_end_id(); line_end >= 0) {
    ends[static_cast<std::size_t>(line_end)] = true;
  }
  if (tokenizer.kind() == config::TokenizerKind::bpe) {
    for (std::int32_t id = 0; id < tokenizer.vocabulary_size(); ++id) {
      ends[static_cast<std::size_t>(id)] = tokenizer.decode(std::span(&id, 1)).ends_with('\n');
    }
  }
  return std::ranges::find(ends, true) == ends.end() ? std::vector<bool>() : ends;
}

std::vector<RowSpan> pack_sentences(const data::TokenFile& file, const std::vector<bool>& ends, std::int64_t longest) {
  constexpr std::int64_t kAtOnce = std::int64_t{1} << 16;
  Packer packer(longest);
  std::vector<std::int32_t> ids(static_cast<std::size_t>(std::min(kAtOnce, file.size())));
  std::int64_t length = 0;  // tokens in the current sentence
  for (std::int64_t begin = 0; begin < file.size(); begin += kAtOnce) {
    const std::int64_t count = std::min(kAtOnce, file.size() - begin);
    file.copy(begin, count, ids.data());
    for (std::int64_t i = 0; i < count; ++i) {
      ++length;
      const auto id = static_cast<std::size_t>(ids[static_cast<std::size_t>(i)]);
      if (ends.empty() ? length == longest : ends.at(id)) {
        packer.add_sentence(length);
        length = 0;
      }
    }
  }
  if (length > 0) {
    packer.add_sentence(length);
  }
  return packer.finish();
}

std::int64_t hidden_count(std::int64_t length, std::uint64_t row_seed) {
  const double expected = static_cast<double>(config::kMaskedPercent * length) / 100.0;
  const double wanted = std::floor(expected + uniform(mix(row_seed, "count")));
  return std::clamp<std::int64_t>(static_cast<std::int64_t>(wanted), 1, length);
}

MaskedRow mask_row(const std::vector<std::int32_t>& tokens, const MaskingTokens& ids, std::uint64_t row_seed) {
  MaskedRow row;
  row.tokens.push_back(ids.separator);
  row.tokens.insert(row.tokens.end(), tokens.begin(), tokens.end());
  row.tokens.push_back(ids.separator);
  row.hidden.assign(row.tokens.size(), -1);
  const auto length = static_cast<std::int64_t>(tokens.size());
  const std::uint64_t kind_seed = mix(row_seed, "kind"), word_seed = mix(row_seed, "word");
  for (const std::int64_t place : chosen_places(length, hidden_count(length, row_seed), row_seed)) {
    std::int64_t& token = row.tokens[static_cast<std::size_t>(place + 1)];
    row.hidden[static_cast<std::size_t>(place + 1)] = token;
    const double kind = uniform(mix(kind_seed, static_cast<std::uint64_t>(place)));
    if (kind < kMasked) {
      token = ids.mask;
    } else if (kind < kMasked + kReplaced) {
      Random draw(mix(word_seed, static_cast<std::uint64_t>(place)));
      token = static_cast<std::int64_t>(draw.below(static_cast<std::uint64_t>(ids.words)));
    }
  }
  return row;
}

}  // namespace headroom::tasks
