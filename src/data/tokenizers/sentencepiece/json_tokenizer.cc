// The tokenizer of a tokenizer.json with byte fallback: SentencePiece merges the parts that its steps make of a text.
#include <algorithm>
#include <memory>
#include <span>
#include <utility>

#include "data/tokenizers/added_tokens.h"
#include "data/tokenizers/kinds.h"
#include "foundation/core/text/utf8.h"
#include "headroom/core/error.h"
#include "json_steps.h"
#include "sentencepiece_model.h"

namespace headroom::tokenizers {
namespace {

std::size_t blanks_at_begin(std::string_view text) {
  std::size_t size = 0;
  while (size < text.size()) {
    const CodePoint character = first_code_point(text.substr(size));
    if (character.size == 0 || !is_white_space(character.code)) {
      break;
    }
    size += character.size;
  }
  return size;
}

std::size_t blanks_at_end(std::string_view text) {
  std::size_t begin = text.size();
  while (begin > 0) {
    const std::size_t at = character_boundary(text, begin - 1);
    const CodePoint character = first_code_point(text.substr(at));
    if (character.size != begin - at || !is_white_space(character.code)) {
      break;
    }
    begin = at;
  }
  return text.size() - begin;
}

class JsonTokenizer : public Tokenizer {
 public:
  // Throws UserError naming `origin` for a malformed model or steps.
  JsonTokenizer(std::string serialised, std::string_view origin)
      : serialised_(std::move(serialised)), steps_(parse_sorted_json(json_steps_of(serialised_), origin), origin) {
    SentencePieceModel model = parse_sentencepiece(without_marker(serialised_));
    model.adds_dummy_prefix = model.removes_extra_blanks = false;
    pieces_ = restore_sentencepiece(serialised_from_file(serialise(model)), origin);
    for (VocabularyPiece& piece : model.pieces) {
      is_hidden_.push_back(piece.type == PieceType::control);
      names_.push_back(std::move(piece.text));
    }
    for (const JsonSteps::Added& token : steps_.added()) {
      const auto id = static_cast<std::size_t>(token.id);
      if (id >= names_.size()) {
        user_error("{}: added_tokens: the id {} is not below {}", origin, id, names_.size());
      }
      (token.normalised ? later_ : first_).add(token.content, token.id);
      names_[id] = token.content;
      is_hidden_[id] = token.special;
      added_.resize(names_.size());
      added_[id] = &token;
    }
    find_cut();
  }

  config::TokenizerKind kind() const override { return config::TokenizerKind::sentencepiece; }
  std::int64_t vocabulary_size() const override { return pieces_->vocabulary_size(); }
  const std::string& serialised() const override { return serialised_; }
  std::int32_t begin_id() const override { return pieces_->begin_id(); }
  std::int32_t end_id() const override { return pieces_->end_id(); }

  std::int32_t id_of(std::string_view token) const override {
    const auto found =
        std::ranges::find_if(steps_.added(), [&](const JsonSteps::Added& added) { return added.content == token; });
    return found != steps_.added().end() ? found->id : pieces_->id_of(token);
  }

  void encode(std::string_view text, std::vector<std::int32_t>& ids) const override {
    between(first_, text, ids, [&](std::string_view part) {
      const bool is_first = part.data() == text.data();
      const std::string normalised = steps_.normalised(part);
      between(later_, normalised, ids,
              [&](std::string_view rest) { encode_part(rest, is_first && rest.data() == normalised.data(), ids); });
    });
  }

  std::string decode(std::span<const std::int32_t> ids) const override { return decoded(ids, /*with_hidden=*/false); }

  std::int64_t decoded_bytes(std::string_view /*text*/, std::span<const std::int32_t> ids) const override {
    return std::ssize(decoded(ids, /*with_hidden=*/true));
  }

  Cut separable(std::string_view text) const override {
    const Cut cut = cuts_ ? pieces_->separable(text) : Cut();
    return cut.end == 0 ? Cut() : Cut{.end = cut.end, .next = cut.end + (drops_blank_ ? 1 : 0)};
  }

 private:
  // Appends the ids of the added tokens in `text`, and calls use() for the text between them.
  template <class Use>
  void between(const AddedTokens& added, std::string_view text, std::vector<std::int32_t>& ids, Use&& use) const {
    std::size_t done = 0, at = 0;
    while (at < text.size() && !added.empty()) {
      const AddedTokens::Found found = added.find(text, at);
      if (found.id < 0) {
        break;
      }
      const JsonSteps::Added& token = *added_[static_cast<std::size_t>(found.id)];
      const std::string_view before = text.substr(done, std::max(found.begin, done) - done);
      const std::string_view own = token.strips_left ? before.substr(0, before.size() - blanks_at_end(before)) : before;
      if (!own.empty()) {
        use(own);
      }
      ids.push_back(found.id);
      at = found.end;
      done = token.strips_right ? at + blanks_at_begin(text.substr(at)) : at;
    }
    if (done < text.size()) {
      use(text.substr(done));
    }
  }

  void encode_part(std::string_view text, bool is_first, std::vector<std::int32_t>& ids) const {
    for (std::string& part : steps_.parts(std::string(text), is_first)) {
      // SentencePiece reads a space and the blank symbol as the same symbol, and texts are cut at spaces.
      for (std::size_t at = 0; steps_.escapes() && (at = part.find(kBlankSymbol, at)) != std::string::npos;) {
        part.replace(at, kBlankSymbol.size(), " ");
      }
      pieces_->encode(part, ids);
    }
  }

  std::string decoded(std::span<const std::int32_t> ids, bool with_hidden) const {
    std::vector<std::string> tokens;
    tokens.reserve(ids.size());
    for (const std::int32_t id : ids) {
      check_id(id, vocabulary_size());
      if (with_hidden || !is_hidden_[static_cast<std::size_t>(id)]) {
        tokens.push_back(names_[static_cast<std::size_t>(id)]);
      }
    }
    return steps_.decoded(std::move(tokens));
  }

  // A text can be cut at a blank between letters, unless a piece or an added token may include it.
  void find_cut() {
    const auto may_include = [](const JsonSteps::Added& token) {
      return token.strips_left || token.strips_right || token.content.find(' ', 1) != std::string::npos ||
             token.content.find(kBlankSymbol, 1) != std::string::npos;
    };
    if (std::ranges::any_of(steps_.added(), may_include)) {
      return;
    }
    const std::vector<std::int32_t> both = Tokenizer::encode("a b");
    for (const bool drops : {false, true}) {
      std::vector<std::int32_t> ids = Tokenizer::encode("a");
      encode(drops ? "b" : " b", ids);
      if (!cuts_ && ids == both) {
        cuts_ = true;
        drops_blank_ = drops;
      }
    }
  }

  std::string serialised_;
  JsonSteps steps_;
  std::unique_ptr<Tokenizer> pieces_;
  std::vector<std::string> names_;  // by id, as the decoder reads them
  std::vector<bool> is_hidden_;     // special tokens and spare ids, which have no text
  std::vector<const JsonSteps::Added*> added_;
  AddedTokens first_, later_;  // matched before and after the normalizer
  bool cuts_ = false, drops_blank_ = false;
};

}  // namespace

std::unique_ptr<Tokenizer> restore_json_tokenizer(std::string serialised, std::string_view origin) {
  return std::make_unique<JsonTokenizer>(std::move(serialised), origin);
}

}  // namespace headroom::tokenizers
