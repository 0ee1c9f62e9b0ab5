// Files that are written where another may lie.
#pragma once

#include <string>
#include <string_view>

namespace headroom::cli {

// Throws UserError naming `option` where there is no room for the file, or where one is there that does not begin as
// its like does: "evaluate: --items: a.txt is there and <is not its like>".
void require_room_for_like(const std::string& path, std::string_view option, std::string_view begins,
                           std::string_view not_its_like);

}  // namespace headroom::cli
