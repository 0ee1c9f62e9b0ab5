// Test fixture with a temporary folder, and helpers that return the message of an expected error.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "foundation/core/machine/log.h"
#include "headroom/core/error.h"
#include "unicode.h"

namespace headroom {

// Returns the message of the UserError that `action` must throw.
template <class Action>
std::string user_error_of(Action&& action) {
  try {
    action();
  } catch (const UserError& error) {
    EXPECT_EQ(std::string_view(error.what()).find('\n'), std::string_view::npos) << error.what();
    return error.what();
  } catch (const std::exception& error) {
    ADD_FAILURE() << "another error: " << error.what();
    return {};
  }
  ADD_FAILURE() << "no error";
  return {};
}

class FolderTest : public ::testing::Test {
 protected:
  FolderTest() {
    set_log_level(LogLevel::warning);
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = std::filesystem::temp_directory_path() /
              fmt::format("headroom_test_{}_{}_{}", ::getpid(), info->test_suite_name(), info->name());
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  ~FolderTest() override {
    std::filesystem::remove_all(folder_);
    set_log_level(level_before_);
  }

  std::string write(const std::string& name, std::string_view bytes) const {
    const std::filesystem::path path = folder_ / name;
    std::filesystem::create_directories(path.parent_path());
    std::filesystem::remove(path);  // ext4 syncs when an existing file is truncated and rewritten
    std::ofstream(path, std::ios::binary).write(bytes.data(), std::ssize(bytes));
    return path.string();
  }
  std::string at(const std::string& name) const { return (folder_ / name).string(); }

  // Returns the message of the UserError that `action` must throw, with paths relative to the folder.
  template <class Action>
  std::string refusal_of(Action&& action) const {
    std::string why = user_error_of(action);
    const std::string folder = folder_.string() + "/";
    for (std::size_t at = 0; (at = why.find(folder)) != std::string::npos;) {
      why.erase(at, folder.size());
    }
    return why;
  }

  std::filesystem::path folder_;

 private:
  const LogLevel level_before_ = log_level();
};

inline std::string read_bytes(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

#define EXPECT_HAS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)
#define ASSERT_HAS(text, part) ASSERT_NE((text).find(part), std::string::npos) << (text)

}  // namespace headroom
