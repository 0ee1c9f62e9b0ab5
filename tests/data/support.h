// What the tests of this floor share: a folder of their own, files, gzip, and errors that must be raised.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>
#include <zlib.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/core/error.h"
#include "headroom/core/log.h"
#include "headroom/core/random.h"
#include "headroom/data/text.h"
#include "unicode.h"

namespace headroom::data {

// A test with an empty folder that goes with it.
class FolderTest : public testing::Test {
 protected:
  FolderTest() {
    set_log_level(LogLevel::warning);
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = std::filesystem::temp_directory_path() /
              fmt::format("headroom_data_{}_{}_{}", ::getpid(), info->test_suite_name(), info->name());
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  ~FolderTest() override { std::filesystem::remove_all(folder_); }

  std::string write(const std::string& name, std::string_view bytes) const {
    const std::filesystem::path path = folder_ / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary).write(bytes.data(), std::ssize(bytes));
    return path.string();
  }
  std::string at(const std::string& name) const { return (folder_ / name).string(); }

  std::filesystem::path folder_;
};

inline std::string read_bytes(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline std::string gzip(std::string_view text) {
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, 6, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string packed(deflateBound(&stream, text.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

inline std::vector<std::string> blocks_of(TextSource& text) {
  text.rewind();
  std::vector<std::string> blocks;
  for (std::string block; text.next(block);) {
    blocks.push_back(block);
  }
  return blocks;
}

inline std::string text_of(TextSource& text) {
  std::string all;
  for (const std::string& block : blocks_of(text)) {
    all += block;
  }
  return all;
}

inline std::string text_of(const std::vector<std::string>& patterns, const config::DataOptions& options = {}) {
  return text_of(*open_text(patterns, options));
}

// The message of the MisuseError that `action` must throw.
template <class Action>
std::string misuse_of(Action&& action) {
  try {
    action();
  } catch (const MisuseError& error) {
    EXPECT_EQ(std::string_view(error.what()).find('\n'), std::string_view::npos) << error.what();
    return error.what();
  } catch (const std::exception& error) {
    ADD_FAILURE() << "another error: " << error.what();
    return {};
  }
  ADD_FAILURE() << "no error";
  return {};
}

#define EXPECT_HAS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)
#define ASSERT_HAS(text, part) ASSERT_NE((text).find(part), std::string::npos) << (text)

}  // namespace headroom::data
