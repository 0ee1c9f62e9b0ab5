#include "folders.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <thread>

#include "headroom/core/error.h"
#include "headroom/core/files.h"

namespace headroom {

namespace fs = std::filesystem;

std::error_code walk_folder(const fs::path& folder, const std::function<bool(const fs::directory_entry&)>& visit,
                            fs::directory_options options) {
  std::error_code error;
  for (fs::recursive_directory_iterator entry(folder, options, error), end; !error && entry != end;
       entry.increment(error)) {
    if (!visit(*entry)) {
      entry.disable_recursion_pending();
    }
  }
  return error;
}

fs::path latest_file(const fs::path& folder) {
  try {
    constexpr std::size_t kLongest = 4096;
    std::string name = read_text_file(folder / "latest", kLongest);
    name.erase(name.find_last_not_of(" \r\n\t") + 1);
    return folder / name;
  } catch (const UserError&) {
    return {};
  }
}

double available_bytes(const fs::path& path) {
  std::error_code unknown;
  for (fs::path at = path; !at.empty(); at = at.parent_path()) {
    if (const fs::space_info space = fs::space(at, unknown); !unknown) {
      return static_cast<double>(space.available);
    }
    if (at == at.parent_path()) {
      break;
    }
  }
  return std::numeric_limits<double>::infinity();
}

namespace {

// Returns the process id that the lock holder has written; 0 if there is none yet.
long holder_of(int descriptor) {
  char text[32];
  const ssize_t count = ::pread(descriptor, text, sizeof text, 0);
  long process = 0;
  if (count > 0) {
    std::from_chars(text, text + count, process);
  }
  return process;
}

// Tries once, without waiting. Returns false and sets errno on failure.
bool try_to_take(int descriptor, int kind) {
  int locked = -1;
  do {
    locked = ::flock(descriptor, kind | LOCK_NB);
  } while (locked != 0 && errno == EINTR);
  return locked == 0;
}

// Retries briefly, because is_held() takes the lock for a moment.
bool take(int descriptor) {
  constexpr int kTries = 10;
  constexpr auto kPause = std::chrono::milliseconds(5);
  for (int i = 0; i < kTries; ++i) {
    if (try_to_take(descriptor, LOCK_EX)) {
      return true;
    }
    if (errno != EWOULDBLOCK) {
      return false;
    }
    std::this_thread::sleep_for(kPause);
  }
  errno = EWOULDBLOCK;
  return false;
}

std::string in_use(const fs::path& folder, const std::string& who) {
  return fmt::format("{}: in use by {}; wait for it or choose another --out", folder.string(), who);
}

}  // namespace

bool FolderLock::is_held(const fs::path& folder) {
  const int descriptor = ::open((folder / ".lock").c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) {
    return false;
  }
  const bool held = !try_to_take(descriptor, LOCK_SH) && errno == EWOULDBLOCK;
  ::close(descriptor);
  return held;
}

FolderLock::FolderLock(const std::filesystem::path& folder) : folder_(folder), made_(!fs::exists(folder)) {
  make_folder(folder);
  const fs::path path = folder / ".lock";
  descriptor_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (descriptor_ < 0) {
    fail("{}: cannot be locked: {}", folder.string(), std::strerror(errno));
  }
  if (!take(descriptor_)) {
    const int reason = errno;
    const long process = holder_of(descriptor_);
    ::close(descriptor_);
    if (reason != EWOULDBLOCK) {
      fail("{}: cannot be locked: {}", folder.string(), std::strerror(reason));
    }
    const std::string who = process > 0 ? fmt::format("process {}", process) : "another process";
    throw InUseError(in_use(folder, who));
  }
  struct stat now {};
  if (::fstat(descriptor_, &now) == 0 && now.st_nlink == 0) {  // another process has just removed the folder
    ::close(descriptor_);
    throw InUseError(in_use(folder, "another process"));
  }
  // The process id is only informative: the lock is valid even if a full disk prevents writing it.
  const std::string number = fmt::format("{}\n", ::getpid());
  [[maybe_unused]] const bool told =
      ::ftruncate(descriptor_, 0) == 0 && ::pwrite(descriptor_, number.data(), number.size(), 0) > 0;
}

// The lock file is removed only together with the folder: another process may have opened it and would then lock a
// removed file.
FolderLock::~FolderLock() {
  std::error_code ignored;
  const auto only_the_lock = [&] {
    const auto entries = fs::directory_iterator(folder_, ignored);
    return std::distance(begin(entries), end(entries)) == 1;
  };
  if (made_ && only_the_lock()) {
    fs::remove(folder_ / ".lock", ignored);
    fs::remove(folder_, ignored);
  }
  [[maybe_unused]] const int cleared = ::ftruncate(descriptor_, 0);
  ::close(descriptor_);
}

}  // namespace headroom
