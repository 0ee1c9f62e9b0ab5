#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <png.h>
#include <zlib.h>

#include <cstdio>  // before jpeglib.h, which needs it

#include <jpeglib.h>

#include <algorithm>
#include <cstdlib>

#include "data/images/image_dataset.h"

namespace headroom::data {

// Returns an image whose red increases to the right and green downwards; blue is constant.
inline Image gradient(std::int64_t width, std::int64_t height) {
  Image image{.width = width, .height = height, .channels = 3, .pixels = {}};
  for (std::int64_t y = 0; y < height; ++y) {
    for (std::int64_t x = 0; x < width; ++x) {
      image.pixels.push_back(static_cast<std::uint8_t>(x * 255 / std::max<std::int64_t>(1, width - 1)));
      image.pixels.push_back(static_cast<std::uint8_t>(y * 255 / std::max<std::int64_t>(1, height - 1)));
      image.pixels.push_back(77);
    }
  }
  return image;
}

inline std::string png(const Image& image) {
  png_image header{};
  header.version = PNG_IMAGE_VERSION;
  header.width = static_cast<png_uint_32>(image.width);
  header.height = static_cast<png_uint_32>(image.height);
  header.format = image.channels == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB;
  png_alloc_size_t size = 0;
  EXPECT_NE(png_image_write_to_memory(&header, nullptr, &size, 0, image.pixels.data(), 0, nullptr), 0);
  std::string bytes(size, '\0');
  EXPECT_NE(png_image_write_to_memory(&header, bytes.data(), &size, 0, image.pixels.data(), 0, nullptr), 0);
  return bytes.substr(0, size);
}

inline std::string jpeg(Image image) {
  jpeg_error_mgr errors;
  jpeg_compress_struct info{};
  info.err = jpeg_std_error(&errors);
  jpeg_create_compress(&info);
  unsigned char* out = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&info, &out, &size);
  info.image_width = static_cast<JDIMENSION>(image.width);
  info.image_height = static_cast<JDIMENSION>(image.height);
  info.input_components = 3;
  info.in_color_space = JCS_RGB;
  jpeg_set_defaults(&info);
  jpeg_set_quality(&info, 100, TRUE);
  jpeg_start_compress(&info, TRUE);
  while (info.next_scanline < info.image_height) {
    JSAMPROW row = image.pixels.data() + info.next_scanline * image.width * 3;
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  jpeg_destroy_compress(&info);
  std::string bytes(reinterpret_cast<char*>(out), size);
  std::free(out);
  return bytes;
}

inline std::string ppm(const Image& image) {
  return fmt::format("P{}\n{} {}\n255\n", image.channels == 1 ? 5 : 6, image.width, image.height) +
         std::string(image.pixels.begin(), image.pixels.end());
}

inline std::string big_endian(std::uint32_t value) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) {
    bytes += static_cast<char>(value >> shift & 0xff);
  }
  return bytes;
}

inline std::string png_chunk(const std::string& type, const std::string& data) {
  const std::string checked = type + data;
  return big_endian(static_cast<std::uint32_t>(data.size())) + checked +
         big_endian(static_cast<std::uint32_t>(
             crc32(0, reinterpret_cast<const Bytef*>(checked.data()), static_cast<uInt>(checked.size()))));
}

// Returns a PNG file with one row of pixels. `depth` is the number of bits per sample; `type` is 2 for RGB, 6 with
// alpha. `more` holds further chunks.
inline std::string png_row(std::uint32_t width, char depth, char type, const std::string& samples,
                           const std::string& more = "") {
  const std::string line = std::string(1, '\0') + samples;
  uLongf size = compressBound(line.size());
  std::string packed(size, '\0');
  EXPECT_EQ(compress(reinterpret_cast<Bytef*>(packed.data()), &size, reinterpret_cast<const Bytef*>(line.data()),
                     line.size()),
            Z_OK);
  packed.resize(size);
  const std::string rest = std::string{depth, type} + std::string(3, '\0');
  return "\x89PNG\r\n\x1a\n" + png_chunk("IHDR", big_endian(width) + big_endian(1) + rest) + more +
         png_chunk("IDAT", packed) + png_chunk("IEND", "");
}

// Returns Exif data that only states an orientation.
inline std::string exif(char orientation, bool little_endian) {
  const std::string value = little_endian ? std::string{orientation, '\0'} : std::string{'\0', orientation};
  return (little_endian ? std::string("II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0", 18)
                        : std::string("MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01", 18)) +
         value + std::string(6, '\0');
}

inline std::string idx_images(std::uint32_t count, std::uint32_t height, std::uint32_t width) {
  std::string bytes = big_endian(0x0803) + big_endian(count) + big_endian(height) + big_endian(width);
  for (std::uint32_t i = 0; i < count * height * width; ++i) {
    bytes += static_cast<char>(i * 7 % 251);
  }
  return bytes;
}

inline std::string idx_labels(const std::string& labels) {
  return big_endian(0x0801) + big_endian(static_cast<std::uint32_t>(labels.size())) + labels;
}

}  // namespace headroom::data
