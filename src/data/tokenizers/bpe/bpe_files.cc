// Loads a BPE tokenizer from its files, and writes its tokenizer.json.
#include <fmt/format.h>

#include <filesystem>
#include <string>
#include <utility>

#include "data/tokenizers/kinds.h"
#include "foundation/core/files/byte_reader.h"
#include "foundation/core/text/format.h"
#include "foundation/core/text/utf8.h"
#include "headroom/core/error.h"
#include "headroom/core/files.h"
#include "headroom/core/json.h"
#include "model.h"

namespace headroom::tokenizers {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kLargestTokenizer = std::size_t{256} << 20;
constexpr std::pair<const char*, const char*> kPairs[] = {{"vocab.json", "merges.txt"}, {"encoder.json", "vocab.bpe"}};

// Returns the path of `folder`/`name` or `folder`/`name`.gz; empty if neither exists.
fs::path find_file(const fs::path& folder, const std::string& name) {
  std::error_code ignored;
  for (const std::string& candidate : {name, name + ".gz"}) {
    if (fs::is_regular_file(folder / candidate, ignored)) {
      return folder / candidate;
    }
  }
  return {};
}

// Loads a vocabulary and the merges in the same folder.
std::unique_ptr<Tokenizer> load_pair(const fs::path& vocabulary, const std::string& text, std::int64_t min_size) {
  for (const auto& [ignored, name] : kPairs) {
    if (const fs::path merges = find_file(vocabulary.parent_path(), name); !merges.empty()) {
      PairSettings settings = read_pair_settings(vocabulary.parent_path());
      settings.most_ids = min_size;
      const std::string origin = vocabulary.string(), merges_text = read_unpacked(merges, kLargestTokenizer),
                        merges_origin = merges.string();
      return restore_bpe_pair(
          {.vocabulary = text, .origin = origin, .merges = merges_text, .merges_origin = merges_origin}, settings,
          min_size);
    }
  }
  user_error("{}: is a vocabulary, but neither {} nor {} is next to it", vocabulary.string(), kPairs[0].second,
             kPairs[1].second);
}

// Returns tokenizer.json or a vocabulary; empty: the folder has neither.
fs::path find_first(const fs::path& folder) {
  fs::path file = find_file(folder, "tokenizer.json");
  for (const auto& [vocabulary, ignored] : kPairs) {
    file = file.empty() ? find_file(folder, vocabulary) : file;
  }
  return file;
}

fs::path first_file(const fs::path& folder) {
  fs::path file = find_first(folder);
  if (file.empty()) {
    user_error("{}: holds no tokenizer: neither tokenizer.json nor {} and {} nor tokenizer.model", folder.string(),
               kPairs[0].first, kPairs[0].second);
  }
  return file;
}

// Recognised by file name, or by "model" being an object: in a vocabulary every value is a number.
bool is_tokenizer_json(const std::string& text, const fs::path& path) {
  const SortedJson document = parse_sorted_json(text, path.string());
  const bool named = path.filename().string().starts_with("tokenizer.json");
  return !document.is_object() || named || (document.contains("model") && document.at("model").is_object());
}

// Changes the added tokens as transformers does when it opens the folder: tokens that only the files next to the
// tokenizer.json name are added, with ids after the vocabulary if it lacks them. Tokens from `size` on, the model's
// vocabulary size (0: unknown), are removed, because the model has no embedding for them. Returns whether any token
// changed.
bool complete_added(SortedJson& document, const fs::path& file, std::int64_t size) {
  if (!document.is_object() || !document.value("model", SortedJson()).is_object()) {
    return false;
  }
  SortedJson& added = document["added_tokens"];
  if (added.is_null()) {
    added = SortedJson::array();
  }
  SortedJson& vocabulary = document["model"]["vocab"];
  if (!added.is_array() || !vocabulary.is_object()) {
    return false;  // refused later
  }
  const auto id_of = [](const SortedJson& token) {
    const SortedJson id = token.is_object() ? token.value("id", SortedJson()) : SortedJson();
    return id.is_number_unsigned() && id.get<std::uint64_t>() <= INT32_MAX ? id.get<std::int64_t>() : -1;
  };
  bool changes = false;
  const auto has = [&](const std::string& content) {
    return std::ranges::any_of(added, [&](const SortedJson& token) {
      return token.is_object() && token.value("content", SortedJson()) == content;
    });
  };
  const fs::path folder = file.parent_path();
  const std::vector<NamedToken> special = named_special_tokens(folder, default_tokens(folder));
  std::vector<NamedToken> named;
  for (const auto& [ignored, token] : added_tokens_beside(folder, special)) {
    named.push_back(token);
  }
  if (read_json_object(folder / "tokenizer_config.json").value("split_special_tokens", SortedJson()) != true) {
    named.insert(named.end(), special.begin(), special.end());
  }
  for (const NamedToken& one : named) {
    const SortedJson& content = one.content();
    if (!content.is_string() || content == SortedJson("")) {
      user_error("{} must be a token or null, got {}", one.place, one.token.dump());
    }
    if (has(content)) {
      continue;
    }
    std::uint64_t next = vocabulary.size();
    for (const SortedJson& token : added) {
      next = std::max(next, static_cast<std::uint64_t>(id_of(token) + 1));
    }
    SortedJson token = {{"id", vocabulary.value(content.get<std::string>(), SortedJson(next))},
                        {"content", content},
                        {"special", one.special},
                        {"normalized", one.normalised()}};
    for (const char* flag : {"single_word", "lstrip", "rstrip"}) {
      token[flag] = one.flag(flag);
    }
    added.push_back(std::move(token));
    changes = true;
  }
  SortedJson dropped;
  for (std::size_t i = added.size(); i-- > 0;) {
    if (size > 0 && id_of(added[i]) >= size) {
      dropped = added[i].value("content", SortedJson());
      if (dropped.is_string()) {
        vocabulary.erase(dropped.get<std::string>());
      }
      added.erase(i);
      changes = true;
    }
  }
  if (!dropped.is_null()) {
    log_warning("{}: {} is read as ordinary text, because the model has embeddings for {} tokens only", file.string(),
                printable(dropped.dump()), size);
  }
  return changes;
}

}  // namespace

bool names_bpe(const fs::path& path) {
  const std::string name = lower_case(path.filename().string());
  return name.ends_with(".json") || name.ends_with(".json.gz");
}

bool holds_tokenizer(const fs::path& folder) {
  std::error_code ignored;
  return fs::exists(folder / "tokenizer.model", ignored) || fs::exists(folder / "tokenizer.headroom", ignored) ||
         !find_first(folder).empty();
}

std::unique_ptr<Tokenizer> load_bpe(const fs::path& path, std::int64_t min_size) {
  std::error_code ignored;
  const fs::path file = fs::is_directory(path, ignored) ? first_file(path) : path;
  const std::string text = read_unpacked(file, kLargestTokenizer);
  if (!is_tokenizer_json(text, file)) {
    return load_pair(file, text, min_size);
  }
  SortedJson document = parse_sorted_json(text, file.string());
  const bool changed = complete_added(document, file, min_size);
  return has_byte_fallback(document) ? restore_byte_fallback(document, file.string(), min_size)
                                     : restore_bpe(changed ? document.dump() : text, file.string(), min_size);
}

std::unique_ptr<Tokenizer> load_json_beside(const fs::path& model, std::int64_t min_size) {
  const fs::path file = find_file(model.parent_path(), "tokenizer.json");
  if (file.empty()) {
    return nullptr;
  }
  try {
    return load_bpe(file, min_size);
  } catch (const UserError& error) {
    log_warning("{}; tokenizer.model is used instead", error.what());
    return nullptr;
  }
}

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

std::string pre_tokenizer(const std::vector<std::string>& words) {
  if (words.size() == 1 && words.front() == kGpt2Words) {
    return byte_level(true);
  }
  std::string steps;
  for (const std::string& pattern : words) {
    steps += fmt::format(R"({{"type":"Split","pattern":{{"Regex":{}}},"behavior":"Isolated","invert":false}},)",
                         json_text(pattern));
  }
  return fmt::format(R"({{"type":"Sequence","pretokenizers":[{}{}]}})", steps, byte_level(false));
}

}  // namespace

std::string to_tokenizer_json(const BpeModel& m) {
  std::string text = fmt::format(
      R"({{"version":"1.0","truncation":null,"padding":null,"added_tokens":[{}],"normalizer":{},"pre_tokenizer":{},)"
      R"("post_processor":{},"decoder":{},{})",
      added_tokens(m.added), m.composes ? R"({"type":"NFC"})" : "null", pre_tokenizer(m.words),
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
