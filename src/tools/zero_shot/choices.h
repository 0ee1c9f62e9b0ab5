// Multiple-choice questions: rows as evaluation suites hand them round, and as the tests' authors published them.
#pragma once

#include <string>

#include "headroom/core/json.h"
#include "questions.h"

namespace headroom::tasks::zero_shot {

// The fields of a row tell its layout; `where` is its "file:line". Throws UserError for a row of no layout, and for
// fields that are not what the layout has.
Question read_choice(const Json& row, const std::string& where);

}  // namespace headroom::tasks::zero_shot
