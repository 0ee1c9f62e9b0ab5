// A text file line by line, gzip or not.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "foundation/core/files/byte_reader.h"

namespace headroom::data {

class LineReader {
 public:
  explicit LineReader(const std::filesystem::path& path);
  // Without its LF or CRLF, a byte order mark left out; false at the end. Throws UserError naming file and line for
  // one of more than a megabyte.
  bool next(std::string& line);
  std::int64_t number() const { return number_; }  // of the line read last, from 1
  std::string place() const;                       // "file:12"
  std::int64_t consumed() const { return bytes_->consumed(); }

 private:
  std::string path_;
  std::unique_ptr<ByteReader> bytes_;
  std::vector<char> buffer_;
  std::size_t at_ = 0, end_ = 0;  // what is left of the buffer
  std::int64_t number_ = 0;
};

}  // namespace headroom::data
