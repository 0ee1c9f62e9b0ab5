#include "picture_file.h"

#include <png.h>

#include <csetjmp>
#include <cstdio>  // before jpeglib.h, which needs it

#include <jpeglib.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string_view>

#include "foundation/core/text/utf8.h"
#include "headroom/core/error.h"
#include "headroom/core/files.h"
#include "pnm.h"

namespace headroom::data {
namespace {

constexpr std::int64_t kMostPixels = std::int64_t{1} << 26;

void check_pixels(const std::string& origin, std::int64_t width, std::int64_t height) {
  if (width < 1 || height < 1 || width > kMostPixels / height) {
    user_error("{}: a picture may have up to {} pixels, got {} x {}", origin, kMostPixels, width, height);
  }
}

DecodedPicture read_png(const std::string& origin, std::string_view bytes, std::int64_t channels) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  const std::unique_ptr<png_image, void (*)(png_image*)> release(&image, png_image_free);
  if (png_image_begin_read_from_memory(&image, bytes.data(), bytes.size()) == 0) {
    user_error("{}: is a damaged PNG file: {}", origin, image.message);
  }
  check_pixels(origin, image.width, image.height);
  image.format = channels == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB;
  DecodedPicture picture{.width = image.width, .height = image.height, .channels = channels, .pixels = {}};
  picture.pixels.resize(PNG_IMAGE_SIZE(image));
  const png_color black{};
  png_image_finish_read(&image, &black, picture.pixels.data(), 0, nullptr);
  if (PNG_IMAGE_FAILED(image)) {
    user_error("{}: is a damaged PNG file: {}", origin, image.message);
  }
  return picture;
}

// The library leaves by a jump where it cannot go on; whatever it says is kept.
struct JpegErrors {
  jpeg_error_mgr manager;  // first: the library knows this part alone
  std::jmp_buf back;
  std::array<char, JMSG_LENGTH_MAX> message;
};

void leave(j_common_ptr info) {
  auto* errors = reinterpret_cast<JpegErrors*>(info->err);
  (*info->err->format_message)(info, errors->message.data());
  std::longjmp(errors->back, 1);
}

// A warning is damage, too: missing data, for one, which the library would fill in with grey.
void leave_on_warning(j_common_ptr info, int level) {
  if (level < 0) {
    leave(info);
  }
}

class Jpeg {
 public:
  Jpeg(const std::string& origin, std::string_view bytes) : origin_(origin), bytes_(bytes) {
    info_.err = jpeg_std_error(&errors_.manager);
    errors_.manager.error_exit = leave;
    errors_.manager.emit_message = leave_on_warning;
    jpeg_create_decompress(&info_);
  }
  ~Jpeg() { jpeg_destroy_decompress(&info_); }
  Jpeg(const Jpeg&) = delete;
  Jpeg& operator=(const Jpeg&) = delete;

  DecodedPicture read(std::int64_t channels) {
    if (!begin(channels)) {
      refuse();
    }
    check_pixels(origin_, info_.image_width, info_.image_height);
    DecodedPicture picture{
        .width = info_.image_width, .height = info_.image_height, .channels = channels, .pixels = {}};
    picture.pixels.resize(static_cast<std::size_t>(picture.width * picture.height * channels));
    if (!rows(picture.pixels.data(), static_cast<std::size_t>(picture.width * channels))) {
      refuse();
    }
    return picture;
  }

 private:
  // Nothing in these two has a destructor that a jump would skip.
  bool begin(std::int64_t channels) {
    if (setjmp(errors_.back) != 0) {
      return false;
    }
    jpeg_mem_src(&info_, reinterpret_cast<const unsigned char*>(bytes_.data()), bytes_.size());
    jpeg_read_header(&info_, TRUE);
    info_.out_color_space = channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
    return true;
  }
  bool rows(std::uint8_t* pixels, std::size_t width) {
    if (setjmp(errors_.back) != 0) {
      return false;
    }
    jpeg_start_decompress(&info_);
    while (info_.output_scanline < info_.output_height) {
      JSAMPROW row = pixels + info_.output_scanline * width;
      jpeg_read_scanlines(&info_, &row, 1);
    }
    jpeg_finish_decompress(&info_);
    return true;
  }
  [[noreturn]] void refuse() const {
    user_error("{}: is a damaged JPEG file, or one of a kind that cannot be read: {}", origin_, errors_.message.data());
  }

  const std::string& origin_;
  std::string_view bytes_;
  JpegErrors errors_{};
  jpeg_decompress_struct info_{};
};

}  // namespace

bool is_picture_ending(std::string_view ending) {
  return std::find(kPictureEndings.begin(), kPictureEndings.end(), lower_case(ending)) != kPictureEndings.end();
}

DecodedPicture decode_picture(const std::string& origin, std::string_view bytes, std::int64_t channels) {
  if (bytes.starts_with("\x89PNG")) {
    return read_png(origin, bytes, channels);
  }
  if (bytes.starts_with("\xff\xd8\xff")) {
    return Jpeg(origin, bytes).read(channels);
  }
  if (const auto header = pnm_header(origin, bytes)) {
    check_pixels(origin, header->width, header->height);
    return read_pnm(origin, bytes, *header, channels);
  }
  user_error("{}: is neither a PNG, a JPEG nor a PNM file", origin);
}

DecodedPicture read_picture(const std::filesystem::path& path, std::int64_t channels) {
  return decode_picture(path.string(), read_text_file(path, kLargestPicture), channels);
}

}  // namespace headroom::data
