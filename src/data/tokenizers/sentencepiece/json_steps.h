// The steps of a tokenizer.json before and after its BPE with byte fallback: normalizer, pre_tokenizer, decoder and
// added tokens.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/core/json.h"

namespace headroom::tokenizers {

class JsonSteps {
 public:
  struct Added {
    std::int32_t id = 0;
    std::string content;  // as it is matched and decoded: normalised if `normalised`
    bool special = false, normalised = false;
    bool strips_left = false, strips_right = false;  // the token includes white space beside it
  };

  // Reads the parts of a tokenizer.json. Throws UserError "<origin>: <key> ..." for a setting without an equivalent.
  JsonSteps(const SortedJson& document, std::string_view origin);

  const std::vector<Added>& added() const { return added_; }
  // Whether a U+2581 is prepended to a text, and whether blanks become U+2581.
  bool prepends() const;
  bool escapes() const;

  std::string normalised(std::string_view text) const;
  // Splits `text`, which is normalised and contains no added tokens, into the parts that are merged separately.
  // `is_first` tells whether it is the start of the whole text.
  std::vector<std::string> parts(std::string text, bool is_first) const;
  // Joins the tokens to a text. The tokens <0xNN> become bytes, so that the text may end inside a character.
  std::string decoded(std::vector<std::string> tokens) const;

  // Returns the parts of the document that the constructor reads.
  static std::string serialised(const SortedJson& document);

 private:
  enum class Scheme { none, first, always, never };
  enum class DecoderKind { replace, bytes, fuse, strip, metaspace };
  struct Replacement {
    std::string pattern, content;
    bool at_begin = false;  // only at the start of the text; an empty pattern prepends
  };
  struct DecoderStep {
    DecoderKind kind;
    std::string pattern, content;
    std::size_t start = 0, stop = 0;  // strip: most characters that are removed
    bool drops_first = false;         // metaspace: the first token loses its blanks
  };

  [[noreturn]] void refuse(const std::string& key, std::string_view why) const;
  [[noreturn]] void refuse_step(const std::string& key, const SortedJson& step) const;
  Replacement replacement(const SortedJson& step) const;
  Scheme scheme(const SortedJson& metaspace, const std::string& key) const;
  void read_pre_tokenizer(const SortedJson& step);
  void read_decoder(const SortedJson& step);
  void read_added(const SortedJson& list);
  void use_default_decoder();

  std::string origin_;
  std::vector<Replacement> normalizer_;
  Scheme scheme_ = Scheme::none;  // none: there is no Metaspace
  bool splits_ = false;           // Metaspace makes each blank the start of a part
  std::vector<DecoderStep> decoder_;
  std::vector<Added> added_;
};

}  // namespace headroom::tokenizers
