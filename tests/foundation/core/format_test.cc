#include "foundation/core/text/format.h"

#include "folder_test.h"

namespace headroom::format_test {

TEST(Format, LastLineThatIsNotEmpty) {
  EXPECT_EQ(last_line("one\ntwo\n\n"), "two");
  EXPECT_EQ(last_line("one\ntwo"), "two");
  EXPECT_EQ(last_line("one"), "one");
  EXPECT_EQ(last_line("\n"), "");
  EXPECT_EQ(last_line(""), "");
}

TEST(Format, Durations) {
  EXPECT_EQ(format_duration(0.31), "0.3 s");
  EXPECT_EQ(format_duration(9.96), "10 s");
  EXPECT_EQ(format_duration(45), "45 s");
  EXPECT_EQ(format_duration(59.7), "1 min 00 s");
  EXPECT_EQ(format_duration(200), "3 min 20 s");
  EXPECT_EQ(format_duration(7500), "2 h 05 min");
  EXPECT_EQ(format_duration(200'000), "2 d 07 h");
  EXPECT_EQ(format_duration(-1), "?");
  EXPECT_EQ(format_duration(std::numeric_limits<double>::infinity()), "?");
}

TEST(Format, Counts) {
  EXPECT_EQ(format_count(0), "0");
  EXPECT_EQ(format_count(512), "512");
  EXPECT_EQ(format_count(3.25), "3.2");
  EXPECT_EQ(format_count(999.4), "999");
  EXPECT_EQ(format_count(999.8), "1.0 k");
  EXPECT_EQ(format_count(47'312), "47.3 k");
  EXPECT_EQ(format_count(999'970), "1.0 M");
  EXPECT_EQ(format_count(170.4e6), "170.4 M");
  EXPECT_EQ(format_count(5.4e9), "5.4 G");
  EXPECT_EQ(format_count(-1500), "-1.5 k");
  EXPECT_EQ(format_count(std::numeric_limits<double>::quiet_NaN()), "nan");
  EXPECT_EQ(counted(1, "step"), "1 step");
  EXPECT_EQ(counted(0, "step"), "0 steps");
}

TEST(Format, ZeroAfterRoundingHasNoSign) {
  EXPECT_EQ(format_decimal(-0.004, 2), "0.00");
  EXPECT_EQ(format_decimal(-0.0, 0), "0");
  EXPECT_EQ(format_decimal(-0.006, 2), "-0.01");
  EXPECT_EQ(format_decimal(-10.0, 1), "-10.0");
}

TEST(Format, Bytes) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(12.3 * 1024 * 1024), "12.3 MiB");
  EXPECT_EQ(format_bytes(1024.0 * 1024 * 1024 - 1), "1.0 GiB");
}

TEST(TextTable, ColumnsAreAsWideAsTheirLongestCell) {
  EXPECT_EQ(text_table({{"model", "loss", "", "x"}, {"é", "12.5", "taken", ""}}, {true, false, true}),
            "model  loss         x\n"
            "é      12.5  taken\n");
}

TEST(TextTable, OneColumnOfBlanksIsEmptyLines) {
  EXPECT_EQ(text_table({{""}, {" "}}, {}), "\n\n");
}

TEST(Numbers, AreTheTextAsAWhole) {
  EXPECT_EQ(as_number("0.1"), 0.1);
  EXPECT_EQ(as_number("-3"), -3.0);
  EXPECT_EQ(as_number("1e-4"), 1e-4);
  EXPECT_EQ(as_number<int>("-7"), -7);
  for (const char* text : {"", " 1", "1 ", "+1", "1,5", "0x10", "1e999", "one"}) {
    EXPECT_EQ(as_number(text), std::nullopt) << text;
  }
  EXPECT_EQ(as_number<int>("1.0"), std::nullopt);
  EXPECT_EQ(as_number<int>("2147483648"), std::nullopt) << "one more than there are";
}

TEST(Numbers, OfCountsAreWholeAndNotNegative) {
  EXPECT_EQ(whole_number("0"), 0);
  EXPECT_EQ(whole_number("9223372036854775807"), INT64_MAX);
  for (const char* text : {"", "-1", "9223372036854775808", "1.5", "12abc"}) {
    EXPECT_EQ(whole_number(text), std::nullopt) << text;
  }
}

TEST(Duration, ReadsNumbersWithAUnit) {
  EXPECT_EQ(parse_duration("90s", "x"), 90.0);
  EXPECT_EQ(parse_duration("30m", "x"), 1800.0);
  EXPECT_EQ(parse_duration("2h", "x"), 7200.0);
  EXPECT_EQ(parse_duration("1d", "x"), 86400.0);
  EXPECT_EQ(parse_duration("1.5h", "x"), 5400.0);
  EXPECT_EQ(parse_duration("1000d", "x"), 86400000.0);
}

TEST(Duration, RefusesEverythingElse) {
  for (const char* text : {"", "s", "2", "2 h", "h2", "2hours", "2h30m", "-2h", "0s", "nan", "infs", "1001d", "1e999d",
                           "0x10s", "2H", " 2h", "2h ", "1e3s"}) {
    const std::string why = user_error_of([&] { parse_duration(text, "try: --budget"); });
    EXPECT_TRUE(why.starts_with("try: --budget: must be a time")) << why;
    EXPECT_HAS(why, fmt::format("\"{}\"", text));
  }
}

}  // namespace headroom::format_test
