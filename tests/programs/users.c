/* Users and groups: libc asks files, daemons and modules that it loads for the purpose. */
#include "see.h"
#include <grp.h>
#include <pwd.h>
#include <shadow.h>
#include <utmpx.h>

int main(void) {
    struct passwd *user = must(getpwnam("root")), *found, entry;
    same("root is %u:%u in %s", user->pw_uid, user->pw_gid, user->pw_dir);
    seen("%s", user->pw_shell);
    user = must(getpwuid(1));
    same("1 is %s", user->pw_name);
    char buffer[4000];
    must_be_zero(getpwnam_r("daemon", &entry, buffer, sizeof buffer, &found));
    same("daemon is %u", found->pw_uid);
    must_be_zero(getpwuid_r(getuid(), &entry, buffer, sizeof buffer, &found));
    seen("I am %s", found->pw_name);
    same("too small: %d", getpwnam_r("daemon", &entry, buffer, 2, &found));
    same("nobody of that name: %p", (void *)getpwnam("no-such-user-here"));
    setpwent();
    for (int i = 0; i < 5 && (user = getpwent()); i++)
        seen("entry %s", user->pw_name);
    endpwent();
    struct group *group = must(getgrnam("root"));
    same("group %s is %u", group->gr_name, group->gr_gid);
    group = getgrgid(4);
    seen("4 is %s", group ? group->gr_name : "nobody");
    struct group place, *there;
    must_be_zero(getgrgid_r(0, &place, buffer, sizeof buffer, &there));
    same("0 is %s", there->gr_name);
    setgrent();
    int groups = 0;
    while (getgrent())
        groups++;
    endgrent();
    seen("%d groups", groups);
    gid_t list[64];
    int count = 64;
    must(getgrouplist("root", 0, list, &count));
    seen("root is in %d", count);
    seen("login %s", getlogin() ? getlogin() : strerror(errno));
    seen("terminal %s", ctermid(buffer));
    setutxent();
    int lines = 0;
    while (getutxent())
        lines++;
    endutxent();
    seen("%d logged in", lines);
    return 0;
}
