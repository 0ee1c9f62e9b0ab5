#include <sentencepiece_trainer.h>

#include <algorithm>
#include <cstdio>

#include "data/tokenizers/kinds.h"
#include "foundation/core/machine/system.h"
#include "foundation/core/text/utf8.h"
#include "headroom/core/error.h"
#include "line_sample.h"

namespace headroom::tokenizers {
namespace {

// Bytes of training text per piece of the vocabulary. A larger sample takes longer and hardly changes the result.
constexpr std::size_t kSampleBytesPerPiece = 2048;
constexpr std::size_t kSmallestSample = std::size_t{4} << 20;
constexpr std::size_t kLongestSentence = 4000;  // bytes; SentencePiece drops longer ones

class Sentences : public sentencepiece::SentenceIterator {
 public:
  explicit Sentences(std::vector<std::string> lines) : lines_(std::move(lines)) {}
  bool done() const override { return at_ >= lines_.size(); }
  void Next() override { ++at_; }
  const std::string& value() const override { return lines_[at_]; }
  sentencepiece::util::Status status() const override { return {}; }

 private:
  std::vector<std::string> lines_;
  std::size_t at_ = 0;
};

void offer_line(std::string_view line, LineSample& sample) {
  while (!line.empty()) {
    const std::size_t cut = character_boundary(line, kLongestSentence);
    sample.offer(line.substr(0, cut));
    line.remove_prefix(cut);
  }
}

std::vector<std::string> sample_lines(TextSource& text, std::size_t limit) {
  LineSample sample(limit);
  BlockReader blocks(text, "read for the tokenizer");
  for (std::string block; blocks.next(block);) {
    for (std::string_view rest = block; !rest.empty();) {
      offer_line(take_line(rest), sample);
    }
  }
  return sample.take();
}

// Returns SentencePiece's message without the source location: "Internal: src/x.cc(56) [(a) > (0)] why".
std::string_view reason_of(std::string_view why) {
  const std::size_t bracket = why.rfind("] ");
  return bracket == std::string_view::npos ? why : why.substr(bracket + 2);
}

// Throws UserError. Explains SentencePiece's message for a vocabulary too small for the single characters.
[[noreturn]] void refuse(const config::TokenizerOptions& options, const std::string& why) {
  int asked = 0, needed = 0;
  const std::size_t at = why.find("required_chars. ");
  if (at != std::string::npos && std::sscanf(why.c_str() + at, "required_chars. %d vs %d", &asked, &needed) == 2) {
    user_error(
        "tokenizer.vocabulary_size: must be at least {} to hold the bytes and characters of the training text, got {}; "
        "with a tokenizer.character_coverage below {}, rare characters are encoded as bytes",
        needed, options.vocabulary_size, options.character_coverage);
  }
  user_error("tokenizer: SentencePiece cannot be trained on this text: {}", reason_of(why));
}

}  // namespace

std::unique_ptr<Tokenizer> train_sentencepiece(const config::TokenizerOptions& options, TextSource& text) {
  const std::size_t wanted =
      kSampleBytesPerPiece * static_cast<std::size_t>(std::max<std::int64_t>(options.vocabulary_size, 1));
  std::vector<std::string> lines = sample_lines(text, std::max(kSmallestSample, wanted));
  if (lines.empty()) {
    user_error("tokenizer: the training text is empty");
  }
  const bool keep = options.keep_whitespace;
  // Ensures a piece for the space even if the sample has none; without it, spaces would be lost.
  lines.emplace_back(keep ? " " : ".");
  Sentences sentences(std::move(lines));
  const auto yes_no = [](bool value) { return std::string(value ? "true" : "false"); };
  std::string model;
  log_info("tokenizer: training SentencePiece with {} pieces", options.vocabulary_size);
  const auto status =
      sentencepiece::SentencePieceTrainer::Train({{"model_type", "bpe"},
                                                  {"vocab_size", std::to_string(options.vocabulary_size)},
                                                  {"hard_vocab_limit", "false"},
                                                  {"character_coverage", fmt::format("{}", options.character_coverage)},
                                                  {"required_chars", std::string(kBlankSymbol)},
                                                  {"byte_fallback", "true"},
                                                  {"split_digits", yes_no(options.split_digits)},
                                                  {"normalization_rule_name", keep ? "identity" : "nmt_nfkc"},
                                                  {"remove_extra_whitespaces", yes_no(!keep)},
                                                  {"add_dummy_prefix", yes_no(!keep)},
                                                  {"allow_whitespace_only_pieces", yes_no(keep)},
                                                  {"num_threads", "2"},
                                                  {"minloglevel", "2"}},
                                                 &sentences, &model);
  if (interrupted()) {
    throw InterruptedError("tokenizer: interrupted");
  }
  if (!status.ok()) {
    refuse(options, status.ToString());
  }
  std::unique_ptr<Tokenizer> tokenizer = restore_sentencepiece(std::move(model), "the trained tokenizer");
  if (tokenizer->vocabulary_size() != options.vocabulary_size) {
    user_error(
        "tokenizer.vocabulary_size: must be at most {}, the number of pieces that the training text yields, got {}",
        tokenizer->vocabulary_size(), options.vocabulary_size);
  }
  return tokenizer;
}

}  // namespace headroom::tokenizers
