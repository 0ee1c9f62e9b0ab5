// Tests that each malformed file is refused quickly, with an error that names it, and without a crash or a large
// allocation.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <new>
#include <numeric>

#include "headroom/core/safetensors.h"
#include "scratch_folder.h"

// Holds the size of the largest allocation since the last reset to 0.
static std::atomic<std::size_t> largest_allocation{0};

void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  std::size_t before = largest_allocation;
  while (size > before && !largest_allocation.compare_exchange_weak(before, size)) {
  }
  return std::malloc(size == 0 ? 1 : size);
}
void* operator new(std::size_t size) {
  void* const memory = operator new(size, std::nothrow);
  if (memory == nullptr) {
    throw std::bad_alloc();
  }
  return memory;
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}

namespace headroom::safetensors_hostile_test {

std::string file_of(std::uint64_t length, std::string_view header, std::size_t data_bytes) {
  std::string file(8, '\0');
  std::memcpy(file.data(), &length, 8);
  return file + std::string(header) + std::string(data_bytes, 'd');
}

std::string file_of(std::string_view header, std::size_t data_bytes) {
  return file_of(header.size(), header, data_bytes);
}

// Returns a header with tensors "a" (F32 [2, 3]) and "b" (U8 [5]), 29 bytes in total; the entry of "b" is `b`.
std::string with_b(std::string_view b, std::string_view more = "") {
  return fmt::format(R"({{"a":{{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}},"b":{}{}}})", b, more);
}
const std::string kGoodB = R"({"dtype":"U8","shape":[5],"data_offsets":[24,29]})";

std::string b_with(std::string_view dtype, std::string_view shape, std::string_view offsets) {
  return fmt::format(R"({{"dtype":{},"shape":{},"data_offsets":{}}})", dtype, shape, offsets);
}

class HostileSafetensors : public ScratchFolder {
 protected:
  // Returns "opens" if every tensor can be read, else the error without the file's name.
  std::string attempt(const std::string& file) const {
    const std::filesystem::path path = put("x.safetensors", file);
    largest_allocation = 0;
    const std::string text = complaint_of([&] {
      const SafetensorsFile opened(path);
      std::size_t total = 0;
      unsigned sum = 0;
      for (const auto& [name, tensor] : opened.tensors()) {
        total += tensor.data.size();
        EXPECT_EQ(static_cast<std::size_t>(tensor.numel()) * size_of(tensor.dtype), tensor.data.size());
        sum = std::accumulate(tensor.data.begin(), tensor.data.end(), sum,
                              [](unsigned s, std::byte b) { return s + static_cast<unsigned>(b); });
      }
      EXPECT_LE(total, file.size());
      EXPECT_LT(sum, 256 * (file.size() + 1));
    });
    EXPECT_LE(largest_allocation, 4 * file.size() + 4096) << text;
    if (text == "no error") {
      return "opens";
    }
    const std::string prefix = "user error: " + path.string() + ": ";
    EXPECT_TRUE(text.starts_with(prefix)) << text;
    EXPECT_EQ(text.find('\n'), std::string::npos) << text;
    return text.substr(std::min(prefix.size(), text.size()));
  }

  // Returns a valid file with several tensors and metadata.
  std::string real_file() const {
    const std::vector<float> weights = {1, 2, 3, 4, 5, 6};
    const std::vector<std::uint8_t> bytes = {1, 2, 3, 4, 5};
    SafetensorsWriter writer;
    writer.add("layer0.attention.w_q", DType::f32, {2, 3}, std::as_bytes(std::span(weights)));
    writer.add("tokens", DType::u8, {5}, std::as_bytes(std::span(bytes)));
    writer.add("empty", DType::i64, {0}, {});
    writer.set_metadata("config", "x = 1");
    const std::filesystem::path path = folder_ / "real";
    writer.write(path);
    return content(path);
  }
};

TEST_F(HostileSafetensors, TheExamplesAreValidBeforeTheyAreCorrupted) {
  EXPECT_EQ(attempt(file_of(with_b(kGoodB), 29)), "opens");
  EXPECT_EQ(attempt(real_file()), "opens");
  EXPECT_EQ(attempt(file_of(with_b(kGoodB) + "     ", 29)), "opens");
  EXPECT_EQ(attempt(file_of("{}", 0)), "opens");
  EXPECT_EQ(attempt(file_of(with_b(b_with("\"U8\"", "[0,9223372036854775807]", "[24,24]")), 24)), "opens");
}

TEST_F(HostileSafetensors, TruncatedAtEveryByte) {
  const std::string file = real_file();
  for (std::size_t size = 0; size < file.size(); ++size) {
    EXPECT_TRUE(attempt(file.substr(0, size)).starts_with("truncated: ")) << size;
  }
  EXPECT_EQ(attempt(file.substr(0, 7)), "truncated: 7 bytes, too short for a safetensors file");
  EXPECT_EQ(attempt(file.substr(0, file.size() - 9)),
            "truncated: the header describes 29 bytes of tensors, the file has 20");
  EXPECT_EQ(attempt(file + "x"), "1 unexpected bytes after the last tensor");
}

TEST_F(HostileSafetensors, WrongHeaderLengths) {
  const std::string header = with_b(kGoodB);
  const std::size_t n = header.size();
  for (std::uint64_t length = 0; length < n + 60; ++length) {
    if (length != n) {
      EXPECT_NE(attempt(file_of(length, header, 29)), "opens") << length;
    }
  }
  EXPECT_EQ(attempt(file_of(n + 30, header, 29)),
            fmt::format("truncated: a header of {} bytes is declared, the file has {}", n + 30, n + 29));
  for (const std::uint64_t length : {std::uint64_t{100'000'001}, std::uint64_t{1} << 40, std::uint64_t{INT64_MAX},
                                     std::uint64_t{UINT64_MAX}, std::uint64_t{UINT64_MAX - 7}}) {
    EXPECT_EQ(attempt(file_of(length, header, 29)), "is not a safetensors file");
  }
}

struct Spoiled {
  std::string b, complaint;  // the entry of "b" and the expected error
};

TEST_F(HostileSafetensors, CorruptEntries) {
  const std::string whole = " must hold integers from 0 to 2^63-1";
  const std::string three = "must have dtype, shape and data_offsets and nothing else";
  const std::vector<Spoiled> cases = {
      {"1", three},
      {"null", three},
      {"[]", three},
      {"{}", three},
      {R"({"dtype":"U8","shape":[5]})", three},
      {R"({"dtype":"U8","data_offsets":[24,29]})", three},
      {R"({"dtype":"U8","shape":[5],"offsets":[24,29]})", three},
      {R"({"dtype":"U8","shape":[5],"data_offsets":[24,29],"more":1})", three},
      {b_with("8", "[5]", "[24,29]"), "dtype must be a string"},
      {b_with("\"U9\"", "[5]", "[24,29]"), "dtype \"U9\" is unknown"},
      {b_with("\"u8\"", "[5]", "[24,29]"), "dtype \"u8\" is unknown"},
      {b_with("\"\"", "[5]", "[24,29]"), "dtype \"\" is unknown"},
      {b_with("\"F4\\n\"", "[5]", "[24,29]"), "dtype \"F4\\n\" is unknown"},
      {b_with("\"U8\"", "5", "[24,29]"), "shape must be a list of numbers"},
      {b_with("\"U8\"", "{}", "[24,29]"), "shape must be a list of numbers"},
      {b_with("\"U8\"", "[5.0]", "[24,29]"), "shape" + whole},
      {b_with("\"U8\"", "[-5]", "[24,29]"), "shape" + whole},
      {b_with("\"U8\"", "[\"5\"]", "[24,29]"), "shape" + whole},
      {b_with("\"U8\"", "[null]", "[24,29]"), "shape" + whole},
      {b_with("\"U8\"", "[true,5]", "[24,29]"), "shape" + whole},
      {b_with("\"U8\"", "[[5]]", "[24,29]"), "shape" + whole},
      {b_with("\"U8\"", "[9223372036854775808]", "[24,29]"), "shape" + whole},
      {b_with("\"U8\"", "[18446744073709551621]", "[24,29]"), "shape" + whole},
      {b_with("\"U8\"", "[5e0]", "[24,29]"), "shape" + whole},
      {b_with("\"U8\"", "[5]", "[24]"), "data_offsets must be two numbers"},
      {b_with("\"U8\"", "[5]", "[24,26,29]"), "data_offsets must be two numbers"},
      {b_with("\"U8\"", "[5]", "29"), "data_offsets must be two numbers"},
      {b_with("\"U8\"", "[5]", "[-5,0]"), "data_offsets" + whole},
      {b_with("\"U8\"", "[5]", "[24.0,29.0]"), "data_offsets" + whole},
      {b_with("\"U8\"", "[5]", "[18446744073709551611,18446744073709551616]"), "data_offsets" + whole},
      {b_with("\"U8\"", "[5]", "[18446744073709551611,0]"), "data_offsets" + whole},
      {b_with("\"U8\"", "[4294967296,4294967296]", "[24,29]"),
       "U8 of shape [4294967296, 4294967296] is larger than any memory"},
      {b_with("\"U8\"", "[4294967296,4294967296,0]", "[24,24]"),
       "U8 of shape [4294967296, 4294967296, 0] is larger than any memory"},
      {b_with("\"F64\"", "[2305843009213693952]", "[24,29]"),
       "F64 of shape [2305843009213693952] is larger than any memory"},
      {b_with("\"U8\"", "[9223372036854775807,3]", "[24,29]"),
       "U8 of shape [9223372036854775807, 3] is larger than any memory"},
      {b_with("\"U8\"", "[6]", "[24,29]"), "U8 of shape [6] takes 6 bytes, its data_offsets are 24 to 29"},
      {b_with("\"U8\"", "[]", "[24,29]"), "U8 of shape [] takes 1 bytes, its data_offsets are 24 to 29"},
      {b_with("\"I16\"", "[5]", "[24,29]"), "I16 of shape [5] takes 10 bytes, its data_offsets are 24 to 29"},
      {b_with("\"U8\"", "[5]", "[29,24]"), "U8 of shape [5] takes 5 bytes, its data_offsets are 29 to 24"},
      {b_with("\"U8\"", "[1152921504606846976]", "[24,29]"),
       "U8 of shape [1152921504606846976] takes 1152921504606846976 bytes, its data_offsets are 24 to 29"},
      {b_with("\"U8\"", "[5]", "[23,28]"), "overlaps another tensor"},
      {b_with("\"U8\"", "[5]", "[10,15]"), "overlaps another tensor"},
      {b_with("\"U8\"", "[5]", "[25,30]"), "begins at byte 25, the one before it ends at 24"},
      {b_with("\"U8\"", "[5]", "[9223372036854775802,9223372036854775807]"),
       "begins at byte 9223372036854775802, the one before it ends at 24"},
  };
  for (const Spoiled& spoiled : cases) {
    EXPECT_EQ(attempt(file_of(with_b(spoiled.b), 29)), "tensor \"b\": " + spoiled.complaint) << spoiled.b;
  }
  EXPECT_EQ(attempt(file_of(with_b(b_with("\"U8\"", "[6]", "[24,30]")), 29)),
            "truncated: the header describes 30 bytes of tensors, the file has 29");
  EXPECT_EQ(attempt(file_of(with_b(b_with("\"U8\"", "[1152921504606846976]", "[24,1152921504606847000]")), 29)),
            "truncated: the header describes 1152921504606847000 bytes of tensors, the file has 29");
  EXPECT_EQ(attempt(file_of(with_b(b_with("\"U8\"", "[4]", "[24,28]")), 29)),
            "1 unexpected bytes after the last tensor");
  EXPECT_EQ(attempt(file_of(with_b(b_with("\"U8\"", "[24]", "[0,24]")), 24)), "tensor \"b\": overlaps another tensor");
}

TEST_F(HostileSafetensors, EveryPairOfOffsets) {
  for (int begin = 0; begin <= 31; ++begin) {
    for (int end = 0; end <= 31; ++end) {
      const std::string offsets = fmt::format("[{},{}]", begin, end);
      const std::string result = attempt(file_of(with_b(b_with("\"U8\"", "[5]", offsets)), 29));
      EXPECT_EQ(result == "opens", begin == 24 && end == 29) << offsets << " " << result;
    }
  }
}

TEST_F(HostileSafetensors, CorruptHeaders) {
  for (const char* header : {"[]", "null", "1", "\"text\""}) {
    EXPECT_EQ(attempt(file_of(header, 0)), "the header must be a JSON object");
  }
  for (const std::string_view header :
       {std::string_view(""), std::string_view("   "), std::string_view("{"), std::string_view("{}{}"),
        std::string_view("{\"a\""), std::string_view("{\"\xff\":1}"), std::string_view("\x00\x00", 2),
        std::string_view("{} \x00", 4), std::string_view("NaN"), std::string_view("{'a':1}"),
        std::string_view("\x1f\x8b\x08")}) {
    EXPECT_TRUE(attempt(file_of(header, 0)).starts_with("header: not valid JSON")) << header;
  }
  EXPECT_EQ(attempt(file_of(with_b(kGoodB, ",\"a\":" + kGoodB), 29)),
            "header: the JSON key \"a\" occurs twice in one object");
  EXPECT_EQ(attempt(file_of(with_b(R"({"dtype":"U8","shape":[5],"shape":[5],"data_offsets":[24,29]})"), 29)),
            "header: the JSON key \"shape\" occurs twice in one object");
  EXPECT_EQ(attempt(file_of(with_b(kGoodB, R"(,"__metadata__":{},"__metadata__":{})"), 29)),
            "header: the JSON key \"__metadata__\" occurs twice in one object");
}

TEST_F(HostileSafetensors, CorruptMetadata) {
  for (const char* value : {"1", "null", "[]", "\"text\""}) {
    EXPECT_EQ(attempt(file_of(with_b(kGoodB, fmt::format(",\"__metadata__\":{}", value)), 29)),
              "__metadata__ must be a JSON object");
  }
  for (const char* value : {"1", "null", "[]", "{}", "true", "1.5"}) {
    EXPECT_EQ(attempt(file_of(with_b(kGoodB, fmt::format(R"(,"__metadata__":{{"k":{}}})", value)), 29)),
              "__metadata__: \"k\" must be a string");
  }
}

TEST_F(HostileSafetensors, DeepHeaders) {
  const std::string million(1'000'000, '[');
  std::string objects;
  for (int i = 0; i < 200'000; ++i) {
    objects += "{\"a\":";
  }
  const std::string deep = "header: JSON nested deeper than 8 levels";
  EXPECT_EQ(attempt(file_of(million, 0)), deep);
  EXPECT_EQ(attempt(file_of(objects, 0)), deep);
  EXPECT_EQ(attempt(file_of(with_b(b_with("\"U8\"", million, "[24,29]")), 29)), deep);
  EXPECT_EQ(attempt(file_of(with_b(b_with("\"U8\"", million + std::string(million.size(), ']'), "[24,29]")), 29)),
            deep);
  EXPECT_EQ(attempt(file_of("{\"__metadata__\":{\"k\":" + million + "}}", 0)), deep);
}

}  // namespace headroom::safetensors_hostile_test
