// A client's connection, read and written by cpp-httplib's process_request(). It adds what the stock server (0.11.4)
// lacks; each gap was found with tests/end_to_end/bad_clients.py or by hand:
// - A limit on the head. Without it, one endless header line, or endless lines, fill memory (2.8 GB from 400 MB sent).
// - A deadline for a whole request. The stock timeout restarts with every byte, so 256 slow clients block all others.
// - A strict check of the head. The stock parser skips lines that it does not understand ("Transfer-Encoding :
// chunked"), but a proxy in front may accept them: request smuggling.
// - No Range header. The stock server answers 8 kB of ranges with their concatenation, and parses them with a recursive
// regex.
#pragma once

#include <httplib.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

namespace headroom::serve {

struct ConnectionLimits {
  double idle_seconds = 75.0;    // between two requests
  double read_seconds = 60.0;    // for a request, from first to last byte
  double write_seconds = 30.0;   // for a client to receive each MiB of a response
  std::size_t head = 64 << 10;   // bytes of the request line and headers
  std::size_t body = 8U << 20U;  // bytes of a body
};

// State that all connections of a server share.
struct ConnectionCounts {
  std::atomic<std::int64_t> open{0};     // accepted but not closed
  std::atomic<std::int64_t> waiting{0};  // accepted but still without a thread
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

  // Waits for a request and reads its head. Returns false if there is none because the client closed the connection or
  // was too slow, or because the server is stopping. Throws ApiError for an invalid head.
  bool await_request();
  void begin_answer();  // call once the request has been read
  // Closes the connection after the current response, without reading the rest of the request.
  void close_after_answer() { last_ = true; }
  bool closes_after_answer() const { return last_; }
  void close();

  // Thread-safe: whether the client has disconnected. A client that has only shut down its sending side still expects a
  // response. TCP distinguishes the two by how the client reacts to data, so "100 Continue", which every HTTP/1.1
  // client skips, is sent as a probe, once, and only before the response begins.
  bool client_gone() const;

  bool is_readable() const override;
  bool is_writable() const override { return !broken_; }
  ssize_t read(char* to, std::size_t size) override;
  ssize_t write(const char* from, std::size_t size) override;  // writes all bytes; -1 on error
  void get_remote_ip_and_port(std::string&, int&) const override {}
  void get_local_ip_and_port(std::string&, int&) const override {}
  socket_t socket() const override { return socket_; }

 private:
  // How long a client may occupy its thread; `crowded_seconds` applies while others wait for a thread.
  struct Patience {
    Clock::time_point since;
    double seconds, crowded_seconds;
  };
  bool wait_for(short event, const Patience& patience) const;  // `event`: as in poll()
  bool fill();
  std::size_t buffered() const { return buffer_.size() - begin_; }
  // Removes the next line from the buffer and returns it without its end; nullopt if it does not come, is too long or
  // does not end in CR LF.
  std::optional<std::string> take_line();
  // Replaces the line before the next chunk by the chunk's size alone, and the trailer fields after the last chunk by
  // nothing: httplib refuses both, reads signs as part of a size and any line after the data. False: not a chunk.
  bool begin_chunk();

  const int socket_;
  const ConnectionLimits& limits_;
  const ConnectionCounts& counts_;
  std::string buffer_;  // read from the socket; httplib has not read the part from begin_
  std::size_t begin_ = 0;
  std::size_t allowance_ = 0;                   // bytes of this request that may still be read
  bool chunked_ = false, chunk_begun_ = false;  // more chunks follow; the first has begun
  std::size_t head_left_ = 0, chunk_left_ = 0;  // bytes that httplib has not read of the head and of the current chunk
  Patience reading_{};                          // for the whole request
  bool last_ = false, broken_ = false, http11_ = false;

  mutable std::mutex answer_mutex_;
  mutable bool may_probe_ = false;
};

// Checks the head of a request, from the request line to the empty line, and returns it without the headers Range and
// Accept-Encoding, because responses are sent whole and uncompressed. Throws ApiError (400) if a line does not end in
// CR LF, contains a control character or is not "name: value", or if an HTTP/1.1 request does not have one Host.
// A target in absolute form is returned in origin form, its host as the Host header.
std::string checked_head(std::string_view head);

}  // namespace headroom::serve
