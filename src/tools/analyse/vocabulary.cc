#include "vocabulary.h"

#include <algorithm>
#include <cctype>

namespace headroom::inspect {
namespace {

constexpr std::size_t kMostTexts = 1 << 14;

bool is_blank(char c) {
  return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

bool is_punctuation(char c) {
  return std::ispunct(static_cast<unsigned char>(c)) != 0;
}

std::string without_punctuation(const std::string& word) {
  const auto first = std::find_if_not(word.begin(), word.end(), is_punctuation);
  const auto last = std::find_if_not(word.rbegin(), word.rend(), is_punctuation).base();
  return first < last ? std::string(first, last) : std::string();
}

}  // namespace

std::int64_t Numbering::of(const std::string& text) {
  const auto found = numbers_.find(text);
  if (found != numbers_.end()) {
    return found->second;
  }
  if (texts_.size() >= limit_) {
    return -1;
  }
  const auto number = static_cast<std::int64_t>(texts_.size());
  numbers_.emplace(text, number);
  texts_.push_back(text);
  return number;
}

std::int64_t token_kind(std::string_view token) {
  const auto first = std::find_if_not(token.begin(), token.end(), is_blank);
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

Vocabulary::Vocabulary(const Reader& reader) : reader_(reader), tokens_(kMostTexts), words_(kMostTexts) {}

const Vocabulary::Known& Vocabulary::known(std::int64_t id, Side side) {
  const auto found = known_.find({side, id});
  if (found != known_.end()) {
    return found->second;
  }
  Known one{.text = reader_.token_text(id, side)};
  one.number = tokens_.of(one.text);
  one.kind = token_kind(one.text);
  return known_.emplace(std::pair(side, id), std::move(one)).first->second;
}

void Vocabulary::number_words(const std::int64_t* ids, std::int64_t n, Side side, std::int64_t* words) {
  std::string word;
  std::vector<std::int64_t> members;
  bool whole = false;  // its beginning has been seen
  const auto finish = [&] {
    const std::string bare = whole ? without_punctuation(word) : std::string();
    const std::int64_t number = bare.empty() ? -1 : words_.of(bare);
    for (const std::int64_t member : members) {
      words[member] = number;
    }
    word.clear();
    members.clear();
    whole = true;
  };
  for (std::int64_t i = 0; i < n; ++i) {
    words[i] = -1;
    bool belongs = false;
    for (const char c : known(ids[i], side).text) {
      if (is_blank(c)) {
        if (!word.empty() || !whole) {
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

Vocabulary::Numbers Vocabulary::number(const at::Tensor& tokens, Side side) {
  const at::Tensor ids = tokens.to(at::kCPU, at::kLong).contiguous();
  const std::int64_t* const all = ids.const_data_ptr<std::int64_t>();
  Numbers numbers;
  numbers.word.resize(static_cast<std::size_t>(ids.numel()));
  for (std::int64_t i = 0; i < ids.numel(); ++i) {
    const Known& one = known(all[i], side);
    numbers.token.push_back(one.number);
    numbers.kind.push_back(one.kind);
  }
  const std::int64_t t = ids.size(1);
  for (std::int64_t row = 0; row < ids.size(0); ++row) {
    number_words(all + row * t, t, side, numbers.word.data() + row * t);
  }
  return numbers;
}

}  // namespace headroom::inspect
