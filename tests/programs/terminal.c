/* A terminal of our own, and what programs ask of one. */
#include "see.h"
#include <pty.h>
#include <sys/ioctl.h>
#include <termios.h>

int main(void) {
    int master = must(posix_openpt(O_RDWR | O_NOCTTY));
    must(grantpt(master));
    must(unlockpt(master));
    seen("terminal %s", must(ptsname(master)));
    int slave = must(open(ptsname(master), O_RDWR | O_NOCTTY));
    struct winsize size = {.ws_row = 30, .ws_col = 100};
    must(ioctl(master, TIOCSWINSZ, &size));
    memset(&size, 0, sizeof size);
    must(ioctl(slave, TIOCGWINSZ, &size));
    same("%d rows, %d columns", size.ws_row, size.ws_col);
    struct termios settings;
    must(tcgetattr(slave, &settings));
    seen("local flags %#x, speed %u", settings.c_lflag, cfgetospeed(&settings));
    cfmakeraw(&settings);
    must(tcsetattr(slave, TCSANOW, &settings));
    char back[100];
    must(write(slave, "raw\n", 4));
    ssize_t length = must(read(master, back, sizeof back));
    same("read %zd: %.3s", length, back);
    same("terminals: %d %d %d", isatty(slave), isatty(1), isatty(master));
    refused(ttyname(1));
    seen("ttyname %s", must(ttyname(slave)));
    refused(tcgetattr(1, &settings));
    seen("foreground %d", tcgetpgrp(slave));
    must(tcflush(slave, TCIOFLUSH));
    int a, b;
    must(openpty(&a, &b, NULL, NULL, NULL));
    seen("another %s", must(ttyname(b)));
    return 0;
}
