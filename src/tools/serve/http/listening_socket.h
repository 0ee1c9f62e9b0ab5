// Creates a listening TCP socket, with messages that explain why a host or port cannot be used.
#pragma once

#include <string>

namespace headroom::serve {

struct ListeningSocket {
  int descriptor = -1;  // the caller closes it
  int port = 0;
  bool loopback = false;  // unreachable from other machines
};

// Listens on `host` and `port`; port 0 means any free port. Throws UserError naming --host or --port. Does not use
// cpp-httplib's bind_to_port(), which sets SO_REUSEPORT, so that two servers could share a port without an error, and
// gives no reason for a failure.
ListeningSocket listen_on(const std::string& host, int port);

// Returns "http://127.0.0.1:8080", "http://[::1]:8080".
std::string url_of(const std::string& host, int port);

}  // namespace headroom::serve
