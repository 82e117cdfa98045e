/* Streams: reading standard input, files, memory; buffers of each kind; positions; temporary files; standard error. */
#include "see.h"
#include <stdio_ext.h>
#include <wchar.h>

static ssize_t cookie_read(void *cookie, char *buffer, size_t size) {
    int *left = cookie;
    size_t give = size < 5 ? size : 5;
    if (--*left < 0)
        return 0;
    memcpy(buffer, "whole", give);
    return (ssize_t)give;
}

int main(void) {
    char line[1000] = "", *whole = NULL;
    size_t room = 0;
    int number = 0, lines = 0;
    int scanned = scanf("%10s %d", line, &number);
    same("scanned %d: %s %d", scanned, line, number);
    same("%s", fgets(line, sizeof line, stdin) ? "rest of the line" : "nothing");
    ssize_t size = must(getline(&whole, &room, stdin));
    same("a line of %zd: %.*s", size, (int)size - 1, whole);
    same("a letter %c", getchar());
    ungetc('L', stdin);
    while (fgets(line, sizeof line, stdin))
        lines++;
    same("%d more lines, end %d, error %d", lines, feof(stdin) != 0, ferror(stdin));

    FILE *file = must(fopen("text", "w+x"));
    static char buffer[100];
    setvbuf(file, buffer, _IOFBF, sizeof buffer);
    for (int i = 0; i < 100; i++)
        fprintf(file, "%d squared is %d, %s\n", i, i * i, i % 2 ? "odd" : "even");
    same("at %ld", ftell(file));
    must(fseek(file, -20, SEEK_CUR));
    fputs("changed", file);
    rewind(file);
    uint64_t all = 0;
    for (int c; (c = getc(file)) != EOF;)
        all = all * 31 + (uint64_t)c;
    same("sum %lx", all);
    fpos_t position;
    must(fseeko(file, 17, SEEK_SET));
    must(fgetpos(file, &position));
    same("fread %zu", fread(line, 7, 10, file));
    must(fsetpos(file, &position));
    scanned = fscanf(file, "%[^\n]", line);
    same("%d %s", scanned, line);
    must(fflush(file));
    same("descriptor %d", fileno(file));
    must(fclose(file));

    file = must(fopen("text", "a+e"));
    fputs("appended\n", file);
    must(fseek(file, 0, SEEK_END));
    same("now %ld", ftell(file));
    file = must(freopen("input.txt", "r", file));
    size = must(getdelim(&whole, &room, '5', file));
    same("getdelim %zd %.20s", size, whole);
    must(fclose(file));
    file = must(tmpfile());
    same("temporary %zu", fwrite(line, 1, 100, file));
    must(fclose(file));
    file = must(fdopen(must(dup(1)), "w"));
    setlinebuf(file);
    fflush(stdout);
    fprintf(file, "through a duplicate of standard output\n");
    must(fclose(file));

    file = must(fmemopen(line, sizeof line, "w+"));
    fprintf(file, "in memory");
    rewind(file);
    same("fmemopen %d", fscanf(file, "in %99s", buffer));
    must(fclose(file));
    file = must(open_memstream(&whole, &room));
    fprintf(file, "%0*d", 5000, 7);
    must(fclose(file));
    same("open_memstream %zu, %016lx", room, sum(whole, room));
    int left = 3;
    file = must(fopencookie(&left, "r", (cookie_io_functions_t){.read = cookie_read}));
    same("fopencookie: %s", fgets(line, sizeof line, file));
    must(fclose(file));

    same("not there: %p", (void *)fopen("not there", "r"));
    errno = ENOENT;
    perror("to standard error");
    fprintf(stderr, "and this, %s\n", "in pieces");
    dprintf(2, "and by descriptor\n");
    puts("puts");
    putchar_unlocked('!');
    putchar('\n');
    char *made;
    int printed = asprintf(&made, "%.3f %+d %x", 3.14159, 5, 255);
    same("asprintf %d %s", printed, made);
    seen("address %p, buffer of %zu", (void *)made, __fbufsize(stdin));
    must(remove("text"));
    return 0;
}
