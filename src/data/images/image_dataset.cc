#include "image_dataset.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "data/text/text.h"
#include "foundation/core/files/byte_reader.h"
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
  std::vector<std::int64_t> file_sizes() const override {
    std::vector<std::int64_t> all;
    for (const auto& set : sets_) {
      const std::vector<std::int64_t> sizes = set->file_sizes();
      all.insert(all.end(), sizes.begin(), sizes.end());
      if (sizes.empty()) {
        all.insert(all.end(), static_cast<std::size_t>(set->size()), 1);
      }
    }
    return all;
  }
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

bool is_shard(const fs::path& path) {
  const std::string ending = file_ending(path);
  if (ending == ".tgz" || (ending == ".tar" && unpacked_name(path) != path)) {
    user_error("{}: is compressed: images are read from any position of a shard, which must be a plain .tar",
               path.string());
  }
  return ending == ".tar";
}

void check_channels(const std::string& name, const ImageReading& reading) {
  if (reading.channels != 1 && reading.channels != 3) {
    user_error("{}: its images need model.image_channels = 1 or 3, got {}", name, reading.channels);
  }
}

}  // namespace

std::shared_ptr<const ImageDataset> open_images(const std::vector<std::string>& patterns, const ImageReading& reading) {
  std::vector<std::unique_ptr<const ImageDataset>> sets;
  std::vector<std::string> names;
  for (const std::string& pattern : patterns) {
    std::error_code ignored;
    if (fs::is_directory(pattern, ignored)) {
      check_channels(pattern, reading);
      sets.push_back(open_image_folder(pattern, reading));
    } else {
      names.push_back(pattern);
    }
  }
  std::vector<fs::path> shards, files;
  for (const fs::path& path : expand_patterns(names)) {
    (is_shard(path) ? shards : files).push_back(path);
  }
  if (!shards.empty()) {
    check_channels(shards.front().string(), reading);
    sets.push_back(open_image_shards(shards, reading));
  }
  if (!files.empty()) {
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
