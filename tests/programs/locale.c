/* Locales, character sets, messages: libc maps files and loads modules for them. */
#include "see.h"
#include <iconv.h>
#include <langinfo.h>
#include <libintl.h>
#include <locale.h>
#include <time.h>
#include <wchar.h>

int main(void) {
    seen("from the environment: %s", setlocale(LC_ALL, "") ? setlocale(LC_ALL, NULL) : "not there");
    same("C.UTF-8: %s", setlocale(LC_ALL, "C.UTF-8") ? "there" : "not there");
    same("codeset %s, day %s, radix %s", nl_langinfo(CODESET), nl_langinfo(DAY_2), localeconv()->decimal_point);
    wchar_t wide[100];
    size_t count = mbstowcs(wide, "größe → 大きさ", 100);
    char narrow[200];
    same("%zu characters, back %zu bytes, width %d", count, wcstombs(narrow, wide, sizeof narrow), wcswidth(wide, count));
    same("%ls", wide);
    same("strcoll %d", strcoll("a", "b") < 0);
    seen("de_DE: %s", setlocale(LC_ALL, "de_DE.UTF-8") ? "there" : "not there");
    setlocale(LC_ALL, "C");
    locale_t other = newlocale(LC_ALL_MASK, "C.UTF-8", NULL);
    same("newlocale %d", other != NULL);
    locale_t before = uselocale(other);
    same("%s", nl_langinfo(CODESET));
    uselocale(before);
    freelocale(other);

    iconv_t conversion = iconv_open("ISO-8859-1", "UTF-8");
    seen("iconv %s", conversion == (iconv_t)-1 ? strerror(errno) : "there");
    if (conversion != (iconv_t)-1) {
        char text[] = "größe", *from = text, *to = narrow;
        size_t left = strlen(text), room = sizeof narrow;
        seen("converted %zu, %zu bytes: %016lx", iconv(conversion, &from, &left, &to, &room), sizeof narrow - room, sum(narrow, sizeof narrow - room));
        iconv_close(conversion);
    }
    same("no such set: %d", iconv_open("no-such", "UTF-8") == (iconv_t)-1);
    bindtextdomain("nothing", "/nowhere");
    textdomain("nothing");
    same("%s, %s", gettext("a message"), dgettext("libc", "Success"));
    same("%s, %s, signal %s", strerror(2), strerror(9999), strsignal(11));
    return 0;
}
