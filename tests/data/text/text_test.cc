#include "data/text/text.h"
#include "data/synthetic/run_text.h"

#include "foundation/core/text/utf8.h"
#include "support.h"

namespace headroom::data::text_test {

class TextTest : public FolderTest {};

std::string refusal(const std::string& path) {
  return user_error_of([&] { text_of({path}); });
}

// Returns lines of different lengths, some with characters of several bytes.
std::string sample_text(std::size_t size) {
  Random random(7);
  std::string text;
  while (text.size() < size) {
    text += random_unicode(random, random.below(60)) + std::string(random.below(100), 'x') + "\n";
  }
  return text;
}

TEST_F(TextTest, ReadsTheFileInBlocksThatEndAtLineEnds) {
  const std::string text = sample_text(3 << 20) + "the end, without a line end";
  const auto source = open_text({write("a.txt", text)}, {});
  const std::vector<std::string> blocks = blocks_of(*source);
  EXPECT_GT(blocks.size(), 8U);
  for (std::size_t i = 0; i + 1 < blocks.size(); ++i) {
    EXPECT_EQ(blocks[i].back(), '\n');
    EXPECT_LE(blocks[i].size(), std::size_t{256} << 10);
  }
  EXPECT_EQ(text_of(*source), text);  // once more, after rewind()
  EXPECT_EQ(source->bytes_read(), std::ssize(text));
  EXPECT_EQ(source->bytes_total(), std::ssize(text));
  EXPECT_EQ(blocks_of(*source), blocks);
}

TEST_F(TextTest, AByteOrderMarkIsNotText) {
  const std::string mark(kByteOrderMark), text = "one\ntwo " + mark + "\n";
  EXPECT_EQ(text_of(*open_text({write("a.txt", mark + text), write("b.txt", mark + "three\n")}, {})), text + "three\n");
  EXPECT_EQ(text_of(*open_text({write("a.jsonl", mark + "{\"text\": \"one\"}\n")}, {})), "one");
  EXPECT_HAS(refusal(write("mark.txt", mark)), "mark.txt: is empty");
}

TEST_F(TextTest, EndingsAreComparedWithoutCase) {
  const std::string lines = "{\"text\": \"one\"}\n";
  for (const char* name : {"a.jsonl", "a.JSONL", "a.json", "a.ndjson", "a.JsonLines"}) {
    EXPECT_EQ(text_of(*open_text({write(name, lines)}, {})), "one") << name;
  }
  EXPECT_EQ(text_of(*open_text({write("a.JSONL.GZ", gzip(lines))}, {})), "one");
  EXPECT_EQ(text_of(*open_text({write("a.TXT", lines)}, {})), lines);
}

TEST_F(TextTest, BadJsonLinesAreSkippedIfRequested) {
  const std::string lines =
      "{\"text\": \"one\"}\n{\"text\": \"lone \\ud800 surrogate\"}\nno JSON\n{\"other\": 1}\n{\"text\": 7}\n"
      "{\"text\": \"two\"}\n";
  const std::string file = write("a.jsonl", lines);
  EXPECT_HAS(refusal(file), "a.jsonl:2: not valid JSON");
  const auto source = open_text({file}, {.skip_bad_rows = true});
  EXPECT_EQ(text_of(*source), "one\ntwo");
  EXPECT_EQ(text_of(*source), "one\ntwo") << "and so whenever it is read";
  EXPECT_NE(source->fingerprint(), open_text({file}, {})->fingerprint());
  EXPECT_HAS(user_error_of([&] { text_of(*open_text({write("b.jsonl", "{}\n")}, {.skip_bad_rows = true})); }),
             "b.jsonl: holds no text");
}

// Incomplete characters at both ends, as in a part of a file, and bytes that are invalid in UTF-8 are kept.
TEST_F(TextTest, BytesNeedNoEncoding) {
  std::string bytes = "\x82\xac one\n\xff\xfe\n";
  bytes += std::string(std::size_t{5} << 20, '\x80') + "\xe2\x82";
  const std::string file = write("part.txt", bytes);
  EXPECT_HAS(refusal(file), "part.txt: is not valid UTF-8 from byte 0 on");
  const auto source = open_text({file}, {}, Content::bytes);
  EXPECT_TRUE(text_of(*source) == bytes);
  EXPECT_TRUE(text_of(*source) == bytes);
  const std::string zero = write("zero.txt", std::string("a\0b", 3));
  EXPECT_HAS(user_error_of([&] { text_of(*open_text({zero}, {}, Content::bytes)); }),
             "is not text but binary: byte 1 is 0");
  EXPECT_EQ(content_for(config::TokenizerKind::bytes), Content::bytes);
  EXPECT_EQ(content_for(config::TokenizerKind::bpe), Content::utf8);
}

TEST_F(TextTest, ALongLineIsSplitBetweenCharacters) {
  std::string line;
  while (line.size() < (std::size_t{9} << 20)) {
    line += "\xf0\x9f\x98\x80\xe2\x82\xac";  // 7 bytes, so that powers of two fall inside characters
  }
  const std::string text = "first\n" + line + "\nlast\n";
  const auto source = open_text({write("long.txt", text)}, {});
  const std::vector<std::string> blocks = blocks_of(*source);
  std::string all;
  for (const std::string& block : blocks) {
    EXPECT_TRUE(is_utf8(block));
    EXPECT_LE(block.size(), (std::size_t{4} << 20) + (std::size_t{256} << 10));
    all += block;
  }
  EXPECT_EQ(blocks.front(), "first\n");
  EXPECT_EQ(all, text);
}

TEST_F(TextTest, NoLineSpansTwoFiles) {
  write("a.txt", "one");
  write("b.txt", "two\n");
  write("c.txt", "three");
  EXPECT_EQ(text_of({at("*.txt")}), "one\ntwo\nthree");
  EXPECT_EQ(text_of({at("c.txt"), at("a.txt")}), "three\none");
}

TEST_F(TextTest, PatternsMatchInOrderOfNames) {
  for (const char* name : {"b1.txt", "a2.txt", "a1.txt", "x.md", ".hidden.txt", "sub/a3.txt"}) {
    write(name, std::string(name) + "\n");
  }
  EXPECT_EQ(text_of({at("*.txt")}), "a1.txt\na2.txt\nb1.txt\n");
  EXPECT_EQ(text_of({at("b?.txt"), at("a*")}), "b1.txt\na1.txt\na2.txt\n");
  EXPECT_EQ(text_of({at("sub/*")}), "sub/a3.txt\n");
  write("odd*name", "star\n");
  EXPECT_EQ(text_of({at("odd*name")}), "star\n");
  EXPECT_HAS(refusal(at("*.csv")), "*.csv: no file matches");
  EXPECT_HAS(refusal(at("nowhere/*.txt")), "no file matches");
  EXPECT_HAS(refusal(at("none.txt")), "none.txt: does not exist");
  EXPECT_HAS(refusal(at("sub")), "is a directory");
}

TEST_F(TextTest, RefusesFilesThatAreNotText) {
  EXPECT_HAS(refusal(write("empty.txt", "")), "empty.txt: is empty");
  EXPECT_HAS(refusal(write("binary.txt", std::string("abc\0d", 5))), "binary.txt: is not text but binary: byte 3");
  EXPECT_HAS(refusal(write("latin.txt", "caf\xe9 au lait")), "latin.txt: is not valid UTF-8 from byte 3 on");
  EXPECT_HAS(refusal(write("cut.txt", "euro \xe2\x82")), "cut.txt: is not valid UTF-8 from byte 5 on");
  const std::string ahead(1000001, 'a');  // far beyond the first block
  EXPECT_HAS(refusal(write("late.txt", ahead + "\xed\xa0\x80")), "from byte 1000001 on");
  EXPECT_HAS(refusal(write("zero.txt", ahead + std::string(1, '\0'))), "byte 1000001 is 0");
}

TEST_F(TextTest, FingerprintFollowsTheFiles) {
  const std::string a = write("a.txt", "one\n"), b = write("b.txt", "two\n");
  const auto print = [](const std::vector<std::string>& files, const config::DataOptions& options = {}) {
    return open_text(files, options)->fingerprint();
  };
  const std::string before = print({a, b});
  EXPECT_EQ(print({a, b}), before);
  EXPECT_NE(print({b, a}), before);
  EXPECT_NE(print({a}), before);
  EXPECT_NE(print({a, b}, {.separator = "\n\n"}), before);
  const auto time = std::filesystem::last_write_time(b);
  std::filesystem::last_write_time(b, time + std::chrono::seconds(5));
  EXPECT_EQ(print({a, b}), before);
  write("b.txt", "six\n");  // of the same size as before
  std::filesystem::last_write_time(b, time);
  EXPECT_NE(print({a, b}), before);
}

// The hash of a large file is cached. A replacement of the same size and time must not get the cached hash.
TEST_F(TextTest, ALargeFileThatIsReplacedIsReadAgain) {
  ::setenv("HEADROOM_CACHE", (folder_ / "cache").c_str(), 1);
  const std::string text = sample_text(3 << 20), file = write("large.txt", text);
  const auto time = std::filesystem::last_write_time(file);
  const auto print = [&] { return open_text({file}, {})->fingerprint(); };
  std::this_thread::sleep_for(std::chrono::milliseconds(3100));  // a file that has just changed is not cached
  const std::string before = print();
  EXPECT_TRUE(std::filesystem::exists(folder_ / "cache" / "content"));
  EXPECT_EQ(print(), before);
  std::string other = text;
  other.front() = other.front() == 'x' ? 'y' : 'x';
  std::filesystem::rename(write("other.txt", other), file);
  std::filesystem::last_write_time(file, time);
  EXPECT_NE(print(), before);
  ::unsetenv("HEADROOM_CACHE");
}

TEST_F(TextTest, AMissingPartIsNamed) {
  const std::string file = write("a.txt", "one\n");
  EXPECT_HAS(user_error_of([&] { open_split({.train = {file}, .validation_fraction = 0.0}, Split::validation); }),
             "data.validation: must name");
  EXPECT_HAS(user_error_of([&] { open_split({.validation = {file}}, Split::train); }), "data.train: must name");
}

TEST_F(TextTest, TheLastLinesAreHeldOut) {
  const auto parts_of = [&](const std::string& text, double share) {
    const config::DataOptions data{
        .train = {write("whole.txt", text)}, .order = config::Order::given, .validation_fraction = share};
    const auto train = open_split(data, Split::train), validation = open_split(data, Split::validation);
    const std::string first = text_of(*train), last = text_of(*validation);
    EXPECT_EQ(first + last, text);
    EXPECT_EQ(text_of(*train), first);  // once more, after rewind()
    EXPECT_EQ(text_of(*validation), last);
    validation->rewind();
    std::string block;
    EXPECT_TRUE(validation->next(block) && !validation->document_starts().empty() &&
                validation->document_starts().front() == 0)
        << "a split begins with a document, even within one of the whole text";
    EXPECT_NE(train->fingerprint(), validation->fingerprint());
    return last;
  };
  EXPECT_EQ(parts_of("one\ntwo\nthree\nfour\n", 0.3), "four\n");
  EXPECT_EQ(parts_of("one\ntwo\nthree\nfour\n", 0.4), "four\n");
  EXPECT_EQ(parts_of("one\ntwo\nthree\nfour", 0.6), "three\nfour");
  EXPECT_EQ(parts_of("one\ntwo\n", 1e-9), "two\n");
  EXPECT_EQ(parts_of("one\ntwo\n", 0.999), "two\n");
  EXPECT_EQ(parts_of("one\n" + std::string(600, 'x') + "\n", 0.1), std::string(600, 'x') + "\n");
  const std::string text = sample_text(3 << 20);
  const std::string held = parts_of(text, 0.25);
  EXPECT_NEAR(static_cast<double>(held.size()), 0.25 * static_cast<double>(text.size()), 400.0);
  EXPECT_EQ(text[text.size() - held.size() - 1], '\n');
  EXPECT_HAS(user_error_of([&] { parts_of("a single line\n", 0.5); }), "whole.txt has a single line");
}

// Returns the documents of a text, each after a `|`.
std::string documents_of(tokenizers::TextSource& text) {
  std::string all;
  for (std::string block; text.next(block);) {
    std::size_t done = 0;
    for (const std::size_t start : text.document_starts()) {
      all += block.substr(done, start - done) + "|";
      done = start;
    }
    all += block.substr(done);
  }
  return all;
}

TEST_F(TextTest, DocumentsAreFilesRowsAndPartsOfLongFiles) {
  EXPECT_EQ(documents_of(*open_text({write("rows.jsonl", "{\"text\":\"one\"}\n{\"text\":\"two\"}\n")}, {})),
            "|one\n|two");
  // The long file consists of two documents and of lines without blank lines between them. Files shorter than a 64th of
  // the text are joined.
  const auto lines = [](std::size_t count) {
    std::string text;
    for (std::size_t i = 0; i < count; ++i) {
      text += std::string(i % 90, 'x') + ".\n";
    }
    return text;
  };
  const std::string block = lines(70), long_file = block + "\n" + block + " \n" + lines(5000);
  std::vector<std::string> files = {write("long.txt", long_file)};
  for (int i = 0; i < 3; ++i) {
    files.push_back(write(fmt::format("short{}.txt", i), std::string(200, static_cast<char>('a' + i))));
  }
  const std::string documents = documents_of(*open_text(files, {}));
  EXPECT_EQ(documents.find("|" + block + "\n|" + block + " \n|"), 0U);
  EXPECT_GT(std::ranges::count(documents, '|'), 8);
  EXPECT_TRUE(documents.ends_with(std::string(200, 'b') + "\n" + std::string(200, 'c')));
  std::string text = documents;
  std::erase(text, '|');
  EXPECT_EQ(text, long_file + std::string(200, 'a') + "\n" + std::string(200, 'b') + "\n" + std::string(200, 'c'));
}

TEST_F(TextTest, DocumentsOfTheWholeTextAreHeldOut) {
  std::string text;
  for (int i = 0; i < 1000; ++i) {
    text += fmt::format("document {}\n{}\n\n", i, sample_text(200 + static_cast<std::size_t>(i % 7) * 30));
  }
  const auto documents_in = [](const std::string& part) {
    std::set<int> numbers;
    for (std::size_t at = 0; (at = part.find("document ", at)) != std::string::npos; ++at) {
      numbers.insert(std::stoi(part.substr(at + 9)));
    }
    return numbers;
  };
  for (const double share : {0.01, 0.05, 0.3}) {
    const config::DataOptions data{.train = {write("whole.txt", text)}, .validation_fraction = share};
    const auto train = open_split(data, Split::train), validation = open_split(data, Split::validation);
    const std::string trained = text_of(*train), held = text_of(*validation);
    EXPECT_EQ(trained.size() + held.size(), text.size());
    EXPECT_EQ(text_of(*train), trained);  // once more, after rewind()
    EXPECT_NE(train->fingerprint(), validation->fingerprint());
    EXPECT_NEAR(static_cast<double>(held.size()), share * static_cast<double>(text.size()),
                0.6 * share * static_cast<double>(text.size()));
    const std::set<int> left = documents_in(trained), drawn = documents_in(held);
    EXPECT_EQ(left.size() + drawn.size(), 1000U);  // no document is divided
    if (share > 0.02) {                            // drawn from all quarters of the text
      for (int quarter = 0; quarter < 4; ++quarter) {
        const auto first = drawn.lower_bound(250 * quarter);
        EXPECT_TRUE(first != drawn.end() && *first < 250 * (quarter + 1)) << share << " " << quarter;
      }
    }
  }
  // A text of one document cannot be divided into documents, so its last lines are held out.
  const config::DataOptions single{.train = {write("one.txt", std::string(50, 'x') + "\nlast\n")}};
  EXPECT_EQ(text_of(*open_split(single, Split::validation)).substr(0, 4), "last");
}

struct Packing {
  std::string name, ending;
  std::string (*pack)(std::string_view text);
};
const Packing kPackings[] = {{"gzip", ".gz", gzip}, {"zstd", ".zst", [](std::string_view text) { return zstd(text); }}};

TEST_F(TextTest, ReadsPackedFilesOfAnyName) {
  const std::string text = sample_text(1 << 20);
  for (const auto& [name, ending, pack] : kPackings) {
    EXPECT_EQ(text_of({write("a.txt" + ending, pack(text))}), text);
    EXPECT_EQ(text_of({write("a.txt", pack(text))}), text) << name;
    EXPECT_EQ(text_of({write("members" + ending, pack("one\n") + pack("") + pack("two\n") + pack(text))}),
              "one\ntwo\n" + text);
    const std::string mark(kByteOrderMark);
    EXPECT_EQ(text_of({write("mark" + ending, pack(mark) + pack("one\n"))}), "one\n");
    EXPECT_EQ(text_of({write("split" + ending, pack(mark.substr(0, 1)) + pack(mark.substr(1) + "one\n"))}), "one\n");
  }
}

TEST_F(TextTest, SkippableFramesOfZstdAreSkipped) {
  for (const char kind : {'\x50', '\x5f'}) {
    const std::string skipped = kind + std::string("\x2a\x4d\x18\x03\0\0\0abc", 10);
    EXPECT_EQ(text_of({write("a.zst", skipped + zstd("one\n") + skipped + skipped + zstd("two\n") + skipped)}),
              "one\ntwo\n");
    EXPECT_HAS(refusal(write("only.zst", skipped)), "only.zst: is empty");
    EXPECT_HAS(refusal(write("cut.zst", zstd("one\n") + skipped.substr(0, 9))), "cut.zst: is truncated");
  }
}

TEST_F(TextTest, RefusesDamagedPackedFiles) {
  for (const auto& [name, ending, pack] : kPackings) {
    const std::string packed = pack("some text that is long enough to be packed, packed, packed\n");
    EXPECT_HAS(refusal(write("plain" + ending, "not packed")), "plain" + ending + ": is not " + name);
    EXPECT_HAS(refusal(write("nothing" + ending, pack(""))), "nothing" + ending + ": is empty");
    EXPECT_HAS(refusal(write("behind" + ending, packed + "garbage")), fmt::format(" byte {}", packed.size()));
    EXPECT_HAS(refusal(write("zeros" + ending, packed + std::string(512, '\0'))), "has trailing data");
    std::string wrong_sum = packed;
    wrong_sum[packed.size() - (name == "gzip" ? 6 : 2)] ^= 1;
    EXPECT_HAS(refusal(write("sum" + ending, wrong_sum)), "is corrupt");
  }
}

// A truncated file is refused, even if only the last byte of its checksum is missing.
TEST_F(TextTest, PackedFilesTruncatedAnywhereAreRefused) {
  std::string text;
  Random random(3);
  for (int i = 0; i < 12; ++i) {
    text += random_unicode(random, 5) + " and more of the same\n";
  }
  for (const auto& [name, ending, pack] : kPackings) {
    const std::string packed = pack(text);
    const std::string twice = pack("first member\n") + packed;
    for (std::size_t size = 0; size < packed.size(); ++size) {
      EXPECT_HAS(refusal(write("cut.txt" + ending, packed.substr(0, size))), "cut.txt" + ending + ": ");
    }
    for (std::size_t size = twice.size() - packed.size() + 1; size < twice.size(); ++size) {
      EXPECT_HAS(refusal(write("second.txt" + ending, twice.substr(0, size))), "second.txt" + ending + ": ");
    }
    EXPECT_EQ(text_of({write("whole.txt" + ending, twice)}), "first member\n" + text);
  }
}

TEST_F(TextTest, ZstdThatAsksForTooMuchMemoryIsRefused) {
  EXPECT_HAS(refusal(write("long.zst", zstd("a few words", 28))), "needs more than 128 MiB of memory");
  EXPECT_EQ(text_of({write("ultra.zst", zstd("a few words", 27))}), "a few words");
}

TEST_F(TextTest, JoinsTheDocumentsOfJsonLines) {
  const std::string lines =
      "{\"text\": \"one\\ntwo\", \"id\": 1}\n\n{\"text\": \"\"}\n{\"id\": 2, \"text\": "
      "\"\\u00e9\\ud83d\\ude00\"}\r\n{\"text\":\"last\"}";
  EXPECT_EQ(text_of({write("a.jsonl", lines)}), "one\ntwo\n\xc3\xa9\xf0\x9f\x98\x80\nlast");
  EXPECT_EQ(text_of({write("a.jsonl.gz", gzip(lines))}, {.separator = "<|end|>"}),
            "one\ntwo<|end|>\xc3\xa9\xf0\x9f\x98\x80<|end|>last");
  EXPECT_EQ(text_of({write("a.jsonl.zst", zstd(lines))}, {.separator = "<|end|>"}),
            "one\ntwo<|end|>\xc3\xa9\xf0\x9f\x98\x80<|end|>last");
  EXPECT_EQ(text_of({write("a.json", "{\"body\": \"x\"}\n")}, {.json_field = "body"}), "x");
  EXPECT_EQ(text_of({at("a.json"), write("b.txt", "plain\n"), at("a.json")}, {.json_field = "body"}), "x\nplain\n\nx");
}

TEST_F(TextTest, NamesTheLineOfBadJson) {
  const auto bad = [&](const std::string& line) {
    return refusal(write("bad.jsonl", "{\"text\": \"good\"}\n\n" + line + "\n"));
  };
  for (const char* line : {"{\"text\": \"good\"", "{\"text\": \"a\"} x", "{\"text\": \"\\ud800\"}", "not json",
                           "{\"text\": \"a\", \"text\": \"b\"}"}) {
    EXPECT_HAS(bad(line), "bad.jsonl:3");
  }
  EXPECT_HAS(bad("[1]"), "bad.jsonl:3: expected one JSON object a line, got array");
  EXPECT_HAS(refusal(write("pretty.json", "{\n  \"text\": \"a\"\n}\n")),
             "pretty.json:1: expected one JSON object a line, got the beginning of one");
  EXPECT_HAS(refusal(write("list.json", "[{\"text\": \"a\"},\n{\"text\": \"b\"}]\n")),
             "list.json:1: expected one JSON object a line, got the beginning of an array");
  EXPECT_HAS(bad("{\"body\": \"a\"}"), "bad.jsonl:3: has no field \"text\" (data.json_field)");
  EXPECT_HAS(bad("{\"text\": 3}"), "bad.jsonl:3: field \"text\" (data.json_field) must be a string, got number");
  EXPECT_HAS(bad("{\"text\": \"\xff\"}"), "bad.jsonl:3: not valid JSON at byte 11");
  EXPECT_HAS(refusal(write("none.jsonl", "\n\n{\"text\": \"\"}\n")), "none.jsonl: holds no text");
}

TEST_F(TextTest, DocumentsLargerThanABlock) {
  std::string lines, expected;
  Random random(5);
  for (int i = 0; i < 6; ++i) {
    std::string document(random.below(900000) + 1, 'a' + static_cast<char>(i));
    for (std::size_t at = random.below(5000); at < document.size(); at += random.below(300000) + 1) {
      document[at] = '\n';
    }
    std::string escaped;
    for (const char c : document) {
      c == '\n' ? escaped += "\\n" : escaped += c;
    }
    lines += "{\"text\": \"" + escaped + "\"}\n";
    expected += (i > 0 ? "\n" : "") + document;
  }
  EXPECT_EQ(text_of({write("large.jsonl", lines)}), expected);
}

}  // namespace headroom::data::text_test
