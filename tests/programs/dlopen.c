/* Libraries loaded while the program runs: where they are, what they call, and the list of all of them. */
#include "see.h"
#include <dlfcn.h>
#include <link.h>
#include <math.h>

static int visit(struct dl_phdr_info *info, size_t size, void *data) {
    (void)size;
    if (*info->dlpi_name)
        seen("%s at %#lx", info->dlpi_name, (unsigned long)info->dlpi_addr);
    ++*(int *)data;
    return 0;
}

int main(int count, char **arguments) {
    if (count < 2)
        return 2;
    int libraries = 0;
    void *math = must(dlopen("libm.so.6", RTLD_NOW));
    double (*cosine)(double) = (double (*)(double))must(dlsym(math, "cos"));
    same("cos 0 is %g", cosine(0));
    seen("cos at %p", (void *)cosine);
    void *own = must(dlopen(arguments[1], RTLD_LAZY | RTLD_LOCAL));
    long (*ask)(int *) = (long (*)(int *))must(dlsym(own, "ask_the_time"));
    int loads;
    seen("the library says %ld", ask(&loads));
    same("loaded %d times", loads);
    Dl_info info;
    same("dladdr %d", dladdr((void *)ask, &info) != 0);
    seen("%s in %s", info.dli_sname, info.dli_fname);
    dl_iterate_phdr(visit, &libraries);
    seen("%d libraries", libraries);
    fflush(stdout);
    must_be_zero(dlclose(own));
    same("not there: %d", dlopen("libno-such.so", RTLD_NOW) == NULL);
    same("%s", dlerror());
    same("no symbol: %d", dlsym(math, "no_such_symbol") == NULL);
    same("next: %d", dlsym(RTLD_NEXT, "read") != NULL);
    void *self = must(dlopen(NULL, RTLD_NOW));
    same("main is there: %d", dlsym(self, "strlen") != NULL);
    must_be_zero(dlclose(math));
    return 0;
}
