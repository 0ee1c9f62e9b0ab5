#include "folders.h"

#include <cstdint>
#include <limits>

namespace headroom {

namespace fs = std::filesystem;

std::error_code walk_folder(const fs::path& folder, const std::function<bool(const fs::directory_entry&)>& visit,
                            fs::directory_options options) {
  std::error_code error;
  for (fs::recursive_directory_iterator entry(folder, options, error), end; !error && entry != end;
       entry.increment(error)) {
    if (!visit(*entry)) {
      entry.disable_recursion_pending();
    }
  }
  return error;
}

double folder_bytes(const fs::path& folder) {
  double bytes = 0.0;
  walk_folder(folder, [&](const fs::directory_entry& entry) {
    std::error_code unknown;
    const std::uintmax_t size = entry.file_size(unknown);  // an error for a folder
    bytes += unknown ? 0.0 : static_cast<double>(size);
    return true;
  });
  return bytes;
}

double available_bytes(const fs::path& path) {
  std::error_code unknown;
  for (fs::path at = path; !at.empty(); at = at.parent_path()) {
    if (const fs::space_info space = fs::space(at, unknown); !unknown) {
      return static_cast<double>(space.available);
    }
    if (at == at.parent_path()) {
      break;
    }
  }
  return std::numeric_limits<double>::infinity();
}

}  // namespace headroom
