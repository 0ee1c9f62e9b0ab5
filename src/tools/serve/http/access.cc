#include "access.h"

#include <arpa/inet.h>
#include <sys/stat.h>

#include <algorithm>
#include <cctype>

#include "foundation/core/machine/log.h"
#include "foundation/core/text/utf8.h"
#include "headroom/core/error.h"
#include "headroom/core/files.h"

namespace headroom::serve {
namespace {

constexpr std::size_t kLongestKey = 1024, kShortestKey = 16;

// The characters of b64token in RFC 6750, which need no escape in a header.
bool is_key_character(char c) {
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

// Removes ":PORT" and the brackets of an IPv6 address.
std::string host_of(std::string_view header) {
  if (header.starts_with('[')) {
    const std::size_t end = header.find(']');
    return lower_case(end == std::string_view::npos ? std::string_view() : header.substr(1, end - 1));
  }
  return lower_case(header.substr(0, header.find(':')));
}

bool is_address(const std::string& name) {
  in6_addr address{};
  return ::inet_pton(AF_INET, name.c_str(), &address) == 1 || ::inet_pton(AF_INET6, name.c_str(), &address) == 1;
}

}  // namespace

ApiKey::ApiKey(const std::filesystem::path& file) {
  std::string key = read_key(file);
  for (const char end : {'\n', '\r'}) {
    if (key.ends_with(end)) {
      key.pop_back();
    }
  }
  if (key.size() < kShortestKey || key.size() > kLongestKey || !std::ranges::all_of(key, is_key_character)) {
    user_error(
        "serve: --api-key-file: {}: must hold one key of {} to {} letters, digits and -._~+/=; create one with "
        "`openssl rand -hex 32`",
        file.string(), kShortestKey, kLongestKey);
  }
  struct stat status {};
  if (::stat(file.c_str(), &status) == 0 && S_ISREG(status.st_mode) && (status.st_mode & (S_IRGRP | S_IROTH)) != 0) {
    log_warning("serve: --api-key-file: {}: can be read by other users of this machine; run chmod 600 on it",
                file.string());
  }
  digest_ = sha256_of(key);
}

bool ApiKey::admits(std::string_view authorization) const {
  constexpr std::string_view kBearer = "bearer ";
  const bool bearer = lower_case(authorization.substr(0, kBearer.size())) == kBearer;
  const std::string given = sha256_of(bearer ? authorization.substr(kBearer.size()) : std::string_view());
  unsigned int difference = bearer ? 0 : 1;
  for (std::size_t i = 0; i < digest_.size(); ++i) {
    difference |= static_cast<unsigned char>(digest_[i]) ^ static_cast<unsigned char>(given[i]);
  }
  return difference == 0;
}

bool is_own_name(std::string_view header, std::string_view own) {
  const std::string name = host_of(header);
  return is_address(name) || name == "localhost" || name.ends_with(".localhost") ||
         (!name.empty() && name == lower_case(own));
}

}  // namespace headroom::serve
