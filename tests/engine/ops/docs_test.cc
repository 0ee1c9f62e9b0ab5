// Checks the generated parts of docs/operators.md. HEADROOM_WRITE_DOCS=1 rewrites them.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "engine/ops/backend.h"
#include "headroom/core/error.h"

namespace headroom::ops::docs_test {

std::string content_of(const std::string& file) {
  std::stringstream content;
  content << std::ifstream(std::string(HEADROOM_SOURCE_DIR) + "/" + file).rdbuf();
  return content.str();
}

// The place of the text between two marks.
struct Part {
  std::size_t begin, size;
};
Part find_part(const std::string& text, const std::string& first, const std::string& last) {
  const std::size_t begin = text.find(first) + first.size(), end = text.find(last);
  if (text.find(first) == std::string::npos || end == std::string::npos || end < begin) {
    fail("no \"{}\" ... \"{}\"", first, last);
  }
  return {begin, end - begin};
}

// Compares the part of the page between the HTML comments with this name, or rewrites that part.
void expect_part(const std::string& name, const std::string& expected) {
  const std::string file = "docs/operators.md";
  std::string page = content_of(file);
  const Part part = find_part(page, "<!-- begin: " + name + " -->\n", "<!-- end: " + name + " -->");
  if (std::getenv("HEADROOM_WRITE_DOCS") != nullptr) {
    page.replace(part.begin, part.size, expected);
    std::ofstream(std::string(HEADROOM_SOURCE_DIR) + "/" + file) << page;
    return;
  }
  EXPECT_EQ(page.substr(part.begin, part.size), expected) << "HEADROOM_WRITE_DOCS=1 writes " << file << " anew";
}

TEST(OperatorsPage, SaysWhatIsFusedWhere) {
  constexpr std::pair<const char*, at::ScalarType> kTypes[] = {
      {"float32", at::kFloat}, {"bfloat16", at::kBFloat16}, {"float16", at::kHalf}, {"float64", at::kDouble}};
  std::string table = "| operator | device | backend |", rule = "|---|---|---|";
  for (const auto& [name, type] : kTypes) {
    table += fmt::format(" {} |", name);
    rule += "---|";
  }
  table += "\n" + rule + "\n";
  for (const BackendList* list : backend_lists()) {
    if (list->op().starts_with("toy")) {  // other tests' operators
      continue;
    }
    for (const BackendTraits& backend : list->traits()) {
      table += fmt::format("| `{}` | {} | `{}` |", list->op(), at::DeviceTypeName(backend.device), backend.name);
      for (const auto& [name, type] : kTypes) {
        table += backend.takes(type) ? " fused |" : " reference |";
      }
      table += "\n";
    }
  }
  expect_part("what is fused where", table);
}

TEST(OperatorsPage, QuotesTheToyOperator) {
  const std::string file = content_of("tests/engine/ops/toy_operator_test.cc");
  const Part example = find_part(file, "// The example begins.\n", "// The example ends.");
  expect_part("example", "```cpp\n" + file.substr(example.begin, example.size) + "```\n");
}

}  // namespace headroom::ops::docs_test
