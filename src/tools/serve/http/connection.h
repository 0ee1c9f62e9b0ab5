// A client's connection, as cpp-httplib's process_request() reads and writes it. The stock server (0.11.4) would do but
// for what this class adds, each found with tests/end_to_end/bad_clients.py or by hand:
// - A limit on the head. Without it one endless header line, or endless lines, fill memory (2.8 GB from 400 MB sent).
// - A deadline for a whole request. The stock timeout restarts with every byte, so 256 slow clients block all others.
// - A strict check of the head. The stock parser skips lines that it does not understand ("Transfer-Encoding :
// chunked"),
//   which a proxy in front may understand: request smuggling.
// - No Range header. The stock server answers 8 kB of ranges with their sum, and parses them with a recursive regex.
#pragma once

#include <httplib.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <mutex>
#include <string>
#include <string_view>

namespace headroom::serve {

struct ConnectionLimits {
  double idle_seconds = 75.0;    // between two requests
  double read_seconds = 60.0;    // for a request, from its first byte to its last
  double write_seconds = 30.0;   // for a client to take each MiB of an answer
  std::size_t head = 64 << 10;   // bytes of the request line and headers
  std::size_t body = 8U << 20U;  // bytes of a body
};

// What all connections of a server share.
struct ConnectionCounts {
  std::atomic<std::int64_t> open{0};     // accepted and not closed
  std::atomic<std::int64_t> waiting{0};  // accepted, and no thread is free for them
  std::atomic<bool> stopping{false};
};

// Used by one thread, except for client_gone().
class Connection final : public httplib::Stream {
 public:
  using Clock = std::chrono::steady_clock;

  // Owns `socket`. `limits` and `counts` must outlive the connection.
  Connection(int socket, const ConnectionLimits& limits, const ConnectionCounts& counts);
  ~Connection() override;
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // Waits for a request and reads its head. Returns false if there is none: the client closed the connection or was too
  // slow, or the server stops. Throws ApiError for a head that is refused.
  bool await_request();
  void begin_answer();  // the request has been read
  // After the current answer the connection is closed; the rest of the request is not read.
  void close_after_answer() { last_ = true; }
  bool closes_after_answer() const { return last_; }
  void close();

  // From any thread: whether the client has gone away. A client that has only shut down its sending side still wants
  // its answer. TCP tells the two apart by how the client reacts to data: "100 Continue", which every HTTP/1.1 client
  // skips, is sent as a probe, once, and only before the answer begins.
  bool client_gone() const;

  bool is_readable() const override;
  bool is_writable() const override { return !broken_; }
  ssize_t read(char* to, std::size_t size) override;
  ssize_t write(const char* from, std::size_t size) override;  // all of it, or -1
  void get_remote_ip_and_port(std::string&, int&) const override {}
  void get_local_ip_and_port(std::string&, int&) const override {}
  socket_t socket() const override { return socket_; }

 private:
  // How long a client may keep its thread waiting, `crowded_seconds` while others wait for a thread.
  struct Patience {
    Clock::time_point since;
    double seconds, crowded_seconds;
  };
  bool wait_for(short event, const Patience& patience) const;  // an event of poll()
  bool fill();
  std::size_t buffered() const { return buffer_.size() - begin_; }

  const int socket_;
  const ConnectionLimits& limits_;
  const ConnectionCounts& counts_;
  std::string buffer_;  // read from the socket; from begin_ not yet read by httplib
  std::size_t begin_ = 0;
  std::size_t allowance_ = 0;  // bytes that may still be read of this request
  Patience reading_{};         // for the whole request
  bool last_ = false, broken_ = false, http11_ = false;

  mutable std::mutex answer_mutex_;
  mutable bool may_probe_ = false;
};

// The head of a request, from the request line to the empty line, without the headers Range and Accept-Encoding:
// answers are sent whole and uncompressed. Throws ApiError (400) if a line does not end in CR LF, holds a control
// character or is no "name: value", and unless an HTTP/1.1 request has exactly one Host.
std::string checked_head(std::string_view head);

}  // namespace headroom::serve
