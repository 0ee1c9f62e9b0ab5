// Compresses texts for the tests of this room, and reads whole texts from their blocks.
#pragma once

#include <zlib.h>
#include <zstd.h>

#include "data/text/text.h"
#include "folder_test.h"

namespace headroom::data {

inline std::string gzip(std::string_view text) {
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, 6, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string packed(deflateBound(&stream, text.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

inline std::string zstd(std::string_view text, int window_log = 0) {
  ZSTD_CCtx* const stream = ZSTD_createCCtx();
  ZSTD_CCtx_setParameter(stream, ZSTD_c_checksumFlag, 1);
  ZSTD_CCtx_setParameter(stream, ZSTD_c_windowLog, window_log);
  std::string packed(ZSTD_compressBound(text.size()) + 64, '\0');
  ZSTD_inBuffer in{text.data(), text.size(), 0};
  ZSTD_outBuffer out{packed.data(), packed.size(), 0};
  for (const ZSTD_EndDirective what : {ZSTD_e_flush, ZSTD_e_end}) {  // the frame does not state its size
    EXPECT_EQ(ZSTD_compressStream2(stream, &out, &in, what), 0U);
  }
  ZSTD_freeCCtx(stream);
  packed.resize(out.pos);
  return packed;
}

inline std::vector<std::string> blocks_of(tokenizers::TextSource& text) {
  text.rewind();
  std::vector<std::string> blocks;
  for (std::string block; text.next(block);) {
    blocks.push_back(block);
  }
  return blocks;
}

inline std::string text_of(tokenizers::TextSource& text) {
  std::string all;
  for (const std::string& block : blocks_of(text)) {
    all += block;
  }
  return all;
}

inline std::string text_of(const std::vector<std::string>& patterns, const config::DataOptions& options = {}) {
  return text_of(*open_text(patterns, options));
}

}  // namespace headroom::data
