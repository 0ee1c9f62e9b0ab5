// An answer to one of the questions that define an attention layer, held by name. The answers are listed nowhere:
// each registers itself from its own file (attention_part.h).
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace headroom::config {

// Part: ProjectionPart, ScorePart, CompositionPart, PositionPart or OutputGatePart.
template <class Part>
class PartName {
 public:
  // As TOML spells it. Throws UserError when no part is called that.
  PartName(std::string_view name);                                         // NOLINT: a part is set by its name
  PartName(const char* name) : PartName(std::string_view(name)) {}         // NOLINT
  PartName(const std::string& name) : PartName(std::string_view(name)) {}  // NOLINT

  const Part* operator->() const { return part_; }
  std::string_view name() const;

  friend bool operator==(PartName a, PartName b) { return a.part_ == b.part_; }
  friend std::string_view name_of(PartName part) { return part.name(); }

 private:
  const Part* part_;
};

// All parts of a kind, "none" before the others, which go by name.
template <class Part>
const std::vector<const Part*>& all_parts();

}  // namespace headroom::config
