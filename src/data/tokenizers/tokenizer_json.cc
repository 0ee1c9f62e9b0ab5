// Writes tokenizers as tokenizer.json files for the `tokenizers` package.
#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>

#include "data/tokenizers/bpe/model.h"
#include "data/tokenizers/kinds.h"
#include "foundation/core/text/format.h"
#include "foundation/core/text/utf8.h"
#include "headroom/core/json.h"
#include "headroom/tokenizers/tokenizer.h"
#include "sentencepiece/sentencepiece_model.h"

namespace headroom::tokenizers {
namespace {

constexpr std::string_view kLineEndPiece = "<0x0A>";

std::string with_blanks(std::string text, std::string_view blank) {
  for (std::size_t at = 0; (at = text.find(kBlankSymbol, at)) != std::string::npos; at += blank.size()) {
    text.replace(at, kBlankSymbol.size(), blank);
  }
  return text;
}

// Returns the post_processor that prepends tokens to every text; null: none. `name_of` returns the name of an id.
template <class NameOf>
SortedJson template_for(const std::vector<std::int32_t>& ids, NameOf&& name_of) {
  SortedJson single = SortedJson::array(), tokens = SortedJson::object();
  for (const std::int32_t id : ids) {
    const std::string name = name_of(static_cast<std::size_t>(id));
    if (name.empty()) {
      continue;  // a spare id
    }
    single.push_back({{"SpecialToken", {{"id", name}, {"type_id", 0}}}});
    tokens[name] = {{"id", name}, {"ids", SortedJson::array({id})}, {"tokens", SortedJson::array({name})}};
  }
  single.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
  SortedJson pair = single;
  pair.push_back({{"Sequence", {{"id", "B"}, {"type_id", 1}}}});
  return tokens.empty() ? SortedJson()
                        : SortedJson{{"type", "TemplateProcessing"},
                                     {"single", std::move(single)},
                                     {"pair", std::move(pair)},
                                     {"special_tokens", std::move(tokens)}};
}

// A SentencePiece model as JSON. With Lines::separate, the line end is an added token, so that each line is normalised
// separately, and the vocabulary has plain spaces instead of U+2581. A U+2581 in the text is then an unknown character,
// encoded as bytes.
class PiecesAsJson {
 public:
  // `steps`: the steps of the tokenizer.json from which the model was read; null: none.
  PiecesAsJson(const SentencePieceModel& model, Lines lines, SortedJson steps)
      : model_(model),
        steps_(std::move(steps)),
        separate_lines_(lines == Lines::separate),
        blank_(separate_lines_ ? " " : kBlankSymbol) {
    for (const VocabularyPiece& piece : model.pieces) {
      if (separate_lines_ && piece.type == PieceType::byte && piece.text == kLineEndPiece) {
        names_.emplace_back("\n");
      } else {
        names_.push_back(piece.type == PieceType::normal ? with_blanks(piece.text, blank_) : piece.text);
      }
    }
    for (const SortedJson& token : steps_.is_null() ? SortedJson() : steps_.at("added_tokens")) {
      names_.at(token.at("id").get<std::size_t>()) = token.at("content").get<std::string>();
    }
  }

  std::string document(const SpecialNames& special) const {
    const SortedJson json = {
        {"version", "1.0"},
        {"truncation", nullptr},
        {"padding", nullptr},
        {"added_tokens", added(special)},
        {"normalizer", steps_.is_null() ? normalizer() : steps_.at("normalizer")},
        {"pre_tokenizer", steps_.is_null() ? SortedJson() : steps_.at("pre_tokenizer")},
        {"decoder", steps_.is_null() ? decoder() : steps_.at("decoder")},
        {"post_processor", template_for(special.in_front, [&](std::size_t id) { return names_.at(id); })},
        {"model", bpe()}};
    return json.dump() + "\n";
  }

 private:
  std::size_t id_of(std::string_view name) const {
    return static_cast<std::size_t>(std::ranges::find(names_, name) - names_.begin());
  }

  SortedJson added(const SpecialNames& special) const {
    std::vector<std::pair<std::size_t, bool>> ids;  // id, and whether the token is special
    for (const std::string& name : special.names) {
      if (const std::size_t id = id_of(name); id < names_.size()) {
        ids.emplace_back(id, true);
      }
    }
    if (const std::size_t line_end = id_of("\n"); line_end < names_.size()) {
      ids.emplace_back(line_end, false);
    }
    std::ranges::sort(ids);
    SortedJson list = SortedJson::array();
    if (!steps_.is_null() && steps_.at("added_tokens").is_array()) {
      list = steps_.at("added_tokens");
    }
    for (const auto& [id, marks] : ids) {
      if (std::ranges::any_of(list, [id = id](const SortedJson& token) { return token.at("id") == id; })) {
        continue;
      }
      list.push_back({{"id", id},
                      {"content", names_.at(id)},
                      {"single_word", false},
                      {"lstrip", false},
                      {"rstrip", false},
                      {"normalized", false},
                      {"special", marks}});
    }
    return list;
  }

  SortedJson normalizer() const {
    const auto replace = [](const char* kind, std::string_view pattern, std::string_view content) -> SortedJson {
      return {{"type", "Replace"}, {"pattern", {{kind, pattern}}}, {"content", content}};
    };
    SortedJson steps = SortedJson::array();
    if (!model_.character_map.empty()) {
      steps.push_back({{"type", "Precompiled"}, {"precompiled_charsmap", to_base64(model_.character_map)}});
    }
    if (model_.removes_extra_blanks) {
      steps.push_back(replace("Regex", fmt::format("\\A +|[ {}]+\\z", kBlankSymbol), ""));
      steps.push_back(replace("Regex", " {2,}", " "));
    }
    if (model_.adds_dummy_prefix) {
      steps.push_back({{"type", "Prepend"}, {"prepend", " "}});
    }
    if (!separate_lines_) {
      steps.push_back(replace("String", " ", blank_));
    }
    return steps.empty() ? SortedJson() : SortedJson{{"type", "Sequence"}, {"normalizers", steps}};
  }

  SortedJson decoder() const {
    SortedJson steps = SortedJson::array();
    if (!separate_lines_) {
      steps.push_back({{"type", "Replace"}, {"pattern", {{"String", blank_}}}, {"content", " "}});
    }
    steps.push_back({{"type", "ByteFallback"}});
    steps.push_back({{"type", "Fuse"}});
    if (model_.adds_dummy_prefix && separate_lines_) {
      steps.push_back({{"type", "Replace"}, {"pattern", {{"String", "\n "}}}, {"content", "\n"}});
    }
    if (model_.adds_dummy_prefix) {
      steps.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
    }
    return {{"type", "Sequence"}, {"decoders", steps}};
  }

  SortedJson bpe() const {
    SortedJson vocabulary = SortedJson::object(), unknown;
    bool bytes = false;
    for (std::size_t id = 0; id < names_.size(); ++id) {
      vocabulary[names_[id]] = id;
      bytes = bytes || model_.pieces[id].type == PieceType::byte;
      unknown = model_.pieces[id].type == PieceType::unknown ? SortedJson(names_[id]) : unknown;
    }
    return {{"type", "BPE"},
            {"dropout", nullptr},
            {"unk_token", unknown},
            {"continuing_subword_prefix", nullptr},
            {"end_of_word_suffix", nullptr},
            {"fuse_unk", true},
            {"byte_fallback", bytes},
            {"ignore_merges", false},
            {"vocab", std::move(vocabulary)},
            {"merges", merges()}};
  }

  // Every split of a piece into two pieces is a merge. Merges are sorted by the score of the resulting piece.
  SortedJson merges() const {
    std::unordered_map<std::string_view, std::size_t> ids;
    for (std::size_t id = 0; id < names_.size(); ++id) {
      if (model_.pieces[id].type == PieceType::normal) {
        ids.emplace(names_[id], id);
      }
    }
    std::vector<std::tuple<float, std::size_t, std::size_t>> all;  // negative score, left id, right id
    for (const auto& [whole, id] : ids) {
      for (std::size_t at = 1; at < whole.size(); ++at) {
        const auto left = ids.find(whole.substr(0, at)), right = ids.find(whole.substr(at));
        if (!continues_character(whole[at]) && left != ids.end() && right != ids.end()) {
          all.emplace_back(-model_.pieces[id].score, left->second, right->second);
        }
      }
    }
    std::ranges::sort(all);
    SortedJson list = SortedJson::array();
    for (const auto& [ignored, left, right] : all) {
      list.push_back(SortedJson::array({names_[left], names_[right]}));
    }
    return list;
  }

  const SentencePieceModel& model_;
  SortedJson steps_;
  bool separate_lines_;
  std::string_view blank_;
  std::vector<std::string> names_;  // text of each piece, by id
};

// Returns an empty string if the model is not BPE or has features that the `tokenizers` package lacks.
std::string sentencepiece_to_json(std::string_view serialised, const SpecialNames& special) {
  const SentencePieceModel model = parse_sentencepiece(serialised);
  const auto unsupported = [](const VocabularyPiece& piece) {
    return piece.type == PieceType::user_defined || !is_utf8(piece.text) || !std::isfinite(piece.score);
  };
  const std::string_view steps = json_steps_of(serialised);
  if (!model.is_bpe || model.blank_is_suffix || (!model.escapes_blanks && steps.empty()) ||
      std::ranges::any_of(model.pieces, unsupported)) {
    return {};
  }
  return PiecesAsJson(model, lines_of(serialised),
                      steps.empty() ? SortedJson() : parse_sorted_json(steps, "tokenizer.json"))
      .document(special);
}

std::string name_of(const BpeModel& model, std::size_t id) {
  const auto added = std::ranges::find_if(
      model.added, [&](const AddedToken& token) { return static_cast<std::size_t>(token.id) == id; });
  return added != model.added.end() ? added->content : id < model.tokens.size() ? model.tokens[id] : "";
}

// Returns a bytes tokenizer as BPE tokens without merges.
BpeModel bytes_as_bpe(const Tokenizer& tokenizer, const SpecialNames& special) {
  BpeModel model;
  for (std::int32_t id = 0; id < tokenizer.vocabulary_size(); ++id) {
    const std::string byte = tokenizer.decode(std::span(&id, 1));
    const bool marks = std::ranges::find(special.names, byte) != special.names.end();
    model.tokens.push_back(marks ? byte : character_of_byte(static_cast<unsigned char>(byte.front())));
    if (marks) {
      model.added.push_back({.id = id, .content = byte, .normalised = false, .special = true});
    }
  }
  return model;
}

}  // namespace

std::string to_tokenizer_json(const Tokenizer& tokenizer, const SpecialNames& special) {
  if (tokenizer.source_vocabulary_size() > 0) {
    return {};
  }
  switch (tokenizer.kind()) {
    case config::TokenizerKind::bpe: {
      BpeModel model = parse_tokenizer_json(tokenizer.serialised(), tokenizer.name());
      model.spare_ids = 0;
      if (model.post_processor.empty() && !special.in_front.empty()) {
        model.post_processor =
            template_for(special.in_front, [&](std::size_t id) { return name_of(model, id); }).dump();
      }
      return to_tokenizer_json(model);
    }
    case config::TokenizerKind::bytes:
      return to_tokenizer_json(bytes_as_bpe(tokenizer, special));
    case config::TokenizerKind::sentencepiece:
      return sentencepiece_to_json(tokenizer.serialised(), special);
    case config::TokenizerKind::words:
      break;
  }
  return {};
}

}  // namespace headroom::tokenizers
