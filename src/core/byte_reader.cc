#include "headroom/core/byte_reader.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <system_error>
#include <vector>

#include "headroom/core/error.h"

namespace headroom {
namespace {

constexpr std::size_t kBuffer = std::size_t{64} << 10;
constexpr std::array<unsigned char, 2> kGzipMagic = {0x1f, 0x8b};

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
      misuse("{}: cannot be opened: {}", path_, reason(number));
    }
    if (!S_ISREG(about.st_mode)) {  // a pipe cannot be read twice
      close();
      misuse("{}: must be a regular file, got {}", path_, S_ISDIR(about.st_mode) ? "a folder" : "something else");
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
      misuse("{}: cannot be read at byte {}: {}", path_, consumed_, reason(errno));
    }
    consumed_ += got;
    return static_cast<std::size_t>(got);
  }
  std::int64_t consumed() const override { return consumed_; }

  bool begins_like_gzip() const {
    std::array<unsigned char, 2> head{};
    return ::pread(descriptor_, head.data(), head.size(), 0) == 2 && head == kGzipMagic;
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

class GzipReader : public ByteReader {
 public:
  GzipReader(const std::filesystem::path& path, std::unique_ptr<PlainReader> file)
      : path_(path.string()), file_(std::move(file)), packed_(kBuffer) {
    if (inflateInit2(&stream_, 16 + MAX_WBITS) != Z_OK) {
      fail("{}: zlib cannot start: {}", path_, stream_.msg != nullptr ? stream_.msg : "out of memory");
    }
  }
  ~GzipReader() override { inflateEnd(&stream_); }
  GzipReader(const GzipReader&) = delete;
  GzipReader& operator=(const GzipReader&) = delete;

  std::size_t read(char* out, std::size_t size) override {
    stream_.next_out = reinterpret_cast<Bytef*>(out);
    stream_.avail_out = static_cast<uInt>(std::min<std::size_t>(size, 1U << 30));
    const std::size_t wanted = stream_.avail_out;
    while (stream_.avail_out == wanted) {  // until at least one byte came
      const bool more = refill();
      if (!inside_) {
        if (!more) {
          return 0;
        }
        begin_member();
      }
      advance(more);
    }
    return wanted - stream_.avail_out;
  }
  std::int64_t consumed() const override { return file_->consumed() - static_cast<std::int64_t>(stream_.avail_in); }

 private:
  bool refill() {
    if (stream_.avail_in == 0) {
      stream_.next_in = reinterpret_cast<Bytef*>(packed_.data());
      stream_.avail_in = static_cast<uInt>(file_->read(packed_.data(), packed_.size()));
    }
    return stream_.avail_in > 0;
  }

  void begin_member() {
    inside_ = true;
    member_ = consumed();
    if (member_ > 0) {
      inflateReset(&stream_);
    }
  }

  void advance(bool more) {
    const int status = inflate(&stream_, Z_NO_FLUSH);
    if (status == Z_STREAM_END) {
      inside_ = false;
    } else if (status == Z_BUF_ERROR || (status == Z_OK && !more && stream_.avail_out > 0)) {
      if (!more) {
        misuse("{}: is truncated: the gzip data ends at byte {} before it is complete", path_, consumed());
      }
    } else if (status != Z_OK) {
      const char* why = stream_.msg != nullptr ? stream_.msg : "not gzip data";
      if (stream_.total_out == 0 && member_ > 0) {
        misuse("{}: holds bytes after the end of its gzip data, from byte {} on: {}", path_, member_, why);
      }
      misuse("{}: is damaged: gzip data is wrong near byte {}: {}", path_, consumed(), why);
    }
  }

  std::string path_;
  std::unique_ptr<PlainReader> file_;
  std::vector<char> packed_;
  z_stream stream_{};
  bool inside_ = false;      // a member has begun and not ended
  std::int64_t member_ = 0;  // where the current member begins
};

}  // namespace

std::unique_ptr<ByteReader> open_bytes(const std::filesystem::path& path) {
  auto plain = std::make_unique<PlainReader>(path);
  if (plain->begins_like_gzip()) {
    return std::make_unique<GzipReader>(path, std::move(plain));
  }
  if (path.extension() == ".gz") {
    misuse("{}: must be gzip, as its name says, but {}", path.string(),
           std::filesystem::file_size(path) == 0 ? "is empty" : "does not begin like it");
  }
  return plain;
}

}  // namespace headroom
