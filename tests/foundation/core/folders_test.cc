#include "foundation/core/files/folders.h"

#include <cmath>
#include <set>
#include <utility>

#include "scratch_folder.h"

namespace headroom {
namespace folders_test {

namespace fs = std::filesystem;
using WalkFolder = ScratchFolder;
using FolderBytes = ScratchFolder;
using AvailableBytes = ScratchFolder;

// Returns the names that a walk visits, and the error of the walk.
std::pair<std::set<std::string>, std::error_code> names_in(const fs::path& folder, const std::string& skipped = "") {
  std::set<std::string> names;
  const std::error_code error = walk_folder(folder, [&](const fs::directory_entry& entry) {
    names.insert(entry.path().lexically_relative(folder).generic_string());
    return entry.path().filename() != skipped;
  });
  return {names, error};
}

TEST_F(WalkFolder, VisitsSubfoldersButNotLinksAndWhatIsRefused) {
  put("a", "1");
  put("b/c", "2");
  put("b/d/e", "3");
  fs::create_directory_symlink(folder_ / "b", folder_ / "link");
  const auto [all, error] = names_in(folder_);
  EXPECT_EQ(all, (std::set<std::string>{"a", "b", "b/c", "b/d", "b/d/e", "link"}));
  EXPECT_FALSE(error);
  EXPECT_EQ(names_in(folder_, "d").first, (std::set<std::string>{"a", "b", "b/c", "b/d", "link"}));
  EXPECT_EQ(names_in(folder_, "b").first, (std::set<std::string>{"a", "b", "link"}));
}

TEST_F(WalkFolder, ReturnsTheError) {
  const auto [none, error] = names_in(folder_ / "missing");
  EXPECT_TRUE(none.empty());
  EXPECT_EQ(error, std::errc::no_such_file_or_directory);
}

TEST_F(FolderBytes, AddsAllFiles) {
  EXPECT_EQ(folder_bytes(folder_ / "missing"), 0.0);
  put("a", "123");
  put("b/c", "45");
  EXPECT_EQ(folder_bytes(folder_), 5.0);
}

TEST_F(AvailableBytes, AsksTheNearestFolderThatExists) {
  const double there = available_bytes(folder_ / "missing" / "below");
  EXPECT_GT(there, 0.0);
  EXPECT_TRUE(std::isfinite(there));
  EXPECT_TRUE(std::isinf(available_bytes("")));
}

}  // namespace folders_test
}  // namespace headroom
