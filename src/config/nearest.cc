#include "nearest.h"

#include <algorithm>
#include <vector>

#include "headroom/core/nearest.h"

namespace headroom::config::detail {
namespace {

struct Known {
  std::string table, key;  // "model.attention", "n_heads"
  std::string dotted() const { return table.empty() ? key : table + "." + key; }
};

void collect(const std::string& table, const std::vector<Field>& fields, const std::vector<Fields::Table>& tables,
             std::vector<Known>& known) {
  for (const Field& field : fields) {
    known.push_back({table, field.key});
  }
  for (const Fields::Table& inner : tables) {
    known.push_back({table, inner.key});
    collect(known.back().dotted(), inner.fields, inner.tables, known);
  }
}

}  // namespace

std::string nearest_key(const Fields& all, const std::string& table, std::string_view wrong) {
  std::vector<Known> known;
  collect("", all.fields(), all.tables(), known);
  std::vector<std::string> neighbours, others;
  for (const Known& candidate : known) {
    if (candidate.key == wrong) {  // the right key in the wrong table
      return candidate.dotted();
    }
    (candidate.table == table ? neighbours : others).push_back(candidate.key);
  }
  if (std::string key = nearest(wrong, neighbours); !key.empty()) {
    return Known{table, std::move(key)}.dotted();
  }
  const std::string key = nearest(wrong, others);
  const auto where = std::find_if(known.begin(), known.end(), [&key](const Known& k) { return k.key == key; });
  return where == known.end() ? "" : where->dotted();
}

}  // namespace headroom::config::detail
