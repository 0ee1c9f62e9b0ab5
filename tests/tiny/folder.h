// A temporary folder that its destructor removes.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <string>

namespace headroom::tiny {

class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "headroom-test-XXXXXX").string();
    path_ = mkdtemp(name.data());
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace headroom::tiny
