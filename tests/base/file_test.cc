#include "san/base/file.h"

#include <fstream>
#include <vector>

#include "tests/testing.h"

namespace san {
namespace {

using testing::error_of;
using testing::TemporaryFolder;

std::vector<std::string> lines_of(const std::string& path) {
  LineReader reader(path);
  std::vector<std::string> lines;
  for (std::string_view line; reader.next(line);) lines.emplace_back(line);
  return lines;
}

void put(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

TEST(LineReader, ReadsLineEndsOfEveryKindAndDropsTheByteOrderMark) {
  TemporaryFolder folder;
  put(folder.file("a"), "\xEF\xBB\xBFone\r\ntwo\n\nlast");
  EXPECT_EQ(lines_of(folder.file("a")), (std::vector<std::string>{"one", "two", "", "last"}));
  put(folder.file("b"), "");
  EXPECT_TRUE(lines_of(folder.file("b")).empty());
  put(folder.file("c"), "\n");
  EXPECT_EQ(lines_of(folder.file("c")).size(), 1u);
}

TEST(LineReader, ReadsLongLinesAcrossItsBuffers) {
  TemporaryFolder folder;
  const std::string longest(1 << 20, 'x');
  put(folder.file("a"), "short\n" + longest + "\nend\n");
  const auto lines = lines_of(folder.file("a"));
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[1], longest);
  LineReader limited(folder.file("a"), 1000);
  std::string_view line;
  EXPECT_TRUE(limited.next(line));
  EXPECT_NE(error_of([&] { limited.next(line); }).find("a:2: a line is longer"), std::string::npos);
}

TEST(LineReader, ReadsWhatFileWriterCompressed) {
  TemporaryFolder folder;
  const std::string path = folder.file("a.gz");
  {
    FileWriter writer(path);
    for (int i = 0; i < 50000; ++i) writer.write(std::to_string(i) + "\n");
    writer.commit();
  }
  const auto lines = lines_of(path);
  ASSERT_EQ(lines.size(), 50000u);
  EXPECT_EQ(lines[49999], "49999");

  // Two members end to end are one file, as gzip allows.
  const std::string bytes = read_file(path, 1 << 24);
  put(folder.file("twice.gz"), bytes + bytes);
  EXPECT_EQ(lines_of(folder.file("twice.gz")).size(), 100000u);
}

TEST(LineReader, SaysWhenGzipIsTruncatedOrDamaged) {
  TemporaryFolder folder;
  write_file(folder.file("a.gz"), std::string(100000, 'a') + "\nsecond\n");
  const std::string bytes = read_file(folder.file("a.gz"), 1 << 24);
  for (size_t length = 2; length < bytes.size(); ++length) {
    put(folder.file("cut.gz"), bytes.substr(0, length));
    EXPECT_NE(error_of([&] { lines_of(folder.file("cut.gz")); }).find("cut.gz"), std::string::npos) << length;
  }
  put(folder.file("tail.gz"), bytes + "garbage");
  EXPECT_NE(error_of([&] { lines_of(folder.file("tail.gz")); }).find("garbage after the end"), std::string::npos);
  std::string flipped = bytes;
  flipped[bytes.size() - 6] ^= 1;  // the checksum
  put(folder.file("flip.gz"), flipped);
  EXPECT_NE(error_of([&] { lines_of(folder.file("flip.gz")); }).find("damaged gzip"), std::string::npos);
}

TEST(LineReader, NamesTheFileThatCannotBeOpened) {
  EXPECT_NE(error_of([] { LineReader("/no/such/file"); }).find("/no/such/file: cannot open"), std::string::npos);
  EXPECT_NE(error_of([] { LineReader("/"); }).find("is a folder"), std::string::npos);
}

TEST(FileWriter, LeavesTheOldFileWhenNotCommitted) {
  TemporaryFolder folder;
  write_file(folder.file("a"), "old");
  { FileWriter(folder.file("a")).write("new"); }
  EXPECT_EQ(read_file(folder.file("a"), 100), "old");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
  EXPECT_NE(error_of([] { FileWriter("/no/such/folder/a"); }).find("cannot write"), std::string::npos);
}

TEST(FileWriter, WritesToADeviceWithoutReplacingIt) {
  write_file("/dev/null", "gone");
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
}

TEST(FileWriter, ALinkStaysOne) {
  const TemporaryFolder folder;
  write_file(folder.file("target"), "old");
  std::filesystem::create_symlink("target", folder.file("link"));
  write_file(folder.file("link"), "new");
  EXPECT_TRUE(std::filesystem::is_symlink(folder.file("link")));
  EXPECT_EQ(read_file(folder.file("target"), 100), "new");
}

TEST(FileWriter, RewritesItsBeginning) {
  const TemporaryFolder folder;
  FileWriter writer(folder.file("a"));
  writer.write("rows: ?\nthe rows");
  writer.rewrite_start("rows: 7");
  writer.commit();
  EXPECT_EQ(read_file(folder.file("a"), 100), "rows: 7\nthe rows");
  FileWriter compressed(folder.file("a.gz"));
  EXPECT_NE(error_of([&] { compressed.rewrite_start("x"); }).find("cannot be changed"), std::string::npos);
}

TEST(ReadFile, HasALimit) {
  TemporaryFolder folder;
  write_file(folder.file("a"), std::string(1000, 'x'));
  EXPECT_NE(error_of([&] { read_file(folder.file("a"), 999); }).find("larger than"), std::string::npos);
}

TEST(File, WhatKilledWritersLeftIsRemovedAndNothingElse) {
  const testing::TemporaryFolder folder;
  for (const char* name : {"a.json.123.tmp", "b.tmp", "123.tmp", "c.12x.tmp", "d.json.7.tmp2", "e.9"}) {
    write_file(folder.file(name), "x");
  }
  remove_temporaries(folder.path());
  EXPECT_FALSE(std::filesystem::exists(folder.file("a.json.123.tmp")));
  for (const char* name : {"b.tmp", "123.tmp", "c.12x.tmp", "d.json.7.tmp2", "e.9"}) {
    EXPECT_TRUE(std::filesystem::exists(folder.file(name))) << name;
  }
  remove_temporaries(folder.path() / "nowhere");
}

}  // namespace
}  // namespace san
