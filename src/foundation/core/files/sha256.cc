#include <openssl/evp.h>

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

}  // namespace headroom
