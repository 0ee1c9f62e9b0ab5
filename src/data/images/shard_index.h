// Where the pictures of a tar shard lie, and their labels.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "pictures.h"

namespace headroom::data {

// A file of which any piece may be read by any number of threads at once.
class PlacedReader {
 public:
  explicit PlacedReader(const std::filesystem::path& path);  // throws UserError where it cannot be opened
  ~PlacedReader();
  PlacedReader(const PlacedReader&) = delete;
  PlacedReader& operator=(const PlacedReader&) = delete;

  std::uint64_t size() const { return size_; }
  void read(std::uint64_t at, std::span<char> out) const;  // throws UserError where it ends before
  std::string read(std::uint64_t at, std::uint64_t size) const;
  const std::string& name() const { return name_; }

 private:
  std::string name_;
  int descriptor_ = -1;
  std::uint64_t size_ = 0;
};

struct PicturePlace {
  std::uint64_t begin = 0;
  std::uint32_t size = 0;
  std::int32_t label = 0;
};

struct ShardIndex {
  std::vector<PicturePlace> places;
  std::string sum;        // SHA-256 of all headers
  std::int64_t bad = 0;   // samples left out
  std::string complaint;  // about the first of them
};

// Throws UserError as open_pictures() says; samples without picture or label are left out with reading.skip_bad.
ShardIndex index_shard(const std::filesystem::path& path, const ImageReading& reading);

}  // namespace headroom::data
