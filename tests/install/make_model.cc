// make_model FOLDER: a small model for the installed examples.
#include <cstdio>

#include "tests/model/tiny_model.h"

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  san::write_model(argv[1], san::testing::tiny_model());
  return 0;
}
