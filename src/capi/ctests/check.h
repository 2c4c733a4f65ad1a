/* What the test programs share: CHECK stops the program with the place and the library's own words. */
#ifndef CHECK_H
#define CHECK_H

#include <stdio.h>
#include <stdlib.h>

#include "flashrt/exec.h"

#define CHECK(condition)                                                                                       \
  do {                                                                                                         \
    if (!(condition)) {                                                                                        \
      fprintf(stderr, "%s:%d: not true: %s (last error: %s)\n", __FILE__, __LINE__, #condition, frt_last_error()); \
      exit(1);                                                                                                 \
    }                                                                                                          \
  } while (0)

#endif
