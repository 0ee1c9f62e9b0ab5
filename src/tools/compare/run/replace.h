// What a folder's record holds and a new request would lose.
#pragma once

#include <filesystem>

#include "record.h"

namespace headroom::compare {

// A record may grow: by models, seeds and values of its keys. Throws UserError naming what the record in `out` has
// and `next` has not: another command's, models, seeds, keys or values. Where there is none, or a damaged one, nothing
// is lost.
void refuse_to_lose(const Record& next, const std::filesystem::path& out);

}  // namespace headroom::compare
