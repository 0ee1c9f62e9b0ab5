#include "image_dataset.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "data/text/text.h"
#include "data/text/token_cache.h"
#include "foundation/core/files/folders.h"
#include "foundation/core/machine/log.h"
#include "foundation/core/machine/system.h"
#include "headroom/core/error.h"
#include "headroom/core/files.h"

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
    return static_cast<std::size_t>(std::ranges::upper_bound(ends_, i) - ends_.begin());
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

namespace {

namespace fs = std::filesystem;

struct FolderEntry {
  std::string name;  // relative to the folder
  fs::file_type type = fs::file_type::none;
};

// Returns the sorted entries of a folder, without hidden ones. `below`: enters subfolders, but not links to folders,
// and returns what is in them instead. A link has the type of its target.
std::vector<FolderEntry> entries(const fs::path& folder, bool below) {
  std::vector<FolderEntry> found;
  const std::error_code error = walk_folder(folder, [&](const fs::directory_entry& entry) {
    std::error_code ignored;
    const bool hidden = entry.path().filename().string().starts_with('.');
    const bool enters = below && !hidden && entry.is_directory(ignored) && !entry.is_symlink(ignored);
    if (!enters && !hidden) {
      found.push_back({entry.path().lexically_relative(folder).string(),
                       entry.is_regular_file(ignored) ? fs::file_type::regular : entry.status(ignored).type()});
    }
    return enters;
  });
  if (error) {
    user_error("{}: cannot be listed: {}", folder.string(), error.message());
  }
  std::ranges::sort(found, {}, &FolderEntry::name);
  return found;
}

const char* name_of(fs::file_type type) {
  switch (type) {
    case fs::file_type::directory:
      return "link to a folder";
    case fs::file_type::not_found:
      return "broken link";
    case fs::file_type::fifo:
      return "named pipe";
    default:
      return "device or another special file";
  }
}

class ImageFolder : public ImageDataset {
 public:
  ImageFolder(fs::path folder, const ImageReading& reading)
      : folder_(std::move(folder)), channels_(reading.channels), skip_bad_(reading.skip_bad) {
    std::vector<std::string> folders;
    std::int64_t beside = 0;
    for (const FolderEntry& entry : entries(folder_, /*below=*/false)) {
      entry.type == fs::file_type::directory ? folders.push_back(entry.name) : void(++beside);
    }
    const std::vector<std::string>& names = reading.classes.empty() ? folders : reading.classes;
    if (std::ssize(names) != reading.n_classes) {
      user_error("{}: {} names {} classes, but model.n_classes = {}", folder_.string(),
                 reading.classes.empty() ? "a folder for each class" : "data.classes", names.size(), reading.n_classes);
    }
    for (const std::string& name : folders) {
      const auto label = std::ranges::find(names, name);
      if (label == names.end()) {
        user_error("{}: its name must be one of the {} of data.classes", (folder_ / name).string(), names.size());
      }
      add(name, static_cast<std::int32_t>(label - names.begin()));
    }
    if (beside > 0) {
      log_info("{}: {} files beside the folders of the classes are not used", folder_.string(), beside);
    }
    if (left_out_ > 0) {
      log_warning("{}: {} files were left out; the first: {}", folder_.string(), left_out_, complaint_);
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

  // Rejects entries that are not images, by their type or name. Doing so here avoids an error in the middle of a
  // training run.
  void add(const std::string& name, std::int32_t label) {
    for (const auto& [file, type] : entries(folder_ / name, /*below=*/true)) {
      const std::string path = (folder_ / name / file).string();
      if (type != fs::file_type::regular) {
        const std::string why = fmt::format("{}: not an image file: it is a {}", path, name_of(type));
        if (!skip_bad_) {
          user_error("{}", why);
        }
        complaint_ = left_out_++ == 0 ? why : complaint_;
        continue;
      }
      if (!skip_bad_ && !is_image_ending(std::string_view(file).substr(file.rfind('.') + 1))) {
        user_error("{}: not an image file: its name must end in .{}", path, fmt::join(kImageEndings, ", ."));
      }
      names_ += file;
      ends_.push_back(names_.size());
    }
    classes_.push_back({.name = name, .label = label, .end = std::ssize(ends_)});
    if (interrupted()) {
      throw InterruptedError(fmt::format("{}: interrupted after {} images", folder_.string(), ends_.size()));
    }
  }
  const Class& class_of(std::int64_t i) const { return *std::ranges::upper_bound(classes_, i, {}, &Class::end); }
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
  std::string names_;              // file names relative to their class, concatenated
  std::vector<std::size_t> ends_;  // end of each name in names_
  std::int64_t left_out_ = 0;
  std::string complaint_;  // error message of the first file left out
};

}  // namespace

std::unique_ptr<const ImageDataset> open_image_folder(const fs::path& folder, const ImageReading& reading) {
  return std::make_unique<ImageFolder>(folder, reading);
}

}  // namespace headroom::data
