// The safetensors file format, read strictly: 8 bytes of header length, a JSON header, raw little-endian
// data. Pure functions; safe from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
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

  int64_t count() const;  // of elements; 1 for a scalar (empty shape)
  // Views of the data. REQUIRES: the matching dtype.
  const float* f32() const { return reinterpret_cast<const float*>(data.data()); }
  const double* f64() const { return reinterpret_cast<const double*>(data.data()); }
  const int64_t* i64() const { return reinterpret_cast<const int64_t*>(data.data()); }
};

// A float tensor. REQUIRES (checked): as many values as the shape says.
Tensor make_tensor(std::vector<int64_t> shape, const std::vector<float>& values);

// Name -> tensor, in the order of names. `metadata` is the header's "__metadata__" (strings only).
struct TensorFile {
  std::map<std::string, Tensor> tensors;
  std::map<std::string, std::string> metadata;
};

// Reads the whole file in one pass. Throws Error naming the file for: a header longer than 100 MB or than the
// file, header that is not JSON or has duplicate names or unknown fields, unknown dtype, negative or
// overflowing shape, more than 16 dimensions, offsets that do not match dtype and shape, overlap, gaps,
// trailing bytes. What a header claims is checked against the file's size before memory is taken for it. F16
// and BF16 are widened to F32; BOOL, U8 and I32 to I64 (so that tensors may take up to 8 times the file's
// size, otherwise no more than it).
TensorFile read_safetensors(const std::filesystem::path& path);

// The same from bytes in memory; `name` starts the messages.
TensorFile parse_safetensors(std::string_view bytes, const std::string& name);

// Writes atomically (see FileWriter). The header is padded and wider types come first, so that every tensor's
// data is aligned to its element size. Throws Error for a tensor whose data does not match its shape, or a
// name that is not UTF-8 or is "__metadata__".
void write_safetensors(const std::filesystem::path& path, const TensorFile& file);

}  // namespace san
