#pragma once

#include <fmt/format.h>

#include <string>

namespace headroom::data {

// Sets the checksum of a 512-byte header.
inline std::string with_tar_sum(std::string header) {
  header.replace(148, 8, "        ");
  unsigned sum = 0;
  for (const char c : header) {
    sum += static_cast<unsigned char>(c);
  }
  return header.replace(148, 8, fmt::format("{:06o}", sum) + std::string("\0 ", 2));
}

// Returns a member of a POSIX archive: header, content and padding.
inline std::string tar_member(const std::string& name, const std::string& content, char type = '0') {
  std::string header(512, '\0');
  const auto put = [&](std::size_t at, const std::string& text) { header.replace(at, text.size(), text); };
  put(0, name);
  put(124, fmt::format("{:011o}", content.size()));
  header[156] = type;
  put(257, "ustar");
  return with_tar_sum(header) + content + std::string((512 - content.size() % 512) % 512, '\0');
}

// Returns a pax header with one record, which begins with its own length.
inline std::string pax(const std::string& record) {
  std::size_t length = record.size() + 3;
  while (std::to_string(length).size() + 1 + record.size() + 1 != length) {
    ++length;
  }
  return tar_member("PaxHeader", std::to_string(length) + " " + record + "\n", 'x');
}

// Corrects the checksum of every block that may be a header, so that damaged headers are parsed.
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
