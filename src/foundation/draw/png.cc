// PNG files of grey pictures (ISO/IEC 15948): signature, header, one compressed data chunk, end.
#include <zlib.h>

#include "headroom/core/error.h"
#include "heat_map.h"

namespace headroom::draw {
namespace {

void append_number(std::string& to, std::uint32_t number) {
  for (const int shift : {24, 16, 8, 0}) {
    to += static_cast<char>((number >> shift) & 0xffU);
  }
}

void append_chunk(std::string& to, const std::string& type, const std::string& data) {
  append_number(to, static_cast<std::uint32_t>(data.size()));
  const std::string checked = type + data;
  to += checked;
  append_number(to, static_cast<std::uint32_t>(
                        crc32(0, reinterpret_cast<const Bytef*>(checked.data()), static_cast<uInt>(checked.size()))));
}

}  // namespace

std::string grey_png(std::size_t width, std::size_t height, const std::vector<unsigned char>& shades) {
  if (width == 0 || height == 0 || shades.size() != width * height) {
    fail("png: {} x {} shades are wanted, got {}", height, width, shades.size());
  }
  std::string lines;
  for (std::size_t y = 0; y < height; ++y) {
    lines += '\0';  // no filter
    lines.append(reinterpret_cast<const char*>(shades.data()) + y * width, width);
  }
  uLongf size = compressBound(lines.size());
  std::string packed(size, '\0');
  if (compress2(reinterpret_cast<Bytef*>(packed.data()), &size, reinterpret_cast<const Bytef*>(lines.data()),
                lines.size(), Z_BEST_COMPRESSION) != Z_OK) {
    fail("png: a picture of {} bytes cannot be compressed", lines.size());
  }
  packed.resize(size);
  std::string header;
  append_number(header, static_cast<std::uint32_t>(width));
  append_number(header, static_cast<std::uint32_t>(height));
  header += std::string("\x08\x00\x00\x00\x00", 5);  // 8 bits, grey, deflate, no interlacing
  std::string png = "\x89PNG\r\n\x1a\n";
  append_chunk(png, "IHDR", header);
  append_chunk(png, "IDAT", packed);
  append_chunk(png, "IEND", "");
  return png;
}

}  // namespace headroom::draw
