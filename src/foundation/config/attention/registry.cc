#include <fmt/ranges.h>

#include <algorithm>

#include "headroom/config/attention_part.h"
#include "headroom/core/error.h"

namespace headroom::config {
namespace {

// A function-local static, because parts register themselves during static initialisation, in unspecified order.
template <class Part>
std::vector<const Part*>& known() {
  static std::vector<const Part*> parts;
  return parts;
}

template <class Part>
const Part* find(std::string_view name) {
  std::vector<std::string_view> names;
  for (const Part* part : known<Part>()) {
    if (part->name() == name) {
      return part;
    }
    names.push_back(part->name());
  }
  user_error("model.attention.{}: must be one of \"{}\", got \"{}\"", Part::kKey, fmt::join(names, "\", \""), name);
}

}  // namespace

template <class Part>
PartName<Part>::PartName(std::string_view name) : part_(find<Part>(name)) {}

template <class Part>
std::string_view PartName<Part>::name() const {
  return part_->name();
}

template <class Part>
void PartName<Part>::add(const Part& part) {
  const auto before = [](const Part* a, const Part* b) {
    const bool a_none = a->name() == "none", b_none = b->name() == "none";
    return a_none != b_none ? a_none : a->name() < b->name();
  };
  std::vector<const Part*>& parts = known<Part>();
  parts.insert(std::ranges::upper_bound(parts, &part, before), &part);
}

template <class Part>
const std::vector<const Part*>& all_parts() {
  return known<Part>();
}

template class PartName<ProjectionPart>;
template class PartName<ScorePart>;
template class PartName<CompositionPart>;
template class PartName<PositionPart>;
template class PartName<OutputGatePart>;
template const std::vector<const ProjectionPart*>& all_parts();
template const std::vector<const ScorePart*>& all_parts();
template const std::vector<const CompositionPart*>& all_parts();
template const std::vector<const PositionPart*>& all_parts();
template const std::vector<const OutputGatePart*>& all_parts();

std::vector<Example> AttentionPart::examples() const {
  std::string text(name());
  std::ranges::replace(text, '_', ' ');
  return {{std::move(text), [](AttentionOptions&) {}}};
}

}  // namespace headroom::config
