#include "unread.h"

#include <fmt/format.h>

#include <cstddef>
#include <string_view>
#include <utility>

#include "checker.h"
#include "given.h"
#include "headroom/config/attention_part.h"
#include "spelling.h"

namespace headroom::config {
namespace {

// Where a key was given its value, without the line.
std::string_view source_of(std::string_view place) {
  return place.substr(0, place.rfind(':'));
}

// A table whose key `question` decides which others are read.
struct Question {
  std::string table, question;  // "model.attention.", "projection"
  std::string answer;           // "projection = \"dense\""
};

class UnreadKeys {
 public:
  explicit UnreadKeys(const GivenKeys& given) : given_(given) {}

  // `field` is not read with the answer to `asked`; where nobody gave it another value than the `usual` one, that is
  // nothing to speak of.
  void add(const Question& asked, const Field& field, const Field& usual) {
    const auto given = given_.find(asked.table + field.key);
    const std::string value = detail::spelled(field);
    if (given != given_.end() && value != detail::spelled(usual) && is_meant(given->second, asked)) {
      found_.push_back(fmt::format("{}: {}{} = {} has no effect with {}", given->second, asked.table, field.key, value,
                                   asked.answer));
    }
  }
  std::vector<std::string> found() { return std::move(found_); }

 private:
  // Whether a value given at `place` is meant for the present answer: what a base file says for another one is not.
  bool is_meant(std::string_view place, const Question& asked) const {
    const auto answered = given_.find(asked.table + asked.question);
    return answered == given_.end() || detail::is_option(place) || source_of(answered->second) == source_of(place);
  }

  const GivenKeys& given_;
  std::vector<std::string> found_;
};

// Keys that only other parts read than the `chosen` one, and none of those chosen for other questions (`read`).
template <class Part>
void look(UnreadKeys& keys, const std::string& question, const PartName<Part>& chosen, AttentionOptions options,
          const Fields& read) {
  AttentionOptions defaults;
  Fields own, usual;
  for (const Part* part : all_parts<Part>()) {
    part->describe(own, options);
    part->describe(usual, defaults);
  }
  const Question asked{"model.attention.", question, detail::setting(question, chosen)};
  for (std::size_t i = 0; i < own.fields().size(); ++i) {
    if (!read.has(own.fields()[i].key)) {
      keys.add(asked, own.fields()[i], usual.fields()[i]);
    }
  }
}

void look(UnreadKeys& keys, MlpOptions options) {
  if (options.kind == MlpKind::experts) {
    return;
  }
  MlpOptions defaults;
  Fields own, usual;
  describe(own, options);
  describe(usual, defaults);
  const Question asked{"model.mlp.", "kind", detail::setting("kind", options.kind)};
  for (std::size_t i = 0; i < own.fields().size(); ++i) {
    for (const std::string_view key : {"n_experts", "top_k", "expert_dropout", "entropy_coefficient"}) {
      if (own.fields()[i].key == key) {
        keys.add(asked, own.fields()[i], usual.fields()[i]);
      }
    }
  }
}

}  // namespace

std::vector<std::string> unread_keys(const Config& config) {
  AttentionOptions o = config.model.attention;
  Fields read;
  o.projection->describe(read, o);
  o.score->describe(read, o);
  o.composition->describe(read, o);
  o.position->describe(read, o);
  o.gate_output->describe(read, o);
  UnreadKeys keys(config.given);
  look(keys, "projection", o.projection, o, read);
  look(keys, "score", o.score, o, read);
  look(keys, "composition", o.composition, o, read);
  look(keys, "position", o.position, o, read);
  look(keys, "gate_output", o.gate_output, o, read);
  look(keys, config.model.mlp);
  return keys.found();
}

}  // namespace headroom::config
