/* What libc offers and nobody needs to interpose, and what has its code by hand elsewhere in the
 * runtime. Only the checker reads this: it sorts the symbols that a program imports into annotated,
 * harmless and missing. The prototypes carry no parameters because nobody looks at them. */

#ifndef HINDCAST_KNOWN_H
#define HINDCAST_KNOWN_H
#include "hindcast.h"

/* Memory and strings: nothing but what they are handed. */

harmless void memccpy(), memchr(), memcmp(), memcpy(), memfrob(), memmem(), memmove(), mempcpy(), memrchr(), memset(),
    rawmemchr(), __rawmemchr(), explicit_bzero(), bcmp(), bcopy(), bzero(), ffs(), ffsl(), ffsll(), swab(), stpcpy(),
    stpncpy(), strcasecmp(), strcasecmp_l(), strcasestr(), strcat(), strchr(), strchrnul(), strcmp(), strcoll(),
    strcoll_l(), strcpy(), strcspn(), strdup(), strlen(), strncasecmp(), strncasecmp_l(), strncat(), strncmp(),
    strncpy(), strndup(), strnlen(), strpbrk(), strrchr(), strsep(), strspn(), strstr(), strtok(), strtok_r(),
    strverscmp(), strxfrm(), strxfrm_l(), index(), rindex(), strfry(), basename(), __xpg_basename(), dirname(),
    strtod(), strtod_l(), strtof(), strtof_l(), strtold(), strtold_l(), strtol(), strtol_l(), strtoll(), strtoll_l(),
    strtoul(), strtoul_l(), strtoull(), strtoull_l(), strtoimax(), strtoumax(), strtoq(), strtouq(), strfromd(),
    strfromf(), strfroml(), atoi(), atol(), atoll(), atof(), a64l(), l64a(), ecvt(), fcvt(), gcvt(),
    __isoc23_strtol(), __isoc23_strtoll(), __isoc23_strtoul(), __isoc23_strtoull(), __strtod_internal(),
    __strtol_internal(), __strtoul_internal(), __strdup(), __strndup(), __strtok_r(), __stpcpy(), __mempcpy(),
    __memcpy_chk(), __memmove_chk(), __memset_chk(), __mempcpy_chk(), __explicit_bzero_chk(), __stpcpy_chk(),
    __stpncpy_chk(), __strcat_chk(), __strcpy_chk(), __strncat_chk(), __strncpy_chk(), __strcoll_l(), __strxfrm_l(),
    __strtod_l(), __strtof_l(), __strtod_nan(), __strtof_nan(), __strtold_nan(), __strtof128_nan(), strerror(),
    strerror_l(), strerror_r(), __xpg_strerror_r(), strerrorname_np(), strerrordesc_np(), strsignal(), sigabbrev_np(),
    sigdescr_np(), gai_strerror(), hstrerror(), wcscpy(), wcsncpy(), wcscat(), wcsncat(), wcscmp(), wcsncmp(),
    wcscasecmp(), wcsncasecmp(), wcschr(), wcsrchr(), wcscoll(), wcslen(), wcsnlen(), wcsspn(), wcscspn(), wcspbrk(),
    wcsstr(), wcstok(), wcstol(), wcstoll(), wcstoul(), wcstoull(), wcstod(), wcstof(), wcstold(), wcsxfrm(),
    wcsdup(), wcpcpy(), wcwidth(), wcswidth(), wmemchr(), wmemcmp(), wmemcpy(), wmemmove(), wmempcpy(), wmemset(),
    __wcscoll_l(), __wcsxfrm_l(), __wcsftime_l(), btowc(), mblen(), mbrlen(), mbrtowc(), mbsinit(), mbsnrtowcs(),
    mbsrtowcs(), mbstowcs(), mbtowc(), wcrtomb(), wcsnrtombs(), wcsrtombs(), wcstombs(), wctob(), wctomb(),
    __mbrlen(), __mbstowcs_chk(), __wcstombs_chk(), __mbsrtowcs_chk(), __mbsnrtowcs_chk(), __wcsnrtombs_chk(),
    __wcrtomb_chk(), mbrtoc16(), mbrtoc32(), c16rtomb(), c32rtomb(), __wmemcpy_chk(), __wmemset_chk(),
    __wmemmove_chk(), __wcscpy_chk(), __wcscat_chk();

/* Characters and locales that were loaded already. */

harmless void isalnum(), isalpha(), isascii(), isblank(), iscntrl(), isdigit(), isgraph(), islower(), isprint(),
    ispunct(), isspace(), isupper(), isxdigit(), toascii(), tolower(), toupper(), tolower_l(), toupper_l(),
    iswalnum(), iswalpha(), iswblank(), iswcntrl(), iswctype(), iswdigit(), iswgraph(), iswlower(), iswprint(),
    iswpunct(), iswspace(), iswupper(), iswxdigit(), towlower(), towupper(), towctrans(), wctrans(), wctype(),
    __ctype_b_loc(), __ctype_tolower_loc(), __ctype_toupper_loc(), __ctype_get_mb_cur_max(), __iswctype_l(),
    __towlower_l(), __towupper_l(), __wctype_l(), __nl_langinfo_l(), nl_langinfo(), nl_langinfo_l(), localeconv(),
    uselocale(), duplocale(), freelocale(), __uselocale(), __duplocale(), __freelocale();

/* Mathematics. */

harmless void abs(), labs(), llabs(), imaxabs(), div(), ldiv(), lldiv(), acos(), acosf(), acosl(), acosh(), acoshf(),
    asin(), asinf(), asinl(), asinh(), asinhf(), atan(), atanf(), atanl(), atan2(), atan2f(), atan2l(), atanh(),
    atanhf(), cbrt(), cbrtf(), ceil(), ceilf(), ceill(), copysign(), copysignf(), copysignl(), cos(), cosf(), cosl(),
    cosh(), coshf(), coshl(), erf(), erff(), erfc(), erfcf(), exp(), expf(), expl(), exp2(), exp2f(), exp10(),
    expm1(), expm1f(), fabs(), fabsf(), fabsl(), fdim(), floor(), floorf(), floorl(), fma(), fmaf(), fmax(), fmaxf(),
    fmin(), fminf(), fmod(), fmodf(), fmodl(), frexp(), frexpf(), frexpl(), hypot(), hypotf(), ilogb(), ldexp(),
    ldexpf(), ldexpl(), lgamma(), lgamma_r(), lgammaf(), llrint(), llrintf(), llround(), llroundf(), llroundl(),
    log(), logf(), logl(), log10(), log10f(), log10l(), log1p(), log1pf(), log2(), log2f(), logb(), lrint(), lrintf(),
    lrintl(), lround(), lroundf(), lroundl(), modf(), modff(), modfl(), nan(), nearbyint(), nearbyintf(),
    nearbyintl(), nextafter(), nextafterf(), nexttoward(), pow(), powf(), powl(), remainder(), remainderf(), remquo(),
    rint(), rintf(), rintl(), round(), roundf(), roundl(), scalbln(), scalbn(), sin(), sinf(), sinl(), sincos(),
    sincosf(), sinh(), sinhf(), sinhl(), sqrt(), sqrtf(), sqrtl(), tan(), tanf(), tanl(), tanh(), tanhf(), tanhl(),
    tgamma(), tgammaf(), trunc(), truncf(), truncl(), j0(), j1(), jn(), y0(), y1(), yn(), finite(), finitef(),
    isinf(), isnan(), __finite(), __isinf(), __isnan(), __isnanf(), __isinff(), __signbit(), __signbitf(),
    __fpclassify(), __fpclassifyf(), fegetround(), fesetround(), feclearexcept(), feraiseexcept(), fetestexcept(),
    fegetenv(), fesetenv(), feholdexcept(), feupdateenv(), feenableexcept(), fedisableexcept(), rand(), rand_r(),
    srand(), random(), random_r(), srandom(), srandom_r(), initstate(), setstate(), drem(), exp10f(), gamma(), nanf(),
    scalb(), significand(), __signgam(), drand48(), erand48(), jrand48(), lrand48(), mrand48(), nrand48(), srand48(),
    seed48(), lcong48();

/* Formatting into memory, searching, sorting, matching, conversions. */

harmless void snprintf(), sprintf(), vsnprintf(), vsprintf(), asprintf(), vasprintf(), sscanf(), vsscanf(),
    swprintf(), vswprintf(), swscanf(), __snprintf_chk(), __sprintf_chk(), __vsnprintf_chk(), __vsprintf_chk(),
    __asprintf_chk(), __vasprintf_chk(), __isoc99_sscanf(), __isoc99_vsscanf(), __isoc99_swscanf(), __isoc23_sscanf(),
    __swprintf_chk(), __vswprintf_chk(), obstack_vprintf(), obstack_printf(), _obstack_newchunk(), _obstack_begin(),
    _obstack_free(), obstack_free(), parse_printf_format(), register_printf_function(), re_compile_pattern(),
    re_match(), re_search(), re_set_syntax(), argp_parse(), argp_error(), argp_failure(), argp_help(),
    argz_create_sep(), initstate_r(), imaxdiv(), __asprintf(), __wctomb_chk(), register_printf_specifier(),
    register_printf_modifier(), register_printf_type(), qsort(), qsort_r(), bsearch(), lfind(), lsearch(), tsearch(),
    tfind(), tdelete(), tdestroy(), twalk(), twalk_r(), hcreate(), hdestroy(), hsearch(), hcreate_r(), hdestroy_r(),
    hsearch_r(), insque(), remque(), fnmatch(), regcomp(), regexec(), regerror(), regfree(), getopt(), getopt_long(),
    getopt_long_only(), getsubopt(), hasmntopt(), argz_create(), argz_add(), argz_next(), difftime(), mktime(),
    timegm(), timelocal(), gmtime(), gmtime_r(), __gmtime_r(), asctime(), asctime_r(), strftime(), strftime_l(),
    __strftime_l(), strptime(), strptime_l(), wcsftime(), stime(), timespec_get(), dysize(), htonl(), htons(),
    ntohl(), ntohs(), inet_addr(), inet_aton(), inet_ntoa(), inet_ntop(), inet_pton(), inet_network(),
    inet_makeaddr(), inet_lnaof(), inet_netof(), inet_nsap_ntoa(), ether_ntoa(), ether_aton(), ether_ntoa_r(),
    ether_aton_r(), __libc_dn_expand(), dn_expand(), dn_skipname(), dn_comp(), __dn_expand(), __dn_skipname(),
    __dn_comp(), ns_initparse(), ns_name_uncompress(), ns_parserr(), ns_sprintrr(), res_dnok(), res_hnok(),
    __res_dnok(), __res_hnok(), __libc_ns_makecanon(), __libc_ns_samename(), __libc_res_nameinquery(),
    __libc_res_queriesmatch(), sigaddset(), sigdelset(), sigemptyset(), sigfillset(), sigisemptyset(), sigismember(),
    sigandset(), sigorset(), __libc_current_sigrtmin(), __libc_current_sigrtmax(), crypt(), crypt_r(), encrypt(),
    setkey(), cfgetispeed(), cfgetospeed(), cfsetispeed(), cfsetospeed(), cfsetspeed(), cfmakeraw(),
    __sched_cpucount(), __sched_cpualloc(), __sched_cpufree(), __fdelt_chk(), __fdelt_warn();

/* The environment, which is the same in both runs, and what the program was started with. */

harmless void getenv(), secure_getenv(), __secure_getenv(), setenv(), unsetenv(), putenv(), clearenv(), getauxval(),
    __environ(), environ(), _environ(), __progname(), __progname_full(), program_invocation_name(),
    program_invocation_short_name(), errno(), __errno_location(), __h_errno(), __h_errno_location(), h_errno(),
    optarg(), optind(), opterr(), optopt(), stdin(), stdout(), stderr(), sys_errlist(), in6addr_any(),
    in6addr_loopback(), __libc_single_threaded(), _rtld_global_ro(), __resp(), _res(), __timezone(), timezone(),
    tzname(), __tzname(), daylight(), __daylight(), signgam();

/* How the program is held together: jumps, start and end of objects, unwinding. */

harmless void setjmp(), _setjmp(), __sigsetjmp(), sigsetjmp(), longjmp(), _longjmp(), siglongjmp(), __longjmp_chk(),
    getcontext(), setcontext(), makecontext(), swapcontext(), __libc_start_main(), __cxa_atexit(), __cxa_finalize(),
    __cxa_thread_atexit_impl(), __cxa_at_quick_exit(), atexit(), at_quick_exit(), on_exit(), __register_atfork(),
    __tls_get_addr(), _dl_find_object(), dl_iterate_phdr(), __stack_chk_fail(), __chk_fail(), __assert_fail(),
    __assert_perror_fail(), __assert(), __pthread_unwind_next(), __pthread_register_cancel(),
    __pthread_unregister_cancel(), __gmon_start__(), _ITM_deregisterTMCloneTable(), _ITM_registerTMCloneTable(),
    backtrace(), backtrace_symbols(), gnu_get_libc_version(), gnu_get_libc_release(), getpagesize(), __getpagesize(),
    __profile_frequency(), monstartup(), mtrace(), muntrace(), _mcleanup(), moncontrol();

/* Input and output of libc (stdio). It runs in replay space: its buffers are part of the program, and the system calls beneath are recorded. */

harmless void fopen(), fopen64(), fdopen(), freopen(), freopen64(), fclose(), fcloseall(), fflush(),
    fflush_unlocked(), fmemopen(), open_memstream(), open_wmemstream(), fopencookie(), tmpfile(), tmpfile64(),
    tmpnam(), tempnam(), mkstemp(), mkstemp64(), mkostemp(), mkostemp64(), mkstemps(), mkstemps64(), mkostemps(),
    mkdtemp(), mktemp(), fread(), fread_unlocked(), __fread_chk(), __fread_unlocked_chk(), fwrite(),
    fwrite_unlocked(), fgetc(), fgetc_unlocked(), fgets(), fgets_unlocked(), __fgets_chk(), __fgets_unlocked_chk(),
    fputc(), fputc_unlocked(), fputs(), fputs_unlocked(), getc(), getc_unlocked(), getchar(), getchar_unlocked(),
    gets(), getline(), getdelim(), __getdelim(), getw(), putc(), putc_unlocked(), putchar(), putchar_unlocked(),
    puts(), putw(), ungetc(), __uflow(), __overflow(), __underflow(), fgetwc(), fgetws(), fputwc(), fputws(), getwc(),
    getwchar(), putwc(), putwchar(), ungetwc(), fwide(), fwprintf(), wprintf(), vfwprintf(), vwprintf(), fwscanf(),
    wscanf(), __fwprintf_chk(), __vfwprintf_chk(), printf(), fprintf(), vprintf(), vfprintf(), dprintf(), vdprintf(),
    scanf(), fscanf(), vscanf(), vfscanf(), __printf_chk(), __fprintf_chk(), __vprintf_chk(), __vfprintf_chk(),
    __dprintf_chk(), __vdprintf_chk(), __isoc99_scanf(), __isoc99_fscanf(), __isoc99_vfscanf(), __isoc23_fscanf(),
    __isoc23_scanf(), fseek(), fseeko(), fseeko64(), ftell(), ftello(), ftello64(), rewind(), fgetpos(), fgetpos64(),
    fsetpos(), fsetpos64(), setbuf(), setbuffer(), setlinebuf(), setvbuf(), feof(), feof_unlocked(), ferror(),
    ferror_unlocked(), clearerr(), clearerr_unlocked(), fileno(), fileno_unlocked(), perror(), __freading(),
    __fwriting(), __freadable(), __fwritable(), __flbf(), __fbufsize(), __fpending(), __fpurge(), __fsetlocking(),
    _flushlbf(), psignal(), psiginfo(), error(), error_at_line(), warn(), warnx(), err(), errx(), vwarn(), vwarnx(),
    verr(), verrx(), __error(), _IO_getc(), _IO_putc(), _IO_feof(), _IO_ferror();

/* Directories, files by name: several system calls, in replay space. */

harmless void opendir(), fdopendir(), closedir(), readdir(), readdir64(), readdir_r(), readdir64_r(), rewinddir(),
    seekdir(), telldir(), dirfd(), scandir(), scandir64(), scandirat(), alphasort(), alphasort64(), versionsort(),
    versionsort64(), ftw(), ftw64(), nftw(), nftw64(), fts_open(), fts_read(), fts_close(), fts_children(), fts_set(),
    fts64_open(), fts64_read(), fts64_close(), glob(), glob64(), globfree(), globfree64(), glob_pattern_p(),
    wordexp(), wordfree(), realpath(), __realpath_chk(), canonicalize_file_name(), getcwd(), __getcwd_chk(),
    get_current_dir_name(), getwd(), remove(), mkfifo(), mkfifoat(), faccessat(), eaccess(), euidaccess(), fchmodat(),
    lchmod(), futimens(), utimensat(), futimes(), lutimes(), futimesat(), statvfs(), statvfs64(), fstatvfs(),
    fstatvfs64(), pathconf(), fpathconf(), lockf(), lockf64(), posix_fallocate(), posix_fallocate64(), preadv2(),
    preadv64v2(), pwritev2(), pwritev64v2(), eventfd_read(), eventfd_write(), shm_open(), shm_unlink(),
    memfd_secret(), getmntent(), getmntent_r(), setmntent(), endmntent(), addmntent(), mq_open(), mq_close(),
    mq_unlink(), mq_send(), mq_timedsend(), mq_receive(), mq_timedreceive(), mq_notify(), mq_getattr(), mq_setattr();

/* Terminals. */

harmless void isatty(), ttyname(), ttyname_r(), tcgetattr(), tcsetattr(), tcdrain(), tcflow(), tcflush(),
    tcsendbreak(), tcgetpgrp(), tcsetpgrp(), tcgetsid(), ctermid(), getpass(), openpty(), login_tty(), ptsname(),
    ptsname_r(), __ptsname_r_chk(), grantpt(), unlockpt(), posix_openpt(), getpt(), vhangup();

/* Names of users, hosts, services, interfaces: libc reads its files and asks its servers in replay space. */

harmless void getaddrinfo(), freeaddrinfo(), getnameinfo(), gethostbyname(), gethostbyname2(), gethostbyname_r(),
    gethostbyname2_r(), gethostbyaddr(), gethostbyaddr_r(), gethostent(), sethostent(), endhostent(), getservbyname(),
    getservbyname_r(), getservbyport(), getservbyport_r(), getservent(), setservent(), endservent(), getprotobyname(),
    getprotobyname_r(), getprotobynumber(), getprotobynumber_r(), getprotoent(), setprotoent(), endprotoent(),
    getnetbyname(), getnetbyaddr(), getpwent(), getpwent_r(), setpwent(), endpwent(), getpwnam(), getpwnam_r(),
    getpwuid(), getpwuid_r(), fgetpwent(), getgrent(), getgrent_r(), setgrent(), endgrent(), getgrnam(), getgrnam_r(),
    getgrgid(), getgrgid_r(), fgetgrent(), getgrouplist(), group_member(), initgroups(), getspent(), getspnam(),
    getspnam_r(), setspent(), endspent(), getlogin(), getlogin_r(), cuserid(), innetgr(), setnetgrent(),
    endnetgrent(), getnetgrent(), getifaddrs(), freeifaddrs(), if_nametoindex(), if_indextoname(), if_nameindex(),
    if_freenameindex(), gethostname(), __gethostname_chk(), getdomainname(), __getdomainname_chk(), gethostid(),
    res_init(), res_ninit(), res_nclose(), res_query(), res_nquery(), res_search(), res_nsearch(), res_mkquery(),
    res_nmkquery(), res_send(), res_nsend(), __res_init(), __res_ninit(), __res_nclose(), __res_iclose(),
    __res_query(), __res_nquery(), __res_search(), __res_nsearch(), __res_mkquery(), __res_nmkquery(), __res_send(),
    __res_nsend(), __res_context_hostalias(), __res_context_query(), __res_context_search(), __res_get_nsaddr(),
    __res_state(), __resolv_context_get(), __resolv_context_get_override(), __resolv_context_put(), getnetent(),
    getnetent_r(), setnetent(), endnetent(), getnetbyname_r(), getnetbyaddr_r(), gethostent_r(), getservent_r(),
    getprotoent_r(), getrpcent(), getrpcbyname(), getrpcbynumber(), setrpcent(), endrpcent(), getsgent(), getsgnam(),
    getsgnam_r(), setsgent(), endsgent(), sgetspent(), fgetspent(), putspent(), putpwent(), putgrent(), putsgent(),
    lckpwdf(), ulckpwdf(), getusershell(), setusershell(), endusershell(), getaliasent(), getaliasbyname(),
    endaliasent(), ether_hostton(), ether_ntohost(), herror(), rpmatch(), setutent(), getutent(), getutent_r(),
    utmpxname(), endutent(), getutid(), getutline(), pututline(), utmpname(), getutxent(), setutxent(), endutxent(),
    getutxid(), getutxline(), pututxline(), updwtmp(), updwtmpx(), openlog(), closelog(), syslog(), vsyslog(),
    setlogmask(), __syslog_chk(), __vsyslog_chk();

/* Locales, messages, time zones, character sets, libraries that are loaded while running. */

harmless void setlocale(), newlocale(), __newlocale(), gettext(), dgettext(), dcgettext(), ngettext(), dngettext(),
    dcngettext(), textdomain(), bindtextdomain(), bind_textdomain_codeset(), __dcgettext(), catopen(), catgets(),
    catclose(), iconv(), iconv_open(), iconv_close(), localtime(), localtime_r(), ctime(), ctime_r(), tzset(),
    getdate(), getdate_r(), ftime(), clock(), timespec_getres(), dlopen(), dlmopen(), dlsym(), dlvsym(), dlclose(),
    dlerror(), dladdr(), dladdr1(), dlinfo(), backtrace_symbols_fd();

/* Around a few system calls: limits, sleeping, randomness, timers. */

harmless void sysconf(), __sysconf(), confstr(), get_nprocs(), get_nprocs_conf(), get_phys_pages(),
    get_avphys_pages(), getloadavg(), getdtablesize(), gnu_dev_major(), gnu_dev_minor(), gnu_dev_makedev(),
    closefrom(), ftok(), ulimit(), vlimit(), nice(), getpriority(), sleep(), usleep(), ualarm(), arc4random(),
    arc4random_buf(), arc4random_uniform(), timer_create(), timer_settime(), timer_gettime(), timer_getoverrun(),
    timer_delete(), setpgrp(), bsd_getpgrp(), setns(), unshare(), mount(), umount(), umount2(), swapon(), swapoff(),
    pivot_root(), acct(), reboot(), klogctl(), sched_getattr(), sched_setattr(), quotactl(), init_module(),
    delete_module(), ioperm(), iopl(), process_vm_readv(), process_vm_writev(), vmsplice(), pidfd_open(),
    pidfd_getfd(), posix_madvise(), epoll_pwait2(), adjtime(), ntp_gettime(), ntp_adjtime(), daemon(),
    posix_spawn_file_actions_init(), posix_spawn_file_actions_destroy(), posix_spawn_file_actions_addclose(),
    posix_spawn_file_actions_adddup2(), posix_spawn_file_actions_addopen(), posix_spawn_file_actions_addchdir_np(),
    posix_spawn_file_actions_addfchdir_np(), posix_spawnattr_init(), posix_spawnattr_destroy(),
    posix_spawnattr_setflags(), posix_spawnattr_getflags(), posix_spawnattr_setpgroup(), posix_spawnattr_getpgroup(),
    posix_spawnattr_setschedparam(), posix_spawnattr_setschedpolicy(), posix_spawnattr_setsigdefault(),
    posix_spawnattr_setsigmask();

/* Threads: attributes and names, which change nothing outside their object, and thread-specific data. */

harmless void pthread_attr_init(), pthread_attr_destroy(), pthread_attr_getdetachstate(),
    pthread_attr_setdetachstate(), pthread_attr_getguardsize(), pthread_attr_setguardsize(),
    pthread_attr_getstacksize(), pthread_attr_setstacksize(), pthread_attr_getstack(), pthread_attr_setstack(),
    pthread_attr_getscope(), pthread_attr_setscope(), pthread_attr_getinheritsched(), pthread_attr_setinheritsched(),
    pthread_attr_getschedparam(), pthread_attr_setschedparam(), pthread_attr_getschedpolicy(),
    pthread_attr_setschedpolicy(), pthread_attr_setaffinity_np(), pthread_attr_getaffinity_np(),
    pthread_getattr_default_np(), pthread_setattr_default_np(), pthread_mutexattr_init(), pthread_mutexattr_destroy(),
    pthread_mutexattr_gettype(), pthread_mutexattr_settype(), pthread_mutexattr_getpshared(),
    pthread_mutexattr_setpshared(), pthread_mutexattr_getprotocol(), pthread_mutexattr_setprotocol(),
    pthread_mutexattr_getrobust(), pthread_mutexattr_setrobust(), pthread_condattr_init(), pthread_condattr_destroy(),
    pthread_condattr_getclock(), pthread_condattr_setclock(), pthread_condattr_getpshared(),
    pthread_condattr_setpshared(), pthread_rwlockattr_init(), pthread_rwlockattr_destroy(),
    pthread_rwlockattr_getkind_np(), pthread_rwlockattr_setkind_np(), pthread_rwlockattr_setpshared(),
    pthread_rwlockattr_getpshared(), pthread_barrierattr_init(), pthread_barrierattr_destroy(),
    pthread_barrierattr_setpshared(), pthread_barrierattr_getpshared(), pthread_self(), pthread_equal(),
    pthread_getspecific(), pthread_setspecific(), pthread_key_create(), pthread_key_delete(), __pthread_key_create(),
    pthread_getconcurrency(), pthread_setconcurrency(), pthread_setcancelstate(), pthread_setcanceltype(),
    pthread_testcancel(), pthread_atfork(), pthread_getattr_np(), pthread_cond_init(), pthread_cond_destroy(),
    pthread_rwlock_init(), pthread_rwlock_destroy(), pthread_spin_init(), pthread_spin_destroy(),
    pthread_barrier_destroy(), sem_destroy(), sem_getvalue(), sched_yield(), pthread_yield(), tss_create(),
    tss_delete(), tss_get(), tss_set(), thrd_current(), thrd_equal(), thrd_yield(), thrd_sleep(), mtx_destroy(),
    cnd_destroy();

/* Memory. */

by_hand void malloc(), calloc(), realloc(), reallocarray(), free(), cfree(), memalign(), aligned_alloc(),
    posix_memalign(), valloc(), pvalloc(), malloc_usable_size(), malloc_trim(), mallopt(), mallinfo(), mallinfo2(),
    malloc_stats(), malloc_info(), mmap(), mmap64(), munmap(), mprotect(), mremap(), madvise(), msync(), brk(),
    sbrk(), shmat(), shmdt(), remap_file_pages();

/* Threads and their order. */

by_hand void pthread_create(), pthread_join(), pthread_tryjoin_np(), pthread_timedjoin_np(), pthread_clockjoin_np(),
    pthread_detach(), pthread_exit(), pthread_cancel(), pthread_mutex_init(), pthread_mutex_destroy(),
    pthread_mutex_lock(), pthread_mutex_trylock(), pthread_mutex_timedlock(), pthread_mutex_clocklock(),
    pthread_mutex_unlock(), pthread_mutex_consistent(), pthread_cond_wait(), pthread_cond_timedwait(),
    pthread_cond_clockwait(), pthread_cond_signal(), pthread_cond_broadcast(), pthread_rwlock_rdlock(),
    pthread_rwlock_tryrdlock(), pthread_rwlock_timedrdlock(), pthread_rwlock_clockrdlock(), pthread_rwlock_wrlock(),
    pthread_rwlock_trywrlock(), pthread_rwlock_timedwrlock(), pthread_rwlock_clockwrlock(), pthread_rwlock_unlock(),
    pthread_spin_lock(), pthread_spin_trylock(), pthread_spin_unlock(), pthread_barrier_init(),
    pthread_barrier_wait(), pthread_once(), call_once(), sem_init(), sem_open(), sem_close(), sem_unlink(),
    sem_wait(), sem_trywait(), sem_timedwait(), sem_clockwait(), sem_post(), thrd_create(), thrd_join(),
    thrd_detach(), thrd_exit(), mtx_init(), mtx_lock(), mtx_trylock(), mtx_timedlock(), mtx_unlock(), cnd_init(),
    cnd_wait(), cnd_timedwait(), cnd_signal(), cnd_broadcast(), flockfile(), ftrylockfile(), funlockfile();

/* Signals. */

by_hand void sigaction(), signal(), sigset(), sysv_signal(), __sysv_signal(), bsd_signal(), ssignal(), sigignore(),
    siginterrupt(), sigprocmask(), pthread_sigmask(), sigaltstack(), sigpending(), sigsuspend(), sigpause(),
    sigwait(), sigwaitinfo(), sigtimedwait(), sigqueue(), pthread_sigqueue(), pthread_kill(), raise(), kill(),
    killpg(), tgkill(), abort(), pause(), signalfd();

/* Processes. */

by_hand void fork(), _Fork(), vfork(), forkpty(), execve(), execv(), execvp(), execvpe(), execl(), execlp(), execle(),
    fexecve(), execveat(), posix_spawn(), posix_spawnp(), system(), popen(), pclose(), wait(), waitpid(), waitid(),
    wait3(), wait4(), exit(), _exit(), _Exit(), quick_exit(), clone(), ptrace();

/* The keyword of the same name has done its work. */
#undef sync
harmless void sync();

#endif
