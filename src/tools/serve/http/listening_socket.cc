#include "listening_socket.h"

#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <thread>

#include "headroom/core/error.h"

namespace headroom::serve {
namespace {

constexpr int kBacklog = 512;

using Addresses = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

Addresses addresses_of(const std::string& host, int port) {
  addrinfo wanted{};
  wanted.ai_family = AF_UNSPEC;
  wanted.ai_socktype = SOCK_STREAM;
  wanted.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  if (const int error = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &wanted, &found); error != 0) {
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

// -1: errno says why not.
int listen_at(const addrinfo& address) {
  const int descriptor =
      ::socket(address.ai_family, address.ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, address.ai_protocol);
  if (descriptor < 0) {
    return -1;
  }
  const int yes = 1;
  ::setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));  // right after another server has ended
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
    user_error("serve: --port: {} is in use at {}: choose another one, or 0 for any that is free", port, host);
  }
  if (error == EACCES) {
    user_error("serve: --port: {} may not be taken by this user: choose one above 1023", port);
  }
  user_error("serve: --host: {}: {}", host, std::strerror(error));
}

int accept_within(int listening, int milliseconds) {
  pollfd one{.fd = listening, .events = POLLIN, .revents = 0};
  if (::poll(&one, 1, milliseconds) <= 0) {
    return -1;
  }
  const int descriptor = ::accept4(listening, nullptr, nullptr, SOCK_CLOEXEC);
  if (descriptor < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));  // until others have ended
  }
  return descriptor;
}

void stop_listening(int listening) {
  ::shutdown(listening, SHUT_RDWR);
}

void close_socket(int descriptor) {
  ::close(descriptor);
}

std::string url_of(const std::string& host, int port) {
  return host.find(':') == std::string::npos ? fmt::format("http://{}:{}", host, port)
                                             : fmt::format("http://[{}]:{}", host, port);
}

}  // namespace headroom::serve
