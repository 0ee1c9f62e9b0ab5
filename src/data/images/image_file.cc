#include "image_dataset.h"

#include <png.h>

#include <csetjmp>
#include <cstdio>  // before jpeglib.h, which needs it

#include <jpeglib.h>

#include <jerror.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

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
Image read_pnm(const std::string& origin, std::string_view bytes, const PnmHeader& header) {
  const auto needed = static_cast<std::size_t>(header.width * header.height * header.channels);
  bytes.remove_prefix(header.pixels);
  if (bytes.size() < needed) {
    user_error("{}: is a damaged PNM file: {} bytes of pixels must follow its header, got {}", origin, needed,
               bytes.size());
  }
  Image image{.width = header.width, .height = header.height, .channels = header.channels, .pixels = {}};
  image.pixels.reserve(needed);
  for (const char c : bytes.substr(0, needed)) {
    const std::int64_t value = static_cast<unsigned char>(c);
    if (value > header.highest) {
      user_error("{}: is a damaged PNM file: the value {} exceeds its maximum of {}", origin, value, header.highest);
    }
    image.pixels.push_back(static_cast<std::uint8_t>((value * kHighestValue + header.highest / 2) / header.highest));
  }
  return image;
}

constexpr std::int64_t kMostPixels = std::int64_t{1} << 26;

void check_pixels(const std::string& origin, std::int64_t width, std::int64_t height) {
  if (width < 1 || height < 1 || width > kMostPixels / height) {
    user_error("{}: an image must have 1 to {} pixels, got {} x {}", origin, kMostPixels, width, height);
  }
}

constexpr int kUpright = 1;

// Returns the orientation, from 1 to 8, in Exif data, which has the format of TIFF files; kUpright if it has none.
int exif_orientation(std::string_view tiff) {
  constexpr std::size_t kTag = 0x0112, kShort = 3, kEntrySize = 12;
  const bool little_endian = tiff.starts_with("II");
  const auto number = [&](std::size_t at, std::size_t size) {  // bytes beyond the end read as 0
    std::size_t value = 0;
    for (std::size_t i = 0; i < size && at + i < tiff.size(); ++i) {
      const std::size_t byte = static_cast<unsigned char>(tiff[at + i]);
      value |= byte << 8 * (little_endian ? i : size - 1 - i);
    }
    return value;
  };
  const std::size_t directory = little_endian || tiff.starts_with("MM") ? number(4, 4) : tiff.size();
  for (std::size_t entry = 0; entry < number(directory, 2); ++entry) {
    const std::size_t at = directory + 2 + entry * kEntrySize, value = number(at + 8, 2);
    if (number(at, 2) == kTag && number(at + 2, 2) == kShort && value >= 1 && value <= 8) {
      return static_cast<int>(value);
    }
  }
  return kUpright;
}

// Returns the content of the chunk eXIf of a PNG file; empty if there is none.
std::string_view exif_of_png(std::string_view bytes) {
  constexpr std::size_t kSignature = 8, kAround = 12;  // a chunk's length, type and checksum take 12 bytes
  bytes.remove_prefix(std::min(kSignature, bytes.size()));
  while (bytes.size() >= kAround) {
    std::size_t length = 0;
    for (const char c : bytes.substr(0, 4)) {
      length = length << 8 | static_cast<unsigned char>(c);
    }
    if (bytes.substr(4, 4) == "eXIf") {
      return bytes.substr(8, length);
    }
    bytes.remove_prefix(std::min(length + kAround, bytes.size()));
  }
  return {};
}

// Returns the image with the Exif orientation applied. Orientations above 4 swap rows and columns.
Image upright(Image image, int orientation) {
  if (orientation == kUpright) {
    return image;
  }
  const bool swapped = orientation > 4, from_right = orientation == 2 || orientation == 3 || orientation > 6,
             from_below = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
  Image turned = image;
  if (swapped) {
    std::swap(turned.width, turned.height);
  }
  auto out = turned.pixels.begin();
  for (std::int64_t y = 0; y < turned.height; ++y) {
    for (std::int64_t x = 0; x < turned.width; ++x) {
      const std::int64_t column = swapped ? y : x, row = swapped ? x : y;
      const std::int64_t from =
          (from_below ? image.height - 1 - row : row) * image.width + (from_right ? image.width - 1 - column : column);
      out = std::copy_n(image.pixels.begin() + from * image.channels, image.channels, out);
    }
  }
  return turned;
}

Image read_png(const std::string& origin, std::string_view bytes) {
  png_image header{};
  header.version = PNG_IMAGE_VERSION;
  const std::unique_ptr<png_image, void (*)(png_image*)> release(&header, png_image_free);
  if (png_image_begin_read_from_memory(&header, bytes.data(), bytes.size()) == 0) {
    user_error("{}: is a damaged PNG file: {}", origin, header.message);
  }
  check_pixels(origin, header.width, header.height);
  header.format = PNG_FORMAT_RGB;
  header.flags |= PNG_IMAGE_FLAG_16BIT_sRGB;  // by default, libpng takes 16-bit samples for linear light
  Image image{.width = header.width, .height = header.height, .channels = 3, .pixels = {}};
  image.pixels.resize(PNG_IMAGE_SIZE(header));
  const png_color black{};
  png_image_finish_read(&header, &black, image.pixels.data(), 0, nullptr);
  if (PNG_IMAGE_FAILED(header)) {
    user_error("{}: is a damaged PNG file: {}", origin, header.message);
  }
  return upright(std::move(image), exif_orientation(exif_of_png(bytes)));
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

// Treats warnings as errors, because libjpeg would fill in missing data with grey. Ignores padding before the end
// marker, which some cameras write.
void leave_on_warning(j_common_ptr info, int level) {
  const bool padding = info->err->msg_code == JWRN_EXTRANEOUS_DATA && info->err->msg_parm.i[1] == JPEG_EOI;
  if (level < 0 && !padding) {
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
    return upright(std::move(image), orientation_);
  }

 private:
  // begin() and rows() have no objects with destructors, which longjmp would skip.
  bool begin(std::int64_t channels) {
    if (setjmp(errors_.back) != 0) {
      return false;
    }
    jpeg_mem_src(&info_, reinterpret_cast<const unsigned char*>(bytes_.data()), bytes_.size());
    jpeg_save_markers(&info_, kExifMarker, kLongestMarker);
    jpeg_read_header(&info_, TRUE);
    for (const jpeg_marker_struct* marker = info_.marker_list; marker != nullptr; marker = marker->next) {
      const std::string_view content(reinterpret_cast<const char*>(marker->data), marker->data_length);
      if (content.starts_with(kExif)) {
        orientation_ = exif_orientation(content.substr(kExif.size()));
      }
    }
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

  static constexpr int kExifMarker = JPEG_APP0 + 1;
  static constexpr unsigned kLongestMarker = 0xffff;
  static constexpr std::string_view kExif{"Exif\0\0", 6};

  const std::string& origin_;
  std::string_view bytes_;
  int orientation_ = kUpright;
  JpegErrors errors_{};
  jpeg_decompress_struct info_{};
};

// Converts between one channel and three. Grey is the luma of the stored values.
Image with_channels(Image image, std::int64_t channels) {
  if (image.channels == channels) {
    return image;
  }
  std::vector<std::uint8_t> pixels;
  pixels.reserve(static_cast<std::size_t>(image.width * image.height * channels));
  for (auto at = image.pixels.begin(); at != image.pixels.end(); at += image.channels) {
    if (channels == 1) {
      pixels.push_back(grey_of(at[0], at[1], at[2]));
    } else {
      pixels.insert(pixels.end(), static_cast<std::size_t>(channels), *at);
    }
  }
  image.pixels = std::move(pixels);
  image.channels = channels;
  return image;
}

}  // namespace

bool is_image_ending(std::string_view ending) {
  return std::ranges::find(kImageEndings, lower_case(ending)) != kImageEndings.end();
}

Image decode_image(const std::string& origin, std::string_view bytes, std::int64_t channels) {
  if (bytes.starts_with("\x89PNG")) {
    return with_channels(read_png(origin, bytes), channels);
  }
  if (bytes.starts_with("\xff\xd8\xff")) {
    return Jpeg(origin, bytes).read(channels);
  }
  if (const auto header = pnm_header(origin, bytes)) {
    check_pixels(origin, header->width, header->height);
    return with_channels(read_pnm(origin, bytes, *header), channels);
  }
  user_error("{}: is neither a PNG, a JPEG nor a PNM file", origin);
}

Image read_image(const std::filesystem::path& path, std::int64_t channels) {
  return decode_image(path.string(), read_text_file(path, kLargestImage), channels);
}

}  // namespace headroom::data
