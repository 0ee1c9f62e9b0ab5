#include "headroom/core/json.h"

#include <algorithm>
#include <system_error>
#include <unordered_set>
#include <vector>

#include "foundation/core/text/format.h"
#include "headroom/core/error.h"
#include "headroom/core/files.h"

namespace headroom {
namespace {

// Returns the library's message without its tag and the quoted input, which may be binary.
std::string json_complaint(std::string_view what) {
  if (const std::size_t tag = what.find("] "); tag != std::string_view::npos) {
    what.remove_prefix(tag + 2);
  }
  if (what.starts_with("parse error at ")) {
    what.remove_prefix(std::min(what.size(), what.find(": ") + 2));
  }
  if (const std::size_t quote = what.find("; last read"); quote != std::string_view::npos) {
    what = what.substr(0, quote);
  }
  return printable(what, 200);
}

// Checks a document without building it. The depth must be checked first, because the library destroys nested values
// recursively.
constexpr const char* kOneALine = "{}: expected one JSON object a line, got {}";

template <class J>
class JsonGuard : public J::json_sax_t {
 public:
  JsonGuard(std::string_view origin, std::size_t max_depth, std::string_view line = {})
      : origin_(origin), max_depth_(max_depth), line_(line) {}

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(typename J::number_integer_t) override { return true; }
  bool number_unsigned(typename J::number_unsigned_t) override { return true; }
  bool number_float(typename J::number_float_t, const std::string&) override { return true; }
  bool string(std::string&) override { return true; }
  bool binary(typename J::binary_t&) override { return true; }
  bool start_object(std::size_t) override {
    enter();
    keys_.emplace_back();
    return true;
  }
  bool key(std::string& key) override {
    if (!keys_.back().insert(key).second) {
      user_error("{}: the JSON key \"{}\" occurs twice in one object", origin_, printable(key));
    }
    return true;
  }
  bool end_object() override {
    keys_.pop_back();
    --depth_;
    return true;
  }
  bool start_array(std::size_t) override {
    enter();
    return true;
  }
  bool end_array() override {
    --depth_;
    return true;
  }
  bool parse_error(std::size_t byte, const std::string&, const typename J::exception& error) override {
    if (!line_.empty() && byte > line_.size()) {
      user_error(kOneALine, origin_, line_.front() == '[' ? "the beginning of an array" : "the beginning of one");
    }
    user_error("{}: not valid JSON at byte {}: {}", origin_, byte, json_complaint(error.what()));
  }

 private:
  void enter() {
    if (++depth_ > max_depth_) {
      user_error("{}: JSON nested deeper than {} levels", origin_, max_depth_);
    }
  }
  std::string_view origin_;
  std::size_t max_depth_, depth_ = 0;
  std::string_view line_;
  std::vector<std::unordered_set<std::string>> keys_;  // keys of each open object
};

template <class J>
J parse_json_as(std::string_view text, std::string_view origin, std::size_t max_depth, std::string_view line = {}) {
  // The library would treat a zero byte as the end and ignore the rest.
  if (const std::size_t zero = text.find('\0'); zero != std::string_view::npos) {
    user_error("{}: not valid JSON at byte {}: a zero byte", origin, zero + 1);
  }
  JsonGuard<J> guard(origin, max_depth, line);
  J::sax_parse(text, &guard);
  return J::parse(text);
}

}  // namespace

Json parse_json(std::string_view text, std::string_view origin, std::size_t max_depth) {
  return parse_json_as<Json>(text, origin, max_depth);
}

Json parse_json_line(std::string_view text, std::string_view origin) {
  Json value = parse_json_as<Json>(text, origin, 64, text);
  if (!value.is_object()) {
    user_error(kOneALine, origin, value.type_name());
  }
  return value;
}

SortedJson parse_sorted_json(std::string_view text, std::string_view origin, std::size_t max_depth) {
  return parse_json_as<SortedJson>(text, origin, max_depth);
}

SortedJson read_json_object(const std::filesystem::path& file) {
  std::error_code ignored;
  if (!std::filesystem::exists(file, ignored)) {
    return SortedJson::object();
  }
  if (!std::filesystem::is_regular_file(file, ignored)) {
    user_error("{}: is not a regular file", file.string());
  }
  SortedJson document = parse_sorted_json(read_text_file(file), file.string());
  if (!document.is_object()) {
    user_error("{}: must be a JSON object, got {}", file.string(), document.type_name());
  }
  return document;
}

std::string to_json_line(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace headroom
