#include <zstd.h>
#include <zstd_errors.h>

#include <vector>

#include "headroom/core/error.h"
#include "unpackers.h"

namespace headroom {
namespace {

constexpr int kLargestWindow = 27;  // its logarithm to base 2

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
    while (unpacked.pos == 0) {  // until at least one byte came
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
        user_error("{}: is truncated: the zstd data ends at byte {} before it is complete", path_, consumed());
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
        user_error("{}: its zstd window takes more than {} MiB of memory: pack it without --long", path_,
                   (std::size_t{1} << kLargestWindow) >> 20);
      case ZSTD_error_prefix_unknown:
        if (frames_ > 0 && !inside_) {
          user_error("{}: holds bytes after the end of its zstd data, near byte {}", path_, consumed());
        }
        [[fallthrough]];
      default:
        user_error("{}: is damaged: zstd data is wrong near byte {}: {}", path_, consumed(), ZSTD_getErrorName(error));
    }
  }

  std::string path_;
  std::unique_ptr<ByteReader> file_;
  std::vector<char> packed_;
  ZSTD_DStream* stream_;
  ZSTD_inBuffer in_{nullptr, 0, 0};
  bool inside_ = false;      // a frame has begun and not ended
  std::int64_t frames_ = 0;  // that ended
};

}  // namespace

std::unique_ptr<ByteReader> unpack_zstd(const std::filesystem::path& path, std::unique_ptr<ByteReader> file) {
  return std::make_unique<ZstdReader>(path, std::move(file));
}

}  // namespace headroom
