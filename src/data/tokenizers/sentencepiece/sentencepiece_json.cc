// Lines apart: a line end is a token that is looked for in the text first, so that what is between two of them is
// normalised by itself. The vocabulary has blanks as they are rather than U+2581, which then is an unknown character
// of the text, spelled in bytes.
#include "sentencepiece_json.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <unordered_map>

#include "data/tokenizers/kinds.h"
#include "foundation/core/text/format.h"
#include "foundation/core/text/utf8.h"
#include "headroom/core/json.h"
#include "sentencepiece_model.h"

namespace headroom::tokenizers {
namespace {

constexpr std::string_view kLineEndPiece = "<0x0A>";

std::string with_blanks(std::string text, std::string_view blank) {
  for (std::size_t at = 0; (at = text.find(kBlankSymbol, at)) != std::string::npos; at += blank.size()) {
    text.replace(at, kBlankSymbol.size(), blank);
  }
  return text;
}

class PiecesAsJson {
 public:
  PiecesAsJson(const SentencePieceModel& model, Lines lines)
      : model_(model), apart_(lines == Lines::apart), blank_(apart_ ? " " : kBlankSymbol) {
    for (const Piece& piece : model.pieces) {
      if (apart_ && piece.type == PieceType::byte && piece.text == kLineEndPiece) {
        names_.emplace_back("\n");
      } else {
        names_.push_back(piece.type == PieceType::normal ? with_blanks(piece.text, blank_) : piece.text);
      }
    }
  }

  std::string document(const SpecialNames& special) const {
    const SortedJson json = {{"version", "1.0"},
                             {"truncation", nullptr},
                             {"padding", nullptr},
                             {"added_tokens", added(special)},
                             {"normalizer", normalizer()},
                             {"pre_tokenizer", nullptr},
                             {"decoder", decoder()},
                             {"post_processor", after(special.in_front)},
                             {"model", bpe()}};
    return json.dump() + "\n";
  }

 private:
  std::size_t id_of(std::string_view name) const {
    return static_cast<std::size_t>(std::find(names_.begin(), names_.end(), name) - names_.begin());
  }

  SortedJson added(const SpecialNames& special) const {
    std::vector<std::pair<std::size_t, bool>> ids;  // and whether it marks something
    for (const std::string& name : special.names) {
      if (const std::size_t id = id_of(name); id < names_.size()) {
        ids.emplace_back(id, true);
      }
    }
    if (const std::size_t line_end = id_of("\n"); line_end < names_.size()) {
      ids.emplace_back(line_end, false);
    }
    std::sort(ids.begin(), ids.end());
    SortedJson list = SortedJson::array();
    for (const auto& [id, marks] : ids) {
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
    if (!apart_) {
      steps.push_back(replace("String", " ", blank_));
    }
    return steps.empty() ? SortedJson() : SortedJson{{"type", "Sequence"}, {"normalizers", steps}};
  }

  SortedJson decoder() const {
    SortedJson steps = SortedJson::array();
    if (!apart_) {
      steps.push_back({{"type", "Replace"}, {"pattern", {{"String", blank_}}}, {"content", " "}});
    }
    steps.push_back({{"type", "ByteFallback"}});
    steps.push_back({{"type", "Fuse"}});
    if (model_.adds_dummy_prefix && apart_) {
      steps.push_back({{"type", "Replace"}, {"pattern", {{"String", "\n "}}}, {"content", "\n"}});
    }
    if (model_.adds_dummy_prefix) {
      steps.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
    }
    return {{"type", "Sequence"}, {"decoders", steps}};
  }

  SortedJson after(const std::string& in_front) const {
    const std::size_t id = id_of(in_front);
    return in_front.empty() || id == names_.size() ? SortedJson()
                                                   : template_for(in_front, static_cast<std::int32_t>(id));
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

  // Any two pieces that make a third one are merged, the better third one first.
  SortedJson merges() const {
    std::unordered_map<std::string_view, std::size_t> ids;
    for (std::size_t id = 0; id < names_.size(); ++id) {
      if (model_.pieces[id].type == PieceType::normal) {
        ids.emplace(names_[id], id);
      }
    }
    std::vector<std::tuple<float, std::size_t, std::size_t>> all;  // minus the score, the two
    for (const auto& [whole, id] : ids) {
      for (std::size_t at = 1; at < whole.size(); ++at) {
        const auto left = ids.find(whole.substr(0, at)), right = ids.find(whole.substr(at));
        if (!continues_character(whole[at]) && left != ids.end() && right != ids.end()) {
          all.emplace_back(-model_.pieces[id].score, left->second, right->second);
        }
      }
    }
    std::sort(all.begin(), all.end());
    SortedJson list = SortedJson::array();
    for (const auto& [ignored, left, right] : all) {
      list.push_back(SortedJson::array({names_[left], names_[right]}));
    }
    return list;
  }

  const SentencePieceModel& model_;
  bool apart_;
  std::string_view blank_;
  std::vector<std::string> names_;  // by id
};

}  // namespace

SortedJson template_for(const std::string& token, std::int32_t id) {
  const SortedJson mark = {{"SpecialToken", {{"id", token}, {"type_id", 0}}}},
                   first = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}},
                   second = {{"Sequence", {{"id", "B"}, {"type_id", 1}}}};
  return {{"type", "TemplateProcessing"},
          {"single", SortedJson::array({mark, first})},
          {"pair", SortedJson::array({mark, first, second})},
          {"special_tokens",
           {{token, {{"id", token}, {"ids", SortedJson::array({id})}, {"tokens", SortedJson::array({token})}}}}}};
}

std::string sentencepiece_to_json(std::string_view serialised, const SpecialNames& special) {
  const SentencePieceModel model = parse_sentencepiece(serialised);
  const auto has_no_place = [](const Piece& piece) {
    return piece.type == PieceType::user_defined || !is_utf8(piece.text) || !std::isfinite(piece.score);
  };
  if (!model.is_bpe || model.blank_is_suffix || !model.escapes_blanks ||
      std::any_of(model.pieces.begin(), model.pieces.end(), has_no_place)) {
    return {};
  }
  return PiecesAsJson(model, lines_of(serialised)).document(special);
}

}  // namespace headroom::tokenizers
