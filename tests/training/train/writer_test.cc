#include "training/train/record/writer.h"

#include "folder_test.h"
#include "tiny/files.h"

namespace headroom::train::writer_test {

std::vector<Json> lines_of(const std::filesystem::path& path) {
  std::vector<Json> lines;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    lines.push_back(parse_json(line, path.string()));
  }
  return lines;
}

TEST(MetricsLog, DiscardsWhatComesAfterTheResumedStep) {
  const tiny::Folder folder;
  const std::filesystem::path path = folder / "metrics.jsonl";
  {
    MetricsLog log(path, 0);
    for (int step = 1; step <= 5; ++step) {
      log.append({{"step", step}, {"loss", 1.0 / step}});
    }
  }
  std::ofstream(path, std::ios::app) << "{\"step\": 6, \"lo";  // truncated by a kill
  {
    MetricsLog log(path, 3);
    const std::vector<Json> kept = lines_of(path);
    ASSERT_EQ(kept.size(), 3U);
    EXPECT_EQ(kept[2]["loss"].get<double>(), 1.0 / 3.0) << "doubles survive exactly";
    log.append({{"step", 4}, {"loss", 0.5}});
    log.sync();
  }
  const std::vector<Json> lines = lines_of(path);
  ASSERT_EQ(lines.size(), 4U);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    EXPECT_EQ(lines[i]["step"], i + 1);
  }
  EXPECT_EQ(lines[3]["loss"], 0.5);
  MetricsLog(path, 0);
  EXPECT_TRUE(lines_of(path).empty());
}

TEST(MetricsLog, NamesTheFileThatCannotBeWritten) {
  const tiny::Folder folder;
  EXPECT_THROW(MetricsLog(folder / "absent" / "metrics.jsonl", 0), Error);
}

TEST(Events, ChecksumIsCastagnolis) {
  // The published check value of CRC-32C is 0xe3069283; TFRecord rotates it right by 15 and adds 0xa282ead8.
  EXPECT_EQ(masked_crc32c("123456789"), (0xe3069283U >> 15 | 0xe3069283U << 17) + 0xa282ead8U);
}

TEST(Balance, OfExperts) {
  const ExpertBalance even = balance_of(at::full({4}, 5, at::kLong));
  EXPECT_DOUBLE_EQ(even.most, 0.25);
  EXPECT_DOUBLE_EQ(even.least, 0.25);
  EXPECT_DOUBLE_EQ(even.entropy, 1.0);
  const ExpertBalance one = balance_of(at::tensor({0, 7, 0}, at::kLong));
  EXPECT_DOUBLE_EQ(one.most, 1.0);
  EXPECT_DOUBLE_EQ(one.least, 0.0);
  EXPECT_DOUBLE_EQ(one.entropy, 0.0);
  EXPECT_NEAR(balance_of(at::tensor({1, 3}, at::kLong)).entropy, 0.8112781244591328, 1e-12);
}

}  // namespace headroom::train::writer_test
