/* Makes calls of the C library fail: preloaded, it counts those of some kinds and fails the one that is asked for.
 *
 * `faults_arm` says which, or the environment variable OPSMITH_FAULTS="KINDS AT ONCE ERROR FROM ONLY" when the process starts;
 * processes that it starts do not get the variable. Nothing fails that is not asked for. `failing_calls.py` uses it.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum kind {
    ALLOCATE = 1, MAP = 2, OPEN = 4, READ = 8, WRITE = 16, SYNC = 32, RENAME = 64, CLOSE = 128, FOLDER = 256, MODE = 512,
    LOCK = 1024, REMOVE = 2048, THREAD = 4096, LIBRARY = 8192, SYMBOL = 16384, STATUS = 32768, RESIZE = 65536
};

static atomic_int kinds;
static atomic_long calls;
static long at, once;
static int error;
static size_t from;
static char only[512];

/* From now on: of the calls of these kinds, the one that is the `number`th, and unless `only_that` all later ones. Of files only
 * those in the folder `where`; of memory, of `size` bytes at least, of threads, libraries and symbols only what a shared object asks
 * for that has `where` in its path, or what has it in its own name. */
void faults_arm(int which, long number, int only_that, int code, size_t size, const char *where) {
    at = number, once = only_that, error = code, from = size;
    strncpy(only, where, sizeof only - 1);
    atomic_store(&calls, 0);
    atomic_store(&kinds, which);
}

/* Nothing fails any more; how many calls there were. */
long faults_disarm(void) {
    atomic_store(&kinds, 0);
    return atomic_load(&calls);
}

__attribute__((constructor)) static void start(void) {
    const char *told = getenv("OPSMITH_FAULTS");
    int which, only_that, code;
    long number;
    size_t size;
    char where[512] = "";
    if (told && sscanf(told, "%d %ld %d %d %zu %511s", &which, &number, &only_that, &code, &size, where) >= 5) {
        unsetenv("OPSMITH_FAULTS");
        faults_arm(which, number, only_that, code, size, where);
    }
}

static int due(void) {
    long number = 1 + atomic_fetch_add(&calls, 1);
    if (number == at || (!once && number > at)) {
        errno = error;
        return 1;
    }
    return 0;
}

static int is_on(enum kind kind) { return atomic_load_explicit(&kinds, memory_order_relaxed) & kind; }
static int path_fails(enum kind kind, const char *path) {
    return is_on(kind) && path && strncmp(path, only, strlen(only)) == 0 && due();
}
static int file_fails(enum kind kind, int file) {
    char link[64], path[1024];
    if (!is_on(kind)) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    long length = syscall(SYS_readlinkat, AT_FDCWD, link, path, sizeof path - 1);
    path[length > 0 ? length : 0] = 0;
    return path_fails(kind, path);
}
/* Whether the shared object that calls is the one that is meant. */
static int is_of(const void *caller) {
    Dl_info info;
    return !*only || (dladdr(caller, &info) && info.dli_fname && strstr(info.dli_fname, only));
}
static int memory_fails(enum kind kind, size_t size, const void *caller) {
    return is_on(kind) && size >= from && is_of(caller) && due();
}
static int name_fails(enum kind kind, const char *name, const void *caller) {
    return is_on(kind) && name && (strstr(name, only) || is_of(caller)) && due();
}
#define CALLER __builtin_return_address(0)

/* Memory */
extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);
void *malloc(size_t size) { return memory_fails(ALLOCATE, size, CALLER) ? NULL : __libc_malloc(size); }
void *calloc(size_t count, size_t size) {
    return memory_fails(ALLOCATE, count * size, CALLER) ? NULL : __libc_calloc(count, size);
}
void *realloc(void *old, size_t size) {
    return memory_fails(ALLOCATE, size, CALLER) ? NULL : __libc_realloc(old, size);
}
void *memalign(size_t align, size_t size) {
    return memory_fails(ALLOCATE, size, CALLER) ? NULL : __libc_memalign(align, size);
}
void *aligned_alloc(size_t align, size_t size) {
    return memory_fails(ALLOCATE, size, CALLER) ? NULL : __libc_memalign(align, size);
}
int posix_memalign(void **out, size_t align, size_t size) {
    void *made = memory_fails(ALLOCATE, size, CALLER) ? NULL : __libc_memalign(align, size);
    if (!made) return ENOMEM;
    *out = made;
    return 0;
}
void *mmap(void *place, size_t size, int access, int flags, int file, off_t offset) {
    if (memory_fails(MAP, size, CALLER)) return MAP_FAILED;
    return (void *)syscall(SYS_mmap, place, size, access, flags, file, offset);
}
void *mmap64(void *place, size_t size, int access, int flags, int file, off_t offset) {
    if (memory_fails(MAP, size, CALLER)) return MAP_FAILED;
    return (void *)syscall(SYS_mmap, place, size, access, flags, file, offset);
}
int mprotect(void *place, size_t size, int access) {
    return memory_fails(MAP, size, CALLER) ? -1 : (int)syscall(SYS_mprotect, place, size, access);
}

/* Files */
int openat(int folder, const char *path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    int mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, int) : 0;
    va_end(rest);
    return path_fails(OPEN, path) ? -1 : (int)syscall(SYS_openat, folder, path, flags, mode);
}
int open(const char *path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    int mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, int) : 0;
    va_end(rest);
    return openat(AT_FDCWD, path, flags, mode);
}
int open64(const char *path, int flags, ...) __attribute__((alias("open")));
int openat64(int folder, const char *path, int flags, ...) __attribute__((alias("openat")));
ssize_t read(int file, void *to, size_t size) {
    return file_fails(READ, file) ? -1 : syscall(SYS_read, file, to, size);
}
ssize_t pread(int file, void *to, size_t size, off_t place) {
    return file_fails(READ, file) ? -1 : syscall(SYS_pread64, file, to, size, place);
}
ssize_t pread64(int file, void *to, size_t size, off_t place) { return pread(file, to, size, place); }
ssize_t write(int file, const void *bytes, size_t size) {
    if (file_fails(WRITE, file)) {
        /* A disk that has become full has taken what it had room for. */
        if (once || atomic_load(&calls) > at || size < 2) return -1;
        size /= 2;
    }
    return syscall(SYS_write, file, bytes, size);
}
ssize_t writev(int file, const struct iovec *parts, int count) {
    return file_fails(WRITE, file) ? -1 : syscall(SYS_writev, file, parts, count);
}
int fsync(int file) { return file_fails(SYNC, file) ? -1 : (int)syscall(SYS_fsync, file); }
int fdatasync(int file) { return file_fails(SYNC, file) ? -1 : (int)syscall(SYS_fdatasync, file); }
int renameat2(int a, const char *old, int b, const char *new, unsigned flags) {
    return path_fails(RENAME, new) ? -1 : (int)syscall(SYS_renameat2, a, old, b, new, flags);
}
int renameat(int a, const char *old, int b, const char *new) { return renameat2(a, old, b, new, 0); }
int rename(const char *old, const char *new) { return renameat2(AT_FDCWD, old, AT_FDCWD, new, 0); }
int close(int file) {
    int fails = file_fails(CLOSE, file), done = (int)syscall(SYS_close, file);
    if (fails) errno = error;
    return fails ? -1 : done;
}
int mkdirat(int folder, const char *path, mode_t mode) {
    return path_fails(FOLDER, path) ? -1 : (int)syscall(SYS_mkdirat, folder, path, mode);
}
int mkdir(const char *path, mode_t mode) { return mkdirat(AT_FDCWD, path, mode); }
int fchmodat(int folder, const char *path, mode_t mode, int flags) {
    (void)flags;
    return path_fails(MODE, path) ? -1 : (int)syscall(SYS_fchmodat, folder, path, mode);
}
int chmod(const char *path, mode_t mode) { return fchmodat(AT_FDCWD, path, mode, 0); }
int fchmod(int file, mode_t mode) { return file_fails(MODE, file) ? -1 : (int)syscall(SYS_fchmod, file, mode); }
int flock(int file, int how) { return file_fails(LOCK, file) ? -1 : (int)syscall(SYS_flock, file, how); }
int unlinkat(int folder, const char *path, int flags) {
    return path_fails(REMOVE, path) ? -1 : (int)syscall(SYS_unlinkat, folder, path, flags);
}
int unlink(const char *path) { return unlinkat(AT_FDCWD, path, 0); }
int rmdir(const char *path) { return unlinkat(AT_FDCWD, path, AT_REMOVEDIR); }
int ftruncate(int file, off_t size) { return file_fails(RESIZE, file) ? -1 : (int)syscall(SYS_ftruncate, file, size); }
int ftruncate64(int file, off_t size) { return ftruncate(file, size); }
int statx(int folder, const char *restrict path, int flags, unsigned mask, struct statx *restrict to) {
    /* Rust asks with no path whether there is this call at all, which the header forbids. */
    const char *volatile given = path;
    int fails = given && *given ? path_fails(STATUS, path) : file_fails(STATUS, folder);
    return fails ? -1 : (int)syscall(SYS_statx, folder, path, flags, mask, to);
}
int fstatat(int folder, const char *restrict path, struct stat *restrict to, int flags) {
    return path_fails(STATUS, path) ? -1 : (int)syscall(SYS_newfstatat, folder, path, to, flags);
}
int fstat(int file, struct stat *to) {
    return file_fails(STATUS, file) ? -1 : (int)syscall(SYS_newfstatat, file, "", to, AT_EMPTY_PATH);
}
int stat(const char *restrict path, struct stat *restrict to) { return fstatat(AT_FDCWD, path, to, 0); }
int lstat(const char *restrict path, struct stat *restrict to) {
    return fstatat(AT_FDCWD, path, to, AT_SYMLINK_NOFOLLOW);
}
int fstatat64(int folder, const char *restrict path, struct stat64 *restrict to, int flags) {
    return fstatat(folder, path, (struct stat *)to, flags);
}
int fstat64(int file, struct stat64 *to) { return fstat(file, (struct stat *)to); }
int stat64(const char *restrict path, struct stat64 *restrict to) { return stat(path, (struct stat *)to); }
int lstat64(const char *restrict path, struct stat64 *restrict to) { return lstat(path, (struct stat *)to); }

/* Threads and libraries */
static void *next(const char *name) {
    static void *(*real)(void *, const char *);
    if (!real) {
        static const char *const versions[] = {"GLIBC_2.34", "GLIBC_2.2.5", "GLIBC_2.17"};
        for (int i = 0; !real && i < 3; i++) *(void **)&real = dlvsym(RTLD_NEXT, "dlsym", versions[i]);
    }
    return strcmp(name, "dlsym") ? real(RTLD_NEXT, name) : (void *)real;
}
int pthread_create(pthread_t *thread, const pthread_attr_t *how, void *(*body)(void *), void *with) {
    static int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    if (is_on(THREAD) && is_of(CALLER) && due()) return error;
    if (!real) *(void **)&real = next("pthread_create");
    return real(thread, how, body, with);
}
void *dlopen(const char *name, int how) {
    static void *(*real)(const char *, int);
    if (!real) *(void **)&real = next("dlopen");
    return real(name_fails(LIBRARY, name, CALLER) ? "/made/to/fail" : name, how);
}
void *dlsym(void *restrict library, const char *restrict name) {
    static void *(*real)(void *, const char *);
    if (!real) *(void **)&real = next("dlsym");
    return real(library, name_fails(SYMBOL, name, CALLER) ? "made_to_fail" : name);
}
