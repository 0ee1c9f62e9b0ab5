// Who may use a server: those who know its key.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace headroom::serve {

class ApiKey {
 public:
  // The file holds the key and at most a line end. Throws UserError naming it where it is no key, and warns where
  // others may read it.
  explicit ApiKey(const std::filesystem::path& file);

  // Whether the value of an Authorization header is "Bearer" and the key. How long that takes tells nothing of the key.
  bool admits(std::string_view authorization) const;

 private:
  std::string digest_;
};

}  // namespace headroom::serve
