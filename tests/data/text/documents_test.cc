#include "data/text/documents.h"

#include "archives.h"
#include "support.h"

namespace headroom::data::documents_test {

bool is_jsonl(std::string_view name) {
  return name.ends_with(".jsonl");
}

class DocumentsTest : public FolderTest {
 protected:
  std::string complaint(const std::string& path) {
    return user_error_of([&] { read_documents(path, is_jsonl); });
  }
};

TEST_F(DocumentsTest, AFileAFolderAndAnArchiveAreAlike) {
  const std::string a = "{\"x\": 1}\n", b = "{\"x\": 2}\n";
  write("folder/b.jsonl", b);
  write("folder/inner/a.jsonl", a);
  write("folder/README.md", "not wanted");
  const std::string tar = tar_member("set/", "", '5') + tar_member("set/b.jsonl", b) +
                          tar_member("set/README.md", "not wanted") + pax("comment=" + std::string(3000, 'p')) +
                          tar_member("set/inner/a.jsonl", a) + kTarEnd;
  write("set.tar.gz", gzip(tar));
  for (const std::string& path : {at("folder"), write("set.tar", tar), at("set.tar.gz")}) {
    std::vector<Document> found = read_documents(path, is_jsonl);
    ASSERT_EQ(found.size(), 2U) << path;
    std::sort(found.begin(), found.end(), [](const Document& x, const Document& y) { return x.stem < y.stem; });
    EXPECT_EQ(found[0].stem, "a");
    EXPECT_EQ(found[0].text, a);
    EXPECT_EQ(found[1].text, b);
    EXPECT_HAS(found[1].name, "b.jsonl");
  }
  write("packed.tar", tar_member("a.jsonl.gz", gzip(a)) + kTarEnd);
  ASSERT_EQ(read_documents(at("packed.tar"), is_jsonl).size(), 1U);
  EXPECT_EQ(read_documents(at("packed.tar"), is_jsonl)[0].text, a);
  EXPECT_EQ(read_documents(at("packed.tar"), is_jsonl)[0].stem, "a");
  write("upper.JSONL.GZ", gzip("\xef\xbb\xbf" + a));
  const std::vector<Document> marked = read_documents(at("upper.JSONL.GZ"), is_jsonl);
  EXPECT_EQ(marked.at(0).text, a) << "without its byte order mark";
  EXPECT_EQ(marked.at(0).stem, "upper");
  write("SET.TAR", tar);
  EXPECT_EQ(read_documents(at("SET.TAR"), is_jsonl).size(), 2U);
  const std::vector<Document> alone = read_documents(at("folder/README.md"), is_jsonl);
  ASSERT_EQ(alone.size(), 1U) << "a file named by itself is wanted";
  EXPECT_EQ(alone[0].stem, "README");
}

TEST_F(DocumentsTest, HostileArchivesAreRefused) {
  const std::string good = tar_member("a.jsonl", "{}\n");
  EXPECT_HAS(complaint(at("none.tar")), "does not exist");
  EXPECT_HAS(complaint(write("cut.tar", good)), "is truncated: the archive ends at byte 1024 without an end mark");
  EXPECT_HAS(complaint(write("short.tar", good.substr(0, 600))), "is truncated");
  std::string flipped = good + kTarEnd;
  flipped[3] ^= 1;
  EXPECT_HAS(complaint(write("flipped.tar", flipped)), "the header at byte 0");
  EXPECT_HAS(complaint(write("noise.tar", std::string(2048, 'z'))), "not a tar archive");
  EXPECT_HAS(complaint(write("empty.tar", kTarEnd)), "holds no file of the expected kind");
  EXPECT_HAS(complaint(write("latin.tar", tar_member("a.jsonl", "caf\xe9\n") + kTarEnd)),
             "a.jsonl: is not valid UTF-8 from byte 3");
  EXPECT_HAS(complaint(write("zero.tar", tar_member("a.jsonl", std::string("a\0b", 3)) + kTarEnd)), "byte 1 is 0");
  std::string endless;
  for (int i = 0; i < 17; ++i) {
    endless += pax("mtime=1");
  }
  EXPECT_HAS(complaint(write("endless.tar", endless + good + kTarEnd)), "more than 16 headers of one member");
  // A wrong size in a header must not cause an allocation.
  std::string huge = tar_member("a.jsonl", "");
  for (const char* size : {"77777777777", "00777777777", "-0000000001"}) {
    huge.replace(124, 11, size);
    huge.replace(148, 8, "        ");
    unsigned sum = 0;
    for (const char c : huge.substr(0, 512)) {
      sum += static_cast<unsigned char>(c);
    }
    huge.replace(148, 6, fmt::format("{:06o}", sum));
    huge[154] = '\0';
    const std::string why = complaint(write("huge.tar", huge + kTarEnd));
    EXPECT_TRUE(why.find("longer than 256 MiB") != std::string::npos || why.find("truncated") != std::string::npos ||
                why.find("not a number") != std::string::npos)
        << why;
  }
}

TEST_F(DocumentsTest, LongNamesInArchives) {
  const std::string name = std::string(120, 'n') + "/a.jsonl";
  write("long.tar", pax("path=" + name) + tar_member("short.txt", "{}\n") + kTarEnd);
  const std::vector<Document> found = read_documents(at("long.tar"), is_jsonl);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].name, at("long.tar") + ":" + name);
}

TEST(ForEachLine, CountsFromOne) {
  std::vector<std::string> seen;
  for_each_line("a\r\n\nb", [&](std::string_view line, std::int64_t number) {
    seen.push_back(fmt::format("{}:{}", number, line));
  });
  EXPECT_EQ(seen, (std::vector<std::string>{"1:a", "2:", "3:b"}));
}

}  // namespace headroom::data::documents_test
