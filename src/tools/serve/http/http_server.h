// HTTP on cpp-httplib: routes, access control, body framing, and the threads that serve connections. Rejects a request
// before reading its body if the head allows that.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "connection.h"
#include "tools/serve/json_fields.h"

namespace headroom::serve {

struct HttpRequest {
  std::string body;
  // Counts the body against the limit on all bodies in memory. A handler that discards the body early resets it.
  std::shared_ptr<void> body_memory = nullptr;
  std::map<std::string, std::string> query;
  std::string name;  // the rest of the path if the route's path ends with '/'
  std::shared_ptr<const Connection> connection;
};

struct HttpResponse {
  int status = 200;
  std::string body;
  std::string type = "application/json";
  // If set, replaces the body and writes it in chunks. `write` returns false once the client has disconnected.
  std::function<void(const std::function<bool(std::string_view)>& write)> stream = nullptr;
};

// Derives from httplib::Server for its protected process_request(), which takes a Stream such as Connection.
class HttpServer : private httplib::Server {
 public:
  using Handler = std::function<HttpResponse(HttpRequest)>;  // may throw ApiError

  struct Options {
    ConnectionLimits limits;
    std::size_t connections = 256;  // served at the same time, with one thread each
    // Returns whether the value of a request's Authorization header grants access. If not set, every request is
    // admitted.
    std::function<bool(std::string_view)> admits = nullptr;
    // Called with the route and status of every response.
    std::function<void(const std::string& path, int status)> answered = nullptr;
  };

  explicit HttpServer(Options options);
  ~HttpServer() override;

  struct Route {
    const char* method;
    const char* path;  // a path that ends with '/', except "/" itself, is followed by a name
    Handler handler;
    bool open = false;  // does not require a key
  };
  void add(Route route);

  // Listens on a port of `host` (0: any free port) and returns the port. Throws UserError naming --host or --port.
  int bind(const std::string& host, int port);
  bool on_loopback() const { return loopback_; }  // unreachable from other machines
  void start();
  // Stops accepting connections and waits until all have ended: idle ones at once, others after their response.
  void stop();
  std::int64_t connections() const { return counts_.open; }

 private:
  void accept_connections();
  void serve(int socket);
  const std::map<std::string, Route>* routes_at(const std::string& path) const;
  static std::vector<std::string> methods_of(const std::map<std::string, Route>& routes);
  const Route& route_of(const httplib::Request& request) const;
  void check_host(const httplib::Request& request) const;
  void check(const httplib::Request& request) const;
  std::optional<ApiError> refusal(const httplib::Request& request) const;
  HttpRequest read_body(const httplib::ContentReader& read) const;
  void answer(const httplib::Request& request, httplib::Response& response, HttpRequest call) const;
  void write(const httplib::Request& request, httplib::Response& response, HttpResponse answer) const;

  Options options_;
  std::map<std::string, std::map<std::string, Route>> routes_;  // by path and method
  ConnectionCounts counts_;
  std::thread acceptor_;
  mutable std::atomic<std::int64_t> body_bytes_{0};  // total of all requests in memory
  bool loopback_ = false;
  std::string host_;  // as given to bind()
};

}  // namespace headroom::serve
