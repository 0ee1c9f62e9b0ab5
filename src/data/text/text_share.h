// Validation text for runs that name none: the last lines of the training text.
#pragma once

#include <memory>

#include "text.h"

namespace headroom::data {

// One split of `whole`, cut at a line end: for validation about `share` of its bytes (0 < share < 1) at the end, for
// training what stands before them. Whichever share, both splits have a line. The place is found at the first next(),
// which reads the text twice more and throws UserError where there is a single line; `name` names the text
// there.
std::unique_ptr<tokenizers::TextSource> open_share(std::unique_ptr<tokenizers::TextSource> whole, double share,
                                                   Split split, std::string name);

}  // namespace headroom::data
