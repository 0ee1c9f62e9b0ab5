#include "headroom/core/safetensors.h"

#include <cstring>

#include "scratch_folder.h"

namespace headroom::safetensors_test {

namespace fs = std::filesystem;
using SafetensorsTest = ScratchFolder;
using StreamTest = ScratchFolder;

template <class Number>
std::span<const std::byte> bytes_of(const std::vector<Number>& numbers) {
  return std::as_bytes(std::span(numbers));
}

template <class Number>
std::vector<Number> numbers_of(const StoredTensor& tensor) {
  std::vector<Number> numbers(tensor.data.size() / sizeof(Number));
  std::memcpy(numbers.data(), tensor.data.data(), tensor.data.size());
  return numbers;
}

std::uint64_t header_length(const std::string& file) {
  std::uint64_t length = 0;
  std::memcpy(&length, file.data(), sizeof length);
  return length;
}

TEST_F(SafetensorsTest, ReadsWhatItWrote) {
  const std::vector<float> weights = {1, 2, 3, 4, 5, 6};
  const std::vector<std::int64_t> step = {1234567890123};
  const std::vector<std::uint8_t> text = {'h', 'i', 0};
  SafetensorsWriter writer;
  writer.add("layer0.w", DType::f32, {2, 3}, bytes_of(weights));
  writer.add("step", DType::i64, {}, bytes_of(step));
  writer.add("text", DType::u8, {3}, bytes_of(text));
  writer.add("none", DType::bf16, {4, 0}, {});
  writer.set_metadata("config", "[model]\nname = \"ä\"\n");
  writer.set_metadata("format", "1");
  writer.write(folder_ / "a");

  const SafetensorsFile file(folder_ / "a");
  EXPECT_EQ(file.tensors().size(), 4u);
  EXPECT_EQ(file.at("layer0.w").dtype, DType::f32);
  EXPECT_EQ(file.at("layer0.w").shape, (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(numbers_of<float>(file.at("layer0.w")), weights);
  EXPECT_EQ(numbers_of<std::int64_t>(file.at("step")), step);
  EXPECT_EQ(file.at("step").numel(), 1);
  EXPECT_EQ(numbers_of<std::uint8_t>(file.at("text")), text);
  EXPECT_EQ(file.at("none").numel(), 0);
  EXPECT_TRUE(file.contains("none"));
  EXPECT_FALSE(file.contains("config"));
  EXPECT_EQ(file.metadata_at("config"), "[model]\nname = \"ä\"\n");
  EXPECT_EQ(file.metadata().size(), 2u);
  EXPECT_EQ(complaint_of([&] { (void)file.at("w"); }),
            "user error: " + (folder_ / "a").string() + ": has no tensor \"w\"");
  EXPECT_EQ(complaint_of([&] { (void)file.metadata_at("w"); }),
            "user error: " + (folder_ / "a").string() + ": has no metadata \"w\"");
}

TEST_F(SafetensorsTest, TheOrderOfAddingDoesNotMatter) {
  const std::vector<float> x = {1, 2};
  const std::vector<std::uint8_t> y = {1, 2, 3};
  const std::vector<double> z = {3};
  SafetensorsWriter forth, back;
  forth.add("x", DType::f32, {2}, bytes_of(x));
  forth.add("y", DType::u8, {3}, bytes_of(y));
  forth.add("z", DType::f64, {1}, bytes_of(z));
  back.add("z", DType::f64, {1}, bytes_of(z));
  back.add("y", DType::u8, {3}, bytes_of(y));
  back.add("x", DType::f32, {2}, bytes_of(x));
  forth.write(folder_ / "forth");
  back.write(folder_ / "back");
  EXPECT_EQ(content(folder_ / "forth"), content(folder_ / "back"));
}

TEST_F(SafetensorsTest, TensorsBeginAtMultiplesOfTheirElements) {
  const std::vector<std::uint8_t> odd(3);
  const std::vector<std::int16_t> shorts(1);
  const std::vector<double> doubles(3);
  SafetensorsWriter writer;
  writer.add("a", DType::u8, {3}, bytes_of(odd));
  writer.add("b", DType::i16, {1}, bytes_of(shorts));
  writer.add("c", DType::f64, {3}, bytes_of(doubles));
  writer.write(folder_ / "a");
  EXPECT_EQ((8 + header_length(content(folder_ / "a"))) % 64, 0u);
  const SafetensorsFile file(folder_ / "a");
  for (const auto& [name, tensor] : file.tensors()) {
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(tensor.data.data()) % size_of(tensor.dtype), 0u) << name;
  }
}

TEST_F(SafetensorsTest, KnowsItsDtypes) {
  const std::vector<std::pair<DType, std::size_t>> sizes = {
      {DType::f64, 8}, {DType::f32, 4},     {DType::f16, 2},     {DType::bf16, 2},   {DType::i64, 8}, {DType::i32, 4},
      {DType::i16, 2}, {DType::i8, 1},      {DType::u8, 1},      {DType::u16, 2},    {DType::u32, 4}, {DType::u64, 8},
      {DType::c64, 8}, {DType::f8_e4m3, 1}, {DType::f8_e5m2, 1}, {DType::boolean, 1}};
  SafetensorsWriter writer;
  const std::vector<std::uint8_t> zeros(8);
  for (const auto& [dtype, size] : sizes) {
    EXPECT_EQ(size_of(dtype), size);
    writer.add(std::string(name_of(dtype)), dtype, {1}, bytes_of(zeros).first(size));
  }
  writer.write(folder_ / "a");
  const SafetensorsFile file(folder_ / "a");
  for (const auto& [name, tensor] : file.tensors()) {
    EXPECT_EQ(name_of(tensor.dtype), name);
  }
  EXPECT_EQ(file.tensors().size(), sizes.size());
}

TEST_F(SafetensorsTest, RefusesToWriteFilesThatItWouldNotRead) {
  const std::vector<float> x = {1, 2};
  SafetensorsWriter writer;
  writer.add("x", DType::f32, {2}, bytes_of(x));
  EXPECT_EQ(complaint_of([&] { writer.add("x", DType::f32, {2}, bytes_of(x)); }),
            "error: safetensors: duplicate tensor name \"x\"");
  EXPECT_EQ(complaint_of([&] { writer.add("__metadata__", DType::f32, {2}, bytes_of(x)); }),
            "error: safetensors: duplicate tensor name \"__metadata__\"");
  for (const std::vector<std::int64_t>& shape :
       std::vector<std::vector<std::int64_t>>{{3}, {-2}, {}, {INT64_MAX, INT64_MAX}, {std::int64_t{1} << 62}}) {
    EXPECT_EQ(complaint_of([&] { writer.add("y", DType::f32, shape, bytes_of(x)); }),
              "error: safetensors: tensor \"y\" cannot be written: its shape and dtype do not match its 8 bytes");
  }
  writer.set_metadata("k", "\xff");
  EXPECT_EQ(complaint_of([&] { writer.write(folder_ / "a"); }),
            "error: " + (folder_ / "a").string() + ": cannot be written: a name or metadata is not valid UTF-8");
  EXPECT_EQ(n_files(), 0u);
}

TEST_F(StreamTest, WritesInParts) {
  const fs::path path = folder_ / "tokens";
  std::vector<std::uint16_t> all;
  {
    SafetensorsStream stream(path, "tokens", DType::u16, 1000);
    for (std::uint16_t piece = 0; piece < 100; ++piece) {
      const std::vector<std::uint16_t> tokens(piece, piece);
      stream.append(bytes_of(tokens));
      all.insert(all.end(), tokens.begin(), tokens.end());
    }
    const std::vector<std::int64_t> ends = {7, 9};
    stream.add("ends", DType::i64, {2}, {bytes_of(ends).begin(), bytes_of(ends).end()});
    EXPECT_EQ(complaint_of([&] { stream.add("tokens", DType::u8, {0}, {}); }),
              "error: " + path.string() + ": duplicate tensor name \"tokens\"");
    EXPECT_EQ(complaint_of([&] { stream.add("ends", DType::u8, {0}, {}); }),
              "error: " + path.string() + ": duplicate tensor name \"ends\"");
    EXPECT_FALSE(fs::exists(path));
    stream.commit({{"tokenizer", "bytes"}});
  }
  const SafetensorsFile file(path);
  EXPECT_EQ(numbers_of<std::uint16_t>(file.at("tokens")), all);
  EXPECT_EQ(file.at("tokens").shape, (std::vector<std::int64_t>{std::ssize(all)}));
  EXPECT_EQ(numbers_of<std::int64_t>(file.at("ends")), (std::vector<std::int64_t>{7, 9}));
  EXPECT_EQ(file.metadata_at("tokenizer"), "bytes");
  EXPECT_EQ(n_files(), 1u);
}

TEST_F(StreamTest, RefusesTooLargeAHeader) {
  const fs::path path = folder_ / "tokens";
  SafetensorsStream stream(path, "tokens", DType::u16, 128);
  EXPECT_EQ(complaint_of([&] {
              stream.commit({{"long", std::string(200, 'x')}});
            }),
            "error: " + path.string() + ": cannot be written: the header takes 286 bytes, but only 120 are reserved");
}

TEST_F(StreamTest, RefusesHalfAnElement) {
  const fs::path path = folder_ / "tokens";
  SafetensorsStream stream(path, "tokens", DType::u16);
  stream.append(std::vector<std::byte>(3));
  EXPECT_EQ(complaint_of([&] { stream.commit({}); }),
            "error: " + path.string() +
                ": tensor \"tokens\" cannot be written: its shape and dtype do not match its 3 bytes");
}

}  // namespace headroom::safetensors_test
