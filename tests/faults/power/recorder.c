/* Records what a process does to the files below a folder, so that a test can work out what a power failure at any
 * moment would leave of them. Loaded with LD_PRELOAD into every process of a run: Python, the JVM and Spark's workers.
 *
 *     POWER_ROOT   the folder that is watched, but for `scratch/` and `logs/` below it
 *     POWER_LOG    the file to which records are appended
 *
 * Each call is passed on to the C library, and then one record is appended. Both happen under a lock that all processes
 * share, so that records lie in the order in which the calls were made:
 *
 *     kind (1 byte), began and ended (8 bytes each, nanoseconds of the monotonic clock), inode (8), offset (8),
 *     length of the first path (4), of the second (4), of the data (4), and then these three.
 *
 * Kinds: C created  W written  T truncated  S synced  M folder made  R renamed  L linked  U unlinked  D folder removed
 *
 * Calls that copy into the folder inside the kernel are refused, so that programs fall back to reading and writing.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static char root[PATH_MAX];
static size_t root_length;
static const char *log_path;
static pthread_mutex_t *turn;

#define REAL(type, name, ...)                                                                                          \
    static type (*real)(__VA_ARGS__);                                                                                  \
    if (!real) real = (type(*)(__VA_ARGS__))dlsym(RTLD_NEXT, name)

/* The first process to come makes the lock, in a file that appears whole. */
static void share_turn(void) {
    char path[PATH_MAX], made[PATH_MAX + 32];
    snprintf(path, sizeof path, "%s.lock", log_path);
    int file = open64(path, O_RDWR | O_CLOEXEC);
    if (file < 0) {
        snprintf(made, sizeof made, "%s.%d", path, getpid());
        file = open64(made, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        if (file < 0 || ftruncate64(file, sizeof *turn)) abort();
        pthread_mutex_t *fresh = mmap(NULL, sizeof *turn, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        pthread_mutexattr_t how;
        pthread_mutexattr_init(&how);
        pthread_mutexattr_setpshared(&how, PTHREAD_PROCESS_SHARED);
        pthread_mutexattr_setrobust(&how, PTHREAD_MUTEX_ROBUST);
        pthread_mutex_init(fresh, &how);
        munmap(fresh, sizeof *turn);
        close(file);
        link(made, path);
        unlink(made);
        file = open64(path, O_RDWR | O_CLOEXEC);
    }
    turn = mmap(NULL, sizeof *turn, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (turn == MAP_FAILED) abort();
    close(file);
}

/* Nothing is locked for calls that are not recorded: their path is NULL. */
static const char *locked(const char *path) {
    if (path && pthread_mutex_lock(turn) == EOWNERDEAD) pthread_mutex_consistent(turn);
    return path;
}

static void unlocked(const char *path) {
    if (path) pthread_mutex_unlock(turn);
}

__attribute__((constructor)) static void begin(void) {
    const char *found = getenv("POWER_ROOT");
    log_path = getenv("POWER_LOG");
    if (found && log_path && strlen(found) < sizeof root) {
        strcpy(root, found);
        root_length = strlen(root);
        share_turn();
    }
}

static int64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static int inside(const char *path) {
    if (!root_length || !path || strncmp(path, root, root_length)) return 0;
    const char *rest = path + root_length;
    return (*rest == '/' || !*rest) && !strstr(rest, "/scratch/") && !strstr(rest, "/logs/");
}

/* The full path of a name below an open folder, or below the current one. */
static const char *full(int folder, const char *name, char *buffer) {
    if (!root_length || !name) return NULL;
    char base[PATH_MAX] = "";
    if (name[0] != '/') {
        if (folder == AT_FDCWD) {
            if (!getcwd(base, sizeof base)) return NULL;
        } else {
            char link[64];
            snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
            ssize_t size = readlink(link, base, sizeof base - 1);
            if (size < 0) return NULL;
            base[size] = 0;
        }
        strcat(base, "/");
    }
    /* `.` and `..` are taken out, as no link lies below the folder that is watched. */
    char joined[2 * PATH_MAX];
    snprintf(joined, sizeof joined, "%s%s", base, name);
    size_t used = 0;
    for (char *rest = joined, *part; (part = strsep(&rest, "/"));) {
        if (!*part || !strcmp(part, ".")) continue;
        if (!strcmp(part, "..")) {
            while (used && buffer[--used] != '/') {}
            continue;
        }
        used += snprintf(buffer + used, PATH_MAX - used, "/%s", part);
    }
    buffer[used] = 0;
    return inside(buffer) ? buffer : NULL;
}

/* The path of an open file, if it is below the folder; files that have lost their name count too. */
static const char *of_fd(int fd, char *buffer) {
    if (!root_length || fd < 0) return NULL;
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    int saved = errno;
    ssize_t size = readlink(link, buffer, PATH_MAX - 1);
    errno = saved;
    if (size < 0) return NULL;
    buffer[size] = 0;
    return inside(buffer) ? buffer : NULL;
}

static int64_t inode_of(int fd) {
    struct stat found;
    return fstat(fd, &found) ? 0 : (int64_t)found.st_ino;
}

static int64_t inode_at(const char *path) {
    struct stat found;
    return lstat(path, &found) ? 0 : (int64_t)found.st_ino;
}

static void put(char kind, int64_t began, int64_t inode, int64_t offset, const char *one, const char *two,
                const struct iovec *parts, int count, size_t length) {
    int saved = errno;
    static int (*open_it)(const char *, int, ...);
    static ssize_t (*write_it)(int, const struct iovec *, int);
    if (!open_it) open_it = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, "open64");
    if (!write_it) write_it = (ssize_t(*)(int, const struct iovec *, int))dlsym(RTLD_NEXT, "writev");
    uint32_t sizes[3] = {one ? strlen(one) : 0, two ? strlen(two) : 0, length};
    int64_t numbers[4] = {began, now(), inode, offset};
    struct iovec whole[5 + 64] = {{&kind, 1}, {numbers, sizeof numbers}, {sizes, sizeof sizes},
                                  {(void *)one, sizes[0]}, {(void *)two, sizes[1]}};
    int used = 5;
    for (int i = 0; i < count && length && used < 69; i++) {
        whole[used] = parts[i];
        if (whole[used].iov_len > length) whole[used].iov_len = length;
        length -= whole[used++].iov_len;
    }
    int out = open_it(log_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (out < 0 || write_it(out, whole, used) < 0) abort();
    close(out);
    errno = saved;
}

static void put_path(char kind, int64_t began, int64_t inode, const char *one, const char *two) {
    put(kind, began, inode, 0, one, two, NULL, 0, 0);
}

/* --- opening ------------------------------------------------------------------------------------------------- */

static int opened(int fd, int flags, const char *path, int existed, int64_t began) {
    if (fd >= 0 && path) {
        if (!existed) put_path('C', began, inode_of(fd), path, NULL);
        else if (flags & O_TRUNC) put_path('T', began, inode_of(fd), path, NULL);
    }
    unlocked(path);
    return fd;
}

#define OPEN(name)                                                                                                     \
    int name(const char *path, int flags, ...) {                                                                       \
        REAL(int, #name, const char *, int, ...);                                                                      \
        va_list rest;                                                                                                  \
        va_start(rest, flags);                                                                                         \
        mode_t mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(rest, mode_t) : 0;                                      \
        va_end(rest);                                                                                                  \
        char buffer[PATH_MAX];                                                                                         \
        const char *known = flags & (O_CREAT | O_TRUNC) ? locked(full(AT_FDCWD, path, buffer)) : NULL;                 \
        int existed = known && inode_at(known) != 0;                                                                   \
        int64_t began = now();                                                                                         \
        return opened(real(path, flags, mode), flags, known, existed, began);                                          \
    }
#define OPENAT(name)                                                                                                   \
    int name(int folder, const char *path, int flags, ...) {                                                           \
        REAL(int, #name, int, const char *, int, ...);                                                                 \
        va_list rest;                                                                                                  \
        va_start(rest, flags);                                                                                         \
        mode_t mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(rest, mode_t) : 0;                                      \
        va_end(rest);                                                                                                  \
        char buffer[PATH_MAX];                                                                                         \
        const char *known = flags & (O_CREAT | O_TRUNC) ? locked(full(folder, path, buffer)) : NULL;                   \
        int existed = known && inode_at(known) != 0;                                                                   \
        int64_t began = now();                                                                                         \
        return opened(real(folder, path, flags, mode), flags, known, existed, began);                                  \
    }
OPEN(open)
OPEN(open64)
OPENAT(openat)
OPENAT(openat64)

/* --- writing ------------------------------------------------------------------------------------------------- */

static ssize_t wrote(const char *path, int fd, ssize_t done, int64_t began, off64_t offset, const struct iovec *parts,
                     int count) {
    if (path && done > 0) {
        if (offset < 0) offset = lseek64(fd, 0, SEEK_CUR) - done;
        put('W', began, inode_of(fd), offset, path, NULL, parts, count, done);
    }
    unlocked(path);
    return done;
}

ssize_t write(int fd, const void *data, size_t size) {
    REAL(ssize_t, "write", int, const void *, size_t);
    char buffer[PATH_MAX];
    const char *path = locked(of_fd(fd, buffer));
    int64_t began = now();
    struct iovec part = {(void *)data, size};
    return wrote(path, fd, real(fd, data, size), began, -1, &part, 1);
}

#define PWRITE(name)                                                                                                   \
    ssize_t name(int fd, const void *data, size_t size, off64_t offset) {                                              \
        REAL(ssize_t, #name, int, const void *, size_t, off64_t);                                                      \
        char buffer[PATH_MAX];                                                                                         \
        const char *path = locked(of_fd(fd, buffer));                                                                  \
        int64_t began = now();                                                                                         \
        struct iovec part = {(void *)data, size};                                                                      \
        return wrote(path, fd, real(fd, data, size, offset), began, offset, &part, 1);                                 \
    }
PWRITE(pwrite)
PWRITE(pwrite64)

ssize_t writev(int fd, const struct iovec *parts, int count) {
    REAL(ssize_t, "writev", int, const struct iovec *, int);
    char buffer[PATH_MAX];
    const char *path = locked(of_fd(fd, buffer));
    int64_t began = now();
    if (count > 64 && path) count = 64;
    return wrote(path, fd, real(fd, parts, count), began, -1, parts, count);
}

#define PWRITEV(name)                                                                                                  \
    ssize_t name(int fd, const struct iovec *parts, int count, off64_t offset) {                                       \
        REAL(ssize_t, #name, int, const struct iovec *, int, off64_t);                                                 \
        char buffer[PATH_MAX];                                                                                         \
        const char *path = locked(of_fd(fd, buffer));                                                                  \
        int64_t began = now();                                                                                         \
        if (count > 64 && path) count = 64;                                                                            \
        return wrote(path, fd, real(fd, parts, count, offset), began, offset, parts, count);                           \
    }
PWRITEV(pwritev)
PWRITEV(pwritev64)

static int refused(int out) {
    char buffer[PATH_MAX];
    if (!of_fd(out, buffer)) return 0;
    errno = EINVAL;
    return 1;
}

#define SENDFILE(name)                                                                                                 \
    ssize_t name(int out, int in, off64_t *offset, size_t count) {                                                     \
        REAL(ssize_t, #name, int, int, off64_t *, size_t);                                                             \
        return refused(out) ? -1 : real(out, in, offset, count);                                                       \
    }
SENDFILE(sendfile)
SENDFILE(sendfile64)

ssize_t copy_file_range(int in, off64_t *from, int out, off64_t *to, size_t count, unsigned flags) {
    REAL(ssize_t, "copy_file_range", int, off64_t *, int, off64_t *, size_t, unsigned);
    return refused(out) ? -1 : real(in, from, out, to, count, flags);
}

#define TRUNCATE(name)                                                                                                 \
    int name(int fd, off64_t size) {                                                                                   \
        REAL(int, #name, int, off64_t);                                                                                \
        char buffer[PATH_MAX];                                                                                         \
        const char *path = locked(of_fd(fd, buffer));                                                                  \
        int64_t began = now();                                                                                         \
        int done = real(fd, size);                                                                                     \
        if (path && !done) put('T', began, inode_of(fd), size, path, NULL, NULL, 0, 0);                                \
        unlocked(path);                                                                                                \
        return done;                                                                                                   \
    }
TRUNCATE(ftruncate)
TRUNCATE(ftruncate64)

#define ALLOCATE(name)                                                                                                 \
    int name(int fd, off64_t offset, off64_t size) {                                                                   \
        return EOPNOTSUPP;                                                                                             \
    }
ALLOCATE(posix_fallocate)
ALLOCATE(posix_fallocate64)

#define SYNC(name)                                                                                                     \
    int name(int fd) {                                                                                                 \
        REAL(int, #name, int);                                                                                         \
        char buffer[PATH_MAX];                                                                                         \
        const char *path = locked(of_fd(fd, buffer));                                                                  \
        int64_t began = now();                                                                                         \
        /* What is below the folder needs no disk: only the order counts. */                                           \
        int done = path ? 0 : real(fd);                                                                                \
        if (path) put_path('S', began, inode_of(fd), path, NULL);                                                      \
        unlocked(path);                                                                                                \
        return done;                                                                                                   \
    }
SYNC(fsync)
SYNC(fdatasync)

/* --- names --------------------------------------------------------------------------------------------------- */

/* `CALL` is made under the lock; then its record is appended, if it succeeded. */
#define NAMING(ONE, TWO, CALL, RECORD)                                                                                 \
    char one[PATH_MAX], two[PATH_MAX];                                                                                 \
    (void)two;                                                                                                         \
    const char *before = ONE, *after = TWO;                                                                            \
    const char *known = locked(before ? before : after);                                                               \
    int64_t began = now();                                                                                             \
    int done = CALL;                                                                                                   \
    if (known && !done) RECORD;                                                                                        \
    unlocked(known);                                                                                                   \
    return done

#define MADE(FOLDER, CALL) NAMING(full(FOLDER, path, one), NULL, CALL, put_path('M', began, inode_at(before), before, NULL))
#define GONE(KIND, FOLDER, CALL) NAMING(full(FOLDER, path, one), NULL, CALL, put_path(KIND, began, 0, before, NULL))
#define NAMED(KIND, FROM, TO, CALL)                                                                                    \
    NAMING(full(FROM, old, one), full(TO, new, two), CALL,                                                             \
           put_path(KIND, began, after ? inode_at(after) : 0, before, after))

int mkdir(const char *path, mode_t mode) {
    REAL(int, "mkdir", const char *, mode_t);
    MADE(AT_FDCWD, real(path, mode));
}

int mkdirat(int folder, const char *path, mode_t mode) {
    REAL(int, "mkdirat", int, const char *, mode_t);
    MADE(folder, real(folder, path, mode));
}

int rename(const char *old, const char *new) {
    REAL(int, "rename", const char *, const char *);
    NAMED('R', AT_FDCWD, AT_FDCWD, real(old, new));
}

int renameat(int from, const char *old, int to, const char *new) {
    REAL(int, "renameat", int, const char *, int, const char *);
    NAMED('R', from, to, real(from, old, to, new));
}

int renameat2(int from, const char *old, int to, const char *new, unsigned flags) {
    REAL(int, "renameat2", int, const char *, int, const char *, unsigned);
    NAMED('R', from, to, real(from, old, to, new, flags));
}

int link(const char *old, const char *new) {
    REAL(int, "link", const char *, const char *);
    NAMED('L', AT_FDCWD, AT_FDCWD, real(old, new));
}

int linkat(int from, const char *old, int to, const char *new, int flags) {
    REAL(int, "linkat", int, const char *, int, const char *, int);
    NAMED('L', from, to, real(from, old, to, new, flags));
}

int unlink(const char *path) {
    REAL(int, "unlink", const char *);
    GONE('U', AT_FDCWD, real(path));
}

int rmdir(const char *path) {
    REAL(int, "rmdir", const char *);
    GONE('D', AT_FDCWD, real(path));
}

int unlinkat(int folder, const char *path, int flags) {
    REAL(int, "unlinkat", int, const char *, int);
    GONE(flags & AT_REMOVEDIR ? 'D' : 'U', folder, real(folder, path, flags));
}

int remove(const char *path) {
    struct stat found;
    return !lstat(path, &found) && S_ISDIR(found.st_mode) ? rmdir(path) : unlink(path);
}
