#include "foundation/draw/svg.h"

#include <gtest/gtest.h>

namespace headroom::draw {
namespace svg_test {

TEST(Escape, EscapesWhatCouldBecomeMarkup) {
  EXPECT_EQ(escape("<b a=\"1\" c='2'>&amp;"), "&lt;b a=&quot;1&quot; c=&#39;2&#39;&gt;&amp;amp;");
  EXPECT_EQ(escape("tabs\tand\nlines stay, ünïcode too"), "tabs\tand\nlines stay, ünïcode too");
}

TEST(Escape, ReplacesInvalidUtf8AndControlCharacters) {
  const std::string replacement = "\xef\xbf\xbd";
  EXPECT_EQ(escape("a\xff"
                   "b"),
            "a" + replacement + "b");
  EXPECT_EQ(escape("cut \xe2\x82"), "cut " + replacement + replacement);
  EXPECT_EQ(escape(std::string("a\0b\x1b\x7f", 5)), "a" + replacement + "b" + replacement + replacement);
}

TEST(Svg, WritesElements) {
  EXPECT_EQ(element("path", {{"d", line_through({{1, 2}, {3.25, 4}})}, {"x", 0.5}}),
            "<path d='M1.0 2.0L3.2 4.0' x='0.5'/>");
  EXPECT_EQ(element("g", {{"fill", "a'b<c"}}, element("title", {}, escape("<t>"))),
            "<g fill='a&#39;b&lt;c'><title>&lt;t&gt;</title></g>");
  EXPECT_EQ(horizontal(1, 2, 3), "M1.0 2.0H3.0");
  EXPECT_EQ(vertical(1, 2, 3), "M1.0 2.0V3.0");
  EXPECT_EQ(line_through({}), "");
}

}  // namespace svg_test
}  // namespace headroom::draw
