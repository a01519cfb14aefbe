// CHECK for the C++ programs: says what failed and ends the program.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <unistd.h>

#define CHECK(...)                                                                     \
  do {                                                                                 \
    if (!(__VA_ARGS__)) {                                                              \
      std::fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__, #__VA_ARGS__);   \
      std::fflush(stderr);                                                             \
      _exit(1);                                                                        \
    }                                                                                  \
  } while (0)
