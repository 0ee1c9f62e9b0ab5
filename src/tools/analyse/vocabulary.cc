#include "vocabulary.h"

#include <algorithm>
#include <cctype>

namespace headroom::analyse {
namespace {

constexpr std::size_t kMostTexts = 1 << 14;

bool is_blank(char c) {
  return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

bool is_punctuation(char c) {
  return std::ispunct(static_cast<unsigned char>(c)) != 0;
}

std::string without_punctuation(const std::string& word) {
  const auto first = std::ranges::find_if_not(word, is_punctuation);
  const auto last = std::find_if_not(word.rbegin(), word.rend(), is_punctuation).base();
  return first < last ? std::string(first, last) : std::string();
}

}  // namespace

std::int64_t TextIndex::of(const std::string& text) {
  const auto found = indices_.find(text);
  if (found != indices_.end()) {
    return found->second;
  }
  if (texts_.size() >= limit_) {
    return -1;
  }
  indices_.emplace(text, size());
  texts_.push_back(text);
  return size() - 1;
}

std::int64_t token_kind(std::string_view token) {
  const auto first = std::ranges::find_if_not(token, is_blank);
  if (first == token.end()) {
    return 0;
  }
  const auto c = static_cast<unsigned char>(*first);
  return std::isdigit(c) != 0     ? 1
         : is_punctuation(*first) ? 2
         : std::isupper(c) != 0   ? 3
         : std::islower(c) != 0   ? 4
                                  : 5;
}

Vocabulary::Vocabulary(const ModelRunner& runner) : runner_(runner), tokens_(kMostTexts), words_(kMostTexts) {}

const Vocabulary::TokenEntry& Vocabulary::entry(std::int64_t id, TextSide side) {
  const auto found = entries_.find({side, id});
  if (found != entries_.end()) {
    return found->second;
  }
  TokenEntry one{.text = runner_.token_text(id, side)};
  one.index = tokens_.of(one.text);
  return entries_.emplace(std::pair(side, id), std::move(one)).first->second;
}

void Vocabulary::index_words(const std::int64_t* ids, std::int64_t n, TextSide side, std::int64_t* words) {
  std::string word;
  std::vector<std::int64_t> members;
  bool complete = false;  // false for the first word, whose start may be missing
  const auto finish = [&] {
    const std::string bare = complete ? without_punctuation(word) : std::string();
    const std::int64_t index = bare.empty() ? -1 : words_.of(bare);
    for (const std::int64_t member : members) {
      words[member] = index;
    }
    word.clear();
    members.clear();
    complete = true;
  };
  for (std::int64_t i = 0; i < n; ++i) {
    words[i] = -1;
    bool belongs = false;
    for (const char c : entry(ids[i], side).text) {
      if (is_blank(c)) {
        if (!word.empty() || !complete) {
          finish();
        }
        continue;
      }
      word += c;
      if (!belongs) {
        members.push_back(i);
        belongs = true;
      }
    }
  }
}

Vocabulary::Indices Vocabulary::index(const at::Tensor& tokens, TextSide side) {
  const at::Tensor ids = tokens.to(at::kCPU, at::kLong).contiguous();
  const std::int64_t* const all = ids.const_data_ptr<std::int64_t>();
  Indices indices;
  indices.word.resize(static_cast<std::size_t>(ids.numel()));
  for (std::int64_t i = 0; i < ids.numel(); ++i) {
    indices.token.push_back(entry(all[i], side).index);
  }
  const std::int64_t t = ids.size(1);
  for (std::int64_t row = 0; row < ids.size(0); ++row) {
    index_words(all + row * t, t, side, indices.word.data() + row * t);
  }
  return indices;
}

}  // namespace headroom::analyse
