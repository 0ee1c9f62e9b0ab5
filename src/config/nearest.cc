#include "nearest.h"

#include <algorithm>

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

std::size_t edit_distance(std::string_view a, std::string_view b) {
  // Three rows of the table: swaps look two rows back.
  std::vector<std::size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) {
    row[j] = j;
  }
  for (std::size_t i = 1; i <= a.size(); ++i) {
    before.swap(last);
    last.swap(row);
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({replaced, last[j] + 1, row[j - 1] + 1});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
  }
  return row[b.size()];
}

std::string nearest(std::string_view wrong, const std::vector<std::string>& candidates) {
  if (wrong.size() > 200) {
    return {};
  }
  // About one wrong letter in three, and never more than half the word.
  std::size_t best = std::min(std::max<std::size_t>(2, wrong.size() / 3), wrong.size() / 2) + 1;
  std::string found;
  for (const std::string& candidate : candidates) {
    const std::size_t distance = edit_distance(wrong, candidate);
    if (distance < best) {
      best = distance;
      found = candidate;
    }
  }
  return found;
}

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
