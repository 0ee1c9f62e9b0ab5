// A temporary folder for each test.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

#include "headroom/core/error.h"

namespace headroom {

class ScratchFolder : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "headroom_test_XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override {
    std::error_code error;
    std::filesystem::remove_all(folder_, error);
  }

  std::filesystem::path put(const std::string& name, std::string_view text) const {
    const std::filesystem::path path = folder_ / name;
    std::filesystem::create_directories(path.parent_path());
    std::filesystem::remove(path);  // ext4 syncs when an existing file is truncated and rewritten
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }
  static std::string content(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  std::size_t n_files() const {
    return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(folder_), {}));
  }

  std::filesystem::path folder_;
};

// The exception of `action`: "user error: ...", "error: ...", or "no error".
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
