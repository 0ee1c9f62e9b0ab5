#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>

#include "data/text/token_cache.h"
#include "foundation/core/machine/system.h"
#include "headroom/core/error.h"
#include "headroom/core/files.h"
#include "image_file.h"
#include "image_sources.h"

namespace headroom::data {
namespace {

namespace fs = std::filesystem;

// Returns the sorted names of the files (or folders) in `folder`, without hidden ones.
std::vector<std::string> entries(const fs::path& folder, bool folders) {
  std::vector<std::string> found;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error); !error && entry != fs::directory_iterator();
       entry.increment(error)) {
    std::error_code ignored;
    std::string name = entry->path().filename().string();
    if (name.front() != '.' && (folders ? entry->is_directory(ignored) : entry->is_regular_file(ignored))) {
      found.push_back(std::move(name));
    }
  }
  if (error) {
    user_error("{}: cannot be listed: {}", folder.string(), error.message());
  }
  std::sort(found.begin(), found.end());
  return found;
}

class ImageFolder : public ImageDataset {
 public:
  ImageFolder(fs::path folder, const ImageReading& reading)
      : folder_(std::move(folder)), channels_(reading.channels), skip_bad_(reading.skip_bad) {
    const std::vector<std::string> folders = entries(folder_, /*folders=*/true);
    const std::vector<std::string>& names = reading.classes.empty() ? folders : reading.classes;
    if (std::ssize(names) != reading.n_classes) {
      user_error("{}: {} names {} classes, but model.n_classes = {}", folder_.string(),
                 reading.classes.empty() ? "a folder for each class" : "data.classes", names.size(), reading.n_classes);
    }
    for (const std::string& name : folders) {
      const auto label = std::find(names.begin(), names.end(), name);
      if (label == names.end()) {
        user_error("{}: its name must be one of the {} of data.classes", (folder_ / name).string(), names.size());
      }
      add(name, static_cast<std::int32_t>(label - names.begin()));
    }
  }

  std::int64_t size() const override { return std::ssize(ends_); }
  std::int32_t label(std::int64_t i) const override { return class_of(i).label; }
  Image image(std::int64_t i) const override { return read_image(path(i), channels_); }
  std::string identity() const override {
    Sha256 hash;
    for (std::int64_t i = 0; i < size(); ++i) {
      std::error_code ignored;
      hash.update(fmt::format("{}/{}/{}/", class_of(i).label, name(i), fs::file_size(path(i), ignored)));
    }
    return fmt::format("{} pictures, {}", size(), dataset_id(hash));
  }

 private:
  struct Class {
    std::string name;
    std::int32_t label = 0;
    std::int64_t end = 0;  // index after the last image of the class
  };

  // Rejects a file whose name is not an image's. Doing so here avoids an error in the middle of a training run.
  void add(const std::string& name, std::int32_t label) {
    for (const std::string& file : entries(folder_ / name, /*folders=*/false)) {
      if (!skip_bad_ && !is_image_ending(std::string_view(file).substr(file.rfind('.') + 1))) {
        user_error("{}: not an image file: its name must end in .{}", (folder_ / name / file).string(),
                   fmt::join(kImageEndings, ", ."));
      }
      names_ += file;
      ends_.push_back(names_.size());
    }
    classes_.push_back({.name = name, .label = label, .end = std::ssize(ends_)});
    if (interrupted()) {
      throw InterruptedError(fmt::format("{}: interrupted after {} images", folder_.string(), ends_.size()));
    }
  }
  const Class& class_of(std::int64_t i) const {
    return *std::upper_bound(classes_.begin(), classes_.end(), i,
                             [](std::int64_t place, const Class& one) { return place < one.end; });
  }
  std::string name(std::int64_t i) const {
    const auto place = static_cast<std::size_t>(i);
    const std::size_t begin = place == 0 ? 0 : ends_[place - 1];
    return names_.substr(begin, ends_[place] - begin);
  }
  fs::path path(std::int64_t i) const { return folder_ / class_of(i).name / name(i); }

  fs::path folder_;
  std::int64_t channels_;
  bool skip_bad_;  // also skip images that cannot be decoded, when they are read
  std::vector<Class> classes_;
  std::string names_;              // file names, concatenated
  std::vector<std::size_t> ends_;  // end of each name in names_
};

}  // namespace

std::unique_ptr<const ImageDataset> open_image_folder(const fs::path& folder, const ImageReading& reading) {
  return std::make_unique<ImageFolder>(folder, reading);
}

}  // namespace headroom::data
