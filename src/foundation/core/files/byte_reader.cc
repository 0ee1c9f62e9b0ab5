#include "byte_reader.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>
#include <system_error>

#include "foundation/core/text/letters.h"
#include "headroom/core/error.h"
#include "unpackers.h"

namespace headroom {
namespace {

// How bytes are packed: by the first of them, which no text begins with, and by the file's name.
struct Packing {
  std::string_view name, ending, magic;
  std::unique_ptr<ByteReader> (*unpack)(const std::filesystem::path& path, std::unique_ptr<ByteReader> file);
};
constexpr Packing kPackings[] = {{"gzip", ".gz", "\x1f\x8b", unpack_gzip},
                                 {"zstd", ".zst", "\x28\xb5\x2f\xfd", unpack_zstd}};

std::string reason(int number) {
  return std::generic_category().message(number);
}

class PlainReader : public ByteReader {
 public:
  explicit PlainReader(const std::filesystem::path& path)
      : path_(path.string()), descriptor_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
    struct stat about {};
    if (descriptor_ < 0 || ::fstat(descriptor_, &about) != 0) {
      const int number = errno;
      close();
      user_error("{}: cannot be opened: {}", path_, reason(number));
    }
    if (!S_ISREG(about.st_mode)) {  // a pipe cannot be read twice
      close();
      user_error("{}: must be a regular file, got {}", path_, S_ISDIR(about.st_mode) ? "a folder" : "something else");
    }
    ::posix_fadvise(descriptor_, 0, 0, POSIX_FADV_SEQUENTIAL);
  }
  ~PlainReader() override { close(); }
  PlainReader(const PlainReader&) = delete;
  PlainReader& operator=(const PlainReader&) = delete;

  std::size_t read(char* out, std::size_t size) override {
    ssize_t got = 0;
    do {
      got = ::read(descriptor_, out, size);
    } while (got < 0 && errno == EINTR);
    if (got < 0) {
      user_error("{}: cannot be read at byte {}: {}", path_, consumed_, reason(errno));
    }
    consumed_ += got;
    return static_cast<std::size_t>(got);
  }
  std::int64_t consumed() const override { return consumed_; }

  bool begins_with(std::string_view magic) const {
    std::string head(magic.size(), '\0');
    return ::pread(descriptor_, head.data(), head.size(), 0) == std::ssize(head) && head == magic;
  }

 private:
  void close() {
    if (descriptor_ >= 0) {
      ::close(descriptor_);
    }
    descriptor_ = -1;
  }
  std::string path_;
  int descriptor_;
  std::int64_t consumed_ = 0;
};

}  // namespace

std::unique_ptr<ByteReader> open_bytes(const std::filesystem::path& path) {
  auto plain = std::make_unique<PlainReader>(path);
  for (const Packing& packing : kPackings) {
    if (plain->begins_with(packing.magic)) {
      return packing.unpack(path, std::move(plain));
    }
  }
  for (const Packing& packing : kPackings) {
    if (lower_case(path.extension().string()) == packing.ending) {
      user_error("{}: must be {}, as its name says, but {}", path.string(), packing.name,
                 std::filesystem::file_size(path) == 0 ? "is empty" : "does not begin like it");
    }
  }
  return plain;
}

std::filesystem::path unpacked_name(const std::filesystem::path& path) {
  for (const Packing& packing : kPackings) {
    if (lower_case(path.extension().string()) == packing.ending) {
      return path.parent_path() / path.stem();
    }
  }
  return path;
}

}  // namespace headroom
