// Joins the tokenizers of the two sides of a translation. Serialised form: kTwo, the kind and byte size of the source
// tokenizer, its bytes, then the bytes of the target tokenizer.
#include <utility>

#include "foundation/core/text/format.h"
#include "headroom/core/error.h"
#include "kinds.h"

namespace headroom::tokenizers {
namespace {

// No single tokenizer starts with these bytes: word lists and tokenizer.json are text, SentencePiece models have no
// field 0, and a list of byte values has no duplicates.
constexpr std::string_view kTwo("\0two tokenizers 1\n", 18);
constexpr std::string_view kWhat = "not a pair of tokenizers";

class TwoTokenizers : public Tokenizer {
 public:
  TwoTokenizers(std::shared_ptr<const Tokenizer> sources, std::shared_ptr<const Tokenizer> targets)
      : sources_(std::move(sources)),
        targets_(std::move(targets)),
        serialised_(fmt::format("{}{} {}\n{}{}", kTwo, config::name_of(sources_->kind()), sources_->serialised().size(),
                                sources_->serialised(), targets_->serialised())) {}

  const Tokenizer& for_sources() const override { return *sources_; }
  const Tokenizer& for_targets() const override { return *targets_; }
  const std::string& serialised() const override { return serialised_; }

  config::TokenizerKind kind() const override { return targets_->kind(); }
  std::int64_t vocabulary_size() const override { return targets_->vocabulary_size(); }
  void encode(std::string_view text, std::vector<std::int32_t>& ids) const override { targets_->encode(text, ids); }
  Cut separable(std::string_view text) const override { return targets_->separable(text); }
  Unknown unknown(std::string_view text) const override { return targets_->unknown(text); }
  std::string decode(std::span<const std::int32_t> ids) const override { return targets_->decode(ids); }
  std::int32_t begin_id() const override { return targets_->begin_id(); }
  std::int32_t end_id() const override { return targets_->end_id(); }
  std::int32_t line_end_id() const override { return targets_->line_end_id(); }
  std::int32_t id_of(std::string_view token) const override { return targets_->id_of(token); }

 private:
  std::shared_ptr<const Tokenizer> sources_, targets_;
  std::string serialised_;
};

// Removes the prefix of `text` up to and including `end`, and returns it without `end`.
std::string_view take_until(std::string_view& text, char end, std::string_view origin) {
  const std::size_t at = text.find(end);
  if (at == std::string_view::npos) {
    user_error("{}: {}: kind and size of the first one are missing", origin, kWhat);
  }
  const std::string_view found = text.substr(0, at);
  text.remove_prefix(at + 1);
  return found;
}

}  // namespace

std::shared_ptr<const Tokenizer> two_tokenizers(std::shared_ptr<const Tokenizer> sources,
                                                std::shared_ptr<const Tokenizer> targets) {
  for (const auto& side : {sources, targets}) {
    if (side->source_vocabulary_size() > 0) {
      user_error("tokenizer: {} holds two tokenizers; expected one for each side of a translation", side->name());
    }
  }
  return std::make_shared<TwoTokenizers>(std::move(sources), std::move(targets));
}

bool holds_two(std::string_view serialised) {
  return serialised.starts_with(kTwo);
}

std::unique_ptr<Tokenizer> restore_two(config::TokenizerKind kind, std::string_view serialised,
                                       std::string_view origin) {
  serialised.remove_prefix(kTwo.size());
  const std::string_view name = take_until(serialised, ' ', origin), number = take_until(serialised, '\n', origin);
  const config::TokenizerKind kind_of_sources = kind_named(name, origin);
  const auto size = as_number<std::size_t>(number);
  if (!size || *size > serialised.size()) {
    user_error("{}: {}: size of the first one must be from 0 to {}, got \"{}\"", origin, kWhat, serialised.size(),
               printable(number));
  }
  const std::string_view sides[] = {serialised.substr(0, *size), serialised.substr(*size)};
  for (const std::string_view side : sides) {
    if (holds_two(side)) {
      user_error("{}: {}: one of them is a pair itself", origin, kWhat);
    }
  }
  return std::make_unique<TwoTokenizers>(restore_tokenizer(kind_of_sources, std::string(sides[0]), origin),
                                         restore_tokenizer(kind, std::string(sides[1]), origin));
}

}  // namespace headroom::tokenizers
