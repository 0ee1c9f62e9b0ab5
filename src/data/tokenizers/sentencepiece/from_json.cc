// LLaMA's tokenizer.json, BPE with byte fallback, as the SentencePiece model that gives the same ids.
//
// The `tokenizers` package merges the pair with the lowest rank, SentencePiece the pair whose result has the best
// score. They agree if every way to split a result is a merge, and merges with the same result are consecutive.
#include <algorithm>
#include <unordered_map>

#include "data/tokenizers/kinds.h"
#include "foundation/core/text/utf8.h"
#include "headroom/core/error.h"
#include "headroom/core/json.h"
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
    for (std::size_t id = 0; id < result_.pieces.size(); ++id) {
      if (result_.pieces[id].text.empty()) {
        refuse("model.vocab",
               fmt::format("must have ids from 0 to {}, each once, but {} is missing", result_.pieces.size() - 1, id));
      }
    }
    read_merges(at(model, "merges"));
    require_all_splits();
    read_normalizer(at(document_, "normalizer"), at(document_, "pre_tokenizer"));
    for (std::int64_t id = std::ssize(result_.pieces); id < min_size; ++id) {
      result_.pieces.push_back({.text = fmt::format("<spare {}>", id), .type = PieceType::control});
    }
    result_.is_bpe = true;
    result_.removes_extra_blanks = false;
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
    if (!unknown.is_string() || !ids_.contains(unknown.get<std::string>())) {
      refuse("model.unk_token", "must be a token of the vocabulary");
    }
    for (int value = 0; value < config::kByteValues; ++value) {
      if (!ids_.contains(fmt::format("<0x{:02X}>", value))) {
        refuse("model.vocab", fmt::format("lacks the token <0x{:02X}>, which byte_fallback needs", value));
      }
    }
  }

  // Special tokens become control pieces, which no text produces.
  void read_added(const SortedJson& added) {
    for (const SortedJson& token : added) {
      const SortedJson &content = at(token, "content"), &special = at(token, "special");
      if (!content.is_string() || content == SortedJson("") || special != true) {
        refuse("added_tokens", "must be special tokens with a content, since byte_fallback is set");
      }
      VocabularyPiece& own = piece(at(token, "id"), "added_tokens");
      const auto known = ids_.find(content.get<std::string>());
      if (known != ids_.end() ? known->second != at(token, "id").get<std::size_t>() : !own.text.empty()) {
        refuse("added_tokens", fmt::format("gives {} an id that contradicts the vocabulary", content.dump()));
      }
      own.text = content.get<std::string>();
      own.type = own.type == PieceType::unknown ? PieceType::unknown : PieceType::control;
    }
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
        refuse("model.merges", fmt::format("makes the token of merge {} by several ranks, which is not supported with "
                                           "byte_fallback",
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
        refuse("model.merges", fmt::format("must have all {} ways to make the token of id {}, since byte_fallback is "
                                           "set, got {}",
                                           splits, id, splits_[id]));
      }
    }
  }

  bool is_normal(const std::string& text) const {
    const auto found = ids_.find(text);
    return found != ids_.end() && result_.pieces[found->second].type == PieceType::normal;
  }

  // Blanks become U+2581, which may also be put in front of the text.
  void read_normalizer(const SortedJson& normalizer, const SortedJson& pre_tokenizer) {
    std::vector<SortedJson> steps;
    if (at(normalizer, "type") == "Sequence") {
      steps.assign(at(normalizer, "normalizers").begin(), at(normalizer, "normalizers").end());
    } else if (!normalizer.is_null()) {
      steps = {normalizer};
    }
    bool escapes = false, in_front = false;
    for (const SortedJson& step : steps) {
      const std::string blank = escapes ? std::string(kBlankSymbol) : " ";
      const bool prepends = at(step, "type") == "Prepend" && !in_front &&
                            (at(step, "prepend") == std::string(kBlankSymbol) || at(step, "prepend") == blank);
      const bool replaces = at(step, "type") == "Replace" && !escapes && at(at(step, "pattern"), "String") == " " &&
                            at(step, "content") == std::string(kBlankSymbol);
      if (!prepends && !replaces) {
        refuse("normalizer", fmt::format("has the step {}, which is not supported with byte_fallback", step.dump()));
      }
      in_front = in_front || prepends;
      escapes = escapes || replaces;
    }
    if (!pre_tokenizer.is_null()) {
      const SortedJson &scheme = at(pre_tokenizer, "prepend_scheme"), &cuts = at(pre_tokenizer, "split");
      if (escapes || at(pre_tokenizer, "type") != "Metaspace" || cuts != false ||
          at(pre_tokenizer, "replacement") != std::string(kBlankSymbol) ||
          (scheme != "first" && scheme != "always" && scheme != "never")) {
        refuse("pre_tokenizer", fmt::format("is {}, which is not supported with byte_fallback", pre_tokenizer.dump()));
      }
      escapes = true;
      in_front = scheme != "never";
    }
    if (!escapes) {
      refuse("normalizer", fmt::format("must replace blanks by {}, since byte_fallback is set", kBlankSymbol));
    }
    result_.adds_dummy_prefix = in_front;
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
  return restore_sentencepiece(serialised_from_file(serialise(JsonModel(document, origin).convert(min_size))), origin);
}

}  // namespace headroom::tokenizers
