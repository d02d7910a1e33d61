// Any bytes as a safetensors file: either an Error, or tensors whose data match their shapes.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "san/base/error.h"
#include "san/model/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const san::TensorFile file = san::parse_safetensors({reinterpret_cast<const char*>(data), size}, "fuzz");
    for (const auto& [name, tensor] : file.tensors) {
      if (tensor.data.size() != static_cast<size_t>(tensor.count()) * san::size_of(tensor.dtype)) std::abort();
    }
  } catch (const san::Error&) {
  }
  return 0;
}
