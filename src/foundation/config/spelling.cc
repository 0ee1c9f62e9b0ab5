#include "spelling.h"

#include <fmt/format.h>

#include <type_traits>

namespace headroom::config::detail {
namespace {

template <class Element, class Spell>
std::string list(const std::vector<Element>& elements, Spell spell) {
  std::string text;
  for (const Element& element : elements) {
    text += (text.empty() ? "" : ", ") + spell(element);
  }
  return "[" + text + "]";
}

}  // namespace

std::string in_quotes(std::string_view text) {
  std::string line = "\"";
  for (const char c : text) {
    switch (c) {
      case '"':
        line += "\\\"";
        break;
      case '\\':
        line += "\\\\";
        break;
      case '\n':
        line += "\\n";
        break;
      case '\t':
        line += "\\t";
        break;
      case '\r':
        line += "\\r";
        break;
      default:
        if (static_cast<unsigned char>(c) < ' ' || c == '\x7f') {
          line += fmt::format("\\u{:04X}", static_cast<unsigned>(c));
        } else {
          line += c;
        }
    }
  }
  return line + "\"";
}

std::string spelled(double number) {
  std::string text = fmt::format("{}", number);
  if (text.find_first_not_of("-0123456789") == std::string::npos) {
    text += ".0";
  }
  return text;
}

std::string spelled(const Field& field) {
  return std::visit(
      [&field](const auto& slot) -> std::string {
        using Slot = std::decay_t<decltype(slot)>;
        if constexpr (std::is_same_v<Slot, Choice>) {
          return in_quotes(slot.get());
        } else if constexpr (std::is_same_v<Slot, std::string*>) {
          return in_quotes(*slot);
        } else if constexpr (std::is_same_v<Slot, double*>) {
          return spelled(*slot);
        } else if constexpr (std::is_same_v<Slot, std::vector<std::int64_t>*>) {
          return list(*slot, [](std::int64_t number) { return fmt::format("{}", number); });
        } else if constexpr (std::is_same_v<Slot, std::vector<double>*>) {
          return list(*slot, [](double number) { return spelled(number); });
        } else if constexpr (std::is_same_v<Slot, std::vector<std::string>*>) {
          return list(*slot, [](const std::string& text) { return in_quotes(text); });
        } else if constexpr (std::is_same_v<Slot, std::int64_t*>) {
          return field.automatic && *slot == kAutomatic ? in_quotes(kAutomaticWord) : fmt::format("{}", *slot);
        } else {
          return fmt::format("{}", *slot);
        }
      },
      field.slot);
}

}  // namespace headroom::config::detail
