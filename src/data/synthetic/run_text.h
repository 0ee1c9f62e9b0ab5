// The text of a run: files, generated text or the built-in corpus.
#pragma once

#include <memory>

#include "data/text/text.h"

namespace headroom::data {

// Opens the built-in corpus: the Python sources and C++ headers of the installed torch, in the folder
// $HEADROOM_TORCH_DIR or else the folder that Headroom was built with. Every 20th file in order of name belongs to
// validation, which uses files of at most 128 KiB up to a total of 1 MiB. Each split is ordered by a hash of the file
// names, so that any part of it mixes files of different kinds. Skips files that are empty, above 16 MiB or invalid
// UTF-8, and does not follow symbolic links. Throws Error if the folder is missing or has no such files.
std::unique_ptr<tokenizers::TextSource> open_built_in_corpus(Split split);

// Opens one split of a run's text: options.train or options.validation. If only options.train is set, the validation
// split is held out of it: about options.validation_fraction of the bytes (split_of()). If both are empty, the text is
// the output of options.generator or the built-in corpus. Throws UserError naming data.train if only data.validation is
// set. The first read throws UserError naming data.validation if no line can be held out.
std::unique_ptr<tokenizers::TextSource> open_split(const config::DataOptions& options, Split split,
                                                   Content content = Content::utf8);

}  // namespace headroom::data
