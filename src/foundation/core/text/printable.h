// Untrusted text (keys and values of files, arguments, names of files), made safe for a message.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace headroom {

// `text` on one line that no terminal acts on: control characters, invalid UTF-8, line and paragraph separators and
// marks that change the direction of writing appear as \n, \t, \x1b, \u{202e}; beyond `longest` bytes it ends with
// "...", between characters. Text that has been through it stays as it is.
std::string printable(std::string_view text, std::size_t longest = 120);

// `text` of any length as a terminal may get it: control characters other than line ends and tabs are spelled.
std::string harmless(std::string_view text);

}  // namespace headroom
