// A socket that takes connections, and what may be wrong with where it is to listen.
#pragma once

#include <string>

namespace headroom::serve {

struct ListeningSocket {
  int descriptor = -1;
  int port = 0;
  bool loopback = false;  // other machines do not reach it
};

// Port 0: any that is free. Throws UserError naming --host or --port.
ListeningSocket listen_on(const std::string& host, int port);
// A connection, or -1: none came within so many milliseconds (-1: ever), or it went wrong.
int accept_within(int listening, int milliseconds);
void stop_listening(int listening);  // from any thread: who waits for a connection waits no longer
void close_socket(int descriptor);

// "http://127.0.0.1:8080", "http://[::1]:8080".
std::string url_of(const std::string& host, int port);

}  // namespace headroom::serve
