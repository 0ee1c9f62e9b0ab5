// DCFormer's 74 synthetic composition tasks (section 4.3, appendix F), which require attention heads to be composed. A
// row holds eight worked examples of one task; the answers of all but the first two are scored.
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

// Tasks 0-55: three facts and a question, in seven blocks (what must be looked up) of four patterns (who is asked
// about), each in two forms. Tasks 56-73: which of three is different.
struct CompositionSubtask {
  std::string block;    // "object_superclass", ..., "odd_ordinal_after"
  std::string pattern;  // other_person | same_person | who_not | who; which_not | which_different
};
CompositionSubtask composition_subtask(int number);  // throws Error outside 0..73

struct CompositionRow {
  struct Answer {
    std::size_t begin = 0, end = 0;  // bytes of the text, without the leading blank
  };
  std::string text;  // without brackets
  std::vector<Answer> answers;
};

// Parses a row in the authors' format: scored answers are between "[ " and " ]". Throws UserError, prefixed with
// `where`, for brackets that do not match and for a row without any.
CompositionRow parse_composition_row(std::string_view text, std::string_view where);

// Generates a row of a task in that format, with Headroom's own vocabulary. Deterministic in the state of `random`.
std::string generate_composition_row(int task, Random& random);

// Generated rows: row i is of a random task and a pure function of (seed, i).
struct CompositionRows {
  std::int64_t rows = 0;
  std::uint64_t seed = 0;
};
// The rows of a split of a run: options.generated_train, or 50,000; options.generated_validation, or 888.
CompositionRows composition_rows(const config::DataOptions& options, Split split);

struct GeneratedRow {
  int task = 0;
  std::string text;  // with brackets
};
GeneratedRow generated_row(const CompositionRows& rows, std::int64_t row);

// The concatenation of the rows, without brackets.
std::unique_ptr<tokenizers::TextSource> composition_text(const CompositionRows& rows);

}  // namespace headroom::data
