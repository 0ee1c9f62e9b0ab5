#include "connection.h"

#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>

namespace headroom::serve {
namespace {

using Clock = Connection::Clock;

Clock::duration seconds(double count) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(count));
}

// What a body may take on the wire beyond itself: a chunked one has a line for each chunk.
constexpr std::size_t kFraming = 2, kSomeFraming = 64 << 10;
// Bytes that a client has write_seconds for.
constexpr double kShareOfTime = 1 << 20;
// What is read and dropped of a request that was refused, so that the client gets to read why.
constexpr double kLingerSeconds = 1.0;

void numeric_address(const sockaddr_storage& address, socklen_t size, std::string& ip, int& port) {
  std::array<char, NI_MAXHOST> host{};
  std::array<char, NI_MAXSERV> service{};
  if (::getnameinfo(reinterpret_cast<const sockaddr*>(&address), size, host.data(), host.size(), service.data(),
                    service.size(), NI_NUMERICHOST | NI_NUMERICSERV) == 0) {
    ip = host.data();
    port = std::atoi(service.data());
  }
}

}  // namespace

Connection::Connection(int socket, const ConnectionLimits& limits)
    : socket_(socket), limits_(limits), since_(Clock::now().time_since_epoch().count()) {
  const int yes = 1;
  ::setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
}

Connection::~Connection() {
  ::close(socket_);
}

void Connection::enter(Phase phase) {
  since_ = Clock::now().time_since_epoch().count();
  phase_ = phase;
}

double Connection::seconds_in_phase() const {
  const Clock::duration since(Clock::now().time_since_epoch().count() - since_);
  return std::chrono::duration<double>(since).count();
}

bool Connection::await_request() {
  enter(Phase::idle);
  if (begin_ == end_ && (!wait_for(POLLIN, Clock::now() + seconds(limits_.idle_seconds)) || fill() <= 0)) {
    return false;
  }
  enter(Phase::reading);
  deadline_ = Clock::now() + seconds(limits_.read_seconds);
  allowance_ = limits_.head;
  in_head_ = true;
  line_begins_ = false;  // the first line is the request's
  return true;
}

void Connection::head_is_read() {
  in_head_ = false;
  allowance_ = kFraming * limits_.body + kSomeFraming;
}

bool Connection::wait_for(short what, Clock::time_point until) const {
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
    pollfd one{.fd = socket_, .events = what, .revents = 0};
    const int count = ::poll(&one, 1, static_cast<int>(std::max<std::int64_t>(left, 0)));
    if (count > 0) {
      return true;
    }
    if (count == 0 || errno != EINTR) {
      return false;
    }
  }
}

ssize_t Connection::fill() {
  const ssize_t count = ::recv(socket_, buffer_.data(), buffer_.size(), MSG_DONTWAIT);
  begin_ = 0;
  end_ = count > 0 ? static_cast<std::size_t>(count) : 0;
  return count;
}

bool Connection::is_readable() const {
  return begin_ < end_ || wait_for(POLLIN, Clock::now());
}

ssize_t Connection::read(char* to, std::size_t size) {
  if (allowance_ == 0) {
    return -1;
  }
  if (begin_ == end_) {
    if (!wait_for(POLLIN, deadline_)) {
      return -1;
    }
    if (const ssize_t count = fill(); count <= 0) {
      return count;
    }
  }
  const std::size_t count = std::min({size, end_ - begin_, allowance_});
  std::memcpy(to, buffer_.data() + begin_, count);
  if (in_head_) {
    hide_range(to, count);
  }
  begin_ += count;
  allowance_ -= count;
  return static_cast<ssize_t>(count);
}

// The library takes a Range header apart by a regular expression, which recurses for megabytes of stack, on every
// thread that meets one, and nothing here is served in parts. It does not know the header by another name; nor does it,
// or anything here, ask for another one that begins with R.
void Connection::hide_range(char* head, std::size_t size) {
  for (std::size_t i = 0; i < size; ++i) {
    if (line_begins_ && (head[i] == 'R' || head[i] == 'r')) {
      head[i] = 'x';
    }
    line_begins_ = head[i] == '\n';
  }
}

ssize_t Connection::write(const char* from, std::size_t size) {
  const double shares = 1.0 + std::floor(static_cast<double>(size) / kShareOfTime);
  const Clock::time_point until = Clock::now() + seconds(shares * limits_.write_seconds);
  std::size_t written = 0;
  while (written < size && !broken_) {
    const ssize_t count = ::send(socket_, from + written, size - written, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count > 0) {
      written += static_cast<std::size_t>(count);
    } else if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      enter(Phase::writing);
      broken_ = !wait_for(POLLOUT, until);
      enter(Phase::working);
    } else if (count == 0 || errno != EINTR) {
      broken_ = true;
    }
  }
  return broken_ ? -1 : static_cast<ssize_t>(written);
}

bool Connection::gone() const {
  pollfd one{.fd = socket_, .events = POLLRDHUP, .revents = 0};
  return ::poll(&one, 1, 0) > 0 && (one.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

void Connection::interrupt() {
  ::shutdown(socket_, SHUT_RDWR);
}

// Closed with something unread, a connection takes what was written last with it: the rest of the request is read for a
// while.
void Connection::close() {
  ::shutdown(socket_, SHUT_WR);
  enter(Phase::idle);
  const Clock::time_point until = Clock::now() + seconds(last_ && !broken_ ? kLingerSeconds : 0.0);
  while (last_ && !broken_ && wait_for(POLLIN, until) && fill() > 0 && Clock::now() < until) {
  }
  ::shutdown(socket_, SHUT_RDWR);
}

void Connection::get_remote_ip_and_port(std::string& ip, int& port) const {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  if (::getpeername(socket_, reinterpret_cast<sockaddr*>(&address), &size) == 0) {
    numeric_address(address, size, ip, port);
  }
}

void Connection::get_local_ip_and_port(std::string& ip, int& port) const {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  if (::getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &size) == 0) {
    numeric_address(address, size, ip, port);
  }
}

}  // namespace headroom::serve
