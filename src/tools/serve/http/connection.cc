#include "connection.h"

#include <fmt/format.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <utility>

#include "foundation/core/text/utf8.h"
#include "tools/serve/json_fields.h"

namespace headroom::serve {
namespace {

using Clock = Connection::Clock;

Clock::duration seconds(double count) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(count));
}

// A chunked body may be longer on the wire than its content, because each chunk has an extra line.
constexpr std::size_t kChunkingFactor = 2, kChunkingBytes = 64 << 10;
constexpr double kWriteUnit = 1 << 20;  // a client gets write_seconds for this many bytes
// While others wait for a thread, a client is disconnected after this time without progress.
constexpr double kCrowdedSeconds = 1.0, kCrowdedIdleSeconds = 0.2;
// How long the rest of a rejected request is read and discarded. Closing a socket with unread data resets the
// connection, and the client might never see the error.
constexpr double kLingerSeconds = 1.0;
// interval at which a waiting connection checks for changes
constexpr auto kPollInterval = std::chrono::milliseconds(50);

[[noreturn]] void refuse_head(const char* what) {
  refuse(400, "bad_request", "", "request: {}", what);
}

// Returns the number of bytes up to and including the first empty line, with any line ends; npos if there is none yet.
std::size_t head_size(std::string_view text) {
  const std::size_t crlf = text.find("\n\r\n"), lf = text.find("\n\n");
  return std::min(crlf == text.npos ? crlf : crlf + 3, lf == text.npos ? lf : lf + 2);
}

bool is_name_character(char c) {
  return c > ' ' && c < 0x7f && std::string_view("\"(),/:;<=>?@[\\]{}").find(c) == std::string_view::npos;
}

// Returns the header's name in lower case.
std::string header_name(std::string_view line) {
  const std::size_t colon = line.find(':');
  const std::string_view name = line.substr(0, colon);
  if (colon == line.npos || name.empty() || !std::ranges::all_of(name, is_name_character)) {
    refuse_head("a header must be a line \"name: value\"");
  }
  return lower_case(name);
}

void check_characters(std::string_view line) {
  if (std::ranges::any_of(line, [](unsigned char c) { return (c < ' ' && c != '\t') || c == 0x7f; })) {
    refuse_head("a line of the head has a control character");
  }
}

// Returns whether a header says how long a body is. Its value must be plain, because httplib decodes "1%37" to "17".
bool is_framing(std::string_view name, std::string_view value) {
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  if (name == "content-length" && (value.empty() || !std::ranges::all_of(value, is_digit))) {
    refuse_head("Content-Length must be a number");
  }
  if (name == "transfer-encoding" && lower_case(value) != "chunked") {
    refuse_head("Transfer-Encoding must be chunked");
  }
  return name == "content-length" || name == "transfer-encoding";
}

// Turns a target in absolute form, "http://host/path", into "/path" (RFC 9112 3.2.2). Sets `host` to the target's
// host, which takes precedence over the Host header.
std::string in_origin_form(std::string_view request_line, std::string& host) {
  const std::size_t space = request_line.find(' ');
  const std::string_view target = request_line.substr(std::min(space, request_line.size() - 1) + 1);
  for (const std::string_view scheme : {"http://", "https://"}) {
    const std::string_view rest = target.substr(std::min(scheme.size(), target.size()));
    if (lower_case(target.substr(0, scheme.size())) == scheme && !rest.starts_with('/')) {  // has a host
      const std::size_t end = std::min(rest.find_first_of("/? "), rest.size());
      host = lower_case(rest.substr(0, end));
      return std::string(request_line.substr(0, space + 1)) + (rest.substr(end).starts_with('/') ? "" : "/") +
             std::string(rest.substr(end));
    }
  }
  return std::string(request_line);
}

// Returns the size that the line before a chunk names, without its extensions; nullopt if it is not a hexadecimal
// number. (httplib would take "0x3d", "+3d", "-3d" and " 3d".)
std::optional<std::size_t> chunk_size(std::string_view line) {
  constexpr std::size_t kMostDigits = 8;
  const std::string_view digits = trimmed(line.substr(0, line.find(';')));
  std::size_t size = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), size, 16);
  const bool whole = error == std::errc() && digits.data() == line.data() && end == digits.data() + digits.size();
  return whole && digits.size() <= kMostDigits ? std::optional(size) : std::nullopt;
}

}  // namespace

std::string checked_head(std::string_view head) {
  std::string checked, target_host;
  std::int64_t hosts = 0, content_types = 0, framings = 0;
  bool http11 = false;
  for (bool request_line = true; !head.empty(); request_line = false) {
    const std::size_t end = head.find('\n');
    if (end == head.npos || end == 0 || head[end - 1] != '\r') {
      refuse_head("lines of the head must end in CR LF");
    }
    const std::string_view line = head.substr(0, end - 1), with_end = head.substr(0, end + 1);
    head.remove_prefix(end + 1);
    check_characters(line);
    if (request_line) {
      http11 = line.ends_with(" HTTP/1.1");
      checked += in_origin_form(line, target_host) + "\r\n";
      continue;
    }
    const std::string name = line.empty() ? "" : header_name(line);
    hosts += name == "host" ? 1 : 0;
    content_types += name == "content-type" ? 1 : 0;
    framings += is_framing(name, trimmed(line.substr(line.find(':') + 1))) ? 1 : 0;
    if (name == "host" && !target_host.empty()) {
      checked += "Host: " + target_host + "\r\n";
    } else if (name != "range" && name != "accept-encoding") {
      checked += with_end;
    }
  }
  if (hosts > 1 || (http11 && hosts == 0)) {
    refuse_head("must have one Host header");
  }
  if (framings > 1) {
    refuse_head("must have one Content-Length or one Transfer-Encoding, not several of them");
  }
  if (content_types > 1) {
    refuse_head("must have one Content-Type, not several of them");
  }
  return checked;
}

Connection::Connection(int socket, const ConnectionLimits& limits, const ConnectionCounts& counts)
    : socket_(socket), limits_(limits), counts_(counts) {
  const int yes = 1;
  ::setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
}

Connection::~Connection() {
  ::close(socket_);
}

bool Connection::await_request() {
  if (buffered() == 0 && (!wait_for(POLLIN, {Clock::now(), limits_.idle_seconds, kCrowdedIdleSeconds}) || !fill())) {
    return false;
  }
  reading_ = {Clock::now(), limits_.read_seconds, kCrowdedSeconds};
  buffer_.erase(0, std::exchange(begin_, 0));
  std::size_t size = 0;
  while ((size = head_size(buffer_)) == std::string::npos && buffer_.size() <= limits_.head) {
    if (!wait_for(POLLIN, reading_) || !fill()) {
      return false;
    }
  }
  if (size > limits_.head) {  // too long, or has no end
    refuse_head("the head exceeds this server's limit");
  }
  const std::string head = checked_head(std::string_view(buffer_).substr(0, size));
  buffer_.replace(0, size, head);
  allowance_ = head.size() + kChunkingFactor * limits_.body + kChunkingBytes;
  http11_ = head.substr(0, head.find('\r')).ends_with(" HTTP/1.1");
  head_left_ = head.size();
  chunk_left_ = 0;
  chunk_begun_ = false;
  chunked_ = lower_case(head).find("\ntransfer-encoding:") != std::string::npos;
  return true;
}

std::optional<std::string> Connection::take_line() {
  constexpr std::size_t kLongest = 4096;
  std::size_t end = std::string::npos;
  while ((end = buffer_.find('\n', begin_)) == std::string::npos) {
    if (buffered() > kLongest || !wait_for(POLLIN, reading_) || !fill()) {
      return std::nullopt;
    }
  }
  const std::string line = buffer_.substr(begin_, end - begin_);
  allowance_ -= std::min(allowance_, line.size() + 1);
  buffer_.erase(0, end + 1);
  begin_ = 0;
  const bool whole = line.ends_with('\r') && allowance_ > 0;
  return whole ? std::optional(line.substr(0, line.size() - 1)) : std::nullopt;
}

bool Connection::begin_chunk() {
  const bool first = !std::exchange(chunk_begun_, true);
  const std::optional<std::string> line = first || take_line() == "" ? take_line() : std::nullopt;
  const std::optional<std::size_t> size = line ? chunk_size(*line) : std::nullopt;
  if (!size) {
    return false;
  }
  std::string begin = fmt::format("{}{:x}\r\n", first ? "" : "\r\n", *size);
  if (*size == 0) {
    for (std::optional<std::string> trailer = "x"; trailer != "";) {
      if (!(trailer = take_line()) || (trailer != "" && trailer->find(':') == std::string::npos)) {
        return false;
      }
    }
    begin += "\r\n";
    chunked_ = false;
  }
  buffer_.insert(0, begin);
  allowance_ += begin.size();  // counted in the lines that it replaces
  chunk_left_ = begin.size() + *size;
  return true;
}

void Connection::begin_answer() {
  const std::lock_guard lock(answer_mutex_);
  may_probe_ = http11_;
}

bool Connection::wait_for(short event, const Patience& patience) const {
  for (;;) {
    const Clock::duration waited = Clock::now() - patience.since;
    if (waited >= seconds(patience.seconds) || (counts_.waiting > 0 && waited >= seconds(patience.crowded_seconds))) {
      return false;
    }
    pollfd one{.fd = socket_, .events = event, .revents = 0};
    const int count = ::poll(&one, 1, static_cast<int>(kPollInterval.count()));
    if (count > 0) {
      return true;
    }
    if ((count < 0 && errno != EINTR) || (counts_.stopping && event == POLLIN)) {
      return false;
    }
  }
}

bool Connection::fill() {
  std::array<char, 16384> piece;
  const ssize_t count = ::recv(socket_, piece.data(), piece.size(), MSG_DONTWAIT);
  if (count > 0) {
    buffer_.erase(0, std::exchange(begin_, 0));
    buffer_.append(piece.data(), static_cast<std::size_t>(count));
  }
  return count > 0;
}

bool Connection::is_readable() const {
  pollfd one{.fd = socket_, .events = POLLIN, .revents = 0};
  return buffered() > 0 || ::poll(&one, 1, 0) > 0;
}

ssize_t Connection::read(char* to, std::size_t size) {
  if (chunked_ && head_left_ == 0 && chunk_left_ == 0 && !begin_chunk()) {
    return -1;
  }
  if (allowance_ == 0 || (buffered() == 0 && (!wait_for(POLLIN, reading_) || !fill()))) {
    return -1;
  }
  std::size_t count = std::min({size, buffered(), allowance_});
  if (std::size_t& left = head_left_ > 0 ? head_left_ : chunk_left_; left > 0) {
    count = std::min(count, left);
    left -= count;
  }
  std::memcpy(to, buffer_.data() + begin_, count);
  begin_ += count;
  allowance_ -= count;
  return static_cast<ssize_t>(count);
}

ssize_t Connection::write(const char* from, std::size_t size) {
  {
    const std::lock_guard lock(answer_mutex_);
    may_probe_ = false;
  }
  const double units = 1.0 + std::floor(static_cast<double>(size) / kWriteUnit);
  const Patience patience{Clock::now(), units * limits_.write_seconds, kCrowdedSeconds};
  std::size_t written = 0;
  while (written < size && !broken_) {
    const ssize_t count = ::send(socket_, from + written, size - written, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count > 0) {
      written += static_cast<std::size_t>(count);
    } else if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      broken_ = !wait_for(POLLOUT, patience);
    } else if (count == 0 || errno != EINTR) {
      broken_ = true;
    }
  }
  return broken_ ? -1 : static_cast<ssize_t>(written);
}

bool Connection::client_gone() const {
  pollfd one{.fd = socket_, .events = POLLRDHUP, .revents = 0};
  if (::poll(&one, 1, 0) <= 0) {
    return false;
  }
  const std::lock_guard lock(answer_mutex_);
  if ((one.revents & POLLRDHUP) != 0 && may_probe_) {
    constexpr std::string_view kProbe = "HTTP/1.1 100 Continue\r\n\r\n";
    ::send(socket_, kProbe.data(), kProbe.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    may_probe_ = false;
  }
  return (one.revents & (POLLHUP | POLLERR)) != 0;
}

void Connection::close() {
  ::shutdown(socket_, SHUT_WR);
  const Patience patience{Clock::now(), kLingerSeconds, kCrowdedIdleSeconds};
  while (last_ && !broken_ && wait_for(POLLIN, patience)) {
    buffer_.clear();
    begin_ = 0;
    if (!fill()) {
      return;
    }
  }
}

}  // namespace headroom::serve
