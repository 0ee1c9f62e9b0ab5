// By which names a server that only this machine reaches may be called.
#pragma once

#include <string_view>

namespace headroom::serve {

// Whether a page of a stranger's domain cannot have sent a request with this Host header ("localhost:8080",
// "[::1]:8080", ...): a browser takes a domain whose address its owner changes to 127.0.0.1 for the domain's own
// server (DNS rebinding), and the header then has the domain's name. Addresses, localhost and `own`, the name that the
// server was given, are no stranger's.
bool is_own_name(std::string_view header, std::string_view own);

}  // namespace headroom::serve
