/* Checks of the C programs beside it. */

#include <stdio.h>
#include <stdlib.h>

#ifndef LAST_ERROR
#define LAST_ERROR vrampool_last_error()
#endif

#define CHECK(condition)                                                                                             \
    do {                                                                                                             \
        if (!(condition)) {                                                                                          \
            fprintf(stderr, "%s:%d: %s does not hold; last error: %s\n", __FILE__, __LINE__, #condition, LAST_ERROR); \
            exit(1);                                                                                                 \
        }                                                                                                            \
    } while (0)
#define OK(call) CHECK((call) == VRAMPOOL_OK)
