// Readers of files against damaged ones: good inputs are mutated by fixed seeds, and whatever comes of it, a reader
// refuses it with an Error or takes it. Under the sanitizers any other misdeed ends the test.
//
// A test makes a few thousand rounds. HEADROOM_FUZZ_SECONDS=3600 makes each go on for so long, with other seeds than
// the fixed ones from there on; HEADROOM_FUZZ_FIRST=123456 begins with that round, to see it again.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/core/error.h"
#include "headroom/core/random.h"

namespace headroom::fuzz {

constexpr std::size_t kLongest = std::size_t{1} << 16;

struct Material {
  std::vector<std::string> good;        // inputs that a reader takes
  std::vector<std::string> dictionary;  // what its format is made of
};

class Mutator {
 public:
  Mutator(const Material& material, std::uint64_t round) : material_(material), random_(mix(20, round)) {}

  std::string operator()() {
    std::string input = pick(material_.good);
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
        const std::string& other = pick(material_.good);
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

  // The next number after `at` becomes another one.
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
  Random random_;
};

inline std::uint64_t number_from(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? 0 : std::strtoull(text, nullptr, 10);
}

// Gives `rounds` mutated inputs to read(const std::string&). Good inputs must be taken as they are.
template <class Read>
void against(const Material& material, std::uint64_t rounds, Read&& read) {
  for (const std::string& good : material.good) {
    EXPECT_NO_THROW(read(good)) << good.substr(0, 200);
  }
  const std::chrono::seconds longer(number_from("HEADROOM_FUZZ_SECONDS"));
  const auto end = std::chrono::steady_clock::now() + longer;
  std::uint64_t refused = 0, round = number_from("HEADROOM_FUZZ_FIRST");
  const std::uint64_t first = round;
  for (; round < first + rounds || std::chrono::steady_clock::now() < end; ++round) {
    const std::string input = Mutator(material, round)();
    try {
      read(input);
    } catch (const Error&) {
      ++refused;
    } catch (const std::exception& error) {
      ADD_FAILURE() << "round " << round << ": " << error.what();
      return;
    }
  }
  EXPECT_GT(refused, 0U);
  if (longer.count() > 0) {
    std::printf("%llu inputs, %llu refused\n", static_cast<unsigned long long>(round - first),
                static_cast<unsigned long long>(refused));
  }
}

}  // namespace headroom::fuzz
