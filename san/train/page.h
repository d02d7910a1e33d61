// What our HTML pages are made of: the document with its style sheet, and the pieces that stand on it. One file each, no network
// (a content policy in the page forbids it), light and dark, complete without the one small script (a button that copies the
// text of #command). Texts are escaped here: pass them raw; `body` and `drawing` are HTML.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace san::page {

std::string document(std::string_view title, std::string_view body);

// What people call a metric.
std::string title_of(const std::string& metric);
// The same at the start of a heading; names that are not ours stay as they are.
std::string heading_of(const std::string& metric);
std::string duration(double seconds);

// A large value with its name below.
std::string tile(std::string_view name, std::string_view value);
// A chart's card: title, legend (class or none, text), drawing, remark.
std::string figure(std::string_view title, const std::vector<std::pair<std::string, std::string>>& legend,
                   std::string_view drawing, std::string_view note = {}, bool wide = false);
// The first column has the rows' names.
std::string table(std::string_view id, const std::vector<std::string>& head,
                  const std::vector<std::vector<std::string>>& rows);

}  // namespace san::page
