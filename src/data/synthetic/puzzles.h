// Puzzles: DCFormer's 74 synthetic tasks (section 4.3, appendix F), which ask for attention heads to be composed and so
// go by the name "composition" in configs and on the command line. A row holds eight worked examples of one task, where
// the answers of all but the first two count.
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

inline constexpr int kPuzzleTasks = 74;

// Tasks 0-55: three facts and a question; seven blocks (what must be looked up) of four patterns (who is asked about),
// each in two forms. Tasks 56-73: which of three is different.
struct PuzzleTask {
  std::string block;    // "object_superclass", ..., "odd_ordinal_after"
  std::string pattern;  // other_person | same_person | who_not | who; which_not | which_different
};
PuzzleTask puzzle_task(int number);  // throws Error outside 0..73

struct PuzzleRow {
  struct Answer {
    std::size_t begin = 0, end = 0;  // bytes of the text, without the blank in front
  };
  std::string text;  // without the brackets
  std::vector<Answer> answers;
};

// A row as the authors write them: what counts is between "[ " and " ]". Throws UserError, beginning with
// `where`, for brackets that do not fit and for a row without any.
PuzzleRow parse_puzzle(std::string_view text, std::string_view where);

// A row of a task in that spelling, with words of our own; the same for the same state of `random`.
std::string generate_puzzle(int task, Random& random);

// Generated rows: row i is of a random task, and all of it follows from (seed, i).
struct PuzzleRows {
  std::int64_t rows = 0;
  std::uint64_t seed = 0;
};
// Those of a split of a run: options.generated_train, or 50,000; options.generated_validation, or 888.
PuzzleRows puzzle_rows(const config::DataOptions& options, Split split);

struct GeneratedRow {
  int task = 0;
  std::string text;  // with brackets
};
GeneratedRow generated_row(const PuzzleRows& rows, std::int64_t row);

// The rows one after the other, without brackets.
std::unique_ptr<tokenizers::TextSource> puzzle_text(const PuzzleRows& rows);

}  // namespace headroom::data
