#include "run_text.h"

#include "composition_task.h"
#include "data/text/held_out.h"
#include "headroom/core/error.h"

namespace headroom::data {

std::unique_ptr<tokenizers::TextSource> open_split(const config::DataOptions& options, Split split, Content content) {
  if (options.train.empty() && options.validation.empty()) {
    if (options.generator == config::Generator::composition) {
      return composition_text(composition_rows(options, split));
    }
    return open_built_in_corpus(split);
  }
  if (options.train.empty()) {
    user_error("data.train: must name at least one file when data.validation does");
  }
  if (!options.validation.empty()) {
    return open_text(split == Split::train ? options.train : options.validation, options, content);
  }
  if (!(options.validation_fraction > 0.0)) {
    user_error("data.validation: must name at least one file when data.validation_fraction is 0");
  }
  return split_of(open_text(options.train, options, content), options, split, named_together(options.train));
}

}  // namespace headroom::data
