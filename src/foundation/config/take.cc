#include <type_traits>
#include <variant>

#include "headroom/config/config.h"

namespace headroom::config {
namespace {

struct Taker {
  const std::function<bool(std::string_view)>& wanted;

  void take(const std::string& prefix, const std::vector<Field>& to, const std::vector<Field>& from) const {
    for (std::size_t i = 0; i < to.size(); ++i) {
      if (wanted(prefix + to[i].key)) {
        std::visit(
            [&](const auto& slot) {
              using Slot = std::decay_t<decltype(slot)>;
              const Slot& source = std::get<Slot>(from[i].slot);
              if constexpr (std::is_same_v<Slot, Choice>) {
                slot.set(source.get());
              } else {
                *slot = *source;
              }
            },
            to[i].slot);
      }
    }
  }
  void take(const std::string& prefix, const std::vector<Fields::Table>& to,
            const std::vector<Fields::Table>& from) const {
    for (std::size_t i = 0; i < to.size(); ++i) {
      const std::string inner = prefix + to[i].key + ".";
      take(inner, to[i].fields, from[i].fields);
      take(inner, to[i].tables, from[i].tables);
    }
  }
};

}  // namespace

void take_values(Config& to, const Config& from, const std::function<bool(std::string_view key)>& wanted) {
  Config source = from;  // a description points into what it describes
  Fields to_fields, from_fields;
  describe(to_fields, to);
  describe(from_fields, source);
  Taker{wanted}.take("", to_fields.tables(), from_fields.tables());
}

}  // namespace headroom::config
