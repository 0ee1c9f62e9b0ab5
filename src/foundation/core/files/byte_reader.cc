#include "byte_reader.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

#include <algorithm>
#include <cerrno>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "foundation/core/text/format.h"
#include "foundation/core/text/utf8.h"
#include "headroom/core/error.h"

namespace headroom {
namespace {

constexpr std::size_t kUnpackerBuffer = std::size_t{64} << 10;
constexpr std::size_t kHeadSize = 4;  // bytes that tell a compression format

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
      user_error("{}: is not a regular file{}", path_, S_ISDIR(about.st_mode) ? " but a directory" : "");
    }
    is_empty_ = about.st_size == 0;
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

  bool is_empty() const { return is_empty_; }
  std::string head() const {
    std::string bytes(kHeadSize, '\0');
    bytes.resize(static_cast<std::size_t>(std::max<ssize_t>(::pread(descriptor_, bytes.data(), bytes.size(), 0), 0)));
    return bytes;
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
  bool is_empty_ = false;
  std::int64_t consumed_ = 0;
};

class MemoryReader : public ByteReader {
 public:
  explicit MemoryReader(std::string bytes) : bytes_(std::move(bytes)) {}

  std::size_t read(char* out, std::size_t size) override {
    const std::size_t got = bytes_.copy(out, size, at_);
    at_ += got;
    return got;
  }
  std::int64_t consumed() const override { return static_cast<std::int64_t>(at_); }

  bool is_empty() const { return bytes_.empty(); }
  std::string head() const { return bytes_.substr(0, kHeadSize); }

 private:
  std::string bytes_;
  std::size_t at_ = 0;
};

class GzipReader : public ByteReader {
 public:
  GzipReader(const std::filesystem::path& path, std::unique_ptr<ByteReader> file)
      : path_(path.string()), file_(std::move(file)), packed_(kUnpackerBuffer) {
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
    while (stream_.avail_out == wanted) {  // until at least one byte is decompressed
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
        user_error("{}: is truncated: the gzip data ends early, at byte {}", path_, consumed());
      }
    } else if (status != Z_OK) {
      const char* why = stream_.msg != nullptr ? stream_.msg : "not gzip data";
      if (stream_.total_out == 0 && member_ > 0) {
        user_error("{}: has trailing data that is not gzip, from byte {} on: {}", path_, member_, why);
      }
      user_error("{}: is corrupt: invalid gzip data near byte {}: {}", path_, consumed(), why);
    }
  }

  std::string path_;
  std::unique_ptr<ByteReader> file_;
  std::vector<char> packed_;
  z_stream stream_{};
  bool inside_ = false;      // inside a member
  std::int64_t member_ = 0;  // file offset of the current member
};

constexpr int kLargestWindow = 27;  // log2 of the window size in bytes

class ZstdReader : public ByteReader {
 public:
  ZstdReader(const std::filesystem::path& path, std::unique_ptr<ByteReader> file)
      : path_(path.string()), file_(std::move(file)), packed_(kUnpackerBuffer), stream_(ZSTD_createDStream()) {
    if (stream_ == nullptr || ZSTD_isError(ZSTD_DCtx_setParameter(stream_, ZSTD_d_windowLogMax, kLargestWindow))) {
      ZSTD_freeDStream(stream_);
      fail("{}: zstd cannot start: out of memory", path_);
    }
  }
  ~ZstdReader() override { ZSTD_freeDStream(stream_); }
  ZstdReader(const ZstdReader&) = delete;
  ZstdReader& operator=(const ZstdReader&) = delete;

  std::size_t read(char* out, std::size_t size) override {
    ZSTD_outBuffer unpacked{out, size, 0};
    while (unpacked.pos == 0) {  // until at least one byte is decompressed
      if (in_.pos == in_.size) {
        in_ = {packed_.data(), file_->read(packed_.data(), packed_.size()), 0};
        if (in_.size == 0 && !inside_) {
          return 0;
        }
      }
      const bool ended = in_.size == 0;
      const std::size_t left = ZSTD_decompressStream(stream_, &unpacked, &in_);
      if (ZSTD_isError(left)) {
        refuse(left);
      }
      if (ended && unpacked.pos == 0) {
        user_error("{}: is truncated: the zstd data ends early, at byte {}", path_, consumed());
      }
      inside_ = left != 0;
      frames_ += inside_ ? 0 : 1;
    }
    return unpacked.pos;
  }
  std::int64_t consumed() const override { return file_->consumed() - static_cast<std::int64_t>(in_.size - in_.pos); }

 private:
  [[noreturn]] void refuse(std::size_t error) const {
    switch (ZSTD_getErrorCode(error)) {
      case ZSTD_error_frameParameter_windowTooLarge:
        user_error("{}: its zstd window needs more than {} MiB of memory; compress it without --long", path_,
                   (std::size_t{1} << kLargestWindow) >> 20);
      case ZSTD_error_prefix_unknown:
        if (frames_ > 0 && !inside_) {
          user_error("{}: has trailing data that is not zstd, near byte {}", path_, consumed());
        }
        [[fallthrough]];
      default:
        user_error("{}: is corrupt: invalid zstd data near byte {}: {}", path_, consumed(), ZSTD_getErrorName(error));
    }
  }

  std::string path_;
  std::unique_ptr<ByteReader> file_;
  std::vector<char> packed_;
  ZSTD_DStream* stream_;
  ZSTD_inBuffer in_{nullptr, 0, 0};
  bool inside_ = false;      // inside a frame
  std::int64_t frames_ = 0;  // number of complete frames
};

template <class Reader>
std::unique_ptr<ByteReader> unpack(const std::filesystem::path& path, std::unique_ptr<ByteReader> file) {
  return std::make_unique<Reader>(path, std::move(file));
}

constexpr std::string_view kZstd = "\x28\xb5\x2f\xfd";

// A compression format, recognised by the first bytes of a file. No text begins with these bytes.
struct Packing {
  std::string_view name, ending, magic;
  std::unique_ptr<ByteReader> (*unpack)(const std::filesystem::path& path, std::unique_ptr<ByteReader> file);
};
constexpr Packing kPackings[] = {{"gzip", ".gz", "\x1f\x8b", unpack<GzipReader>},
                                 {"zstd", ".zst", kZstd, unpack<ZstdReader>}};

// Returns a reader of the decompressed bytes of `plain`, called `path` in messages.
template <class Plain>
std::unique_ptr<ByteReader> unpacking(const std::filesystem::path& path, std::unique_ptr<Plain> plain) {
  std::string head = plain->head();
  if (head.ends_with("\x2a\x4d\x18") && (head.front() & 0xf0) == 0x50) {
    head = kZstd;  // a skippable frame (RFC 8878, 3.1), with which pzstd and the seekable format begin
  }
  for (const Packing& packing : kPackings) {
    if (head.starts_with(packing.magic)) {
      return packing.unpack(path, std::move(plain));
    }
  }
  for (const Packing& packing : kPackings) {
    if (lower_case(path.extension().string()) == packing.ending) {
      user_error("{}: is not {} data, although its name ends in {}: {}", path.string(), packing.name, packing.ending,
                 plain->is_empty() ? "it is empty" : "its first bytes differ");
    }
  }
  return plain;
}

std::string read_all(ByteReader& reader, const std::filesystem::path& path, std::size_t limit) {
  constexpr std::size_t kAtOnce = std::size_t{1} << 20;
  std::string text;
  for (std::size_t got = kAtOnce; got == kAtOnce;) {
    const std::size_t before = text.size();
    text.resize(before + kAtOnce);
    got = read_full(reader, std::span(text).subspan(before));
    text.resize(before + got);
    if (text.size() > limit) {
      user_error("{}: is longer than {}", path.string(), format_bytes(static_cast<double>(limit)));
    }
  }
  return text;
}

}  // namespace

std::unique_ptr<ByteReader> open_bytes(const std::filesystem::path& path) {
  return unpacking(path, std::make_unique<PlainReader>(path));
}

std::size_t read_full(ByteReader& reader, std::span<char> out) {
  std::size_t filled = 0;
  while (filled < out.size()) {
    const std::size_t got = reader.read(out.data() + filled, out.size() - filled);
    if (got == 0) {
      break;
    }
    filled += got;
  }
  return filled;
}

std::string read_unpacked(const std::filesystem::path& path, std::size_t limit) {
  return read_all(*open_bytes(path), path, limit);
}

std::string unpacked_content(std::string content, const std::filesystem::path& name, std::size_t limit) {
  return read_all(*unpacking(name, std::make_unique<MemoryReader>(std::move(content))), name, limit);
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
