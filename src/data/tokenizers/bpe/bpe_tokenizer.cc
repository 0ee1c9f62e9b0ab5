// The byte-level BPE tokenizer: splits a text into words and merges the bytes of each word.
#include <algorithm>
#include <array>
#include <unordered_map>
#include <utility>

#include "data/tokenizers/added_tokens.h"
#include "data/tokenizers/kinds.h"
#include "foundation/core/text/utf8.h"
#include "headroom/core/error.h"
#include "model.h"

namespace headroom::tokenizers {
namespace {

constexpr std::int32_t kNoToken = -1;

class Bpe : public Tokenizer {
 public:
  explicit Bpe(const BpeModel& model)
      : serialised_(to_tokenizer_json(model)),
        splitter_(model.words, "tokenizer"),
        composes_(model.composes),
        merges_(model.merges),
        bytes_(model.tokens.size()),
        size_(std::ssize(model.tokens) + model.spare_ids) {
    ids_of_bytes_.fill(kNoToken);
    for (std::size_t id = 0; id < model.tokens.size(); ++id) {
      // A token that does not spell bytes decodes to its own text, and encoding never produces it.
      if (std::string bytes; spelled_bytes(model.tokens[id], bytes) && !bytes.empty()) {
        bytes_[id] = bytes;
        if (bytes.size() == 1) {
          ids_of_bytes_[static_cast<unsigned char>(bytes.front())] = static_cast<std::int32_t>(id);
        }
        if (model.whole_words_first) {
          whole_words_.emplace(std::move(bytes), static_cast<std::int32_t>(id));
        }
      } else {
        bytes_[id] = model.tokens[id];
      }
    }
    for (const AddedToken& token : model.added) {
      added_ids_.insert_or_assign(token.content, token.id);
      const std::string content = composes_ && token.normalised ? to_nfc(token.content) : token.content;
      (token.normalised ? later_ : first_).add(content, token.id);
      bytes_[static_cast<std::size_t>(token.id)] = content;
      separable_ = separable_ && !has_word_end(content);
    }
  }

  config::TokenizerKind kind() const override { return config::TokenizerKind::bpe; }
  std::int64_t vocabulary_size() const override { return size_; }
  const std::string& serialised() const override { return serialised_; }

  void encode(std::string_view text, std::vector<std::int32_t>& ids) const override {
    if (!is_utf8(text)) {
      user_error("tokenizer {}: the text is not valid UTF-8", name());
    }
    std::vector<std::int32_t> symbols;
    between(first_, text, ids, [&](std::string_view part) {
      const std::string composed = composes_ ? to_nfc(part) : std::string();
      between(later_, composes_ ? composed : part, ids,
              [&](std::string_view words) { encode_words(words, symbols, ids); });
    });
  }

  std::string decode(std::span<const std::int32_t> ids) const override {
    std::string text;
    for (const std::int32_t id : ids) {
      check_id(id, size_);
      if (id < std::ssize(bytes_)) {
        text += bytes_[static_cast<std::size_t>(id)];
      }
    }
    return text;
  }

  std::int64_t decoded_bytes(std::string_view text, std::span<const std::int32_t> ids) const override {
    return composes_ ? std::ssize(decode(ids)) : std::ssize(text);
  }

  Cut separable(std::string_view text) const override {
    for (std::size_t at = separable_ ? text.size() : 0; at > 1;) {
      if (splitter_.ends_word(text, --at)) {
        return {.end = at, .next = at};
      }
    }
    return {};
  }

  std::int32_t id_of(std::string_view token) const override {
    const auto found = added_ids_.find(token);
    return found == added_ids_.end() ? kNoToken : found->second;
  }

 private:
  bool has_word_end(std::string_view content) const {
    for (std::size_t at = 1; at < content.size(); ++at) {
      if (splitter_.ends_word(content, at)) {
        return true;
      }
    }
    return false;
  }

  // Appends the ids of the added tokens in `text`, and calls use() for the text between them.
  template <class Use>
  static void between(const AddedTokens& added, std::string_view text, std::vector<std::int32_t>& ids, Use&& use) {
    if (added.empty()) {
      use(text);
      return;
    }
    for (std::size_t at = 0; at < text.size();) {
      const AddedTokens::Found found = added.find(text, at);
      if (found.begin > at) {
        use(text.substr(at, found.begin - at));
      }
      if (found.id >= 0) {
        ids.push_back(found.id);
      }
      at = found.end;
    }
  }

  void encode_words(std::string_view text, std::vector<std::int32_t>& symbols, std::vector<std::int32_t>& ids) const {
    splitter_.split(text, [&](std::string_view word) {
      if (const auto whole = whole_words_.find(word); whole != whole_words_.end()) {
        ids.push_back(whole->second);
        return;
      }
      symbols.clear();
      for (const char byte : word) {
        symbols.push_back(id_of(byte));
      }
      merges_.apply(symbols);
      ids.insert(ids.end(), symbols.begin(), symbols.end());
    });
  }

  std::int32_t id_of(char byte) const {
    const std::int32_t id = ids_of_bytes_[static_cast<unsigned char>(byte)];
    if (id == kNoToken) {
      user_error("tokenizer {}: the text has the byte 0x{:02x}, which is not in its vocabulary", name(),
                 static_cast<unsigned char>(byte));
    }
    return id;
  }

  struct ViewHash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };

  std::string serialised_;
  WordSplitter splitter_;
  bool composes_;
  bool separable_ = true;  // false if an added token spans a word boundary
  Merges merges_;
  std::vector<std::string> bytes_;  // bytes of each token by id, without spare ids
  std::int64_t size_;
  std::unordered_map<std::string, std::int32_t, ViewHash, std::equal_to<>> whole_words_, added_ids_;
  std::array<std::int32_t, config::kByteValues> ids_of_bytes_{};
  AddedTokens first_, later_;  // matched before NFC, matched after NFC
};

}  // namespace

std::unique_ptr<Tokenizer> restore_bpe(std::string_view serialised, std::string_view origin, std::int64_t min_size) {
  BpeModel model = parse_tokenizer_json(serialised, origin);
  model.spare_ids = std::max(model.spare_ids, min_size - std::ssize(model.tokens));
  return std::make_unique<Bpe>(model);
}

std::unique_ptr<Tokenizer> restore_bpe_pair(const PairTexts& texts, const PairSettings& settings,
                                            std::int64_t min_size) {
  BpeModel model = parse_vocabulary_and_merges(texts, settings);
  model.spare_ids = std::max(model.spare_ids, min_size - std::ssize(model.tokens));
  return std::make_unique<Bpe>(model);
}

}  // namespace headroom::tokenizers
