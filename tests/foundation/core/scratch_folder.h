#pragma once

#include "folder_test.h"

namespace headroom {

class ScratchFolder : public FolderTest {
 protected:
  std::filesystem::path put(const std::string& name, std::string_view text) const { return write(name, text); }
  static std::string content(const std::filesystem::path& path) { return read_bytes(path); }
  std::size_t n_files() const {
    return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(folder_), {}));
  }
};

// Returns the error that `action` throws: "user error: ...", "error: ...", or "no error".
template <class Action>
std::string complaint_of(Action action) {
  try {
    action();
  } catch (const UserError& error) {
    return std::string("user error: ") + error.what();
  } catch (const Error& error) {
    return std::string("error: ") + error.what();
  }
  return "no error";
}

}  // namespace headroom
