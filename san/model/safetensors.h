// The safetensors file format, read strictly: 8 bytes of header length, a JSON header, raw little-endian
// data.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace san {

enum class DType { kF32, kF64, kI64 };

// Bytes of one element.
size_t size_of(DType dtype);

// A named block of numbers, owned. Row-major.
struct Tensor {
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  std::vector<std::byte> data;  // count() * size_of(dtype) bytes, host order (little-endian machines only)

  int64_t count() const;
  // Views of the data. REQUIRES: the matching dtype.
  const float* f32() const { return reinterpret_cast<const float*>(data.data()); }
  const double* f64() const { return reinterpret_cast<const double*>(data.data()); }
  const int64_t* i64() const { return reinterpret_cast<const int64_t*>(data.data()); }
};

Tensor make_tensor(std::vector<int64_t> shape, const std::vector<float>& values);

// Name -> tensor, in the order of names. `metadata` is the header's "__metadata__" (strings only).
struct TensorFile {
  std::map<std::string, Tensor> tensors;
  std::map<std::string, std::string> metadata;
};

// Reads the whole file. Throws Error naming the file for: a header longer than 100 MB or than the file,
// header that is not JSON or has duplicate names or unknown fields, unknown dtype, negative or overflowing
// shape, offsets that do not match dtype and shape, overlap, gaps, trailing bytes. Allocates nothing larger
// than the file on disk. F16 and BF16 are widened to F32; BOOL, U8 and I32 to I64.
TensorFile read_safetensors(const std::filesystem::path& path);

// Writes atomically (see FileWriter); data is aligned to 8 bytes.
void write_safetensors(const std::filesystem::path& path, const TensorFile& file);

}  // namespace san
