#include "headroom/core/files.h"

#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <array>
#include <atomic>
#include <csignal>
#include <thread>

#include "scratch_folder.h"

namespace headroom::files_test {

namespace fs = std::filesystem;
using MappedFileTest = ScratchFolder;
using TextFileTest = ScratchFolder;
using AtomicFileTest = ScratchFolder;
using FolderLockTest = ScratchFolder;
using MakeFolder = ScratchFolder;

TEST_F(MappedFileTest, TruncationOfAFileEndsTheProgramWithItsName) {
  const fs::path path = put("tokens", std::string(100'000, 'x'));
  const auto read_after_cut = [&] {
    report_truncated_files();
    const MappedFile other(put("other", "x")), file(path);
    fs::resize_file(path, 1);
    const volatile std::byte last = file.bytes().back();
    static_cast<void>(last);
  };
  EXPECT_EXIT(read_after_cut(), ::testing::ExitedWithCode(1), "headroom: .*/tokens: another program made this file");
}

TEST_F(MappedFileTest, NamesPathsThatAreNotFiles) {
  const auto open = [](const fs::path& path) { return complaint_of([&] { const MappedFile file(path); }); };
  const std::string name = folder_.string();
  EXPECT_EQ(open(folder_), "user error: " + name + ": is a directory; expected a file");
  EXPECT_EQ(open(folder_ / "gone"), "user error: " + name + "/gone: no such file");
  EXPECT_EQ(open(put("a", "x") / "b"), "user error: " + name + "/a/b: no such file");
  ASSERT_EQ(::mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  EXPECT_EQ(open(folder_ / "pipe"), "user error: " + name + "/pipe: is not a regular file");
}

TEST_F(TextFileTest, StopsAtTheLimit) {
  const fs::path path = put("a", std::string(100, 'x'));
  EXPECT_EQ(read_text_file(path, 100).size(), 100u);
  EXPECT_EQ(complaint_of([&] { read_text_file(path, 99); }),
            "user error: " + path.string() + ": is too large for a text file: the limit is 99 bytes");
  EXPECT_EQ(complaint_of([] { read_text_file("/dev/zero", 1000); }),
            "user error: /dev/zero: is too large for a text file: the limit is 1000 bytes");
}

TEST_F(AtomicFileTest, AppearsOnlyWhenCommitted) {
  const fs::path path = put("a", "old");
  AtomicFile file(path);
  file.write("new ");
  file.write(std::as_bytes(std::span(std::string_view("text"))));
  EXPECT_EQ(file.size(), 8u);
  EXPECT_EQ(content(path), "old");
  file.commit();
  EXPECT_EQ(content(path), "new text");
  EXPECT_EQ(n_files(), 1u);
}

TEST_F(AtomicFileTest, LeavesNothingWithoutCommit) {
  const fs::path path = put("a", "old");
  {
    AtomicFile file(path);
    file.write("new");
    EXPECT_EQ(n_files(), 2u);
  }
  EXPECT_EQ(content(path), "old");
  EXPECT_EQ(n_files(), 1u);
}

TEST_F(AtomicFileTest, TwoForOneTargetDoNotMix) {
  AtomicFile first(folder_ / "a"), second(folder_ / "a");
  first.write("first");
  second.write("second, longer");
  second.commit();
  EXPECT_EQ(content(folder_ / "a"), "second, longer");
  first.commit();
  EXPECT_EQ(content(folder_ / "a"), "first");
}

TEST_F(AtomicFileTest, OverwritesAnExistingFile) {
  AtomicFile file(folder_ / "a");
  file.write("0123456789");
  const auto bytes = [](std::string_view text) { return std::as_bytes(std::span(text)); };
  file.write_at(2, bytes("ab"));
  file.write_at(8, bytes("yz"));
  file.write("end");
  EXPECT_EQ(complaint_of([&] { file.write_at(12, bytes("ab")); }),
            "error: " + (folder_ / "a").string() + ": 2 bytes at 12 are outside of the 13 bytes written before");
  EXPECT_TRUE(complaint_of([&] { file.write_at(SIZE_MAX, bytes("ab")); }).starts_with("error: "));
  file.commit();
  EXPECT_EQ(content(folder_ / "a"), "01ab4567yzend");
}

TEST_F(AtomicFileTest, RemovesFilesOfDeadProcesses) {
  put("a.tmp-123-0", "left by a process that was killed");
  put("a.tmp-notes", "somebody's own");
  put("b.tmp-123-0", "of another target");
  const AtomicFile other(folder_ / "a");
  {
    AtomicFile file(folder_ / "a");
    file.commit();
  }
  EXPECT_FALSE(fs::exists(folder_ / "a.tmp-123-0"));
  EXPECT_TRUE(fs::exists(folder_ / "a.tmp-notes"));
  EXPECT_TRUE(fs::exists(folder_ / "b.tmp-123-0"));
  EXPECT_EQ(n_files(), 4u) << "a, the two that stay, and the one under construction";
}

TEST_F(AtomicFileTest, AFolderIsClearedOfLeftoversOnly) {
  put("a.tmp-123-0", "");
  put("b.tmp-7", "");
  put("c", "kept");
  const AtomicFile file(folder_ / "d");
  remove_leftovers(folder_);
  EXPECT_EQ(n_files(), 2u);
  remove_leftovers(folder_ / "no such folder");
}

// The system releases the lock of a killed process, whose temporary file is then a leftover.
TEST_F(AtomicFileTest, AKilledProcessLeavesALeftover) {
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const AtomicFile file(folder_ / "a");
    [[maybe_unused]] const auto told = ::write(ready[1], "x", 1);
    ::pause();
    ::_exit(0);
  }
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  ASSERT_EQ(n_files(), 1u);
  remove_leftovers(folder_);
  EXPECT_EQ(n_files(), 1u) << "its process lives";
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  remove_leftovers(folder_);
  EXPECT_EQ(n_files(), 0u);
  ::close(ready[0]);
  ::close(ready[1]);
}

TEST_F(AtomicFileTest, AFolderAtTheTargetIsAnError) {
  fs::create_directories(folder_ / "a" / "inside");
  EXPECT_EQ(complaint_of([&] { write_text_file(folder_ / "a", "text"); }),
            "user error: " + (folder_ / "a").string() + ": cannot overwrite: it is a directory");
  EXPECT_EQ(n_files(), 1u);
}

TEST_F(AtomicFileTest, AWriteThatStopsHalfWayLeavesTheOldFile) {
  const fs::path path = put("a", "old");
  struct rlimit before {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const struct rlimit small = {4096, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string complaint = complaint_of([&] { write_text_file(path, std::string(10'000, 'x')); });
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(complaint, "error: " + path.string() + ": cannot be written: File too large");
  EXPECT_EQ(content(path), "old");
  EXPECT_EQ(n_files(), 1u);
}

// Mounts a small tmpfs at `place` in a private mount namespace.
class SmallDisk {
 public:
  explicit SmallDisk(const fs::path& place) : place_(place) {
    fs::create_directories(place);
    static const bool alone =
        ::unshare(CLONE_NEWNS) == 0 && ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0;
    mounted_ = alone && ::mount("tmpfs", place.c_str(), "tmpfs", 0, "size=64k") == 0;
  }
  ~SmallDisk() {
    if (mounted_) {
      ::umount2(place_.c_str(), MNT_DETACH);
    }
  }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;
  bool mounted() const { return mounted_; }
  bool make_read_only() const {
    return ::mount("tmpfs", place_.c_str(), "tmpfs", MS_REMOUNT | MS_RDONLY, nullptr) == 0;
  }

 private:
  fs::path place_;
  bool mounted_ = false;
};

TEST_F(AtomicFileTest, AFullDiskLosesNothing) {
  const SmallDisk disk(folder_ / "disk");
  if (!disk.mounted()) {
    GTEST_SKIP() << "this process may not mount a small disk";
  }
  const fs::path path = put("disk/a", "old");
  EXPECT_EQ(complaint_of([&] { write_text_file(path, std::string(200'000, 'x')); }),
            "error: " + path.string() + ": cannot be written: No space left on device");
  EXPECT_EQ(content(path), "old");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_ / "disk"), {}), 1);
  write_text_file(path, "there is room again");
  EXPECT_EQ(content(path), "there is room again");
}

TEST_F(AtomicFileTest, AReadOnlyFolderIsAnError) {
  const SmallDisk disk(folder_ / "disk");
  if (!disk.mounted()) {
    GTEST_SKIP() << "this process may not mount a small disk";
  }
  const fs::path path = put("disk/a", "old"), place = folder_ / "disk";
  ASSERT_TRUE(disk.make_read_only());
  EXPECT_EQ(complaint_of([&] { write_text_file(path, "new"); }),
            "error: " + path.string() + ": cannot be created: Read-only file system");
  EXPECT_EQ(complaint_of([&] { const FolderLock lock(place); }),
            "error: " + place.string() + ": cannot be locked: Read-only file system");
  EXPECT_EQ(complaint_of([&] { make_folder(place / "b"); }),
            "error: " + (place / "b").string() + ": cannot create directory: Read-only file system");
  EXPECT_EQ(content(path), "old");
}

TEST_F(MakeFolder, MakesParentsAndMindsFiles) {
  make_folder(folder_ / "a" / "b");
  make_folder(folder_ / "a" / "b");
  EXPECT_TRUE(fs::is_directory(folder_ / "a" / "b"));
  EXPECT_EQ(complaint_of([&] { make_folder("~/x"); }),
            "user error: ~/x: cannot create directory: \"~\" is not expanded here; give the whole path");
  const fs::path file = put("file", "x");
  EXPECT_EQ(complaint_of([&] { make_folder(file); }),
            "user error: " + file.string() + ": cannot create directory: it is a file");
  EXPECT_EQ(complaint_of([&] { make_folder(file / "b"); }),
            "user error: " + (file / "b").string() + ": cannot create directory: " + file.string() + " is a file");
}

TEST_F(FolderLockTest, IsAcquiredWhileOthersQueryIt) {
  put(".lock", "");
  std::atomic<bool> enough = false;
  std::thread looking([&] {
    while (!enough) {
      FolderLock::is_held(folder_);
    }
  });
  for (int i = 0; i < 200; ++i) {
    EXPECT_EQ(complaint_of([&] { const FolderLock lock(folder_); }), "no error");
  }
  enough = true;
  looking.join();
}

TEST_F(FolderLockTest, NamesItsProcessAndEndsWithIt) {
  std::array<int, 2> ready{};
  ASSERT_EQ(::pipe(ready.data()), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const FolderLock lock(folder_);
    [[maybe_unused]] const ssize_t told = ::write(ready[1], "x", 1);
    for (;;) {
      ::pause();
    }
  }
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  EXPECT_EQ(complaint_of([&] { const FolderLock lock(folder_); }),
            fmt::format("user error: {}: in use by process {}; wait for it or choose another --out", folder_.string(),
                        child));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_EQ(complaint_of([&] { const FolderLock lock(folder_); }), "no error");
  ::close(ready[0]);
  ::close(ready[1]);
}

TEST_F(FolderLockTest, RemovesAnEmptyFolderThatItCreated) {
  const fs::path fresh = folder_ / "fresh", used = folder_ / "used";
  {
    const FolderLock lock(fresh), other(used);
    EXPECT_TRUE(fs::exists(fresh));
    write_text_file(used / "result", "something");
  }
  EXPECT_FALSE(fs::exists(fresh));
  EXPECT_TRUE(fs::exists(used / "result"));
}

TEST(AbsolutePath, HasOneSpelling) {
  for (const char* const path : {"/a/b", "/a/b/", "/a/./b//", "/a/c/../b/."}) {
    EXPECT_EQ(absolute_path(path), "/a/b") << path;
  }
  EXPECT_EQ(absolute_path("/"), "/");
  EXPECT_EQ(absolute_path("x/"), fs::current_path() / "x");
}

TEST(Sha256Test, KnownSums) {
  EXPECT_EQ(Sha256().hex(), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  Sha256 abc;
  abc.update("a");
  abc.update(std::as_bytes(std::span(std::string_view("bc"))));
  EXPECT_EQ(abc.hex(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  Sha256 million;
  for (int i = 0; i < 1000; ++i) {
    million.update(std::string(1000, 'a'));
  }
  EXPECT_EQ(million.hex(), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

}  // namespace headroom::files_test
