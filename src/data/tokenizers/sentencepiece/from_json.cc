// LLaMA's tokenizer.json, BPE with byte fallback, as a SentencePiece model with the same merges and the file's steps
// before and after them (json_steps.h).
//
// The `tokenizers` package merges the pair with the lowest rank, SentencePiece the pair whose result has the best
// score. They agree if every way to split a result is a merge, and merges with the same result are consecutive.
#include <algorithm>
#include <unordered_map>

#include "data/tokenizers/kinds.h"
#include "foundation/core/text/utf8.h"
#include "headroom/core/error.h"
#include "headroom/core/json.h"
#include "json_steps.h"
#include "sentencepiece_model.h"

namespace headroom::tokenizers {
namespace {

class JsonModel {
 public:
  JsonModel(const SortedJson& document, std::string_view origin) : document_(document), origin_(origin) {}

  SentencePieceModel convert(std::int64_t min_size) {
    const SortedJson& model = at(document_, "model");
    for (const char* key : {"dropout", "continuing_subword_prefix", "end_of_word_suffix", "ignore_merges"}) {
      const SortedJson& value = at(model, key);
      if (!value.is_null() && value != SortedJson("") && value != false && value != 0) {
        refuse(std::string("model.") + key, "is set, which is not supported with byte_fallback");
      }
    }
    read_vocabulary(at(model, "vocab"), at(model, "unk_token"));
    read_added(at(document_, "added_tokens"));
    require_bytes();
    require_unknown();
    for (std::size_t id = 0; id < result_.pieces.size(); ++id) {
      if (result_.pieces[id].text.empty()) {
        refuse("model.vocab",
               fmt::format("must have ids from 0 to {}, each once, but {} is missing", result_.pieces.size() - 1, id));
      }
    }
    read_merges(at(model, "merges"));
    require_all_splits();
    for (std::int64_t id = std::ssize(result_.pieces); id < min_size; ++id) {
      result_.pieces.push_back(spare_piece(id));
    }
    const JsonSteps steps(document_, origin_);
    result_.is_bpe = true;
    result_.removes_extra_blanks = false;
    result_.adds_dummy_prefix = steps.prepends();
    result_.escapes_blanks = steps.escapes();
    return std::move(result_);
  }

 private:
  [[noreturn]] void refuse(const std::string& key, std::string_view why) const {
    user_error("{}: {} {}", origin_, key, why);
  }

  static const SortedJson& at(const SortedJson& object, const char* key) {
    static const SortedJson kNull;
    return object.is_object() && object.contains(key) ? object.at(key) : kNull;
  }

  VocabularyPiece& piece(const SortedJson& id, const std::string& key) {
    constexpr std::uint64_t kMost = 1U << 24;
    if (!id.is_number_unsigned() || id.get<std::uint64_t>() >= kMost) {
      refuse(key, fmt::format("must have ids from 0 to {}", kMost - 1));
    }
    result_.pieces.resize(std::max(result_.pieces.size(), id.get<std::size_t>() + 1));
    return result_.pieces[id.get<std::size_t>()];
  }

  void read_vocabulary(const SortedJson& vocabulary, const SortedJson& unknown) {
    if (!vocabulary.is_object()) {
      refuse("model.vocab", "must be a JSON object of tokens and their ids");
    }
    for (const auto& [text, id] : vocabulary.items()) {
      const bool byte = text.size() == 6 && text.starts_with("<0x") && text.ends_with(">");
      piece(id, "model.vocab") = {.text = text,
                                  .type = byte              ? PieceType::byte
                                          : unknown == text ? PieceType::unknown
                                                            : PieceType::normal};
      ids_.emplace(text, id.get<std::size_t>());
    }
    if (!unknown.is_null() && (!unknown.is_string() || !ids_.contains(unknown.get<std::string>()))) {
      refuse("model.unk_token", "must be a token of the vocabulary or null");
    }
  }

  // Added tokens are found before SentencePiece reads a text. Those that the merges cannot make become control pieces.
  void read_added(const SortedJson& added) {
    for (const SortedJson& token : added) {
      const SortedJson& content = at(token, "content");
      if (!content.is_string() || content == SortedJson("")) {
        refuse("added_tokens", "must be tokens with an id and a content");
      }
      VocabularyPiece& own = piece(at(token, "id"), "added_tokens");
      const auto known = ids_.find(content.get<std::string>());
      if (known != ids_.end() ? known->second != at(token, "id").get<std::size_t>() : !own.text.empty()) {
        refuse("added_tokens", fmt::format("gives {} an id that contradicts the vocabulary", content.dump()));
      }
      own.text = content.get<std::string>();
      const bool becomes_control =
          known == ids_.end() || (at(token, "special") == true && own.type == PieceType::normal);
      own.type = becomes_control ? PieceType::control : own.type;
    }
  }

  // Requires a piece for each byte. An added token that is the byte itself, such as the line end in an export of
  // Headroom, serves as well.
  void require_bytes() {
    for (int value = 0; value < config::kByteValues; ++value) {
      const std::string name = fmt::format("<0x{:02X}>", value);
      const auto own = std::ranges::find_if(result_.pieces, [&](const VocabularyPiece& piece) {
        return piece.text == std::string(1, static_cast<char>(value));
      });
      const bool is_added = own != result_.pieces.end() &&
                            std::any_of(at(document_, "added_tokens").begin(), at(document_, "added_tokens").end(),
                                        [&](const SortedJson& token) { return at(token, "content") == own->text; });
      if (!ids_.contains(name)) {
        if (!is_added) {
          refuse("model.vocab", fmt::format("lacks the token {}, which byte_fallback needs", name));
        }
        *own = {.text = name, .type = PieceType::byte};
      }
    }
  }

  // SentencePiece needs an unknown piece, although no text has it, because each byte has a piece. Without unk_token,
  // it is <unk> or else the first control piece, which no merge can produce.
  void require_unknown() {
    const auto is = [&](PieceType type) {
      return std::ranges::find_if(result_.pieces, [&](const VocabularyPiece& piece) { return piece.type == type; });
    };
    if (is(PieceType::unknown) != result_.pieces.end()) {
      return;
    }
    const auto named = ids_.find("<unk>");
    const auto piece = named != ids_.end() ? result_.pieces.begin() + static_cast<std::ptrdiff_t>(named->second)
                                           : is(PieceType::control);
    if (piece == result_.pieces.end()) {
      refuse("model.unk_token", "must be a token of the vocabulary, since no added token is special");
    }
    piece->type = PieceType::unknown;
  }

  void read_merges(const SortedJson& merges) {
    if (!merges.is_array()) {
      refuse("model.merges", "must be a list of pairs of tokens");
    }
    std::size_t rank = 0;
    std::string last;
    for (const SortedJson& pair : merges) {
      const bool list = pair.is_array() && pair.size() == 2 && pair[0].is_string() && pair[1].is_string();
      const std::string line = pair.is_string() ? pair.get<std::string>() : std::string();
      const std::size_t blank = line.find(' ');
      if (!list && blank == std::string::npos) {
        refuse("model.merges", fmt::format("must be pairs of tokens, which number {} is not", rank + 1));
      }
      const std::string left = list ? pair[0].get<std::string>() : line.substr(0, blank),
                        right = list ? pair[1].get<std::string>() : line.substr(blank + 1), whole = left + right;
      const auto found = ids_.find(whole);
      if (found == ids_.end() || !ids_.contains(left) || !ids_.contains(right)) {
        refuse("model.merges", fmt::format("number {} names a token that is not in the vocabulary", rank + 1));
      }
      float& score = result_.pieces[found->second].score;
      if (whole != last && score != 0.0F) {
        refuse("model.merges",
               fmt::format("makes the token of merge {} by several ranks, which is not supported with byte_fallback",
                           rank + 1));
      }
      score = whole == last ? score : -static_cast<float>(++results_);
      last = whole;
      ++splits_[found->second];
      ++rank;
    }
  }

  void require_all_splits() {
    for (std::size_t id = 0; id < result_.pieces.size(); ++id) {
      const VocabularyPiece& whole = result_.pieces[id];
      if (whole.type != PieceType::normal) {
        continue;
      }
      std::size_t splits = 0;
      for (std::size_t cut = 1; cut < whole.text.size(); ++cut) {
        splits += !continues_character(whole.text[cut]) && is_normal(whole.text.substr(0, cut)) &&
                          is_normal(whole.text.substr(cut))
                      ? 1
                      : 0;
      }
      if (splits != splits_[id]) {
        refuse("model.merges",
               fmt::format("must have all {} ways to make the token of id {}, since byte_fallback is set, got {}",
                           splits, id, splits_[id]));
      }
    }
  }

  bool is_normal(const std::string& text) const {
    const auto found = ids_.find(text);
    return found != ids_.end() && result_.pieces[found->second].type == PieceType::normal;
  }

  const SortedJson& document_;
  std::string_view origin_;
  SentencePieceModel result_;
  std::unordered_map<std::string, std::size_t> ids_;
  std::unordered_map<std::size_t, std::size_t> splits_;  // number of merges, by the id of the result
  std::size_t results_ = 0;
};

}  // namespace

bool has_byte_fallback(const SortedJson& document) {
  const auto model = document.is_object() ? document.find("model") : document.end();
  return document.is_object() && model != document.end() && model->is_object() &&
         model->value("byte_fallback", SortedJson()) == true;
}

std::unique_ptr<Tokenizer> restore_byte_fallback(const SortedJson& document, std::string_view origin,
                                                 std::int64_t min_size) {
  const std::string model = serialise(JsonModel(document, origin).convert(min_size));
  return restore_json_tokenizer(with_json_steps(model, JsonSteps::serialised(document)), origin);
}

}  // namespace headroom::tokenizers
