/* Self-test of MODEL: runs the model on inputs that are in the program, and compares the results
   with what NumPy computed from them. Exit status: 0 OK, 1 FAILED. */
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "MODEL.h"
#include "MODEL_selftest_data.h"
#include "fx_math.h"

HELPERS

TEST

int main(void) {
    int failed = 0;
CALLS
    printf("%s: %d of NUMBER cases agree with NumPy\n", failed ? "FAILED" : "OK", NUMBER - failed);
    return failed != 0;
}
