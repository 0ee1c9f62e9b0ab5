#include "terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>

#include "foundation/core/text/utf8.h"

namespace headroom::detail {

bool stderr_is_terminal() {
  const char* const kind = std::getenv("TERM");
  return ::isatty(STDERR_FILENO) == 1 && (kind == nullptr || std::string_view(kind) != "dumb");
}

bool terminal_shows_blocks() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* const value = std::getenv(name);
    if (value != nullptr && *value != '\0') {
      const std::string_view locale = value;
      return locale.find("UTF-8") != locale.npos || locale.find("utf8") != locale.npos ||
             locale.find("UTF8") != locale.npos || locale.find("utf-8") != locale.npos;
    }
  }
  return true;  // containers often say nothing, and terminals show UTF-8
}

std::size_t terminal_width() {
  struct winsize size {};
  if (::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
    return size.ws_col;
  }
  return 80;
}

std::size_t display_width(std::string_view text) {
  return count_characters(text);
}

std::string_view first_columns(std::string_view text, std::size_t columns) {
  std::size_t end = 0;
  while (end < text.size() && (continues_character(text[end]) || columns > 0)) {
    columns -= continues_character(text[end]) ? 0 : 1;
    ++end;
  }
  return text.substr(0, end);
}

}  // namespace headroom::detail
