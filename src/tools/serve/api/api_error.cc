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
      return {status, "not_found", "", "this server has no such path"};
    case 413:
      return {status, "request_too_large", "", "the request is too large"};
    case 414:
      return {status, "request_too_large", "", "the path is too long"};
    default:
      return status >= 500 ? ApiError(status, "internal_error", "", "internal error; see the log of the server")
                           : ApiError(status, "bad_request", "", "the request is not valid HTTP");
  }
}

}  // namespace headroom::serve
