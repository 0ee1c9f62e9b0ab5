#include <fmt/format.h>
#include <openssl/evp.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <ctime>

#include "foundation/core/machine/system.h"
#include "headroom/core/error.h"
#include "headroom/core/files.h"

namespace headroom {
namespace {

EVP_MD_CTX* open(void* context) {
  return static_cast<EVP_MD_CTX*>(context);
}

void require(bool done) {
  if (!done) {
    fail("sha256: OpenSSL failed");
  }
}

}  // namespace

Sha256::Sha256() : context_(EVP_MD_CTX_new()) {
  if (context_ == nullptr || EVP_DigestInit_ex(open(context_), EVP_sha256(), nullptr) != 1) {
    EVP_MD_CTX_free(open(context_));
    require(false);
  }
}

Sha256::~Sha256() {
  EVP_MD_CTX_free(open(context_));
}

void Sha256::update(std::span<const std::byte> bytes) {
  require(EVP_DigestUpdate(open(context_), bytes.data(), bytes.size()) == 1);
}

void Sha256::update(std::string_view text) {
  update(std::as_bytes(std::span(text)));
}

std::string Sha256::hex() {
  unsigned char sum[EVP_MAX_MD_SIZE];
  unsigned length = 0;
  require(EVP_DigestFinal_ex(open(context_), sum, &length) == 1);
  std::string text;
  for (unsigned i = 0; i < length; ++i) {
    text += fmt::format("{:02x}", sum[i]);
  }
  return text;
}

namespace {

namespace fs = std::filesystem;

constexpr off_t kCachedFrom = off_t{1} << 20;  // bytes; smaller files are hashed as fast as the cache is read
constexpr std::size_t kHexDigits = 64;

// Returns the file of the cached hash; empty if the hash must not be cached. Times of change have a resolution of some
// milliseconds, so a file that has just changed may change again without another time.
fs::path cached_at(const struct stat& status) {
  constexpr std::time_t kSettled = 2;  // seconds
  if (status.st_size < kCachedFrom || std::time(nullptr) - status.st_ctim.tv_sec < kSettled) {
    return {};
  }
  const std::string key = fmt::format("{} {} {} {}.{:09}", status.st_dev, status.st_ino, status.st_size,
                                      status.st_ctim.tv_sec, status.st_ctim.tv_nsec);
  return fs::path(cache_folder()) / "content" / sha256_of(std::string_view(key)).substr(0, kHexDigits / 4);
}

}  // namespace

std::string content_sha256(const fs::path& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) {
    user_error("{}: cannot be read: {}", path.string(), std::strerror(errno));
  }
  const fs::path cached = cached_at(status);
  std::error_code ignored;
  if (!cached.empty() && fs::exists(cached, ignored)) {
    if (std::string hash = read_text_file(cached); hash.size() == kHexDigits) {
      return hash;
    }
  }
  std::string hash = sha256_of(MappedFile(path).bytes());
  if (!cached.empty()) {
    try {
      make_folder(cached.parent_path());
      write_text_file(cached, hash);
    } catch (const Error&) {  // the next call computes it again
    }
  }
  return hash;
}

}  // namespace headroom
