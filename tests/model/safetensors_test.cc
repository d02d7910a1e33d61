#include "san/model/safetensors.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>

#include "san/base/file.h"
#include "san/base/random.h"
#include "tests/mutation.h"
#include "tests/testing.h"

namespace san {
namespace {

using testing::error_of;
using testing::TemporaryFolder;

std::string file_of(const std::string& header, const std::string& data = {}) {
  const uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), 8) + header + data;
}

template <typename T>
std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

template <typename T>
Tensor tensor_of(DType dtype, std::vector<int64_t> shape, const std::vector<T>& values) {
  const std::string bytes = bytes_of(values);
  const auto* from = reinterpret_cast<const std::byte*>(bytes.data());
  return {dtype, std::move(shape), {from, from + bytes.size()}};
}

TensorFile sample() {
  TensorFile file;
  file.tensors["b.odd"] = make_tensor({3}, {1.0f, -0.0f, std::numeric_limits<float>::quiet_NaN()});
  file.tensors["a"] = make_tensor({2, 1}, {0.5f, 3e38f});
  file.tensors["scalar"] = make_tensor({}, {7.0f});
  file.tensors["empty"] = make_tensor({4, 0}, {});
  file.tensors["wide"] = tensor_of<double>(DType::kF64, {2}, {1e300, -2.0});
  file.tensors["count"] = tensor_of<int64_t>(DType::kI64, {1, 1}, {-5});
  file.tensors["h\xC3\xA9 \"\\\n"] = make_tensor({1}, {1.0f});
  file.metadata = {{"format", "pt"}, {"note", "\"quoted\"\n"}};
  return file;
}

void expect_same(const TensorFile& a, const TensorFile& b) {
  EXPECT_EQ(a.metadata, b.metadata);
  ASSERT_EQ(a.tensors.size(), b.tensors.size());
  for (const auto& [name, tensor] : a.tensors) {
    ASSERT_TRUE(b.tensors.contains(name)) << name;
    const Tensor& other = b.tensors.at(name);
    EXPECT_EQ(tensor.dtype, other.dtype) << name;
    EXPECT_EQ(tensor.shape, other.shape) << name;
    EXPECT_EQ(tensor.data, other.data) << name;
  }
}

TEST(Safetensors, ReadsBackWhatItWroteBitForBit) {
  TemporaryFolder folder;
  const std::string path = folder.file("m.safetensors");
  for (const TensorFile& file : {sample(), TensorFile{}, TensorFile{{}, {{"only", "metadata"}}}}) {
    write_safetensors(path, file);
    expect_same(read_safetensors(path), file);
    expect_same(parse_safetensors(read_file(path, 1 << 20), "memory"), file);
  }
}

TEST(Safetensors, WritesEveryTensorAlignedToItsElements) {
  TemporaryFolder folder;
  write_safetensors(folder.file("m"), sample());
  const std::string bytes = read_file(folder.file("m"), 1 << 20);
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), 8);
  EXPECT_EQ(length % 8, 0u);
  const auto header = nlohmann::json::parse(bytes.substr(8, length));
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") continue;
    const uint64_t size = entry["dtype"] == "F32" ? 4 : 8;
    EXPECT_EQ(entry["data_offsets"][0].get<uint64_t>() % size, 0u) << name;
  }
}

TEST(Safetensors, ReadsTheRecordedFilesAsAGenericJsonParserSeesThem) {
  SAN_NEED_SHARED(golden, "golden");
  int files = 0;
  TemporaryFolder temporary;
  for (const auto& folder : std::filesystem::directory_iterator(golden)) {
    if (!folder.is_directory()) continue;
    for (const char* name : {"weights.safetensors", "expected.safetensors"}) {
      ++files;
      const TensorFile file = read_safetensors(folder.path() / name);
      const std::string bytes = read_file(folder.path() / name, size_t{1} << 30);
      uint64_t length = 0;
      std::memcpy(&length, bytes.data(), 8);
      auto header = nlohmann::json::parse(bytes.substr(8, length));
      header.erase("__metadata__");
      ASSERT_EQ(header.size(), file.tensors.size());
      for (const auto& [key, entry] : header.items()) {
        const Tensor& tensor = file.tensors.at(key);
        EXPECT_EQ(tensor.shape, entry["shape"].get<std::vector<int64_t>>());
        const char* const dtypes[] = {"F32", "F64", "I64"};
        EXPECT_EQ(dtypes[static_cast<int>(tensor.dtype)], entry["dtype"].get<std::string>());
        const auto begin = entry["data_offsets"][0].get<size_t>(), end = entry["data_offsets"][1].get<size_t>();
        ASSERT_EQ(tensor.data.size(), end - begin);
        EXPECT_EQ(std::memcmp(tensor.data.data(), bytes.data() + 8 + length + begin, end - begin), 0) << key;
      }
      write_safetensors(temporary.file("again"), file);
      expect_same(read_safetensors(temporary.file("again")), file);
    }
  }
  EXPECT_EQ(files, 26);
}

TEST(Safetensors, WidensTheNarrowTypes) {
  const std::string header =
      R"({"f16":{"dtype":"F16","shape":[8],"data_offsets":[0,16]},"bf16":{"dtype":"BF16","shape":[3],"data_offsets":[16,22]},)"
      R"("i32":{"dtype":"I32","shape":[2],"data_offsets":[22,30]},"u8":{"dtype":"U8","shape":[2],"data_offsets":[30,32]},)"
      R"("bool":{"dtype":"BOOL","shape":[2],"data_offsets":[32,34]}})";
  // 1, -2, largest, smallest normal, smallest subnormal, largest subnormal, -inf, -0
  const std::vector<uint16_t> halves{0x3c00, 0xc000, 0x7bff, 0x0400, 0x0001, 0x03ff, 0xfc00, 0x8000};
  const std::vector<uint16_t> bhalves{0x3f80, 0xc000, 0x7f80};
  const TensorFile file = parse_safetensors(
      file_of(header, bytes_of(halves) + bytes_of(bhalves) + bytes_of(std::vector<int32_t>{-7, 2147483647}) +
                          bytes_of(std::vector<uint8_t>{0, 255}) + bytes_of(std::vector<uint8_t>{1, 0})),
      "m");
  const std::vector<float> expected{
      1, -2, 65504, 0x1p-14f, 0x1p-24f, 1023 * 0x1p-24f, -std::numeric_limits<float>::infinity(), -0.0f};
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(std::bit_cast<uint32_t>(file.tensors.at("f16").f32()[i]), std::bit_cast<uint32_t>(expected[i])) << i;
  }
  EXPECT_EQ(file.tensors.at("bf16").f32()[0], 1.0f);
  EXPECT_EQ(file.tensors.at("bf16").f32()[1], -2.0f);
  EXPECT_TRUE(std::isinf(file.tensors.at("bf16").f32()[2]));
  EXPECT_EQ(file.tensors.at("i32").i64()[0], -7);
  EXPECT_EQ(file.tensors.at("i32").i64()[1], 2147483647);
  EXPECT_EQ(file.tensors.at("u8").i64()[1], 255);
  EXPECT_EQ(file.tensors.at("bool").i64()[0], 1);
  EXPECT_EQ(file.tensors.at("bool").count(), 2);
  const TensorFile nan = parse_safetensors(
      file_of(R"({"x":{"dtype":"F16","shape":[1],"data_offsets":[0,2]}})", bytes_of(std::vector<uint16_t>{0x7e00})),
      "m");
  EXPECT_TRUE(std::isnan(nan.tensors.at("x").f32()[0]));
}

TEST(Safetensors, SaysInOneLineWhatIsWrong) {
  const auto one = [](const std::string& fields, const std::string& data = std::string(8, 'x')) {
    return file_of("{\"x\":{" + fields + "}}", data);
  };
  const std::string sound = R"("dtype":"F32","shape":[2],"data_offsets":[0,8])";
  ASSERT_NO_THROW(parse_safetensors(one(sound), "m"));
  const auto length = [](uint64_t n) { return std::string(reinterpret_cast<const char*>(&n), 8); };
  std::string many = "1";
  for (int i = 0; i < 16; ++i) many += ",1";
  struct Case {
    std::string bytes, message;
  };
  const std::vector<Case> cases{
      {"", "only 0 bytes"},
      {"1234567", "only 7 bytes"},
      {length(0), "does not start with {"},
      {length(2'000'000'000) + "{}", "a header of 2000000000 bytes"},
      {length(~uint64_t{0}) + "{}", "a header of 18446744073709551615 bytes"},
      {length(3) + "{}", "the header takes 3 bytes, but the file has only 10"},
      {length(99'999'999) + "{}", "the header takes 99999999 bytes"},
      {file_of(" {}"), "does not start with {"},
      {file_of("[]"), "does not start with {"},
      {file_of("{"), "not valid JSON"},
      {file_of("{}x"), "not valid JSON"},
      {file_of(std::string("{}\0", 3)), "zero byte"},
      {file_of("{\"\xff\":{}}"), "not valid JSON"},
      {file_of("{}", "x"), "1 bytes after the last tensor"},
      {file_of(R"({"x":1})"), "'x' in the header must be an object"},
      {file_of(R"({"x":[]})"), "'x' in the header must be an object"},
      {file_of(R"({"x":null})"), "'x' in the header must be an object"},
      {file_of(R"({"x":{}})"), "needs dtype, shape and two data_offsets"},
      {file_of(R"({"x":)" + std::string(100000, '[')), "'x' in the header must be an object"},
      {file_of(R"({"x":{"shape":)" + std::string(100000, '[')), "cannot be a list with a list"},
      {file_of(R"({"x":{"shape":{)"), "cannot be an object"},
      {one(R"("dtype":"F32","shape":[2])"), "needs dtype"},
      {one(R"("dtype":"F32","shape":[2],"data_offsets":[0])"), "needs dtype"},
      {one(R"("dtype":"F32","shape":[2],"data_offsets":[0,8,8])"), "more than two data_offsets"},
      {one(R"("dtype":"F31","shape":[2],"data_offsets":[0,8])"), "unknown dtype 'F31'"},
      {one(R"("dtype":32,"shape":[2],"data_offsets":[0,8])"), "dtype of 'x'"},
      {one(R"("dtype":["F32"],"shape":[2],"data_offsets":[0,8])"), "dtype of 'x'"},
      {one(R"("dtype":"F32","shape":2,"data_offsets":[0,8])"), "shape of 'x'"},
      {one(R"("dtype":"F32","shape":"2","data_offsets":[0,8])"), "shape of 'x'"},
      {one(R"("dtype":"F32","shape":[2.0],"data_offsets":[0,8])"), "shape of 'x'"},
      {one(R"("dtype":"F32","shape":[true],"data_offsets":[0,8])"), "shape of 'x'"},
      {one(R"("dtype":"F32","shape":[-2],"data_offsets":[0,8])"), "negative number -2 in its shape"},
      {one(R"("dtype":"F32","shape":[2],"data_offsets":[-8,0])"), "negative number -8 in its data_offsets"},
      {one(sound + R"(,"extra":1)"), "unknown field 'extra'"},
      {one(sound + R"(,"shape":[2])"), "the field 'shape' twice"},
      {one(R"("dtype":"F32","shape":[3],"data_offsets":[0,8])"), "has 8 bytes, but F32 of shape [3] takes 12"},
      {one(R"("dtype":"F64","shape":[2],"data_offsets":[0,8])"), "has 8 bytes, but F64 of shape [2] takes 16"},
      {one(R"("dtype":"F32","shape":[2],"data_offsets":[8,0])"), "data_offsets [8, 0]"},
      {one(R"("dtype":"F32","shape":[4],"data_offsets":[0,16])"), "the file holds 8 bytes"},
      {one(R"("dtype":"F32","shape":[2],"data_offsets":[0,8])", std::string(7, 'x')), "the file holds 7 bytes"},
      {one(sound, std::string(9, 'x')), "1 bytes after the last tensor"},
      {one(R"("dtype":"F32","shape":[1],"data_offsets":[4,8])"), "leaves a gap"},
      // shapes whose product is right only modulo 2^64
      {one(R"("dtype":"F32","shape":[4294967296,4294967296,2],"data_offsets":[0,8])"), "impossible shape"},
      {one(R"("dtype":"F32","shape":[4611686018427387906],"data_offsets":[0,8])"), "impossible shape"},
      {one(R"("dtype":"F32","shape":[4611686018427387904,4,0],"data_offsets":[0,0])", ""), "impossible shape"},
      {one(R"("dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,8])"), "does not fit 63 bits"},
      {one(R"("dtype":"F32","shape":[99999999999999999999],"data_offsets":[0,8])"), "does not fit 63 bits"},
      {one(R"("dtype":"F32","shape":[)" + many + R"(],"data_offsets":[0,4])"), "more than 16 dimensions"},
      {one(R"("dtype":"BOOL","shape":[8],"data_offsets":[0,8])"), "BOOL but holds a byte other than"},
      {file_of(
           R"({"x":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"y":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}})",
           std::string(6, 'x')),
       "'y' overlaps"},
      {file_of(
           R"({"x":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"y":{"dtype":"U8","shape":[2],"data_offsets":[4,6]}})",
           std::string(6, 'x')),
       "'y' leaves a gap"},
      {file_of(
           R"({"x":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"x":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}})",
           std::string(4, 'x')),
       "the tensor 'x' twice"},
      {file_of(R"({"__metadata__":{"a":1}})"), "a of '__metadata__'"},
      {file_of(R"({"__metadata__":{"a":[]}})"), "a of '__metadata__'"},
      {file_of(R"({"__metadata__":{"a":"1","a":"1"}})"), "the metadata has 'a' twice"},
      {file_of(R"({"__metadata__":{},"__metadata__":{}})"), "__metadata__ twice"},
      {file_of(R"({"__metadata__":"x"})"), "must be an object"},
  };
  TemporaryFolder folder;
  const std::string path = folder.file("bad.safetensors");
  for (const Case& c : cases) {
    const std::string message = error_of([&] { parse_safetensors(c.bytes, "m"); });
    EXPECT_TRUE(message.starts_with("m: ")) << message;
    EXPECT_NE(message.find(c.message), std::string::npos) << message << "\n  expected: " << c.message;
    EXPECT_LT(message.size(), 400u);
    // The file is read by other code up to the header: the same verdict.
    write_file(path, c.bytes);
    EXPECT_EQ(error_of([&] { read_safetensors(path); }), path + message.substr(1));
  }
  EXPECT_NE(error_of([] { read_safetensors("/no/such/file"); }).find("/no/such/file: cannot open"), std::string::npos);
  EXPECT_NE(error_of([] { read_safetensors("/dev/null"); }).find("not a regular file"), std::string::npos);
  EXPECT_NE(error_of([&] { read_safetensors(folder.path()); }).find("not a regular file"), std::string::npos);
}

TEST(Safetensors, RefusesToWriteWhatItWouldNotRead) {
  TemporaryFolder folder;
  const auto writing = [&](const std::string& name, Tensor tensor) {
    return error_of([&] { write_safetensors(folder.file("m"), {{{name, std::move(tensor)}}, {}}); });
  };
  EXPECT_NE(writing("__metadata__", make_tensor({}, {1})).find("no tensor can have the name"), std::string::npos);
  EXPECT_NE(writing("\xff", make_tensor({}, {1})).find("not UTF-8"), std::string::npos);
  EXPECT_NE(writing("x", {DType::kF64, {1}, std::vector<std::byte>(4)}).find("holds 4 bytes"), std::string::npos);
  EXPECT_NE(writing("x", {DType::kF64, {-1}, {}}).find("cannot have the shape [-1]"), std::string::npos);
  EXPECT_NE(writing("x", make_tensor(std::vector<int64_t>(17, 1), {1})).find("dimensions"), std::string::npos);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  EXPECT_NE(error_of([] {
              make_tensor({2, 2}, {1, 2, 3});
            }).find("3 values for a tensor of shape [2, 2]"),
            std::string::npos);
}

TEST(Safetensors, DamagedFilesThrowNothingButErrors) {
  const uint64_t seed = testing::mutation_seed();
  SCOPED_TRACE("SAN_TEST_SEED=" + std::to_string(seed));
  Random random(seed);
  TemporaryFolder folder;
  write_safetensors(folder.file("m"), sample());
  const std::string bytes = read_file(folder.file("m"), 1 << 20);
  int accepted = 0, refused = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string damaged;
    if (random.chance(0.5)) {
      damaged = testing::mutated(bytes, random);
    } else {  // a sound length around a damaged header gets further
      uint64_t length = 0;
      std::memcpy(&length, bytes.data(), 8);
      damaged = file_of(testing::mutated(bytes.substr(8, length), random), bytes.substr(8 + length));
    }
    try {
      const TensorFile file = parse_safetensors(damaged, "m");
      for (const auto& [name, tensor] : file.tensors) {
        ASSERT_EQ(tensor.data.size(), static_cast<size_t>(tensor.count()) * size_of(tensor.dtype));
      }
      ++accepted;
    } catch (const Error&) {
      ++refused;
    }
  }
  EXPECT_GT(accepted, 100);
  EXPECT_GT(refused, 5000);
}

}  // namespace
}  // namespace san
