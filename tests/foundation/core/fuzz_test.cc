#include "fuzz.h"

#include "headroom/core/json.h"
#include "headroom/core/safetensors.h"
#include "scratch_folder.h"

namespace headroom::core_fuzz_test {

class CoreFuzz : public ScratchFolder {};

TEST_F(CoreFuzz, Json) {
  const fuzz::Material material{
      .good = {R"({"text": "a\u00e9\n", "n": [1, -2.5e3, true, null], "deep": {"er": {"x": []}}})", "[[[[1]]]]",
               "\"\""},
      .dictionary = {"{", "}", "[", "]", ":", ",", "\"", "\\u", "\\ud800", "null", "1e999", "[[[[[[[[[[[[[[[[",
                     "\"a\":"}};
  fuzz::against(material, 4000, [](const std::string& input) {
    const Json value = parse_json(input, "input");
    parse_json(to_json_line(value), "written");
    parse_sorted_json(input, "input");
  });
}

TEST_F(CoreFuzz, Safetensors) {
  const auto file_of = [&](int tensors) {
    const float numbers[] = {1, 2, 3, 4, 5, 6};
    SafetensorsWriter writer;
    for (int i = 0; i < tensors; ++i) {
      writer.add("t" + std::to_string(i), i % 2 == 0 ? DType::f32 : DType::u8, {i % 2 == 0 ? 2 : 8, 3},
                 std::as_bytes(std::span(numbers)));
    }
    writer.set_metadata("format", "pt");
    writer.write(folder_ / "good");
    return content(folder_ / "good");
  };
  const fuzz::Material material{
      .good = {file_of(0), file_of(1), file_of(4)},
      .dictionary = {"\"F32\"", "\"BF16\"", "[0,0]", "[0,24]", "data_offsets", "shape", "dtype", "__metadata__", "{}",
                     std::string("\x40\0\0\0\0\0\0\0", 8), std::string("\xff\xff\xff\xff\xff\xff\xff\x7f", 8)}};
  fuzz::against(material, 3000, [&](const std::string& input) {
    const SafetensorsFile file(put("input", input));
    std::size_t sum = 0;
    for (const auto& [name, stored] : file.tensors()) {
      for (const std::byte byte : stored.data) {
        sum += static_cast<std::size_t>(byte);
      }
      EXPECT_EQ(static_cast<std::size_t>(stored.numel()) * size_of(stored.dtype), stored.data.size());
    }
    EXPECT_LT(sum, fuzz::kLongest * 256);
  });
}

}  // namespace headroom::core_fuzz_test
