#include "image_dataset.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "data/text/text.h"
#include "headroom/core/error.h"
#include "image_sources.h"

namespace headroom::data {
namespace {

namespace fs = std::filesystem;

class ConcatenatedImages : public ImageDataset {
 public:
  explicit ConcatenatedImages(std::vector<std::unique_ptr<const ImageDataset>> sets) : sets_(std::move(sets)) {
    for (const auto& set : sets_) {
      ends_.push_back((ends_.empty() ? 0 : ends_.back()) + set->size());
    }
  }

  std::int64_t size() const override { return ends_.empty() ? 0 : ends_.back(); }
  std::int32_t label(std::int64_t i) const override { return sets_[set_of(i)]->label(i - begin_of(set_of(i))); }
  Image image(std::int64_t i) const override { return sets_[set_of(i)]->image(i - begin_of(set_of(i))); }
  std::string identity() const override {
    std::string all;
    for (const auto& set : sets_) {
      all += (all.empty() ? "" : "; ") + set->identity();
    }
    return all;
  }

 private:
  std::size_t set_of(std::int64_t i) const {
    return static_cast<std::size_t>(std::upper_bound(ends_.begin(), ends_.end(), i) - ends_.begin());
  }
  std::int64_t begin_of(std::size_t set) const { return set == 0 ? 0 : ends_[set - 1]; }

  std::vector<std::unique_ptr<const ImageDataset>> sets_;
  std::vector<std::int64_t> ends_;
};

}  // namespace

std::shared_ptr<const ImageDataset> open_images(const std::vector<std::string>& patterns, const ImageReading& reading) {
  std::vector<std::unique_ptr<const ImageDataset>> sets;
  std::vector<std::string> names;
  for (const std::string& pattern : patterns) {
    std::error_code ignored;
    if (fs::is_directory(pattern, ignored)) {
      if (reading.channels != 1 && reading.channels != 3) {
        user_error("{}: its images need model.image_channels = 1 or 3, got {}", pattern, reading.channels);
      }
      sets.push_back(open_image_folder(pattern, reading));
    } else {
      names.push_back(pattern);
    }
  }
  if (const std::vector<fs::path> files = expand_patterns(names); !files.empty()) {
    sets.push_back(std::make_unique<InMemoryImages>(read_images(files, reading)));
  }
  std::shared_ptr<const ImageDataset> set;
  if (sets.size() == 1) {
    set = std::move(sets.front());
  } else {
    set = std::make_shared<ConcatenatedImages>(std::move(sets));
  }
  if (set->size() == 0) {
    user_error("{}: holds no images", patterns.empty() ? "" : patterns.front());
  }
  return set;
}

}  // namespace headroom::data
