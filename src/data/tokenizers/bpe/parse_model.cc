// Parses tokenizer.json and GPT-2's pair of files. Both are untrusted input.
#include <algorithm>
#include <cctype>
#include <set>
#include <unordered_map>

#include "foundation/core/text/utf8.h"
#include "headroom/config/run_options.h"
#include "headroom/core/error.h"
#include "headroom/core/json.h"
#include "model.h"

namespace headroom::tokenizers {
namespace {

constexpr std::size_t kLongestToken = 4096;  // bytes

// A value in the document. Errors name the file and the path of the key.
class Setting {
 public:
  Setting(const SortedJson& value, std::string origin, std::string place)
      : value_(value), origin_(std::move(origin)), place_(std::move(place)) {}

  [[noreturn]] void refuse(std::string_view why) const { user_error("{}: {} {}", origin_, place_, why); }
  const std::string& origin() const { return origin_; }
  const std::string& place() const { return place_; }
  const SortedJson& value() const { return value_; }
  bool is_null() const { return value_.is_null(); }

  // Returns the member `key`; null if missing.
  Setting operator[](const std::string& key) const {
    static const SortedJson kNull;
    return {value_.is_object() && value_.contains(key) ? value_.at(key) : kNull, origin_,
            place_.empty() ? key : place_ + "." + key};
  }
  void require_object(std::initializer_list<std::string_view> known) const {
    if (!value_.is_object()) {
      refuse("must be a JSON object");
    }
    for (const auto& [key, value] : value_.items()) {
      if (std::ranges::find(known, key) == known.end()) {
        user_error("{}: unknown setting {}", origin_, place_.empty() ? key : place_ + "." + key);
      }
    }
  }
  std::string text() const {
    if (!value_.is_string()) {
      refuse("must be a string");
    }
    return value_.get<std::string>();
  }
  bool flag(bool absent) const {
    if (!value_.is_boolean() && !value_.is_null()) {
      refuse("must be true or false");
    }
    return value_.is_null() ? absent : value_.get<bool>();
  }
  std::int32_t id() const {
    if (!value_.is_number_unsigned() || value_.get<std::uint64_t>() > INT32_MAX) {
      refuse("must be an id from 0 to 2147483647");
    }
    return static_cast<std::int32_t>(value_.get<std::uint64_t>());
  }
  void require_unset(std::string_view meaning) const {
    const bool unset = value_.is_null() || value_ == SortedJson(false) || value_ == SortedJson("") ||
                       (value_.is_number() && value_.get<double>() == 0.0);
    if (!unset) {
      refuse(fmt::format("is set, but {} not supported", meaning));
    }
  }

 private:
  const SortedJson& value_;
  std::string origin_, place_;
};

class ModelReader {
 public:
  explicit ModelReader(std::string_view origin) : origin_(origin) {}
  const std::string& origin() const { return origin_; }

  void vocabulary(const Setting& part) {
    if (!part.value().is_object() || part.value().empty()) {
      part.refuse("must be a JSON object of tokens and their ids");
    }
    for (const auto& [token, id] : part.value().items()) {
      if (token.empty() || token.size() > kLongestToken) {
        part.refuse(fmt::format("holds a token of {} bytes, where 1 to {} are possible", token.size(), kLongestToken));
      }
      ids_.emplace(token, Setting(id, origin_, "the id of a token").id());
    }
  }

  void merge(std::string_view left, std::string_view right, const std::string& where) {
    const auto id_of = [&](const std::string& token) {
      const auto found = ids_.find(token);
      if (found == ids_.end()) {
        user_error("{}: names the token \"{}\", which is not in the vocabulary", where, shortened(token));
      }
      return found->second;
    };
    const std::string first(left), second(right);
    model_.merges.push_back({id_of(first), id_of(second), id_of(first + second)});
  }

  void added(AddedToken token) {
    if (token.content.empty() || token.content.size() > kLongestToken) {
      user_error("{}: added_tokens: holds a token of {} bytes, where 1 to {} are possible", origin_,
                 token.content.size(), kLongestToken);
    }
    model_.added.push_back(std::move(token));
  }

  std::int32_t find(const std::string& token) const {
    const auto found = ids_.find(token);
    return found == ids_.end() ? -1 : found->second;
  }
  // Returns the first id after the vocabulary and the added tokens.
  std::int32_t next_id() const {
    std::int32_t id = static_cast<std::int32_t>(ids_.size());
    for (const AddedToken& token : model_.added) {
      id = std::max(id, token.id + 1);
    }
    return id;
  }
  BpeModel& model() { return model_; }

  // Checks that the ids are 0 to n-1, each once, and returns the model.
  BpeModel finish() && {
    auto& all = model_.added;
    std::ranges::sort(all, [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
    std::size_t n = ids_.size();
    for (const AddedToken& token : all) {
      n += ids_.contains(token.content) ? 0 : 1;
    }
    model_.tokens.resize(n);
    std::vector<bool> taken(n);
    for (const auto& [token, id] : ids_) {
      take(taken, id, token);
      model_.tokens[static_cast<std::size_t>(id)] = token;
    }
    for (const AddedToken& token : all) {
      const auto known = ids_.find(token.content);
      if (known == ids_.end()) {
        take(taken, token.id, token.content);
      } else if (known->second != token.id) {
        user_error("{}: the token \"{}\" has the id {} in the vocabulary, but {} among added_tokens", origin_,
                   shortened(token.content), known->second, token.id);
      }
    }
    return std::move(model_);
  }

 private:
  static std::string shortened(std::string_view token) {
    constexpr std::size_t kShown = 60;
    std::string shown(token.substr(0, token.size() > kShown ? character_boundary(token, kShown) : token.size()));
    std::replace_if(
        shown.begin(), shown.end(), [](char c) { return static_cast<unsigned char>(c) < ' ' || c == '\x7f'; }, '?');
    return token.size() > kShown ? shown + "..." : shown;
  }
  void take(std::vector<bool>& taken, std::int32_t id, std::string_view token) const {
    if (static_cast<std::size_t>(id) >= taken.size()) {
      user_error("{}: the token \"{}\" has the id {}, but there are only {} tokens: ids must be 0 to {}, each once",
                 origin_, shortened(token), id, taken.size(), taken.size() - 1);
    }
    if (taken[static_cast<std::size_t>(id)]) {
      user_error("{}: the id {} of the token \"{}\" is also that of another one", origin_, id, shortened(token));
    }
    taken[static_cast<std::size_t>(id)] = true;
  }

  std::string origin_;
  std::unordered_map<std::string, std::int32_t> ids_;
  BpeModel model_;
};

void read_merges(const Setting& part, ModelReader& reader) {
  if (!part.value().is_array()) {
    part.refuse("must be a list of pairs of tokens");
  }
  std::size_t number = 0;
  for (const SortedJson& pair : part.value()) {
    ++number;
    const bool list = pair.is_array() && pair.size() == 2 && pair[0].is_string() && pair[1].is_string();
    const std::string line = pair.is_string() ? pair.get<std::string>()
                             : list           ? pair[0].get<std::string>() + " " + pair[1].get<std::string>()
                                              : std::string();
    const std::size_t blank = line.find(' ');
    if (blank == std::string::npos || line.find(' ', blank + 1) != std::string::npos) {
      part.refuse(fmt::format("must be pairs of tokens without blanks, which number {} is not", number));
    }
    reader.merge(std::string_view(line).substr(0, blank), std::string_view(line).substr(blank + 1),
                 fmt::format("{}: merge {}", reader.origin(), number));
  }
}

void read_added(const Setting& part, ModelReader& reader) {
  if (part.is_null()) {
    return;
  }
  if (!part.value().is_array()) {
    part.refuse("must be a list");
  }
  for (const SortedJson& entry : part.value()) {
    const Setting token(entry, reader.origin(), "added_tokens");
    token.require_object({"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"});
    for (const char* flag : {"single_word", "lstrip", "rstrip"}) {
      if (token[flag].flag(false)) {
        token[flag].refuse(fmt::format("is true for \"{}\", which is not supported", token["content"].text()));
      }
    }
    const bool special = token["special"].flag(false);
    reader.added({.id = token["id"].id(),
                  .content = token["content"].text(),
                  .normalised = token["normalized"].flag(!special),
                  .special = special});
  }
}

// Returns the regular expression of a step that makes a word of each match.
std::string split_pattern(const Setting& split) {
  split.require_object({"type", "pattern", "behavior", "invert"});
  if (split["behavior"].text() != "Isolated" || split["invert"].flag(false)) {
    split.refuse("must have the behavior Isolated, not inverted");
  }
  if (split["pattern"]["String"].is_null()) {
    return split["pattern"]["Regex"].text();
  }
  std::string pattern;
  for (const char c : split["pattern"]["String"].text()) {
    const bool symbol = c > ' ' && c < '\x7f' && std::isalnum(static_cast<unsigned char>(c)) == 0;
    pattern += (symbol ? "\\" : "") + std::string(1, c);
  }
  return pattern;
}

// Returns the members of `list` if the part is a sequence, else the part itself; null: none.
std::vector<Setting> steps_of(const Setting& part, const std::string& list) {
  std::vector<Setting> steps;
  if (part.is_null()) {
    return steps;
  }
  if (part["type"].text() != "Sequence") {
    return {part};
  }
  if (!part[list].value().is_array()) {
    part[list].refuse("must be a list");
  }
  for (const SortedJson& step : part[list].value()) {
    steps.emplace_back(step, part.origin(), part.place());
    steps.back()["type"].text();
  }
  return steps;
}

// Accepts any number of Splits and Digits, then ByteLevel.
void read_pre_tokenizer(const Setting& part, BpeModel& model) {
  if (part.is_null()) {
    part.refuse("is missing: only byte-level BPE is supported");
  }
  model.words.clear();
  bool ends = false;
  for (const Setting& step : steps_of(part, "pretokenizers")) {
    const std::string type = step["type"].text();
    if (ends || (type != "Split" && type != "Digits" && type != "ByteLevel")) {
      part.refuse(fmt::format("has the step {}: only ByteLevel is supported, alone or after Split and Digits", type));
    }
    if (type == "Split") {
      model.words.push_back(split_pattern(step));
    } else if (type == "Digits") {
      step.require_object({"type", "individual_digits"});
      model.words.emplace_back(step["individual_digits"].flag(false) ? R"(\p{N})" : R"(\p{N}+)");
    } else {
      step.require_object({"type", "add_prefix_space", "trim_offsets", "use_regex"});
      if (step["add_prefix_space"].flag(true)) {
        step["add_prefix_space"].refuse("is true, but adding a blank before each text is not supported");
      }
      if (step["use_regex"].flag(true)) {
        model.words.emplace_back(kGpt2Words);
      }
      ends = true;
    }
  }
  if (!ends) {
    part.refuse("must end with ByteLevel: only byte-level BPE is supported");
  }
  if (model.words.empty()) {
    part.refuse("has ByteLevel without use_regex, but text that is not cut into words is not supported");
  }
  WordSplitter(model.words, part.origin() + ": pre_tokenizer");  // throws for a pattern that is not supported
}

void read_normalizer(const Setting& part, BpeModel& model) {
  for (const Setting& step : steps_of(part, "normalizers")) {
    const std::string type = step["type"].text();
    if (type != "NFC") {
      part.refuse(fmt::format("is {}: only NFC, or none, is supported", type));
    }
    model.composes = true;
  }
}

void read_model(const Setting& part, ModelReader& reader) {
  const std::string type = part["type"].is_null() ? "BPE" : part["type"].text();
  if (type != "BPE") {
    part.refuse(fmt::format("is of type {}: only byte-level BPE is supported", type));
  }
  part.require_object({"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk",
                       "byte_fallback", "ignore_merges", "vocab", "merges"});
  part["dropout"].require_unset("random merges are");
  part["continuing_subword_prefix"].require_unset("marks inside words are");
  part["end_of_word_suffix"].require_unset("marks at the end of words are");
  part["byte_fallback"].require_unset("pieces for single bytes next to others are");
  reader.model().whole_words_first = part["ignore_merges"].flag(false);
  reader.vocabulary(part["vocab"]);
  read_merges(part["merges"], reader);
}

// Rejects an unknown token for bytes, which would make encoding lossy.
void require_no_unknown(const Setting& part, const ModelReader& reader) {
  if (part.is_null()) {
    return;
  }
  for (int byte = 0; byte < config::kByteValues; ++byte) {
    if (reader.find(character_of_byte(static_cast<unsigned char>(byte))) < 0) {
      part.refuse(fmt::format("replaces bytes without a token, such as 0x{:02x}, which is not supported", byte));
    }
  }
}

}  // namespace

BpeModel parse_tokenizer_json(std::string_view text, std::string_view origin) {
  const SortedJson document = parse_sorted_json(text, origin);
  const Setting all(document, std::string(origin), "");
  if (!document.is_object()) {
    user_error("{}: not a tokenizer: must be a JSON object", origin);
  }
  all.require_object({"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer",
                      "post_processor", "decoder", "model", "spare_ids"});
  all["truncation"].require_unset("shortening texts is");
  all["padding"].require_unset("lengthening texts is");
  ModelReader reader(origin);
  read_model(all["model"], reader);
  require_no_unknown(all["model"]["unk_token"], reader);
  read_added(all["added_tokens"], reader);
  read_normalizer(all["normalizer"], reader.model());
  read_pre_tokenizer(all["pre_tokenizer"], reader.model());
  if (const Setting decoder = all["decoder"]; !decoder.is_null() && decoder["type"].text() != "ByteLevel") {
    decoder.refuse(fmt::format("is {}: only ByteLevel is supported", decoder["type"].text()));
  }
  if (const Setting after = all["post_processor"]; !after.is_null()) {
    reader.model().post_processor = after.value().dump();
  }
  if (const Setting spare = all["spare_ids"]; !spare.is_null()) {
    reader.model().spare_ids = spare.id();
  }
  BpeModel model = std::move(reader).finish();
  if (model.spare_ids > INT32_MAX - std::ssize(model.tokens)) {
    all["spare_ids"].refuse(fmt::format("must be ids below 2^31 with the {} tokens", model.tokens.size()));
  }
  return model;
}

BpeModel parse_vocabulary_and_merges(const PairTexts& texts, const PairSettings& settings) {
  constexpr std::string_view kVersion = "#version";
  const SortedJson tokens = parse_sorted_json(texts.vocabulary, texts.origin);
  ModelReader reader(texts.origin);
  reader.vocabulary(Setting(tokens, std::string(texts.origin), "the vocabulary"));
  std::size_t number = 0;
  std::string_view merges = without_byte_order_mark(texts.merges);
  while (!merges.empty()) {
    std::string_view line = take_line(merges);
    ++number;
    if (line.ends_with('\r')) {
      line.remove_suffix(1);
    }
    if (line.empty() || line.starts_with(kVersion)) {
      continue;
    }
    const std::size_t blank = line.find(' ');
    if (blank == std::string_view::npos || line.find(' ', blank + 1) != std::string_view::npos) {
      user_error("{}: line {}: must be two tokens with a blank between them", texts.merges_origin, number);
    }
    reader.merge(line.substr(0, blank), line.substr(blank + 1),
                 fmt::format("{}: line {}", texts.merges_origin, number));
  }
  std::set<std::int32_t> matched;
  std::set<std::string> names;
  for (const AddedToken& token : settings.added) {
    reader.added(token);
    matched.insert(token.id);
    names.insert(token.content);
  }
  for (const std::string& token : settings.special) {
    const std::int32_t known = reader.find(token), id = known >= 0 ? known : reader.next_id();
    const bool fits = known >= 0 || settings.most_ids == 0 || id < settings.most_ids;
    if (fits && !token.empty() && names.insert(token).second && matched.insert(id).second) {
      reader.added({.id = id, .content = token, .normalised = false, .special = true});
    }
  }
  reader.model().words = {settings.words};
  reader.model().composes = settings.composes;
  return std::move(reader).finish();
}

}  // namespace headroom::tokenizers
