// HTTP to functions and back, on cpp-httplib: what is asked for by whom is decided before a byte of a body is read.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "connections.h"
#include "tools/serve/api/api_error.h"

namespace headroom::serve {

// Bytes of bodies that the server holds at the moment, of all requests together.
class HeldBytes {
 public:
  explicit HeldBytes(std::atomic<std::int64_t>& all) : all_(all) {}
  ~HeldBytes() { all_ -= own_; }
  HeldBytes(const HeldBytes&) = delete;
  HeldBytes& operator=(const HeldBytes&) = delete;
  // How many there are with these.
  std::int64_t add(std::int64_t bytes) {
    own_ += bytes;
    return all_ += bytes;
  }

 private:
  std::atomic<std::int64_t>& all_;
  std::int64_t own_ = 0;
};

struct Call {
  std::string body;
  std::unique_ptr<HeldBytes> held = nullptr;      // goes with the body
  std::map<std::string, std::string> parameters;  // of the address
  std::shared_ptr<const Connection> connection;
};

struct Reply {
  int status = 200;
  std::string body;
  std::string type = "application/json";
  // In the body's place: writes it piece by piece. A write that returns false: the client has gone.
  std::function<void(const std::function<bool(std::string_view)>& write)> stream = nullptr;
};

class HttpServer : private httplib::Server {
 public:
  using Handler = std::function<Reply(Call)>;  // may throw ApiError

  struct Options {
    ConnectionLimits limits;
    std::size_t connections = 256;
    // Whether what the request's Authorization header says lets it in. Without: everybody is.
    std::function<bool(std::string_view)> admits = nullptr;
    // Told of every answer to a route.
    std::function<void(const std::string& path, int status)> answered = nullptr;
  };

  explicit HttpServer(Options options);
  ~HttpServer() override;

  struct Route {
    const char* method;
    const char* path;
    Handler handler;
    bool open = false;  // without a key
  };
  void add(Route route);

  // Takes a port of `host`, 0: any that is free, and returns it. Throws UserError naming --host or --port.
  int bind(const std::string& host, int port);
  bool on_loopback() const { return loopback_; }  // nobody else reaches it
  void start();                                   // serves from now on
  void stop();                                    // takes no more connections and waits for answers under way
  std::int64_t connections() const { return connections_.open(); }

 private:
  void accept_connections();
  void serve(const std::shared_ptr<Connection>& connection);
  const Route& route_of(const httplib::Request& request) const;
  void check_host(const httplib::Request& request) const;
  void check(const httplib::Request& request) const;
  std::optional<ApiError> complaint(const httplib::Request& request) const;
  Call read_body(const httplib::Request& request, const httplib::ContentReader& read) const;
  void answer(const httplib::Request& request, httplib::Response& response, Call call) const;
  void write(const httplib::Request& request, httplib::Response& response, Reply reply) const;

  Options options_;
  std::map<std::string, std::map<std::string, Route>> routes_;  // by path and method
  Connections connections_;
  std::thread acceptor_;
  std::atomic<bool> stopping_{false};
  mutable std::atomic<std::int64_t> held_bytes_{0};
  bool loopback_ = false;
  std::string host_;  // as the user names it
};

}  // namespace headroom::serve
