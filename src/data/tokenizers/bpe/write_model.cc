#include <fmt/format.h>

#include "headroom/core/json.h"
#include "model.h"

namespace headroom::tokenizers {
namespace {

// Returns `text` as a JSON string with quotes.
std::string json_text(std::string_view text) {
  return SortedJson(std::string(text)).dump();
}

std::string added_tokens(const std::vector<AddedToken>& tokens) {
  std::string list;
  for (const AddedToken& token : tokens) {
    list += fmt::format(
        R"({}{{"id":{},"content":{},"single_word":false,"lstrip":false,"rstrip":false,"normalized":{},"special":{}}})",
        list.empty() ? "" : ",", token.id, json_text(token.content), token.normalised, token.special);
  }
  return list;
}

std::string byte_level(bool cuts) {
  return fmt::format(R"({{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":{}}})", cuts);
}

std::string pre_tokenizer(WordPattern pattern) {
  if (pattern == WordPattern::gpt2) {
    return byte_level(true);
  }
  std::string_view regex;
  for (const PatternText& known : pattern_texts()) {
    regex = known.pattern == pattern ? known.regex : regex;
  }
  return fmt::format(
      R"({{"type":"Sequence","pretokenizers":[{{"type":"Split","pattern":{{"Regex":{}}},"behavior":"Isolated",)"
      R"("invert":false}},{}]}})",
      json_text(regex), byte_level(false));
}

}  // namespace

std::string to_tokenizer_json(const BpeModel& m) {
  std::string text = fmt::format(
      R"({{"version":"1.0","truncation":null,"padding":null,"added_tokens":[{}],"normalizer":{},"pre_tokenizer":{},)"
      R"("post_processor":{},"decoder":{},{})",
      added_tokens(m.added), m.composes ? R"({"type":"NFC"})" : "null", pre_tokenizer(m.pattern),
      m.post_processor.empty() ? "null" : m.post_processor, byte_level(true),
      m.spare_ids > 0 ? fmt::format(R"("spare_ids":{},)", m.spare_ids) : "");
  text += fmt::format(R"("model":{{"type":"BPE","dropout":null,"unk_token":null,"continuing_subword_prefix":"",)"
                      R"("end_of_word_suffix":"","fuse_unk":false,"byte_fallback":false,"ignore_merges":{},"vocab":{{)",
                      m.whole_words_first);
  bool first = true;
  for (std::size_t id = 0; id < m.tokens.size(); ++id) {
    if (!m.tokens[id].empty()) {
      text += fmt::format("{}{}:{}", first ? "" : ",", json_text(m.tokens[id]), id);
      first = false;
    }
  }
  text += R"(},"merges":[)";
  first = true;
  const auto token = [&](std::int32_t id) -> const std::string& { return m.tokens[static_cast<std::size_t>(id)]; };
  for (const Merge& merge : m.merges) {
    text += (first ? "" : ",") + json_text(token(merge.left) + " " + token(merge.right));
    first = false;
  }
  return text + "]}}\n";
}

}  // namespace headroom::tokenizers
