// Feeds damaged files to readers. Good inputs are mutated with fixed seeds, and a reader must either accept the result
// or throw an Error. Under the sanitizers, any other error ends the test, and an input that reaches new code is mutated
// further (coverage.h).
//
// A test runs a few thousand rounds. With HEADROOM_FUZZ_SECONDS=3600, the tests of each reader run for that long. An
// input that makes a reader fail stays in the current folder, under a name that the test prints;
// HEADROOM_FUZZ_INPUT=FILE tests only that input.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <string_view>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif

#include "coverage.h"
#include "foundation/core/random.h"
#include "headroom/core/error.h"

namespace headroom::fuzz {

constexpr std::size_t kLongest = std::size_t{1} << 16;
constexpr std::size_t kMostInputs = 4096;  // limit on the inputs to mutate

struct Material {
  std::vector<std::string> good;        // inputs that a reader accepts
  std::vector<std::string> dictionary;  // fragments of the file format
};

class Mutator {
 public:
  // Mutates one of `inputs`.
  Mutator(const Material& material, const std::vector<std::string>& inputs, std::uint64_t round)
      : material_(material), inputs_(inputs), random_(mix(20, round)) {}

  std::string operator()() {
    std::string input = pick(inputs_);
    for (std::uint64_t n = 1 + random_.below(random_.below(4) == 0 ? 12 : 3); n > 0; --n) {
      change(input);
    }
    if (input.size() > kLongest) {
      input.resize(kLongest);
    }
    return input;
  }

 private:
  const std::string& pick(const std::vector<std::string>& from) { return from[random_.below(from.size())]; }
  std::size_t place(const std::string& in) { return random_.below(in.size() + 1); }
  std::size_t length(const std::string& in, std::size_t at) {
    return random_.below(std::min<std::size_t>(in.size() - at, random_.below(3) == 0 ? in.size() : 16) + 1);
  }

  void change(std::string& input) {
    const std::size_t at = place(input), n = length(input, at);
    switch (random_.below(10)) {
      case 0:
        input.resize(at);
        break;
      case 1:
        input.erase(at, n);
        break;
      case 2:
        input.insert(at, input.substr(at, n));
        break;
      case 3:
        input.insert(place(input), input.substr(at, n));
        break;
      case 4:
        input.replace(at, n, pick(material_.dictionary));
        break;
      case 5:
        input.insert(at, pick(material_.dictionary));
        break;
      case 6:
        input.replace(at, n, std::string(random_.below(64), static_cast<char>(random_.below(256))));
        break;
      case 7:
        change_number(input, at);
        break;
      case 8: {
        const std::string& other = pick(inputs_);
        const std::size_t from = place(other);
        input = input.substr(0, at) + other.substr(from);
        break;
      }
      default:
        if (at < input.size()) {
          constexpr unsigned char kTelling[] = {0, 1, 0x7f, 0x80, 0xff, 0xc0, 0xf4, ' ', '\n', '"'};
          input[at] = random_.below(2) == 0 ? static_cast<char>(random_.below(256))
                                            : static_cast<char>(kTelling[random_.below(std::size(kTelling))]);
        }
    }
  }

  // Replaces the next number after `at` with another one.
  void change_number(std::string& input, std::size_t at) {
    constexpr const char* kNumbers[] = {
        "0",     "1",   "-1", "255", "65536", "2147483648", "9223372036854775807", "18446744073709551616",
        "1e308", "0.5", "nan"};
    const std::size_t begin = input.find_first_of("0123456789", at);
    if (begin != std::string::npos) {
      const std::size_t end = std::min(input.find_first_not_of("0123456789", begin), input.size());
      input.replace(begin, end - begin, kNumbers[random_.below(std::size(kNumbers))]);
    }
  }

  const Material& material_;
  const std::vector<std::string>& inputs_;
  Random random_;
};

// Stores the current input in a file that remains if a sanitizer ends the process.
class Trial {
 public:
  explicit Trial(const std::string& input) {
    current() = &input;
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_set_death_callback(&Trial::keep);
#endif
  }
  ~Trial() {
    current() = nullptr;
  }
  Trial(const Trial&) = delete;
  Trial& operator=(const Trial&) = delete;

  static void keep() {
    if (current() == nullptr) {
      return;
    }
    const testing::TestInfo& test = *testing::UnitTest::GetInstance()->current_test_info();
    const std::string name = std::string("fuzz-") + test.test_suite_name() + "." + test.name();
    if (std::FILE* file = std::fopen(name.c_str(), "wb")) {
      std::fwrite(current()->data(), 1, current()->size(), file);
      std::fclose(file);
      std::fprintf(stderr, "the input is in %s\n", name.c_str());
    }
  }

 private:
  static const std::string*& current() {
    static const std::string* input = nullptr;
    return input;
  }
};

// Feeds a sequence of inputs to a reader.
template <class Read>
class Campaign {
 public:
  Campaign(const Material& material, Read& read) : material_(material), inputs_(material.good), read_(read) {
    for (const std::string& good : material.good) {
      EXPECT_NO_THROW(read(good)) << good.substr(0, 200);
    }
    coverage_.is_new();
  }

  // Returns false if the reader failed.
  bool round() {
    const std::string input = Mutator(material_, inputs_, rounds_++)();
    const Trial trial(input);
    coverage_.clear();
    try {
      read_(input);
    } catch (const Error&) {
      ++refused_;
    } catch (const std::exception& error) {
      ADD_FAILURE() << error.what();
    }
    if (testing::Test::HasFailure()) {
      Trial::keep();
      return false;
    }
    if (coverage_.is_new() && inputs_.size() < kMostInputs) {
      inputs_.push_back(input);
    }
    return true;
  }

  std::uint64_t refused() const { return refused_; }
  void describe() const {
    const testing::TestInfo& test = *testing::UnitTest::GetInstance()->current_test_info();
    std::printf("%s.%s: %llu inputs, %llu refused, %zu edges, %zu inputs kept\n", test.test_suite_name(), test.name(),
                static_cast<unsigned long long>(rounds_), static_cast<unsigned long long>(refused_), coverage_.size(),
                inputs_.size());
  }

 private:
  const Material& material_;
  std::vector<std::string> inputs_;
  Read& read_;
  Coverage coverage_;
  std::uint64_t rounds_ = 0, refused_ = 0;
};

// Calls read(const std::string&) with `rounds` mutated inputs. The good inputs themselves must be accepted. `campaigns`
// is the number of calls that test the same reader and share its time budget.
template <class Read>
void against(const Material& material, std::uint64_t rounds, Read&& read, std::int64_t campaigns = 1) {
  if (const char* file = std::getenv("HEADROOM_FUZZ_INPUT")) {
    std::ifstream bytes(file, std::ios::binary);
    try {
      read(std::string(std::istreambuf_iterator<char>(bytes), {}));
    } catch (const Error& refusal) {
      std::puts(refusal.what());
    }
    return;
  }
  const char* wish = std::getenv("HEADROOM_FUZZ_SECONDS");
  const std::chrono::milliseconds longer((wish == nullptr ? 0 : std::strtoll(wish, nullptr, 10)) * 1000 / campaigns);
  const auto end = std::chrono::steady_clock::now() + longer;
  Campaign campaign(material, read);
  for (std::uint64_t i = 0; i < rounds || std::chrono::steady_clock::now() < end; ++i) {
    if (!campaign.round()) {
      return;
    }
  }
  EXPECT_GT(campaign.refused(), 0U);
  if (longer.count() > 0) {
    campaign.describe();
  }
}

}  // namespace headroom::fuzz
