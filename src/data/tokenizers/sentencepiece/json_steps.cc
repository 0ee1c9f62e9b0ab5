#include "json_steps.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "data/tokenizers/kinds.h"
#include "foundation/core/text/format.h"
#include "headroom/core/error.h"

namespace headroom::tokenizers {
namespace {

constexpr const char* kParts[] = {"added_tokens", "decoder", "normalizer", "pre_tokenizer"};

const SortedJson& at(const SortedJson& object, const char* key) {
  static const SortedJson kNull;
  return object.is_object() && object.contains(key) ? object.at(key) : kNull;
}

std::string string_at(const SortedJson& object, const char* key) {
  const SortedJson& value = at(object, key);
  return value.is_string() ? value.get<std::string>() : std::string();
}

// Returns the steps of a sequence, whose list is named `list`; one step for a single step, no steps for null.
std::vector<SortedJson> steps_of(const SortedJson& part, const char* list) {
  if (part.is_null()) {
    return {};
  }
  if (at(part, "type") != "Sequence") {
    return {part};
  }
  const SortedJson& steps = at(part, list);
  return {steps.begin(), steps.end()};
}

void replace_all(std::string& text, std::string_view pattern, std::string_view content) {
  for (std::size_t from = 0; (from = text.find(pattern, from)) != std::string::npos; from += content.size()) {
    text.replace(from, pattern.size(), content);
  }
}

// Returns whether the token is "<0xNN>", and its byte.
bool is_byte(const std::string& token, char& byte) {
  if (token.size() != 6 || !token.starts_with("<0x") || token.back() != '>') {
    return false;
  }
  int value = 0;
  for (const char digit : {token[3], token[4]}) {
    const bool decimal = digit >= '0' && digit <= '9';
    if (!decimal && (digit < 'A' || digit > 'F')) {
      return false;
    }
    value = value * 16 + (decimal ? digit - '0' : digit - 'A' + 10);
  }
  byte = static_cast<char>(value);
  return true;
}

void strip(std::string& text, const std::string& what, std::size_t start, std::size_t stop) {
  std::size_t begin = 0, end = text.size();
  for (; start > 0 && text.compare(begin, what.size(), what) == 0; --start) {
    begin += what.size();
  }
  for (; stop > 0 && end >= begin + what.size() && text.compare(end - what.size(), what.size(), what) == 0; --stop) {
    end -= what.size();
  }
  text = text.substr(begin, end - begin);
}

}  // namespace

void JsonSteps::refuse(const std::string& key, std::string_view why) const {
  user_error("{}: {} {}", origin_, key, why);
}

void JsonSteps::refuse_step(const std::string& key, const SortedJson& step) const {
  refuse(key, fmt::format("has the step {}, which is not supported with byte_fallback", printable(step.dump())));
}

JsonSteps::JsonSteps(const SortedJson& document, std::string_view origin) : origin_(origin) {
  for (const SortedJson& step : steps_of(at(document, "normalizer"), "normalizers")) {
    normalizer_.push_back(replacement(step));
  }
  for (const SortedJson& step : steps_of(at(document, "pre_tokenizer"), "pretokenizers")) {
    read_pre_tokenizer(step);
  }
  for (const SortedJson& step : steps_of(at(document, "decoder"), "decoders")) {
    read_decoder(step);
  }
  if (decoder_.empty()) {
    use_default_decoder();
  }
  read_added(at(document, "added_tokens"));
}

JsonSteps::Replacement JsonSteps::replacement(const SortedJson& step) const {
  const SortedJson& pattern = at(step, "pattern");
  if (at(step, "type") == "Prepend" && at(step, "prepend").is_string()) {
    return {.pattern = "", .content = string_at(step, "prepend"), .at_begin = true};
  }
  if (at(step, "type") == "Replace" && at(step, "content").is_string()) {
    if (const std::string text = string_at(pattern, "String"); !text.empty()) {
      return {.pattern = text, .content = string_at(step, "content")};
    }
    // SentencePiece prepends a blank even to a text that begins with one; transformers then writes this step.
    if (string_at(pattern, "Regex") == "\\A" + std::string(kBlankSymbol)) {
      return {.pattern = std::string(kBlankSymbol), .content = string_at(step, "content"), .at_begin = true};
    }
  }
  refuse_step("normalizer", step);
}

JsonSteps::Scheme JsonSteps::scheme(const SortedJson& metaspace, const std::string& key) const {
  const SortedJson& name = at(metaspace, "prepend_scheme");
  const bool known = name.is_null() || name == "first" || name == "always" || name == "never";
  if (at(metaspace, "replacement") != std::string(kBlankSymbol) || !known) {
    refuse_step(key, metaspace);
  }
  return name == "first" ? Scheme::first
         : name == "never"
             ? Scheme::never
             : (name.is_null() && at(metaspace, "add_prefix_space") == false ? Scheme::never : Scheme::always);
}

void JsonSteps::read_pre_tokenizer(const SortedJson& step) {
  const bool has_blanks = normalised(" ").find(' ') != std::string::npos ||
                          std::ranges::any_of(normalizer_, [](const Replacement& replacement) {
                            return replacement.content.find(' ') != std::string::npos;
                          });
  if (!has_blanks && at(step, "type") == "Split" && at(at(step, "pattern"), "String") == " ") {  // Gemma's: finds none
    return;
  }
  if (at(step, "type") != "Metaspace" || scheme_ != Scheme::none) {
    refuse_step("pre_tokenizer", step);
  }
  scheme_ = scheme(step, "pre_tokenizer");
  splits_ = at(step, "split") != false;
}

void JsonSteps::read_decoder(const SortedJson& step) {
  const std::string type = string_at(step, "type");
  const auto count = [&](const char* key) -> std::size_t {
    const SortedJson& value = at(step, key);
    return value.is_number_unsigned() ? value.get<std::size_t>() : 0;
  };
  if (const std::string pattern = string_at(at(step, "pattern"), "String"); type == "Replace" && !pattern.empty()) {
    decoder_.push_back({.kind = DecoderKind::replace, .pattern = pattern, .content = string_at(step, "content")});
  } else if (type == "ByteFallback") {
    decoder_.push_back({.kind = DecoderKind::bytes});
  } else if (type == "Fuse") {
    decoder_.push_back({.kind = DecoderKind::fuse});
  } else if (const std::string content = string_at(step, "content"); type == "Strip" && !content.empty()) {
    decoder_.push_back(
        {.kind = DecoderKind::strip, .content = content, .start = count("start"), .stop = count("stop")});
  } else if (type == "Metaspace") {
    decoder_.push_back({.kind = DecoderKind::metaspace, .drops_first = scheme(step, "decoder") != Scheme::never});
  } else {
    refuse_step("decoder", step);
  }
}

void JsonSteps::use_default_decoder() {
  decoder_ = {{.kind = DecoderKind::replace, .pattern = std::string(kBlankSymbol), .content = " "},
              {.kind = DecoderKind::bytes},
              {.kind = DecoderKind::fuse}};
  if (prepends()) {
    decoder_.push_back({.kind = DecoderKind::strip, .content = " ", .start = 1});
  }
}

void JsonSteps::read_added(const SortedJson& list) {
  for (const SortedJson& token : list) {
    const SortedJson& id = at(token, "id");
    Added added{.content = string_at(token, "content"), .special = at(token, "special") == true};
    if (!id.is_number_unsigned() || id.get<std::uint64_t>() > std::numeric_limits<std::int32_t>::max() ||
        added.content.empty()) {
      refuse("added_tokens", "must be tokens with an id and a content");
    }
    if (at(token, "single_word") == true) {
      refuse("added_tokens.single_word",
             fmt::format("is true for \"{}\", which is not supported", printable(added.content)));
    }
    added.id = id.get<std::int32_t>();
    added.normalised = at(token, "normalized").is_null() ? !added.special : at(token, "normalized") == true;
    added.strips_left = at(token, "lstrip") == true;
    added.strips_right = at(token, "rstrip") == true;
    if (added.normalised) {
      added.content = normalised(added.content);
      // `tokenizers` matches special tokens by name, and a changed name is ordinary text.
      added.special = added.special && added.content == string_at(token, "content");
    }
    added_.push_back(std::move(added));
  }
}

bool JsonSteps::prepends() const {
  const auto in_front = [](const Replacement& step) { return step.at_begin && step.pattern.empty(); };
  return scheme_ == Scheme::first || scheme_ == Scheme::always || std::ranges::any_of(normalizer_, in_front);
}

bool JsonSteps::escapes() const {
  return scheme_ != Scheme::none || std::ranges::any_of(normalizer_, [](const Replacement& step) {
           return step.pattern == " " && step.content == kBlankSymbol;
         });
}

std::string JsonSteps::normalised(std::string_view given) const {
  std::string text(given);
  for (const Replacement& step : normalizer_) {
    if (!step.at_begin) {
      replace_all(text, step.pattern, step.content);
    } else if (!text.empty() && text.starts_with(step.pattern)) {
      text.replace(0, step.pattern.size(), step.content);
    }
  }
  return text;
}

std::vector<std::string> JsonSteps::parts(std::string text, bool is_first) const {
  if (scheme_ == Scheme::none || text.empty()) {
    return {std::move(text)};
  }
  replace_all(text, " ", kBlankSymbol);
  const bool prepends = scheme_ == Scheme::always || (scheme_ == Scheme::first && is_first);
  if (prepends && !text.starts_with(kBlankSymbol)) {
    text.insert(0, kBlankSymbol);
  }
  std::vector<std::string> parts;
  for (std::size_t begin = 0, end = 0; begin < text.size(); begin = end) {
    end = splits_ ? std::min(text.find(kBlankSymbol, begin + 1), text.size()) : text.size();
    parts.push_back(text.substr(begin, end - begin));
  }
  return parts;
}

std::string JsonSteps::decoded(std::vector<std::string> tokens) const {
  const auto joined = [&] {
    std::string all;
    for (const std::string& token : tokens) {
      all += token;
    }
    return all;
  };
  for (const DecoderStep& step : decoder_) {
    if (step.kind == DecoderKind::fuse) {
      tokens = {joined()};
      continue;
    }
    for (std::string& token : tokens) {
      char byte = 0;
      switch (step.kind) {
        case DecoderKind::replace:
          replace_all(token, step.pattern, step.content);
          break;
        case DecoderKind::bytes:
          if (is_byte(token, byte)) {
            token = std::string(1, byte);
          }
          break;
        case DecoderKind::strip:
          strip(token, step.content, step.start, step.stop);
          break;
        case DecoderKind::metaspace:
          replace_all(token, kBlankSymbol, step.drops_first && &token == tokens.data() ? "" : " ");
          break;
        case DecoderKind::fuse:
          break;
      }
    }
  }
  return joined();
}

std::string JsonSteps::serialised(const SortedJson& document) {
  SortedJson parts = SortedJson::object();
  for (const char* part : kParts) {
    parts[part] = at(document, part);
  }
  return parts.dump();
}

}  // namespace headroom::tokenizers
