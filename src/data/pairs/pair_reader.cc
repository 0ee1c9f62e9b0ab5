#include <algorithm>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "data/text/line_reader.h"
#include "foundation/core/machine/log.h"
#include "foundation/core/text/utf8.h"
#include "headroom/core/error.h"
#include "headroom/core/files.h"
#include "pairs.h"

namespace headroom::data {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPairBlanks = " \t\r\v\f";

std::string without_outer_blanks(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(kPairBlanks);
  return begin == std::string_view::npos
             ? std::string()
             : std::string(text.substr(begin, text.find_last_not_of(kPairBlanks) + 1 - begin));
}

// What keeps a line from being read as a sentence or a row of them; empty: nothing.
std::string text_complaint(std::string_view line) {
  if (line.find('\0') != std::string_view::npos) {
    return "must be text, but holds a byte 0";
  }
  return is_utf8(line) ? std::string() : "must be UTF-8, but is not";
}

std::vector<std::string_view> columns_of(std::string_view line) {
  std::vector<std::string_view> columns;
  for (std::size_t tab = 0; tab != std::string_view::npos;) {
    tab = line.find('\t');
    columns.push_back(line.substr(0, tab));
    line.remove_prefix(tab == std::string_view::npos ? line.size() : tab + 1);
  }
  return columns;
}

std::int64_t size_on_disk(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored) ? static_cast<std::int64_t>(fs::file_size(path, ignored)) : 0;
}

}  // namespace

struct PairReader::Parts {
  std::vector<fs::path> sources, targets;  // targets: empty or one for each source
  std::vector<std::int64_t> columns;
  bool skip = false;

  std::size_t index = 0;  // of the file under way
  std::optional<LineReader> source, target;
  std::int64_t rows = 0, skipped = 0, done = 0, total = 0;
  std::string complaint;  // the first
  std::string line, other;

  void open() {
    source.emplace(sources[index]);
    if (!targets.empty()) {
      target.emplace(targets[index]);
    }
  }

  // False at the end of this file.
  bool read_lines() {
    const bool more = source->next(line);
    if (!target) {
      return more;
    }
    if (target->next(other) != more) {
      const LineReader &shorter = more ? *target : *source, &longer = more ? *source : *target;
      user_error("{}: must be followed by another line, as its parallel file continues with {}", shorter.place(),
                 longer.place());
    }
    return more;
  }

  // What is wrong with the lines just read, with the place where it is; empty: `pair` has them.
  std::string take(TextPair& pair) const {
    if (target) {
      for (const auto& [reader, text] : {std::pair(&*source, &line), std::pair(&*target, &other)}) {
        if (const std::string wrong = text_complaint(*text); !wrong.empty()) {
          return fmt::format("{}: {}", reader->place(), wrong);
        }
      }
      pair = {without_outer_blanks(line), without_outer_blanks(other)};
      const LineReader& at = pair.source.empty() ? *source : *target;
      return pair.source.empty() || pair.target.empty()
                 ? fmt::format("{}: must hold a sentence, got an empty line", at.place())
                 : std::string();
    }
    if (const std::string wrong = text_complaint(line); !wrong.empty()) {
      return fmt::format("{}: {}", source->place(), wrong);
    }
    const std::vector<std::string_view> found = columns_of(line);
    const auto needed = static_cast<std::size_t>(std::max(columns[0], columns[1]));
    if (found.size() < needed) {
      return fmt::format("{}: must have {} columns separated by tabs (data.pair_columns), got {}", source->place(),
                         needed, line.empty() ? 0 : found.size());
    }
    pair = {without_outer_blanks(found[static_cast<std::size_t>(columns[0] - 1)]),
            without_outer_blanks(found[static_cast<std::size_t>(columns[1] - 1)])};
    if (pair.source.empty() || pair.target.empty()) {
      return fmt::format("{}: column {} must hold a sentence, got nothing", source->place(),
                         columns[pair.source.empty() ? 0 : 1]);
    }
    return {};
  }
};

PairReader::PairReader(const PairFiles& files, const config::DataOptions& options) : parts_(std::make_unique<Parts>()) {
  Parts& p = *parts_;
  p.sources = expand_patterns(files.source);
  p.targets = expand_patterns(files.target);
  p.columns = options.pair_columns;
  p.skip = options.skip_bad_rows;
  if (p.sources.empty()) {
    user_error("data.train: must name files of sentence pairs");
  }
  if (!p.targets.empty() && p.targets.size() != p.sources.size()) {
    user_error("{}: is one of {} files of sources, but there are {} of targets: each source file needs its own",
               p.sources.front().string(), p.sources.size(), p.targets.size());
  }
  if (p.columns.size() != 2 || p.columns[0] == p.columns[1]) {
    user_error("data.pair_columns: must be two different columns, the source's and the target's");
  }
  for (const std::vector<fs::path>* side : {&p.sources, &p.targets}) {
    for (const fs::path& path : *side) {
      p.total += size_on_disk(path);
    }
  }
}
PairReader::~PairReader() = default;
PairReader::PairReader(PairReader&&) noexcept = default;

bool PairReader::next(TextPair& pair) {
  Parts& p = *parts_;
  while (p.index < p.sources.size()) {
    if (!p.source) {
      p.open();
    }
    if (!p.read_lines()) {
      p.done += p.source->consumed() + (p.target ? p.target->consumed() : 0);
      p.source.reset();
      p.target.reset();
      ++p.index;
      continue;
    }
    ++p.rows;
    const std::string wrong = p.take(pair);
    if (wrong.empty()) {
      return true;
    }
    if (!p.skip) {
      user_error("{}", wrong);
    }
    if (++p.skipped == 1) {
      p.complaint = wrong;
    }
  }
  if (p.rows == p.skipped) {
    user_error("{}: holds no sentence pairs{}", p.sources.front().string(), p.rows > 0 ? "; " + p.complaint : "");
  }
  return false;
}

void PairReader::rewind() {
  Parts& p = *parts_;
  p.index = 0;
  p.source.reset();
  p.target.reset();
  p.rows = p.skipped = p.done = 0;
  p.complaint.clear();
}

std::int64_t PairReader::rows() const {
  return parts_->rows;
}
std::int64_t PairReader::skipped() const {
  return parts_->skipped;
}
const std::string& PairReader::first_complaint() const {
  return parts_->complaint;
}
std::int64_t PairReader::bytes_read() const {
  const Parts& p = *parts_;
  return p.done + (p.source ? p.source->consumed() : 0) + (p.target ? p.target->consumed() : 0);
}
std::int64_t PairReader::bytes_total() const {
  return parts_->total;
}

std::string PairReader::fingerprint() const {
  const Parts& p = *parts_;
  Sha256 hash;
  hash.update(fmt::format("pairs 1\n{} {} {}\n", p.columns[0], p.columns[1], p.skip));
  for (const std::vector<fs::path>* side : {&p.sources, &p.targets}) {
    hash.update(fmt::format("{}\n", side->size()));
    for (const fs::path& path : *side) {
      std::error_code ignored;
      hash.update(fmt::format("{}\n{} {}\n", fs::absolute(path).lexically_normal().string(), size_on_disk(path),
                              fs::last_write_time(path, ignored).time_since_epoch().count()));
    }
  }
  return hash.hex();
}

std::vector<TextPair> read_pairs(const PairFiles& files, const config::DataOptions& options) {
  PairReader reader(files, options);
  std::vector<TextPair> pairs;
  for (TextPair pair; reader.next(pair);) {
    pairs.push_back(pair);
  }
  if (reader.skipped() > 0) {
    log_warning("{} of {} rows were left out; the first: {}", reader.skipped(), reader.rows(),
                reader.first_complaint());
  }
  return pairs;
}

}  // namespace headroom::data
