#include "http_server.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "foundation/core/machine/log.h"
#include "foundation/core/text/format.h"
#include "host_name.h"
#include "listening_socket.h"

namespace headroom::serve {
namespace {

// Whom this thread serves: the library's handlers are not told.
thread_local std::shared_ptr<Connection> the_connection;

// Bodies of the full length that are held at the same time.
constexpr std::size_t kMostBodies = 8;

bool has_body(const httplib::Request& request) {
  return request.has_header("Transfer-Encoding") ||
         (request.has_header("Content-Length") && request.get_header_value("Content-Length") != "0");
}

// How a body comes: its length must be known, or its end marked, in one way alone.
void check_framing(const httplib::Request& request, std::size_t most) {
  if (request.has_header("Content-Encoding")) {
    refuse(415, "unsupported_encoding", "", "Content-Encoding: a request must not be compressed");
  }
  const bool chunked = request.has_header("Transfer-Encoding");
  const std::size_t lengths = request.get_header_value_count("Content-Length");
  if (chunked && (lengths > 0 || request.get_header_value("Transfer-Encoding") != "chunked")) {
    refuse(400, "bad_request", "", "Transfer-Encoding: must be chunked alone, without a Content-Length");
  }
  if (chunked) {
    return;
  }
  if (lengths != 1) {
    refuse(lengths == 0 ? 411 : 400, "bad_request", "", "Content-Length: must be given once");
  }
  const std::optional<std::int64_t> length = whole_number(request.get_header_value("Content-Length"));
  if (!length) {
    refuse(400, "bad_request", "", "Content-Length: must be a number");
  }
  if (static_cast<std::uint64_t>(*length) > most) {
    refuse(413, "request_too_large", "", "the request's body has {} bytes: this server takes at most {}", *length,
           most);
  }
}

bool is_json(const std::string& content_type) {
  constexpr std::string_view kJson = "application/json";
  return content_type.substr(0, kJson.size()) == kJson;
}

}  // namespace

HttpServer::HttpServer(Options options)
    : options_(std::move(options)),
      connections_(options_.connections, [this](const std::shared_ptr<Connection>& connection) { serve(connection); }) {
  set_keep_alive_timeout(static_cast<time_t>(options_.limits.idle_seconds));
  set_keep_alive_max_count(std::numeric_limits<std::int32_t>::max());
  set_pre_routing_handler([this](const httplib::Request& request, httplib::Response& response) {
    if (const std::optional<ApiError> refused = complaint(request)) {
      write(request, response, {.status = refused->status, .body = to_json_line(to_json(*refused))});
      return HandlerResponse::Handled;
    }
    if (request.method == "POST") {
      return HandlerResponse::Unhandled;  // its body is still to be read
    }
    answer(request, response, {});
    return HandlerResponse::Handled;
  });
  Post(".*", [this](const httplib::Request& request, httplib::Response& response, const httplib::ContentReader& read) {
    try {
      answer(request, response, read_body(request, read));
    } catch (const ApiError& error) {
      write(request, response, {.status = error.status, .body = to_json_line(to_json(error))});
    }
  });
  // A client that asks whether it may send its body is refused before it does.
  set_expect_100_continue_handler([this](const httplib::Request& request, httplib::Response& response) {
    const std::optional<ApiError> refused = complaint(request);
    if (refused) {
      write(request, response, {.status = refused->status, .body = to_json_line(to_json(*refused))});
    }
    return refused ? refused->status : 100;
  });
  // What the library refuses itself.
  set_error_handler(HandlerWithResponse([](const httplib::Request&, httplib::Response& response) {
    if (response.body.empty()) {
      the_connection->close_after_answer();
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
  constexpr int kLookMilliseconds = 50;
  while (!stopping_) {
    // While connections wait for a thread somebody has to look after them.
    const int socket = accept_within(svr_sock_, connections_.crowded() ? kLookMilliseconds : -1);
    if (socket >= 0) {
      connections_.add(std::make_shared<Connection>(socket, options_.limits));
    }
    connections_.make_room();
  }
}

void HttpServer::stop() {
  if (stopping_.exchange(true)) {
    return;
  }
  if (svr_sock_ != INVALID_SOCKET) {
    stop_listening(svr_sock_);
  }
  if (acceptor_.joinable()) {
    acceptor_.join();
  }
  connections_.stop();
  if (svr_sock_ != INVALID_SOCKET) {
    close_socket(svr_sock_);
    svr_sock_ = INVALID_SOCKET;
  }
}

void HttpServer::serve(const std::shared_ptr<Connection>& connection) {
  the_connection = connection;
  bool goes_on = true;
  while (goes_on && !stopping_ && connection->await_request()) {
    bool closed_by_client = false;
    const bool answered = process_request(*connection, false, closed_by_client, [&](httplib::Request& request) {
      connection->head_is_read();
      request.headers.erase("Accept-Encoding");  // answers are served as they are
    });
    goes_on = answered && !closed_by_client && !connection->closes_after_answer();
  }
  the_connection.reset();
}

const HttpServer::Route& HttpServer::route_of(const httplib::Request& request) const {
  const auto path = routes_.find(request.path);
  if (path == routes_.end()) {
    refuse(404, "not_found", "", "{} {}: there is nothing at this address", request.method, request.path);
  }
  const auto route = path->second.find(request.method);
  if (route == path->second.end()) {
    refuse(405, "method_not_allowed", "", "{} {}: must be {}", request.method, request.path,
           path->second.begin()->first);
  }
  return route->second;
}

void HttpServer::check_host(const httplib::Request& request) const {
  const std::string host = request.get_header_value("Host");
  if (loopback_ && !options_.admits && request.has_header("Host") && !is_own_name(host, host_)) {
    refuse(403, "foreign_host", "",
           "Host: {}: must be localhost, an address or what --host names: other machines' pages do not reach a server "
           "without a key",
           host);
  }
}

void HttpServer::check(const httplib::Request& request) const {
  check_host(request);
  const Route& route = route_of(request);
  if (!route.open && options_.admits && !options_.admits(request.get_header_value("Authorization"))) {
    refuse(401, "invalid_api_key", "", "Authorization: must be \"Bearer\" with this server's key");
  }
  if (request.method != "POST") {
    if (has_body(request)) {
      refuse(400, "bad_request", "", "{} {}: must not have a body", request.method, request.path);
    }
    return;
  }
  // What a page from elsewhere may send without being asked is no JSON.
  if (!is_json(request.get_header_value("Content-Type"))) {
    refuse(415, "unsupported_media_type", "", "Content-Type: must be application/json");
  }
  check_framing(request, options_.limits.body);
}

std::optional<ApiError> HttpServer::complaint(const httplib::Request& request) const {
  try {
    check(request);
    return std::nullopt;
  } catch (const ApiError& error) {
    if (has_body(request) || request.method == "POST") {
      the_connection->close_after_answer();  // the body stays unread
    }
    return error;
  }
}

Call HttpServer::read_body(const httplib::Request& request, const httplib::ContentReader& read) const {
  const auto most = static_cast<std::int64_t>(kMostBodies * options_.limits.body);
  Call call{.body = {}, .held = std::make_unique<HeldBytes>(held_bytes_)};
  bool too_large = false, too_many = false;
  const bool whole = read([&](const char* data, std::size_t size) {
    too_large = call.body.size() + size > options_.limits.body;
    too_many = !too_large && call.held->add(static_cast<std::int64_t>(size)) > most;
    if (!too_large && !too_many) {
      call.body.append(data, size);
    }
    return !too_large && !too_many;
  });
  if (whole) {
    return call;
  }
  the_connection->close_after_answer();
  if (too_many) {
    refuse(503, "overloaded", "", "too many large requests come at the same time: try again later");
  }
  if (too_large) {
    refuse(413, "request_too_large", "", "the request's body is longer than {} bytes, the most that this server takes",
           options_.limits.body);
  }
  refuse(400, "bad_request", "", "{}: the request's body did not come as its head says", request.path);
}

void HttpServer::answer(const httplib::Request& request, httplib::Response& response, Call call) const {
  the_connection->request_is_read();
  call.connection = the_connection;
  for (const auto& [name, value] : request.params) {
    call.parameters.emplace(name, value);
  }
  try {
    write(request, response, route_of(request).handler(std::move(call)));
  } catch (const ApiError& error) {
    write(request, response, {.status = error.status, .body = to_json_line(to_json(error))});
  } catch (const std::exception& error) {
    log_warning("serve: {} {}: {}", request.method, request.path, error.what());
    write(request, response, {.status = 500, .body = to_json_line(to_json(error_of_status(500)))});
  }
}

void HttpServer::write(const httplib::Request& request, httplib::Response& response, Reply reply) const {
  if (options_.answered && routes_.contains(request.path)) {
    options_.answered(request.path, reply.status);
  }
  response.status = reply.status;
  response.set_header("Cache-Control", "no-store");
  if (reply.status == 401) {
    response.set_header("WWW-Authenticate", "Bearer");
  }
  if (reply.status == 429 || reply.status == 503) {
    response.set_header("Retry-After", "1");
  }
  if (stopping_) {
    the_connection->close_after_answer();
  }
  if (the_connection->closes_after_answer()) {
    response.set_header("Connection", "close");
  }
  if (!reply.stream) {
    response.set_content(reply.body, reply.type);
    return;
  }
  response.set_chunked_content_provider(reply.type,
                                        [stream = std::move(reply.stream)](std::size_t, httplib::DataSink& sink) {
                                          bool goes_on = true;
                                          stream([&](std::string_view piece) {
                                            goes_on = goes_on && sink.write(piece.data(), piece.size());
                                            return goes_on;
                                          });
                                          if (goes_on) {
                                            sink.done();
                                          }
                                          return goes_on;
                                        });
}

}  // namespace headroom::serve
