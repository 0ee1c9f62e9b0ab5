// How byte-level BPE is trained. SentencePiece, which is linked, learns pieces and keeps no merges, of which these
// tokenizers consist; no other library that does is packaged for C++.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>

#include "model.h"

namespace headroom::tokenizers {

// Words and how often each occurs. Their order says nothing: ids decide between pairs that are equally frequent.
using WordCounts = std::unordered_map<std::string, std::int64_t>;

// Tokens of one byte, in the order of the characters that spell them, then merges: again and again the pair of
// neighbours that is the most frequent in all words together becomes one token, of equally frequent ones that of the
// smaller ids (Sennrich et al., 2016; ids and ties as in the `tokenizers` package). Ends at `vocabulary_size` tokens,
// or sooner where every word is a single token. Throws InterruptedError on Ctrl-C.
BpeModel learn_merges(const WordCounts& words, std::int64_t vocabulary_size);

}  // namespace headroom::tokenizers
