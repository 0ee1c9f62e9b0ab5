#include "http_server.h"

#include <fmt/ranges.h>
#include <sys/socket.h>
#include <unistd.h>

#include <limits>
#include <utility>

#include "access.h"
#include "foundation/core/machine/log.h"
#include "foundation/core/text/format.h"
#include "foundation/core/text/utf8.h"

namespace headroom::serve {
namespace {

// The connection that this thread serves, because httplib does not pass it to its handlers.
thread_local std::shared_ptr<Connection> current_connection;

// The number of maximum-length bodies that may be in memory at once. Without this limit, 256 connections could send 2
// GiB.
constexpr std::size_t kMaxBodies = 8;

HttpResponse to_response(const ApiError& error) {
  return {.status = error.status, .body = to_json_line(to_json(error))};
}

bool has_body(const httplib::Request& request) {
  return request.has_header("Transfer-Encoding") ||
         (request.has_header("Content-Length") && request.get_header_value("Content-Length") != "0");
}

// checked_head() accepts at most one Content-Length or Transfer-Encoding.
void check_framing(const httplib::Request& request, std::size_t max_length) {
  if (request.has_header("Content-Encoding")) {
    refuse(415, "unsupported_encoding", "", "Content-Encoding: compressed requests are not supported");
  }
  if (request.has_header("Transfer-Encoding")) {
    return;
  }
  if (!request.has_header("Content-Length")) {
    refuse(411, "bad_request", "", "Content-Length: must be given once");
  }
  const std::optional<std::int64_t> length = whole_number(request.get_header_value("Content-Length"));
  if (!length) {
    refuse(400, "bad_request", "", "Content-Length: must be a number");
  }
  if (static_cast<std::uint64_t>(*length) > max_length) {
    refuse(413, "request_too_large", "", "body: must have at most {} bytes, got {}", max_length, *length);
  }
}

bool is_json(const std::string& content_type) {
  std::string media_type = lower_case(std::string_view(content_type).substr(0, content_type.find(';')));
  media_type.erase(media_type.find_last_not_of(" \t") + 1);
  return media_type == "application/json";
}

}  // namespace

HttpServer::HttpServer(Options options) : options_(std::move(options)) {
  set_keep_alive_timeout(static_cast<time_t>(options_.limits.idle_seconds));
  set_keep_alive_max_count(std::numeric_limits<std::int32_t>::max());
  set_pre_routing_handler([this](const httplib::Request& request, httplib::Response& response) {
    if (const std::optional<ApiError> refused = refusal(request)) {
      write(request, response, to_response(*refused));
      return HandlerResponse::Handled;
    }
    if (request.method == "POST") {
      return HandlerResponse::Unhandled;  // httplib reads its body
    }
    answer(request, response, {});
    return HandlerResponse::Handled;
  });
  Post(".*", [this](const httplib::Request& request, httplib::Response& response, const httplib::ContentReader& read) {
    try {
      answer(request, response, read_body(read));
    } catch (const ApiError& error) {
      write(request, response, to_response(error));
    }
  });
  // Handles the requests that httplib itself rejects.
  set_error_handler(HandlerWithResponse([](const httplib::Request&, httplib::Response& response) {
    if (response.body.empty()) {
      current_connection->close_after_answer();
      response.set_header("Connection", "close");
      response.set_content(to_json_line(to_json(error_of_status(response.status))), "application/json");
    }
    return HandlerResponse::Handled;
  }));
  set_exception_handler(
      [](const httplib::Request&, httplib::Response& response, const std::exception_ptr&) { response.status = 500; });
}

HttpServer::~HttpServer() {
  stop();
}

void HttpServer::add(Route route) {
  routes_[route.path].insert_or_assign(route.method, route);
}

int HttpServer::bind(const std::string& host, int port) {
  const ListeningSocket made = listen_on(host, port);
  loopback_ = made.loopback;
  host_ = host;
  svr_sock_ = made.descriptor;
  return made.port;
}

void HttpServer::start() {
  acceptor_ = std::thread([this] { accept_connections(); });
}

void HttpServer::accept_connections() {
  httplib::ThreadPool threads(options_.connections);
  while (!counts_.stopping) {
    const int socket = ::accept4(svr_sock_, nullptr, nullptr, SOCK_CLOEXEC);
    if (socket < 0) {  // out of descriptors or memory
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      continue;
    }
    ++counts_.open;
    ++counts_.waiting;
    threads.enqueue([this, socket] { serve(socket); });
  }
  threads.shutdown();
}

void HttpServer::stop() {
  if (counts_.stopping.exchange(true) || svr_sock_ == INVALID_SOCKET) {
    return;
  }
  ::shutdown(svr_sock_, SHUT_RDWR);  // makes accept4() return
  if (acceptor_.joinable()) {
    acceptor_.join();
  }
  ::close(svr_sock_);
  svr_sock_ = INVALID_SOCKET;
}

void HttpServer::serve(int socket) {
  --counts_.waiting;
  current_connection = std::make_shared<Connection>(socket, options_.limits, counts_);
  try {
    while (!counts_.stopping && !current_connection->closes_after_answer() && current_connection->await_request()) {
      bool closed_by_client = false;
      if (!process_request(*current_connection, false, closed_by_client, nullptr) || closed_by_client) {
        break;
      }
    }
  } catch (const ApiError& error) {  // from parsing the head
    current_connection->close_after_answer();
    const std::string body = to_json_line(to_json(error));
    const std::string text = fmt::format(
        "HTTP/1.1 {} Bad Request\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: "
        "close\r\n\r\n{}",
        error.status, body.size(), body);
    current_connection->write(text.data(), text.size());
  }
  current_connection->close();
  current_connection.reset();
  --counts_.open;
}

// Returns the routes at a path, or at the prefix that ends with '/' and is followed by a name; nullptr if there are
// none.
const std::map<std::string, HttpServer::Route>* HttpServer::routes_at(const std::string& path) const {
  for (const auto& [at, routes] : routes_) {
    const bool takes_name = at.size() > 1 && at.ends_with('/');
    if (at == path || (takes_name && path.size() > at.size() && path.starts_with(at))) {
      return &routes;
    }
  }
  return nullptr;
}

std::vector<std::string> HttpServer::methods_of(const std::map<std::string, Route>& routes) {
  std::vector<std::string> methods;
  for (const auto& [method, route] : routes) {
    methods.push_back(method);
    if (method == "GET") {
      methods.emplace_back("HEAD");
    }
  }
  return methods;
}

const HttpServer::Route& HttpServer::route_of(const httplib::Request& request) const {
  const auto* const routes = routes_at(request.path);
  if (routes == nullptr) {
    refuse(404, "not_found", "", "{} {}: this server has no such path", request.method, request.path);
  }
  const auto route = routes->find(request.method == "HEAD" ? "GET" : request.method);  // httplib omits HEAD's body
  if (route == routes->end()) {
    refuse(405, "method_not_allowed", "", "{} {}: the method must be {}", request.method, request.path,
           fmt::join(methods_of(*routes), " or "));
  }
  return route->second;
}

void HttpServer::check_host(const httplib::Request& request) const {
  const std::string host = request.get_header_value("Host");
  if (loopback_ && !options_.admits && request.has_header("Host") && !is_own_name(host, host_)) {
    refuse(403, "foreign_host", "",
           "Host: {}: must be localhost, an IP address or the name given as --host; a server without an API key "
           "accepts no other, so that web pages cannot reach it",
           host);
  }
}

void HttpServer::check(const httplib::Request& request) const {
  check_host(request);
  const Route& route = route_of(request);
  if (!route.open && options_.admits && !options_.admits(request.get_header_value("Authorization"))) {
    refuse(401, "invalid_api_key", "", "Authorization: must be \"Bearer\" and this server's API key");
  }
  if (request.method != "POST") {
    if (has_body(request)) {
      refuse(400, "bad_request", "", "{} {}: must not have a body", request.method, request.path);
    }
    return;
  }
  // Other origins can send a POST without a preflight request, but not with this content type.
  if (!is_json(request.get_header_value("Content-Type"))) {
    refuse(415, "unsupported_media_type", "", "Content-Type: must be application/json");
  }
  check_framing(request, options_.limits.body);
}

std::optional<ApiError> HttpServer::refusal(const httplib::Request& request) const {
  try {
    check(request);
    return std::nullopt;
  } catch (const ApiError& error) {
    if (has_body(request) || request.method == "POST") {
      current_connection->close_after_answer();  // the body stays unread
    }
    return error;
  }
}

HttpRequest HttpServer::read_body(const httplib::ContentReader& read) const {
  const auto max_bytes = static_cast<std::int64_t>(kMaxBodies * options_.limits.body);
  const auto counted = std::make_shared<std::int64_t>(0);
  HttpRequest call;
  call.body_memory = std::shared_ptr<void>(nullptr, [this, counted](void*) { body_bytes_ -= *counted; });
  bool too_large = false, too_many = false;
  const bool whole = read([&](const char* data, std::size_t size) {
    too_large = call.body.size() + size > options_.limits.body;
    if (!too_large) {
      *counted += static_cast<std::int64_t>(size);
      too_many = (body_bytes_ += static_cast<std::int64_t>(size)) > max_bytes;
    }
    if (!too_large && !too_many) {
      call.body.append(data, size);
    }
    return !too_large && !too_many;
  });
  if (whole) {
    return call;
  }
  current_connection->close_after_answer();
  if (too_many) {
    refuse(503, "overloaded", "", "body: too many large requests at the same time; try again later");
  }
  if (too_large) {
    refuse(413, "request_too_large", "", "body: must have at most {} bytes", options_.limits.body);
  }
  refuse(400, "bad_request", "", "body: ended early, or is not framed as the head says");
}

void HttpServer::answer(const httplib::Request& request, httplib::Response& response, HttpRequest call) const {
  current_connection->begin_answer();
  call.connection = current_connection;
  call.query.insert(request.params.begin(), request.params.end());
  try {
    const Route& route = route_of(request);
    call.name = request.path.substr(std::string_view(route.path).size());
    write(request, response, route.handler(std::move(call)));
  } catch (const ApiError& error) {
    write(request, response, to_response(error));
  } catch (const std::exception& error) {
    log_warning("serve: {} {}: {}", request.method, request.path, error.what());
    write(request, response, to_response(error_of_status(500)));
  }
}

void HttpServer::write(const httplib::Request& request, httplib::Response& response, HttpResponse answer) const {
  const auto* const routes = routes_at(request.path);
  if (options_.answered && routes != nullptr) {
    options_.answered(routes->begin()->second.path, answer.status);
  }
  response.status = answer.status;
  if (answer.status == 405 && routes != nullptr) {
    response.set_header("Allow", fmt::format("{}", fmt::join(methods_of(*routes), ", ")));
  }
  response.set_header("Cache-Control", "no-store");
  if (answer.status == 401) {
    response.set_header("WWW-Authenticate", "Bearer");
  }
  if (answer.status == 429 || answer.status == 503) {
    response.set_header("Retry-After", "1");
  }
  // HTTP/1.0 has no chunks: a stream ends where the server closes the connection.
  const bool chunks = request.version != "HTTP/1.0";
  if (counts_.stopping || (answer.stream && !chunks)) {
    current_connection->close_after_answer();
  }
  if (current_connection->closes_after_answer()) {
    response.set_header("Connection", "close");
  }
  if (!answer.stream) {
    response.set_content(answer.body, answer.type);
    return;
  }
  const auto provide = [stream = std::move(answer.stream)](std::size_t, httplib::DataSink& sink) {
    bool more = true;
    stream([&](std::string_view piece) {
      more = more && sink.write(piece.data(), piece.size());
      return more;
    });
    if (more) {
      sink.done();
    }
    return more;
  };
  if (chunks) {
    response.set_chunked_content_provider(answer.type, provide);
  } else {
    response.set_content_provider(answer.type, provide);
  }
}

}  // namespace headroom::serve
