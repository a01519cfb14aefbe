// CHECK for the C++ programs: says what failed and ends the program.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <unistd.h>

// Lines go out as they are printed, so that one who hangs has told how far it came.
static const int line_buffered = std::setvbuf(stdout, nullptr, _IOLBF, 0);

#define CHECK(...)                                                                     \
  do {                                                                                 \
    if (!(__VA_ARGS__)) {                                                              \
      std::fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__, #__VA_ARGS__);   \
      std::fflush(stderr);                                                             \
      _exit(1);                                                                        \
    }                                                                                  \
  } while (0)
