/* Ends the process at the n-th change of a file under a folder: see sudden_death.py.

   A write is torn: its first half is written. The other calls do nothing any more. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[PATH_MAX];
static atomic_long left;

void die_at(const char *path, long n) {
    strncpy(folder, path, sizeof folder - 1);
    left = n;
}

static int inside(const char *path) {
    return *folder && strncmp(path, folder, strlen(folder)) == 0;
}

static int descriptor_inside(int fd) {
    char link[64], path[PATH_MAX + 1] = "";
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    return *folder && readlink(link, path, PATH_MAX) > 0 && inside(path);
}

static int path_inside(int at, const char *path) {
    return *path != '/' && at != AT_FDCWD ? descriptor_inside(at) : inside(path);
}

static int is_last(void) { return atomic_fetch_sub(&left, 1) == 1; }
static void die(void) { kill(getpid(), SIGKILL); }

#define REAL(name, ...) ((__typeof__(name) *)dlsym(RTLD_NEXT, #name))(__VA_ARGS__)
#define CHANGE(condition, name, ...)        \
    if ((condition) && is_last()) die();    \
    return REAL(name, __VA_ARGS__);

ssize_t write(int fd, const void *data, size_t size) {
    if (descriptor_inside(fd) && is_last()) {
        REAL(write, fd, data, size / 2);
        die();
    }
    return REAL(write, fd, data, size);
}

int fsync(int fd) { return 0; }  /* slow; only a machine that dies needs it */

int unlink(const char *path) { CHANGE(inside(path), unlink, path) }
int rmdir(const char *path) { CHANGE(inside(path), rmdir, path) }
int mkdir(const char *path, mode_t mode) { CHANGE(inside(path), mkdir, path, mode) }
int link(const char *from, const char *to) { CHANGE(inside(to), link, from, to) }
int rename(const char *from, const char *to) { CHANGE(inside(to), rename, from, to) }
int unlinkat(int at, const char *path, int flags) {
    CHANGE(path_inside(at, path), unlinkat, at, path, flags)
}
int linkat(int from_at, const char *from, int at, const char *path, int flags) {
    CHANGE(path_inside(at, path), linkat, from_at, from, at, path, flags)
}

#define OPEN(name)                                                           \
    int name(const char *path, int flags, ...) {                            \
        va_list rest;                                                       \
        va_start(rest, flags);                                              \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0; \
        va_end(rest);                                                       \
        CHANGE((flags & O_CREAT) && inside(path), name, path, flags, mode)  \
    }
OPEN(open)
OPEN(open64)
