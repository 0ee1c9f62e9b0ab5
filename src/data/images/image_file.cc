#include "image_file.h"

#include <png.h>

#include <csetjmp>
#include <cstdio>  // before jpeglib.h, which needs it

#include <jpeglib.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "augmentation.h"
#include "foundation/core/text/format.h"
#include "foundation/core/text/utf8.h"
#include "headroom/core/error.h"
#include "headroom/core/files.h"

namespace headroom::data {
namespace {

struct PnmHeader {
  std::int64_t width = 0, height = 0, channels = 0, highest = 0;
  std::size_t pixels = 0;  // byte offset of the pixels in the file
};

constexpr std::string_view kSpace = " \t\n\r";
constexpr std::int64_t kHighestValue = 255;

// Parses a portable pixmap header: P5 is grey, P6 is red, green, blue. Returns nullopt unless the bytes begin with P5
// or P6 and white space. Throws UserError, prefixed with `origin`, for an invalid header or a maximum value above 255.
std::optional<PnmHeader> pnm_header(const std::string& origin, std::string_view bytes) {
  const bool grey = bytes.starts_with("P5"), colour = bytes.starts_with("P6");
  if ((!grey && !colour) || bytes.size() < 3 || kSpace.find(bytes[2]) == std::string_view::npos) {
    return std::nullopt;
  }
  PnmHeader header{.channels = grey ? 1 : 3};
  std::size_t at = 2;
  for (std::int64_t* number : {&header.width, &header.height, &header.highest}) {
    while (at < bytes.size() && (kSpace.find(bytes[at]) != std::string_view::npos || bytes[at] == '#')) {
      at = bytes[at] == '#' ? std::min(bytes.find('\n', at), bytes.size()) : at + 1;
    }
    const std::size_t end = std::min(bytes.find_first_of(kSpace, at), bytes.size());
    const auto read = whole_number(bytes.substr(at, end - at));
    if (!read || end == bytes.size()) {
      user_error("{}: is a damaged PNM file: its header has no width, height and highest value", origin);
    }
    *number = *read;
    at = end;
  }
  header.pixels = at + 1;
  if (header.highest < 1 || header.highest > kHighestValue) {
    user_error("{}: the maximum value of a PNM file must be from 1 to {}, got {}", origin, kHighestValue,
               header.highest);
  }
  return header;
}

// Throws UserError if there are fewer pixels than the header states, or values above its maximum.
Image read_pnm(const std::string& origin, std::string_view bytes, const PnmHeader& header, std::int64_t channels) {
  const auto pixels = static_cast<std::size_t>(header.width * header.height),
             needed = pixels * static_cast<std::size_t>(header.channels);
  bytes.remove_prefix(header.pixels);
  if (bytes.size() < needed) {
    user_error("{}: is a damaged PNM file: {} bytes of pixels must follow its header, got {}", origin, needed,
               bytes.size());
  }
  const auto value = [&](std::size_t i) {
    const std::int64_t byte = static_cast<unsigned char>(bytes[i]);
    if (byte > header.highest) {
      user_error("{}: is a damaged PNM file: a value of {}, above its highest, {}", origin, byte, header.highest);
    }
    return static_cast<int>((byte * kHighestValue + header.highest / 2) / header.highest);
  };
  Image image{.width = header.width, .height = header.height, .channels = channels, .pixels = {}};
  image.pixels.reserve(pixels * static_cast<std::size_t>(channels));
  for (std::size_t i = 0; i < pixels; ++i) {
    if (header.channels == 1) {
      image.pixels.insert(image.pixels.end(), static_cast<std::size_t>(channels), static_cast<std::uint8_t>(value(i)));
    } else if (channels == 1) {
      image.pixels.push_back(grey_of(value(3 * i), value(3 * i + 1), value(3 * i + 2)));
    } else {
      for (std::size_t c = 0; c < 3; ++c) {
        image.pixels.push_back(static_cast<std::uint8_t>(value(3 * i + c)));
      }
    }
  }
  return image;
}

constexpr std::int64_t kMostPixels = std::int64_t{1} << 26;

void check_pixels(const std::string& origin, std::int64_t width, std::int64_t height) {
  if (width < 1 || height < 1 || width > kMostPixels / height) {
    user_error("{}: an image must have 1 to {} pixels, got {} x {}", origin, kMostPixels, width, height);
  }
}

Image read_png(const std::string& origin, std::string_view bytes, std::int64_t channels) {
  png_image header{};
  header.version = PNG_IMAGE_VERSION;
  const std::unique_ptr<png_image, void (*)(png_image*)> release(&header, png_image_free);
  if (png_image_begin_read_from_memory(&header, bytes.data(), bytes.size()) == 0) {
    user_error("{}: is a damaged PNG file: {}", origin, header.message);
  }
  check_pixels(origin, header.width, header.height);
  header.format = channels == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB;
  Image image{.width = header.width, .height = header.height, .channels = channels, .pixels = {}};
  image.pixels.resize(PNG_IMAGE_SIZE(header));
  const png_color black{};
  png_image_finish_read(&header, &black, image.pixels.data(), 0, nullptr);
  if (PNG_IMAGE_FAILED(header)) {
    user_error("{}: is a damaged PNG file: {}", origin, header.message);
  }
  return image;
}

// libjpeg reports fatal errors by longjmp; this struct stores the message.
struct JpegErrors {
  jpeg_error_mgr manager;  // must come first: libjpeg sees only this member
  std::jmp_buf back;
  std::array<char, JMSG_LENGTH_MAX> message;
};

void leave(j_common_ptr info) {
  auto* errors = reinterpret_cast<JpegErrors*>(info->err);
  (*info->err->format_message)(info, errors->message.data());
  std::longjmp(errors->back, 1);
}

// Treats warnings as errors, because libjpeg would fill in missing data with grey.
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

  Image read(std::int64_t channels) {
    if (!begin(channels)) {
      refuse();
    }
    check_pixels(origin_, info_.image_width, info_.image_height);
    Image image{.width = info_.image_width, .height = info_.image_height, .channels = channels, .pixels = {}};
    image.pixels.resize(static_cast<std::size_t>(image.width * image.height * channels));
    if (!rows(image.pixels.data(), static_cast<std::size_t>(image.width * channels))) {
      refuse();
    }
    return image;
  }

 private:
  // begin() and rows() have no objects with destructors, which longjmp would skip.
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
    user_error("{}: is a damaged JPEG file or has an unsupported format: {}", origin_, errors_.message.data());
  }

  const std::string& origin_;
  std::string_view bytes_;
  JpegErrors errors_{};
  jpeg_decompress_struct info_{};
};

}  // namespace

bool is_image_ending(std::string_view ending) {
  return std::find(kImageEndings.begin(), kImageEndings.end(), lower_case(ending)) != kImageEndings.end();
}

Image decode_image(const std::string& origin, std::string_view bytes, std::int64_t channels) {
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

Image read_image(const std::filesystem::path& path, std::int64_t channels) {
  return decode_image(path.string(), read_text_file(path, kLargestImage), channels);
}

}  // namespace headroom::data
