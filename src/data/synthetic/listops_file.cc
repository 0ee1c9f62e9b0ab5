#include "data/text/table.h"
#include "headroom/core/error.h"
#include "listops.h"

namespace headroom::data::listops {

LabelledSequences read(const std::vector<std::string>& patterns, const Reading& reading) {
  LabelledSequences read;
  std::size_t label = 0;
  RowUse use{.header = {}, .row = {}, .skip_bad_rows = reading.skip_bad_rows};
  use.header = [&](const std::vector<std::string>& row) {
    const bool turned = row.size() == 2 && row[0] == "Source" && row[1] == "Target";
    label = turned ? 1 : 0;
    return turned;
  };
  use.row = [&](const std::vector<std::string>& row) {
    if (row.size() != 2) {
      user_error("must be a label, a tab and an expression, got {} columns", row.size());
    }
    const std::int64_t value = parse_index(row[label], kClasses, "the label");
    const std::vector<std::uint16_t> symbols = parse(row[1 - label]);
    if (std::ssize(symbols) > reading.most_symbols) {
      user_error("the expression has {} symbols, more than model.context_length = {}", symbols.size(),
                 reading.most_symbols);
    }
    read.first.add(symbols);
    read.labels.push_back(static_cast<std::int32_t>(value));
  };
  for_each_row(patterns, use);
  return read;
}

}  // namespace headroom::data::listops
