#include "data/text/labelled_text.h"
#include "support.h"

namespace headroom::data::table_test {

using Rows = std::vector<std::vector<std::string>>;

class Table : public FolderTest {
 protected:
  Rows rows(const std::string& name, const std::string& content) {
    Rows all;
    for_each_row({write(name, content)}, {.row = [&](const auto& row) { all.push_back(row); }});
    return all;
  }
  std::string complaint(const std::string& name, const std::string& content) {
    return refusal_of([&] { rows(name, content); });
  }
};

TEST_F(Table, ReadsQuotedFields) {
  EXPECT_EQ(rows("a.csv", "a,b,c\r\n\"x, y\",\"say \"\"hi\"\"\",\"two\nlines\"\n,,\n\nlast,\"\",1"),
            (Rows{{"a", "b", "c"}, {"x, y", "say \"hi\"", "two\nlines"}, {"", "", ""}, {"last", "", "1"}}));
  EXPECT_EQ(rows("b.csv", "\xef\xbb\xbfname,x\n"), (Rows{{"name", "x"}})) << "a byte order mark";
  EXPECT_EQ(rows("c.csv.gz", gzip("\"a\",b\n")), (Rows{{"a", "b"}}));
}

TEST_F(Table, TabsSeparateAnythingElse) {
  EXPECT_EQ(rows("a.tsv", "a\t\"b\n1, 2\tc\"d\r\n"), (Rows{{"a", "\"b"}, {"1, 2", "c\"d"}}));
}

TEST_F(Table, ACarriageReturnEndsALineOnlyBeforeALineFeed) {
  EXPECT_EQ(rows("a.csv", "a\rb,\"c\rd\"\r\ne\r\r\n"), (Rows{{"a\rb", "c\rd"}, {"e\r"}}));
  EXPECT_EQ(rows("a.tsv", "a\rb\tc\r"), (Rows{{"a\rb", "c"}}));
}

TEST_F(Table, NamesTheLineOfABadRow) {
  EXPECT_EQ(complaint("a.csv", "a,b\n\"x\ny\",1\nz,\"open\n\n"),
            "a.csv:4: the quoted field that begins in line 4 never ends");
  EXPECT_EQ(complaint("a.csv", "a,b\n\"x\"y,1\n"),
            "a.csv:2: after a quoted field must come a comma or the line's end, got \"y\"");
  EXPECT_EQ(complaint("a.csv", "a,b\nx\"y\",1\n"), "a.csv:2: a field with a quote in it must begin with one");
  EXPECT_EQ(complaint("a.csv", std::string("a,\0b", 4)), "a.csv: is not text but binary: byte 2 is 0");
  EXPECT_EQ(complaint("a.csv", ""), "a.csv: is empty");
}

// Bad rows are skipped; a corrupt file is an error.
TEST_F(Table, SkipsBadRowsOnly) {
  Rows all;
  RowUse use{.header = {},
             .row =
                 [&](const std::vector<std::string>& row) {
                   if (row[0] == "bad") {
                     user_error("is bad");
                   }
                   all.push_back(row);
                 },
             .skip_bad_rows = true};
  for_each_row({write("a.csv", "a,1\nx\"y,2\nbad,3\nb,4\n")}, use);
  EXPECT_EQ(all, (Rows{{"a", "1"}, {"b", "4"}}));
  all.clear();
  for_each_row({write("open.csv", "a,1\n\"b,2\nc,3\nd,4\n\"e\nf\",5\n")}, use);
  EXPECT_EQ(all, (Rows{{"a", "1"}, {"c", "3"}, {"d", "4"}, {"e\nf", "5"}})) << "the rest after an open quote";
  const std::string broken = gzip("a,1\nb,2\n");
  EXPECT_THROW(for_each_row({write("cut.csv.gz", broken.substr(0, broken.size() - 9))}, use), UserError);
  EXPECT_THROW(for_each_row({write("all.csv", "bad,3\n")}, use), UserError);
  use.skip_bad_rows = false;
  EXPECT_EQ(refusal_of([&] { for_each_row({write("a.csv", "a,1\nbad,3\n")}, use); }), "a.csv:2: is bad");
}

class LabelledText : public Table {
 protected:
  std::string complaint(const std::string& name, const std::string& content) const {
    return refusal_of([&] { read_labelled_text({write(name, content)}, options_, {.most_bytes = 9}); });
  }
  config::DataOptions options_;
};

std::string text(std::span<const std::uint16_t> bytes) {
  return {bytes.begin(), bytes.end()};
}

TEST_F(LabelledText, FindsColumnsByName) {
  options_.classes = {"negative", "positive"};
  const LabelledSequences read = read_labelled_text(
      {write("a.csv", "text,id,label\n\"good, really\",1,positive\nbäd,2,negative\n")}, options_, {.most_bytes = 9});
  ASSERT_EQ(read.size(), 2);
  EXPECT_EQ(read.labels, (std::vector<std::int32_t>{1, 0}));
  EXPECT_EQ(text(read.first.at(0)), "good, rea") << "cut after 9 bytes";
  EXPECT_EQ(text(read.first.at(1)),
            "b\xc3\xa4"
            "d");
}

TEST_F(LabelledText, FindsColumnsByNumberAndReadsPairs) {
  options_.label_column = "1";
  options_.text_column = "2";
  options_.second_column = "3";
  const LabelledSequences read =
      read_labelled_text({write("a.tsv", "1\ta\tbb\n0\tc\tdd\n")}, options_, {.most_bytes = 9, .paired = true});
  ASSERT_EQ(read.size(), 2);
  EXPECT_EQ(read.labels, (std::vector<std::int32_t>{1, 0}));
  EXPECT_EQ(text(read.second.at(1)), "dd");
  EXPECT_EQ(read.length(1), 2) << "the longer of the pair";
}

TEST_F(LabelledText, NamesTheError) {
  EXPECT_EQ(complaint("a.csv", "text,class\nx,1\n"),
            "a.csv:1: has no column \"label\" (data.label_column), only text, class");
  EXPECT_EQ(complaint("a.csv", "label,text,text\n1,x,y\n"),
            "a.csv:1: has more than one column \"text\" (data.text_column): give its number");
  EXPECT_EQ(complaint("a.csv", "label,text\n1,x\n2,y\n"),
            "a.csv:3: the label (names need data.classes) must be a number from 0 to 1, got \"2\"");
  EXPECT_EQ(complaint("a.csv", "label,text\n1,x\n0\n"),
            "a.csv:3: must have a column 2 (data.text_column), got 1 columns");
  EXPECT_EQ(complaint("a.csv", "label,text\n1,x\n0,No, not at all\n"),
            "a.csv:3: must have 2 columns like the first line of the file, got 3");
  EXPECT_EQ(complaint("a.csv", "label,text\n1,\n"), "a.csv:2: the text (data.text_column) is empty");
  options_.classes = {"no", "yes"};
  EXPECT_EQ(complaint("a.csv", "label,text\nmaybe,x\n"),
            "a.csv:2: the label must be one of data.classes (no, yes), got \"maybe\"");
  options_.classes = {"no"};
  EXPECT_EQ(complaint("a.csv", "label,text\nno,x\n"), "data.classes: must name model.n_classes = 2 classes, got 1");
}

}  // namespace headroom::data::table_test
