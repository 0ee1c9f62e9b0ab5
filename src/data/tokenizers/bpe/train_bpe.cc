// Trains byte-level BPE. SentencePiece's trainer cannot be used: its models have pieces but no merges.
#include <algorithm>
#include <array>
#include <queue>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "data/tokenizers/kinds.h"
#include "foundation/core/machine/log.h"
#include "foundation/core/machine/system.h"
#include "headroom/config/run_options.h"
#include "headroom/core/error.h"
#include "model.h"

namespace headroom::tokenizers {
namespace {

constexpr std::int32_t kAnyToken = -1;

using Pair = std::pair<std::int32_t, std::int32_t>;

struct PairHash {
  std::size_t operator()(const Pair& pair) const {
    return std::hash<std::uint64_t>()(static_cast<std::uint64_t>(static_cast<std::uint32_t>(pair.first)) << 32 |
                                      static_cast<std::uint32_t>(pair.second));
  }
};

struct CountedWord {
  std::vector<std::int32_t> symbols;
  std::int64_t count = 0;
};

// The occurrences of a pair of adjacent tokens.
struct Occurrences {
  std::int64_t count = 0;
  std::vector<std::size_t> words;  // indices of words that contain the pair or once did
  bool merged = false;             // a merged pair reappears when another merge recreates one of its tokens
};

class Learner {
 public:
  Learner(const WordCounts& words, BpeModel& model) : model_(model) {
    const std::array<std::int32_t, config::kByteValues> ids = add_bytes();
    for (const auto& [text, count] : words) {
      CountedWord word{.symbols = {}, .count = count};
      for (const char byte : text) {
        word.symbols.push_back(ids[static_cast<unsigned char>(byte)]);
      }
      words_.push_back(std::move(word));
      add_pairs(words_.size() - 1, kAnyToken);
    }
    offer_grown();
  }

  // Performs the next merge; returns false if every word is a single token.
  bool merge_once() {
    while (!queue_.empty()) {
      const auto [count, left, right] = queue_.top();
      queue_.pop();
      const Pair pair{-left, -right};
      const std::int64_t now = pairs_[pair].count;
      if (now == count) {
        merge(pair);
        return true;
      }
      if (now > 0 && now < count) {  // a pair whose count has grown was queued again
        queue_.emplace(now, left, right);
      }
    }
    return false;
  }

 private:
  std::array<std::int32_t, config::kByteValues> add_bytes() {
    std::vector<std::pair<std::string, unsigned char>> characters;  // UTF-8 strings sort by code point
    characters.reserve(static_cast<std::size_t>(config::kByteValues));
    for (int byte = 0; byte < static_cast<int>(config::kByteValues); ++byte) {
      characters.emplace_back(character_of_byte(static_cast<unsigned char>(byte)), static_cast<unsigned char>(byte));
    }
    std::ranges::sort(characters);
    std::array<std::int32_t, config::kByteValues> ids{};
    for (const auto& [character, byte] : characters) {
      ids[byte] = id_of(character);
    }
    return ids;
  }

  // Returns the id of a token, adding it if it is new. Different pairs may produce the same token.
  std::int32_t id_of(const std::string& token) {
    const auto [found, is_new] = ids_.try_emplace(token, static_cast<std::int32_t>(model_.tokens.size()));
    if (is_new) {
      model_.tokens.push_back(token);
    }
    return found->second;
  }

  // Counts the pairs of a word. Pairs that contain the token `fresh` have grown.
  void add_pairs(std::size_t index, std::int32_t fresh) {
    const CountedWord& word = words_[index];
    for (std::size_t i = 0; i + 1 < word.symbols.size(); ++i) {
      const Pair pair{word.symbols[i], word.symbols[i + 1]};
      Occurrences& there = pairs_[pair];
      there.count += word.count;
      if (there.words.empty() || there.words.back() != index) {
        there.words.push_back(index);
      }
      if (fresh == kAnyToken || pair.first == fresh || pair.second == fresh) {
        grown_.push_back(pair);
      }
    }
  }

  void offer_grown() {
    std::ranges::sort(grown_);
    grown_.erase(std::unique(grown_.begin(), grown_.end()), grown_.end());
    for (const Pair& pair : grown_) {
      queue_.emplace(pairs_[pair].count, -pair.first, -pair.second);
    }
    grown_.clear();
  }

  void merge(const Pair& pair) {
    const auto& [left, right] = pair;
    const std::int32_t result =
        id_of(model_.tokens[static_cast<std::size_t>(left)] + model_.tokens[static_cast<std::size_t>(right)]);
    const Merge made{.left = left, .right = right, .result = result};
    Occurrences& there = pairs_[pair];
    if (!std::exchange(there.merged, true)) {
      model_.merges.push_back(made);
    }
    for (const std::size_t index : std::exchange(there.words, {})) {
      merge_in(index, made);
    }
    offer_grown();
  }

  void merge_in(std::size_t index, const Merge& merge) {
    CountedWord& word = words_[index];
    std::vector<std::int32_t> merged;
    for (std::size_t i = 0; i < word.symbols.size(); ++i) {
      const bool both =
          word.symbols[i] == merge.left && i + 1 < word.symbols.size() && word.symbols[i + 1] == merge.right;
      merged.push_back(both ? merge.result : word.symbols[i]);
      i += both ? 1 : 0;
    }
    if (merged.size() == word.symbols.size()) {
      return;  // stale index: the word no longer contains the pair
    }
    for (std::size_t i = 0; i + 1 < word.symbols.size(); ++i) {
      pairs_[{word.symbols[i], word.symbols[i + 1]}].count -= word.count;
    }
    word.symbols = std::move(merged);
    add_pairs(index, merge.result);
  }

  BpeModel& model_;
  std::vector<CountedWord> words_;
  std::unordered_map<std::string, std::int32_t> ids_;
  std::unordered_map<Pair, Occurrences, PairHash> pairs_;
  std::vector<Pair> grown_;  // pairs whose count grew since the last offer_grown()
  // Count and negated ids, so that ties go to the smaller ids. Stale entries are recognised by their count.
  std::priority_queue<std::tuple<std::int64_t, std::int32_t, std::int32_t>> queue_;
};

// Longer words, such as a line of one repeated character, are counted in parts, because every merge scans the whole
// word. In bytes.
constexpr std::size_t kLongestWord = 1024;

void add_words(const WordSplitter& splitter, std::string_view text, WordCounts& counts) {
  splitter.split(text, [&](std::string_view word) {
    for (std::size_t at = 0; at < word.size(); at += kLongestWord) {
      ++counts[std::string(word.substr(at, kLongestWord))];
    }
  });
}

// Returns the start of the last word of the text, which the following text may continue.
std::size_t begin_of_last_word(const WordSplitter& splitter, std::string_view text) {
  for (std::size_t at = text.size(); at > 1;) {
    if (splitter.ends_word(text, --at)) {
      return at;
    }
  }
  return text.size();
}

}  // namespace

BpeModel learn_merges(const WordCounts& words, std::int64_t vocabulary_size) {
  BpeModel model;
  Learner learner(words, model);
  Progress progress("tokenizer", vocabulary_size, "tokens");
  while (std::ssize(model.tokens) < vocabulary_size && learner.merge_once()) {
    progress.update(std::ssize(model.tokens));
    if (interrupted()) {
      throw InterruptedError("tokenizer: interrupted");
    }
  }
  return model;
}

std::unique_ptr<Tokenizer> train_bpe(const config::TokenizerOptions& options, TextSource& text) {
  if (options.vocabulary_size < config::kByteValues) {
    user_error("tokenizer.vocabulary_size: must be at least {}, a token for every byte, with kind = \"bpe\", got {}",
               config::kByteValues, options.vocabulary_size);
  }
  const WordSplitter splitter(BpeModel().words, "tokenizer");
  WordCounts counts;
  {
    BlockReader blocks(text, "read for the tokenizer");
    std::string stretch;
    for (std::string block; blocks.next(block);) {
      stretch += block;
      const std::size_t cut = begin_of_last_word(splitter, stretch);
      add_words(splitter, std::string_view(stretch).substr(0, cut), counts);
      stretch.erase(0, cut);
    }
    add_words(splitter, stretch, counts);
  }
  if (counts.empty()) {
    user_error("tokenizer: the training text is empty");
  }
  BpeModel model = learn_merges(counts, options.vocabulary_size);
  if (std::ssize(model.tokens) < options.vocabulary_size) {
    user_error(
        "tokenizer.vocabulary_size: must be at most {}, the number of tokens that the training text yields, got {}",
        model.tokens.size(), options.vocabulary_size);
  }
  return restore_bpe(to_tokenizer_json(model), "tokenizer");
}

}  // namespace headroom::tokenizers
