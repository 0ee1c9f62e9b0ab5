#include "output_file.h"

#include <filesystem>
#include <fstream>

#include "foundation/core/text/message.h"
#include "headroom/core/error.h"
#include "headroom/core/files.h"

namespace headroom::cli {

void require_room_for_like(const std::string& path, std::string_view option, std::string_view begins,
                           std::string_view not_its_like) {
  require_writable(path, option);
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) {
    return;
  }
  std::string there(begins.size(), '\0');
  std::ifstream(path).read(there.data(), static_cast<std::streamsize>(there.size()));
  if (there != begins) {
    user_error("{}: {} is there and {}", option, printable(path), not_its_like);
  }
}

}  // namespace headroom::cli
