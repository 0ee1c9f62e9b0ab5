// SentencePiece trusts the normalisation table inside a model: a wrong one makes it read anywhere in memory.
#pragma once

#include <cstdint>
#include <string_view>

namespace headroom::tokenizers {

// False for a serialised model that is no protocol buffer message or whose normalisation tables point outside
// themselves. Everything else in a model SentencePiece checks by itself.
bool is_safe_model(std::string_view model);

// How many pieces such a model has.
std::int64_t count_pieces(std::string_view model);

}  // namespace headroom::tokenizers
