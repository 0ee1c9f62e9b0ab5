#include "headroom/core/json.h"

#include <cmath>

#include "scratch_folder.h"

namespace headroom::json_test {

std::string complaint(std::string_view text, std::size_t depth = 64) {
  return complaint_of([&] { parse_json(text, "x.json", depth); });
}

TEST(ParseJson, KeepsValuesAndOrder) {
  const Json json = parse_json(R"({"z": [1, 2.5, null, true], "a": {"k": "\u00e4"}, "n": -7})", "x");
  EXPECT_EQ(json["z"][1].get<double>(), 2.5);
  EXPECT_EQ(json["a"]["k"].get<std::string>(), "ä");
  EXPECT_EQ(json.begin().key(), "z");
  EXPECT_EQ(json["n"].get<int>(), -7);
}

TEST(ParseJson, NamesFileAndByte) {
  EXPECT_EQ(complaint("{\"a\": 1,}"),
            "user error: x.json: not valid JSON at byte 9: syntax error while parsing object key - unexpected '}'; "
            "expected string literal");
  EXPECT_EQ(complaint(""),
            "user error: x.json: not valid JSON at byte 1: syntax error while parsing value - unexpected end of input; "
            "expected '[', '{', or a literal");
  EXPECT_EQ(complaint(std::string_view("{}\0{", 4)), "user error: x.json: not valid JSON at byte 3: a zero byte");
  EXPECT_TRUE(complaint("{} {}").starts_with("user error: x.json: not valid JSON at byte 4: "));
  EXPECT_TRUE(complaint("1e999").starts_with("user error: x.json: not valid JSON at byte 5: "));
}

TEST(ParseJson, RefusesInvalidUtf8InOneCleanLine) {
  for (const std::string bytes :
       {"\"\xff\"", "\"\xc3\x28\"", "\"\xed\xa0\x80\"", "\"\xc0\xaf\"", "\xff\xfe", "\"\x01\""}) {
    const std::string text = complaint(bytes);
    EXPECT_TRUE(text.starts_with("user error: x.json: not valid JSON at byte ")) << text;
    for (const char c : text) {
      EXPECT_TRUE(c >= ' ' && c <= '~') << text;
    }
  }
}

TEST(ParseJson, RefusesKeysThatOccurTwice) {
  EXPECT_EQ(complaint(R"({"a": 1, "b": {"a": 2}, "a": 3})"),
            "user error: x.json: the JSON key \"a\" occurs twice in one object");
  EXPECT_EQ(complaint(R"([{"a": 1}, {"a": 1}, {"b": {"a": {"a": 1}}}])"), "no error");
  EXPECT_EQ(complaint(R"({"x\ny": 1, "x\ny": 1})"),
            "user error: x.json: the JSON key \"x\\ny\" occurs twice in one object");
}

TEST(ParseJson, CountsLevels) {
  EXPECT_EQ(complaint("[[[0]]]", 3), "no error");
  EXPECT_EQ(complaint("[[[[0]]]]", 3), "user error: x.json: JSON nested deeper than 3 levels");
  EXPECT_EQ(complaint(R"({"a": [{"b": []}]})", 3), "user error: x.json: JSON nested deeper than 3 levels");
  EXPECT_EQ(complaint("[[],[],[],[]]", 2), "no error");
}

TEST(ParseJson, DepthNeverReachesTheStack) {
  const std::size_t million = 1'000'000;
  std::string objects;
  for (std::size_t i = 0; i < million / 5; ++i) {
    objects += "{\"a\":";
  }
  const std::string deep = "user error: x.json: JSON nested deeper than 64 levels";
  EXPECT_EQ(complaint(std::string(million, '[')), deep);
  EXPECT_EQ(complaint(std::string(million, '[') + std::string(million, ']')), deep);
  EXPECT_EQ(complaint(objects), deep);
}

TEST(JsonLine, ReadsBackExactly) {
  Json json = {{"x", 0.1}, {"y", 1e-300}, {"z", 1.0 / 3.0}, {"n", std::numeric_limits<std::int64_t>::min()}};
  const std::string line = to_json_line(json);
  EXPECT_EQ(line.find('\n'), std::string::npos);
  EXPECT_EQ(parse_json(line, "line"), json);
}

TEST(JsonLine, ReplacesNonFiniteNumbersAndInvalidText) {
  EXPECT_EQ(to_json_line({{"a", NAN}, {"b", INFINITY}, {"c", "x\xffy\n"}}),
            "{\"a\":null,\"b\":null,\"c\":\"x\xef\xbf\xbdy\\n\"}");
}

using JsonObject = ScratchFolder;

TEST_F(JsonObject, IsReadFromAFile) {
  EXPECT_EQ(read_json_object(folder_ / "missing.json"), SortedJson::object());
  EXPECT_EQ(read_json_object(put("a.json", "{\"b\": 1}")).at("b"), 1);
  const std::filesystem::path list = put("list.json", "[1]");
  EXPECT_EQ(complaint_of([&] { read_json_object(list); }),
            "user error: " + list.string() + ": must be a JSON object, got array");
}

}  // namespace headroom::json_test
