// A TCP socket that listens, with messages about a host or port that cannot be used.
#pragma once

#include <string>

namespace headroom::serve {

struct ListeningSocket {
  int descriptor = -1;  // the caller closes it
  int port = 0;
  bool loopback = false;  // unreachable from other machines
};

// Port 0 takes any free port. Throws UserError naming --host or --port. cpp-httplib's own bind_to_port() is not used:
// it sets SO_REUSEPORT, with which two servers share a port without an error, and gives no reason for a failure.
ListeningSocket listen_on(const std::string& host, int port);

// "http://127.0.0.1:8080", "http://[::1]:8080".
std::string url_of(const std::string& host, int port);

}  // namespace headroom::serve
