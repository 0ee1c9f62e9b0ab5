// Multiple-choice questions: rows as evaluation suites hand them round, and as the tests' authors published them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "headroom/core/json.h"
#include "questions.h"

namespace headroom::tasks::zero_shot {

// The fields of a row tell its layout; `where` is its "file:line". Throws MisuseError for a row of no layout, and for
// fields that are not what the layout has.
Question read_choice(const Json& row, const std::string& where);

// A test, and how many choices its questions have.
struct ChoiceTest {
  std::string_view name;
  std::size_t least, most;
};
const std::vector<ChoiceTest>& choice_tests();

// Throws MisuseError where the question is none of the test that is named: by its row's fields, by the number of its
// choices, or because they are yes and no.
void require_of(std::string_view test, const Json& row, const Question& question);

}  // namespace headroom::tasks::zero_shot
