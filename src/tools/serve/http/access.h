// Who can reach the server: the socket on which it listens, clients with the API key, and requests whose Host header
// names this machine.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace headroom::serve {

class ApiKey {
 public:
  // Reads the key; the file may end with one line end. Throws UserError naming the file if it contains no valid key,
  // and warns if other users can read it.
  explicit ApiKey(const std::filesystem::path& file);

  // Returns whether the value of an Authorization header is "Bearer" (in any case) and the key. Compares digests in
  // constant time, so that the response time reveals nothing about the key.
  bool admits(std::string_view authorization) const;

 private:
  std::string digest_;
};

// Guards a server on the loopback interface against DNS rebinding: a web page can point its own domain to 127.0.0.1, so
// that the browser sends its requests here with that domain as their Host. Returns true if the Host header
// ("localhost:8080", "[::1]:8080") is an IP address, localhost or `own`, the name given as --host.
bool is_own_name(std::string_view header, std::string_view own);

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
