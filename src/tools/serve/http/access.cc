#include "access.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <memory>

#include "foundation/core/machine/log.h"
#include "foundation/core/text/utf8.h"
#include "headroom/core/error.h"
#include "headroom/core/files.h"

namespace headroom::serve {
namespace {

constexpr std::size_t kLongestKey = 1024, kShortestKey = 16;

// The characters of b64token in RFC 6750, which need no escape in a header.
bool is_key_character(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
         std::string_view("-._~+/=").find(c) != std::string_view::npos;
}

std::string read_key(const std::filesystem::path& file) {
  try {
    return read_text_file(file, std::size_t{1} << 20U);
  } catch (const UserError& error) {
    user_error("serve: --api-key-file: {}", error.what());
  }
}

// Removes ":PORT" and the brackets of an IPv6 address.
std::string host_of(std::string_view header) {
  if (header.starts_with('[')) {
    const std::size_t end = header.find(']');
    return lower_case(end == std::string_view::npos ? std::string_view() : header.substr(1, end - 1));
  }
  return lower_case(header.substr(0, header.find(':')));
}

bool is_address(const std::string& name) {
  in6_addr address{};
  return ::inet_pton(AF_INET, name.c_str(), &address) == 1 || ::inet_pton(AF_INET6, name.c_str(), &address) == 1;
}

}  // namespace

ApiKey::ApiKey(const std::filesystem::path& file) {
  std::string key = read_key(file);
  for (const char end : {'\n', '\r'}) {
    if (key.ends_with(end)) {
      key.pop_back();
    }
  }
  if (key.size() < kShortestKey || key.size() > kLongestKey || !std::ranges::all_of(key, is_key_character)) {
    user_error(
        "serve: --api-key-file: {}: must hold one key of {} to {} letters, digits and -._~+/=; create one with "
        "`openssl rand -hex 32`",
        file.string(), kShortestKey, kLongestKey);
  }
  struct stat status {};
  if (::stat(file.c_str(), &status) == 0 && S_ISREG(status.st_mode) && (status.st_mode & (S_IRGRP | S_IROTH)) != 0) {
    log_warning("serve: --api-key-file: {}: can be read by other users of this machine; run chmod 600 on it",
                file.string());
  }
  digest_ = sha256_of(key);
}

bool ApiKey::admits(std::string_view authorization) const {
  constexpr std::string_view kBearer = "bearer ";
  const bool bearer = lower_case(authorization.substr(0, kBearer.size())) == kBearer;
  const std::string given = sha256_of(bearer ? authorization.substr(kBearer.size()) : std::string_view());
  unsigned int difference = bearer ? 0 : 1;
  for (std::size_t i = 0; i < digest_.size(); ++i) {
    difference |= static_cast<unsigned char>(digest_[i]) ^ static_cast<unsigned char>(given[i]);
  }
  return difference == 0;
}

bool is_own_name(std::string_view header, std::string_view own) {
  const std::string name = host_of(header);
  return is_address(name) || name == "localhost" || name.ends_with(".localhost") ||
         (!name.empty() && name == lower_case(own));
}

namespace {

constexpr int kBacklog = 512;

using Addresses = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

Addresses addresses_of(const std::string& host, int port) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  if (const int error = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found); error != 0) {
    user_error("serve: --host: {}: {}", host, ::gai_strerror(error));
  }
  return {found, &::freeaddrinfo};
}

bool is_loopback(const sockaddr* address) {
  if (address->sa_family == AF_INET) {
    return (ntohl(reinterpret_cast<const sockaddr_in*>(address)->sin_addr.s_addr) >> 24U) == 127;
  }
  return address->sa_family == AF_INET6 &&
         IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr);
}

int port_of(int descriptor) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  ::getsockname(descriptor, reinterpret_cast<sockaddr*>(&address), &size);
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6*>(&address)->sin6_port
                                             : reinterpret_cast<const sockaddr_in*>(&address)->sin_port);
}

// Returns -1 and sets errno on failure.
int listen_at(const addrinfo& address) {
  const int descriptor = ::socket(address.ai_family, address.ai_socktype | SOCK_CLOEXEC, address.ai_protocol);
  if (descriptor < 0) {
    return -1;
  }
  const int yes = 1;
  ::setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));  // a restarted server gets its port at once
  if (::bind(descriptor, address.ai_addr, address.ai_addrlen) == 0 && ::listen(descriptor, kBacklog) == 0) {
    return descriptor;
  }
  const int error = errno;
  ::close(descriptor);
  errno = error;
  return -1;
}

}  // namespace

ListeningSocket listen_on(const std::string& host, int port) {
  const Addresses addresses = addresses_of(host, port);
  int error = 0;
  for (const addrinfo* address = addresses.get(); address != nullptr; address = address->ai_next) {
    if (const int descriptor = listen_at(*address); descriptor >= 0) {
      return {.descriptor = descriptor, .port = port_of(descriptor), .loopback = is_loopback(address->ai_addr)};
    }
    error = errno;
  }
  if (error == EADDRINUSE) {
    user_error("serve: --port: {} is in use on {}; choose another one, or 0 for any free port", port, host);
  }
  if (error == EACCES) {
    user_error("serve: --port: {} needs privileges that this user does not have; choose one above 1023", port);
  }
  user_error("serve: --host: {}: {}", host, std::strerror(error));
}

std::string url_of(const std::string& host, int port) {
  return host.find(':') == std::string::npos ? fmt::format("http://{}:{}", host, port)
                                             : fmt::format("http://[{}]:{}", host, port);
}

}  // namespace headroom::serve
