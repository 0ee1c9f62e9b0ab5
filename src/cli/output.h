// Where a command's result goes: standard output, as text for people or as one JSON document for scripts.
#pragma once

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <string_view>
#include <system_error>

#include "foundation/core/text/message.h"
#include "headroom/core/error.h"
#include "headroom/core/json.h"

namespace headroom::cli {

// The reader of standard output has closed it: there is nobody left to tell.
class NoReaderError : public Error {
 public:
  using Error::Error;
};

class Output {
 public:
  explicit Output(bool json) : json_(json) {}

  bool json() const { return json_; }
  void text(std::string_view text) const {  // nothing under --json
    if (!json_) {
      ::isatty(STDOUT_FILENO) == 1 ? write(harmless(text)) : write(text);
    }
  }
  void document(const Json& document) const {  // once; nothing without --json
    if (json_) {
      write(to_json_line(document) + "\n");
    }
  }

 private:
  static void write(std::string_view text) {
    if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0) {
      return;
    }
    if (errno == EPIPE) {
      throw NoReaderError("standard output: nobody reads it");
    }
    fail("standard output: cannot be written: {}", std::generic_category().message(errno));
  }

  bool json_;
};

}  // namespace headroom::cli
