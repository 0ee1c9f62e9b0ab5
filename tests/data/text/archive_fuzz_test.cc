#include "archives.h"
#include "data/text/documents.h"
#include "foundation/core/text/utf8.h"
#include "fuzz.h"
#include "support.h"

namespace headroom::data::archive_fuzz_test {

class ArchiveFuzz : public FolderTest {
 protected:
  void SetUp() override { set_log_level(LogLevel::quiet); }
  void read(const std::string& name, const std::string& input) const {
    for (const Document& document :
         read_documents(write(name, input), [](std::string_view file) { return file.ends_with(".jsonl"); })) {
      EXPECT_TRUE(is_utf8(document.text));
      EXPECT_FALSE(document.name.empty());
    }
  }
};

std::string archive() {
  return tar_member("set/", "", '5') + tar_member("set/b.jsonl", "{\"x\": 2}\n") +
         pax("comment=" + std::string(600, 'p')) + tar_member("set/inner/a.jsonl", "caf\xc3\xa9\n") + kTarEnd;
}

const fuzz::Material kArchives{
    .good = {archive(), tar_member("a.jsonl", "1\n") + kTarEnd},
    .dictionary = {"00000000000", "77777777777", "17777777777", "ustar", "set/", ".jsonl", "../", std::string(1, '\0'),
                   std::string(512, '\0'), tar_member("b.jsonl", "2\n"), "\x80", "\xff", "-1"}};

constexpr std::int64_t kCampaigns = 4;

TEST_F(ArchiveFuzz, Tar) {
  fuzz::against(
      kArchives, 2000, [&](const std::string& input) { read("input.tar", input); }, kCampaigns);
}

TEST_F(ArchiveFuzz, TarWithRightSums) {
  fuzz::against(
      kArchives, 2000, [&](const std::string& input) { read("input.tar", with_tar_sums(input)); }, kCampaigns);
}

TEST_F(ArchiveFuzz, PackedTar) {
  fuzz::against(
      kArchives, 1000, [&](const std::string& input) { read("input.tar.gz", gzip(with_tar_sums(input))); }, kCampaigns);
  const fuzz::Material packed{.good = {gzip(archive())}, .dictionary = {"\x1f\x8b\x08", gzip(""), "\xff"}};
  fuzz::against(
      packed, 1000, [&](const std::string& input) { read("input.tgz", input); }, kCampaigns);
}

}  // namespace headroom::data::archive_fuzz_test
