// Enum values and the names that files and flags give them: one table per enum.
//
//   enum class Readout { kSum, kMean };
//   EnumNames<Readout> enum_names(Readout);                                              // in the header
//   SAN_ENUM_NAMES(Readout, {Readout::kSum, "sum"}, {Readout::kMean, "mean"})            // in the .cc
//   enum_name(Readout::kSum) == "sum";   parse_enum<Readout>("mean", "model.readout") == Readout::kMean
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "san/base/error.h"

namespace san {

template <typename Enum>
using EnumNames = std::span<const std::pair<Enum, std::string_view>>;

template <typename Enum>
std::string_view enum_name(Enum value) {
  for (const auto& [candidate, name] : enum_names(value)) {
    if (candidate == value) return name;
  }
  return "?";
}

// The value of that name; throws Error, naming `field` and listing the known names, when there is none.
template <typename Enum>
Enum parse_enum(std::string_view name, std::string_view field) {
  std::string known;
  for (const auto& [value, candidate] : enum_names(Enum{})) {
    if (candidate == name) return value;
    known += (known.empty() ? "" : ", ") + std::string(candidate);
  }
  fail("{} = '{}': one of {} is expected", field, printable(name), known);
}

}  // namespace san

#define SAN_ENUM_NAMES(Type, ...)                                                \
  EnumNames<Type> enum_names(Type) {                                             \
    static constexpr std::pair<Type, std::string_view> kNames[] = {__VA_ARGS__}; \
    return kNames;                                                               \
  }
