#include "api_error.h"

namespace headroom::serve {
namespace {

const char* type_of(int status) {
  if (status == 429) {
    return "rate_limit_error";
  }
  return status >= 500 ? "server_error" : "invalid_request_error";
}

}  // namespace

Json to_json(const ApiError& error) {
  const auto or_null = [](const std::string& text) { return text.empty() ? Json() : Json(text); };
  return {{"error",
           {{"message", error.what()},
            {"type", type_of(error.status)},
            {"param", or_null(error.param)},
            {"code", or_null(error.code)}}}};
}

ApiError error_of_status(int status) {
  switch (status) {
    case 404:
      return {status, "not_found", "", "there is nothing at this address"};
    case 413:
      return {status, "request_too_large", "", "the request is larger than this server takes"};
    case 414:
      return {status, "request_too_large", "", "the address is longer than this server takes"};
    default:
      return status >= 500
                 ? ApiError(status, "internal_error", "", "the server could not do this")
                 : ApiError(status, "bad_request", "", "this is no request of HTTP that the server understands");
  }
}

}  // namespace headroom::serve
