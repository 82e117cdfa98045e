/* A library that looks for what it calls in its own libraries first, as PHP loads its extensions, gives back memory of the program's. */
#include "see.h"
#include <dlfcn.h>

int main(int count, char **arguments) {
    if (count < 2)
        return 2;
    void *library = must(dlopen(arguments[1], RTLD_NOW | RTLD_DEEPBIND));
    long (*ask)(int *) = (long (*)(int *))must(dlsym(library, "ask_the_time"));
    int loads;
    seen("the library says %ld", ask(&loads));
    void (*drop)(void *) = (void (*)(void *))must(dlsym(library, "drop"));
    drop(must(malloc(100)));
    drop(must(malloc(1000000)));
    same("given back");
    return 0;
}
