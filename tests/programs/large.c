/* Much output to both streams, much data read and thrown away. */
#include "see.h"
#include <sys/random.h>

int main(void) {
    static char block[1 << 16];
    uint64_t all = 0;
    int urandom = must(open("/dev/urandom", O_RDONLY));
    for (int i = 0; i < 64; i++) {
        must(read(urandom, block, sizeof block));
        all = all * 31 + sum(block, sizeof block);
        for (size_t k = 0; k < sizeof block; k++)
            block[k] = "0123456789abcdef"[block[k] & 15];
        block[0] = '~', block[1] = ' ', block[sizeof block - 1] = '\n';
        for (size_t done = 0; done < sizeof block;)
            done += (size_t)must(write(1, block + done, sizeof block - done));
        if (i % 8 == 0)
            for (size_t done = 0; done < sizeof block;)
                done += (size_t)must(write(2, block + done, sizeof block - done));
    }
    for (int i = 0; i < 200000; i++)
        printf("  line %d of many\n", i);
    seen("sum %016lx", all);
    return 0;
}
