#include <algorithm>

#include "data/tokenizers/kinds.h"
#include "headroom/core/error.h"
#include "learn_merges.h"
#include "words.h"

namespace headroom::tokenizers {
namespace {

constexpr WordPattern kPattern = WordPattern::gpt2;
// Of a longer word, such as a line of one sign, pieces are counted: each merge looks at the whole of a word.
constexpr std::size_t kLongestWord = 1024;

void add_words(std::string_view text, WordCounts& counts) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = at + word_length(kPattern, text, at);
    for (; at < end; at = std::min(at + kLongestWord, end)) {
      ++counts[std::string(text.substr(at, std::min(kLongestWord, end - at)))];
    }
  }
}

// Where the last word begins that ends with the text; what follows may belong to it.
std::size_t begin_of_last_word(std::string_view text) {
  for (std::size_t at = text.size(); at > 1;) {
    if (ends_word(kPattern, text, --at)) {
      return at;
    }
  }
  return text.size();
}

}  // namespace

std::unique_ptr<Tokenizer> train_bpe(const config::TokenizerOptions& options, TextSource& text) {
  if (options.vocabulary_size < config::kByteValues) {
    user_error("tokenizer.vocabulary_size: must be at least {}, a token for every byte, with kind = \"bpe\", got {}",
               config::kByteValues, options.vocabulary_size);
  }
  WordCounts counts;
  {
    BlockReader blocks(text, "read for the tokenizer");
    std::string stretch;
    for (std::string block; blocks.next(block);) {
      stretch += block;
      const std::size_t cut = begin_of_last_word(stretch);
      add_words(std::string_view(stretch).substr(0, cut), counts);
      stretch.erase(0, cut);
    }
    add_words(stretch, counts);
  }
  if (counts.empty()) {
    user_error("tokenizer: the training text is empty");
  }
  BpeModel model = learn_merges(counts, options.vocabulary_size);
  model.pattern = kPattern;
  if (std::ssize(model.tokens) < options.vocabulary_size) {
    user_error("tokenizer.vocabulary_size: must be at most {}, as many tokens as the training text has to give, got {}",
               model.tokens.size(), options.vocabulary_size);
  }
  return restore_bpe(to_tokenizer_json(model), "tokenizer");
}

}  // namespace headroom::tokenizers
