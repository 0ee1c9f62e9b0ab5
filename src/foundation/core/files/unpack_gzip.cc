#include <zlib.h>

#include <algorithm>
#include <vector>

#include "headroom/core/error.h"
#include "unpackers.h"

namespace headroom {
namespace {

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
        user_error("{}: is truncated: the gzip data ends at byte {} before it is complete", path_, consumed());
      }
    } else if (status != Z_OK) {
      const char* why = stream_.msg != nullptr ? stream_.msg : "not gzip data";
      if (stream_.total_out == 0 && member_ > 0) {
        user_error("{}: holds bytes after the end of its gzip data, from byte {} on: {}", path_, member_, why);
      }
      user_error("{}: is damaged: gzip data is wrong near byte {}: {}", path_, consumed(), why);
    }
  }

  std::string path_;
  std::unique_ptr<ByteReader> file_;
  std::vector<char> packed_;
  z_stream stream_{};
  bool inside_ = false;      // a member has begun and not ended
  std::int64_t member_ = 0;  // where the current member begins
};

}  // namespace

std::unique_ptr<ByteReader> unpack_gzip(const std::filesystem::path& path, std::unique_ptr<ByteReader> file) {
  return std::make_unique<GzipReader>(path, std::move(file));
}

}  // namespace headroom
