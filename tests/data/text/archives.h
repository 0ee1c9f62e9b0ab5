// Good tar archives, made here.
#pragma once

#include <fmt/format.h>

#include <string>

namespace headroom::data {

// A header of 512 bytes with the checksum that it must have.
inline std::string with_tar_sum(std::string header) {
  header.replace(148, 8, "        ");
  unsigned sum = 0;
  for (const char c : header) {
    sum += static_cast<unsigned char>(c);
  }
  return header.replace(148, 8, fmt::format("{:06o}", sum) + std::string("\0 ", 2));
}

// A member of a tar archive, as POSIX has it.
inline std::string tar_member(const std::string& name, const std::string& content, char type = '0') {
  std::string header(512, '\0');
  const auto put = [&](std::size_t at, const std::string& text) { header.replace(at, text.size(), text); };
  put(0, name);
  put(124, fmt::format("{:011o}", content.size()));
  header[156] = type;
  put(257, "ustar");
  return with_tar_sum(header) + content + std::string((512 - content.size() % 512) % 512, '\0');
}

// A pax record, its own length in front.
inline std::string pax(const std::string& record) {
  std::size_t length = record.size() + 3;
  while (std::to_string(length).size() + 1 + record.size() + 1 != length) {
    ++length;
  }
  return tar_member("PaxHeader", std::to_string(length) + " " + record + "\n", 'x');
}

// Blocks that may be headers get the checksum that they must have, so that what they say is looked at.
inline std::string with_tar_sums(std::string input) {
  constexpr std::size_t kBlock = 512;
  for (std::size_t at = 0; at + kBlock <= input.size(); at += kBlock) {
    const std::string header = input.substr(at, kBlock);
    if (header.find("ustar") != std::string::npos) {
      input.replace(at, kBlock, with_tar_sum(header));
    }
  }
  return input;
}

inline const std::string kTarEnd(1024, '\0');

}  // namespace headroom::data
