/* Computes without an end. */
#include "see.h"

int main(void) {
    seen("begin%s", "");
    fflush(stdout);
    for (volatile unsigned long count = 0;; count++)
        ;
}
