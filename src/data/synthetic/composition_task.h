// DCFormer's 74 synthetic composition tasks (section 4.3, appendix F), which can only be solved by composing attention
// heads. A row holds eight worked examples of one task; the answers of all but the first two are scored.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/text/text.h"
#include "foundation/core/random.h"

namespace headroom::data {

inline constexpr int kCompositionSubtasks = 74;

// A task's name. Tasks 0-55 give three facts and a question: seven blocks (what to look up) of four patterns (whom the
// question is about), each in two forms. Tasks 56-73 ask which of three things differs.
struct CompositionSubtask {
  std::string block;    // "object_superclass", ..., "odd_ordinal_after"
  std::string pattern;  // other_person | same_person | who_not | who; which_not | which_different
};
CompositionSubtask composition_subtask(int number);  // throws Error outside 0..73

struct CompositionRow {
  struct Answer {
    std::size_t begin = 0, end = 0;  // byte range in `text`, without the leading space
  };
  std::string text;  // without the brackets around answers
  std::vector<Answer> answers;
};

// Parses a row in the authors' format, which encloses scored answers in "[ " and " ]". Throws UserError, prefixed with
// `where`, if the brackets do not match or there are none.
CompositionRow parse_composition_row(std::string_view text, std::string_view where);

// Generates a row of a task in the authors' format, from Headroom's own vocabulary. Deterministic in the state of
// `random`.
std::string generate_composition_row(int task, Random& random);

// A set of generated rows. Row i belongs to a random task and is a pure function of (seed, i).
struct CompositionRows {
  std::int64_t rows = 0;
  std::uint64_t seed = 0;
};
// Returns the rows of a split of a run: options.generated_train (default 50,000) or options.generated_validation
// (default 888).
CompositionRows composition_rows(const config::DataOptions& options, Split split);

struct GeneratedRow {
  int task = 0;
  std::string text;  // with the brackets around answers
};
GeneratedRow generated_row(const CompositionRows& rows, std::int64_t row);

// Returns the concatenation of the rows, without brackets.
std::unique_ptr<tokenizers::TextSource> composition_text(const CompositionRows& rows);

}  // namespace headroom::data
