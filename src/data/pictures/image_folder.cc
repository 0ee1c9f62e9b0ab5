#include "data/pictures/image_folder.h"

#include <algorithm>
#include <iterator>
#include <optional>

#include "data/pictures/picture_file.h"
#include "headroom/core/error.h"
#include "headroom/core/log.h"
#include "headroom/core/system.h"

namespace headroom::data {
namespace {

namespace fs = std::filesystem;

// Names of what a folder holds, sorted; hidden entries left out.
std::vector<fs::path> entries(const fs::path& folder, bool folders) {
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error); !error && entry != fs::directory_iterator();
       entry.increment(error)) {
    std::error_code ignored;
    if (entry->path().filename().string().front() != '.' &&
        (folders ? entry->is_directory(ignored) : entry->is_regular_file(ignored))) {
      found.push_back(entry->path());
    }
  }
  if (error) {
    misuse("{}: cannot be listed: {}", folder.string(), error.message());
  }
  std::sort(found.begin(), found.end());
  return found;
}

std::int32_t class_of(const fs::path& folder, const std::vector<std::string>& classes) {
  const auto found = std::find(classes.begin(), classes.end(), folder.filename().string());
  if (found == classes.end()) {
    misuse("{}: its name must be one of the {} of data.classes", folder.string(), classes.size());
  }
  return static_cast<std::int32_t>(found - classes.begin());
}

}  // namespace

void add_image_folder(const fs::path& folder, const ImageReading& reading, ImageSet& set) {
  std::vector<fs::path> folders = entries(folder, /*folders=*/true);
  std::vector<std::string> classes = reading.classes;
  if (classes.empty()) {
    std::transform(folders.begin(), folders.end(), std::back_inserter(classes),
                   [](const fs::path& path) { return path.filename().string(); });
  }
  if (std::ssize(classes) != reading.n_classes) {
    misuse("{}: {} names {} classes, but model.n_classes = {}", folder.string(),
           reading.classes.empty() ? "a folder for each class" : "data.classes", classes.size(), reading.n_classes);
  }
  std::vector<std::pair<fs::path, std::int32_t>> files;
  for (const fs::path& one : folders) {
    const std::int32_t label = class_of(one, classes);
    for (fs::path& file : entries(one, /*folders=*/false)) {
      files.emplace_back(std::move(file), label);
    }
  }
  constexpr std::size_t kMany = 1000;
  std::optional<Progress> progress;
  if (files.size() >= kMany) {
    progress.emplace("pictures", std::ssize(files), "file");
  }
  std::string complaint;  // the first
  std::int64_t bad = 0, done = 0;
  for (const auto& [file, label] : files) {
    try {
      set.add(square_planes(read_picture(file, reading.channels), reading.size), label);
    } catch (const MisuseError& error) {
      if (!reading.skip_bad) {
        throw;
      }
      complaint = bad++ == 0 ? error.what() : complaint;
    }
    if (progress) {
      progress->update(++done);
    }
    if (interrupted()) {
      throw InterruptedError(
          fmt::format("{}: interrupted after {} of {} pictures", folder.string(), done, files.size()));
    }
  }
  if (bad > 0) {
    log_warning("{}: {} of {} files were left out; the first: {}", folder.string(), bad, files.size(), complaint);
  }
}

}  // namespace headroom::data
