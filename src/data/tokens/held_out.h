// Validation tokens for runs that name none: the last ones of the training file.
#pragma once

#include <filesystem>

#include "token_file.h"

namespace headroom::data {

// About `share` of the file's tokens (0 < share < 1), those at its end, as a file of their own; at least one is left
// and at least one held out. They begin after a line end where the tokenizer has a token for it. Bytes of their text
// are counted by decoding them; where decoding the whole file does not give as many bytes as it was made from, they are
// not known. Throws UserError where the file holds a single token.
void write_held_out(const TokenFile& whole, double share, const std::filesystem::path& path);

}  // namespace headroom::data
