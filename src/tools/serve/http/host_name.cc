#include "host_name.h"

#include <arpa/inet.h>

#include <string>

#include "foundation/core/text/utf8.h"

namespace headroom::serve {
namespace {

// Without ":PORT" and the brackets of an IPv6 address.
std::string name_of(std::string_view header) {
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

bool is_own_name(std::string_view header, std::string_view own) {
  const std::string name = name_of(header);
  return is_address(name) || name == "localhost" || name.ends_with(".localhost") ||
         (!name.empty() && name == lower_case(own));
}

}  // namespace headroom::serve
