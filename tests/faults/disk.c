/* A disk that fails to order, preloaded into a process (LD_PRELOAD).

   Calls of the C library that change files are operations. Those inside a folder are counted, and
   at a given one the process ends, or the call fails with an error of the system. This sees the
   calls of Python and of all libraries, in any language.

   A loss of power is a process that ends, and whose files keep only what was flushed to the disk:
   a report lists how many bytes of each that is. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

/* What happens at the operation. A positive number is an errno. */
enum { KILL = 0, TORN = -1, POWER = -2 };
enum { CHANGES, FREES }; /* a full disk still deletes */
enum { MOST_FILES = 4096 };

static char folder[PATH_MAX], report[PATH_MAX];
static int active, target, effect, lasting;
static atomic_int operations;
static struct { ino_t inode; long long flushed; } files[MOST_FILES];
static int known;

/* Count the operations in `inside`; the `number`-th, and with `persistent` all after it, fails. */
void disk_arm(const char *inside, const char *to, int number, int what, int persistent) {
    snprintf(folder, sizeof folder, "%s", inside);
    snprintf(report, sizeof report, "%s", to);
    target = number, effect = what, lasting = persistent, known = 0;
    operations = 0;
    active = 1;
}

/* Stop; return the number of operations. */
int disk_disarm(void) {
    active = 0;
    return operations;
}

/* ---- which files ---- */

static int within(const char *path) {
    size_t length = strlen(folder);
    return !strncmp(path, folder, length) && (path[length] == '/' || path[length] == 0);
}

static int is_open_within(int file) {
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return within(path);
}

/* A name is absolute, or relative to an open folder or to the current one. */
static int concerns(int directory, const char *name) {
    char here[PATH_MAX];
    if (!active || !name) return 0;
    if (name[0] == '/') return within(name);
    if (directory != AT_FDCWD) return is_open_within(directory);
    return getcwd(here, sizeof here) && within(here);
}

static int concerns_file(int file) { return active && file > 2 && is_open_within(file); }

/* ---- what was flushed ---- */

static int entry(ino_t inode) {
    for (int i = 0; i < known; i++)
        if (files[i].inode == inode) return i;
    if (known == MOST_FILES) _exit(99);
    files[known].inode = inode;
    files[known].flushed = -1;
    return known++;
}

static int opened(int file, int flags) {
    struct stat facts;
    int before = errno;
    if (file >= 0 && (flags & (O_WRONLY | O_RDWR)) && !fstat(file, &facts) && S_ISREG(facts.st_mode)) {
        int i = entry(facts.st_ino);
        if (files[i].flushed < 0 || facts.st_size == 0) files[i].flushed = facts.st_size;
    }
    errno = before;
    return file;
}

static void flushed(int file) {
    struct stat facts;
    if (!fstat(file, &facts) && S_ISREG(facts.st_mode)) files[entry(facts.st_ino)].flushed = facts.st_size;
}

static void end(void) {
    if (effect == POWER) {
        char line[64];
        int out = syscall(SYS_openat, AT_FDCWD, report, O_WRONLY | O_CREAT | O_TRUNC, 0600);
        for (int i = 0; i < known; i++) {
            int length = snprintf(line, sizeof line, "%llu %lld\n",
                                  (unsigned long long)files[i].inode, files[i].flushed);
            if (syscall(SYS_write, out, line, length) != length) _exit(99);
        }
    }
    _exit(137);
}

/* ---- operations ---- */

/* Whether the operation fails now, with errno set. `half` writes the first half of the data. */
static int fails(int kind, int file, const void *data, size_t size) {
    int number = ++operations;
    if (number < target || target == 0 || (number > target && !lasting)) return 0;
    if (effect == ENOSPC && kind == FREES) return 0;
    if (effect > 0) {
        errno = effect;
        return 1;
    }
    if (effect == TORN && data && size > 1) syscall(SYS_write, file, data, size / 2);
    end();
    return 1;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define NAMED(directory, name, kind) (concerns(directory, name) && fails(kind, -1, NULL, 0))

#define OPENING (flags & (O_WRONLY | O_RDWR | O_CREAT | O_TRUNC))
#define MODE                                  \
    mode_t mode = 0;                          \
    if (flags & (O_CREAT | __O_TMPFILE)) {    \
        va_list rest;                         \
        va_start(rest, flags);                \
        mode = va_arg(rest, mode_t);          \
        va_end(rest);                         \
    }

#define OPEN(call)                                                       \
    int call(const char *name, int flags, ...) {                         \
        MODE if (!OPENING || !concerns(AT_FDCWD, name))                  \
            return REAL(call)(name, flags, mode);                        \
        if (fails(CHANGES, -1, NULL, 0)) return -1;                      \
        return opened(REAL(call)(name, flags, mode), flags);             \
    }
OPEN(open)
OPEN(open64)

#define OPENAT(call)                                                     \
    int call(int directory, const char *name, int flags, ...) {          \
        MODE if (!OPENING || !concerns(directory, name))                 \
            return REAL(call)(directory, name, flags, mode);             \
        if (fails(CHANGES, -1, NULL, 0)) return -1;                      \
        return opened(REAL(call)(directory, name, flags, mode), flags);  \
    }
OPENAT(openat)
OPENAT(openat64)

#define FOPEN(call)                                                      \
    FILE *call(const char *name, const char *mode) {                     \
        int writes = strpbrk(mode, "wa+") && concerns(AT_FDCWD, name);   \
        if (writes && fails(CHANGES, -1, NULL, 0)) return NULL;          \
        FILE *file = REAL(call)(name, mode);                             \
        if (writes && file) opened(fileno(file), O_WRONLY);              \
        return file;                                                     \
    }
FOPEN(fopen)
FOPEN(fopen64)

ssize_t write(int file, const void *data, size_t size) {
    if (concerns_file(file) && fails(CHANGES, file, data, size)) return -1;
    return REAL(write)(file, data, size);
}

#define PWRITE(call, offset_t)                                                          \
    ssize_t call(int file, const void *data, size_t size, offset_t at) {                \
        if (concerns_file(file) && fails(CHANGES, -1, NULL, 0)) return -1;              \
        return REAL(call)(file, data, size, at);                                        \
    }
PWRITE(pwrite, off_t)
PWRITE(pwrite64, off64_t)

ssize_t writev(int file, const struct iovec *parts, int count) {
    if (concerns_file(file) && fails(CHANGES, -1, NULL, 0)) return -1;
    return REAL(writev)(file, parts, count);
}

#define SENDFILE(call, offset_t)                                                        \
    ssize_t call(int out, int in, offset_t *from, size_t size) {                        \
        if (concerns_file(out) && fails(CHANGES, -1, NULL, 0)) return -1;               \
        return REAL(call)(out, in, from, size);                                         \
    }
SENDFILE(sendfile, off_t)
SENDFILE(sendfile64, off64_t)

#define FLUSH(call)                                                       \
    int call(int file) {                                                  \
        if (!concerns_file(file)) return REAL(call)(file);                \
        if (fails(CHANGES, -1, NULL, 0)) return -1;                       \
        int result = REAL(call)(file);                                    \
        if (!result) flushed(file);                                       \
        return result;                                                    \
    }
FLUSH(fsync)
FLUSH(fdatasync)

#define CUT(call, offset_t)                                                      \
    int call(int file, offset_t size) {                                          \
        if (concerns_file(file) && fails(CHANGES, -1, NULL, 0)) return -1;       \
        return REAL(call)(file, size);                                           \
    }
CUT(ftruncate, off_t)
CUT(ftruncate64, off64_t)

int rename(const char *from, const char *to) {
    if (NAMED(AT_FDCWD, to, CHANGES)) return -1;
    return REAL(rename)(from, to);
}
int renameat(int one, const char *from, int other, const char *to) {
    if (NAMED(other, to, CHANGES)) return -1;
    return REAL(renameat)(one, from, other, to);
}
int renameat2(int one, const char *from, int other, const char *to, unsigned flags) {
    if (NAMED(other, to, CHANGES)) return -1;
    return REAL(renameat2)(one, from, other, to, flags);
}
int unlink(const char *name) {
    if (NAMED(AT_FDCWD, name, FREES)) return -1;
    return REAL(unlink)(name);
}
int unlinkat(int directory, const char *name, int flags) {
    if (NAMED(directory, name, FREES)) return -1;
    return REAL(unlinkat)(directory, name, flags);
}
int rmdir(const char *name) {
    if (NAMED(AT_FDCWD, name, FREES)) return -1;
    return REAL(rmdir)(name);
}
int mkdir(const char *name, mode_t mode) {
    if (NAMED(AT_FDCWD, name, CHANGES)) return -1;
    return REAL(mkdir)(name, mode);
}
int link(const char *from, const char *to) {
    if (NAMED(AT_FDCWD, to, CHANGES)) return -1;
    return REAL(link)(from, to);
}
int linkat(int one, const char *from, int other, const char *to, int flags) {
    if (NAMED(other, to, CHANGES)) return -1;
    return REAL(linkat)(one, from, other, to, flags);
}
int symlink(const char *from, const char *to) {
    if (NAMED(AT_FDCWD, to, CHANGES)) return -1;
    return REAL(symlink)(from, to);
}
