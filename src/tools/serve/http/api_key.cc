#include "api_key.h"

#include <sys/stat.h>

#include <algorithm>
#include <cctype>

#include "foundation/core/machine/log.h"
#include "headroom/core/error.h"
#include "headroom/core/files.h"

namespace headroom::serve {
namespace {

constexpr std::size_t kLongestKey = 1024, kShortestKey = 16;

std::string digest_of(std::string_view text) {
  Sha256 sum;
  sum.update(text);
  return sum.hex();
}

// Characters that a header carries as they are (RFC 6750, b64token).
bool is_of_a_key(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
         std::string_view("-._~+/=").find(c) != std::string_view::npos;
}

std::string read_key(const std::filesystem::path& file) {
  try {
    return read_text_file(file, std::size_t{1} << 20U);
  } catch (const UserError& error) {
    user_error("serve: --api-key-file: {}", error.what());
  }
}

}  // namespace

ApiKey::ApiKey(const std::filesystem::path& file) {
  std::string key = read_key(file);
  for (const char end : {'\n', '\r'}) {
    if (key.ends_with(end)) {
      key.pop_back();
    }
  }
  if (key.size() < kShortestKey || key.size() > kLongestKey || !std::all_of(key.begin(), key.end(), is_of_a_key)) {
    user_error(
        "serve: --api-key-file: {}: must hold one key of {} to {} characters, letters, digits and -._~+/= (openssl "
        "rand -hex 32 makes one)",
        file.string(), kShortestKey, kLongestKey);
  }
  struct stat status {};
  if (::stat(file.c_str(), &status) == 0 && S_ISREG(status.st_mode) && (status.st_mode & (S_IRGRP | S_IROTH)) != 0) {
    log_warning("serve: --api-key-file: {}: other users of this machine may read it: chmod 600 keeps them out",
                file.string());
  }
  digest_ = digest_of(key);
}

bool ApiKey::admits(std::string_view authorization) const {
  constexpr std::string_view kBearer = "Bearer ";
  const bool bearer = authorization.starts_with(kBearer);
  const std::string given = digest_of(bearer ? authorization.substr(kBearer.size()) : std::string_view());
  unsigned int difference = bearer ? 0 : 1;
  for (std::size_t i = 0; i < digest_.size(); ++i) {
    difference |= static_cast<unsigned char>(digest_[i]) ^ static_cast<unsigned char>(given[i]);
  }
  return difference == 0;
}

}  // namespace headroom::serve
