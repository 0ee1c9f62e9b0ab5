#include "images.h"

#include "data/tokens/dataset_id.h"
#include "headroom/core/error.h"
#include "headroom/core/files.h"

namespace headroom::data {

std::span<const std::uint8_t> ImageSet::at(std::int64_t i) const {
  return std::span(pixels_).subspan(static_cast<std::size_t>(i * bytes_each()), static_cast<std::size_t>(bytes_each()));
}

void ImageSet::add(std::span<const std::uint8_t> pixels, std::int32_t label) {
  if (std::ssize(pixels) != bytes_each()) {
    fail("pictures: {} bytes make none of {} channels, {} x {}", pixels.size(), channels_, size_, size_);
  }
  pixels_.insert(pixels_.end(), pixels.begin(), pixels.end());
  labels_.push_back(label);
}

DecodedPicture ImageSet::picture(std::int64_t i) const {
  const std::span<const std::uint8_t> planes = at(i);
  DecodedPicture picture{.width = size_, .height = size_, .channels = channels_, .pixels = {}};
  picture.pixels.resize(planes.size());
  const auto area = static_cast<std::size_t>(size_ * size_), channels = static_cast<std::size_t>(channels_);
  for (std::size_t place = 0; place < area; ++place) {
    for (std::size_t c = 0; c < channels; ++c) {
      picture.pixels[place * channels + c] = planes[c * area + place];
    }
  }
  return picture;
}

std::string ImageSet::identity() const {
  Sha256 hash;
  hash.update(std::as_bytes(std::span(pixels_)));
  hash.update(std::as_bytes(std::span(labels_)));
  return fmt::format("{} pictures, {}", size(), dataset_id(hash));
}

}  // namespace headroom::data
