/* Power loss for one file: what was written and not synced may be gone.
 *
 * Preloaded into a process, it keeps a second file beside the one that STOMPKIT_POWER_FILE names,
 * with ".durable" at its end: what the disk would hold if the power failed now. A write reaches
 * that file when the process syncs, at once where the descriptor was opened to be synchronous,
 * and by chance before that, as the kernel may write back what it likes when it likes.
 */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#define MOST_DESCRIPTORS 4096
/* One write in this many is written back before anybody asks for it. */
#define WRITTEN_BACK_EARLY 4

enum { OTHER, PLAIN, SYNCHRONOUS };

struct pending {
    struct pending *next;
    off_t offset;
    size_t size;
    char data[];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char kinds[MOST_DESCRIPTORS];
static struct pending *first, **last = &first;
static int durable = -1;
static unsigned int seed;

static void *real(const char *name)
{
    return dlsym(RTLD_NEXT, name);
}

static ssize_t put(int fd, const void *data, size_t size, off_t offset)
{
    static ssize_t (*call)(int, const void *, size_t, off_t);
    if (!call)
        call = real("pwrite64");
    const char *at = data;
    size_t left = size;
    while (left) {
        ssize_t n = call(fd, at, left, offset);
        if (n < 0)
            abort();
        at += n, offset += n, left -= n;
    }
    return size;
}

static void begin(const char *path)
{
    static int (*open_it)(const char *, int, ...);
    char name[4096], block[65536];
    open_it = real("open64");
    strncpy(name, path, sizeof name - 16);
    name[sizeof name - 17] = 0;
    strcat(name, ".durable");
    durable = open_it(name, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    int now = open_it(path, O_RDONLY | O_CLOEXEC);
    if (durable < 0 || now < 0)
        abort();
    off_t offset = 0;
    for (ssize_t n; (n = read(now, block, sizeof block)) > 0; offset += n)
        put(durable, block, n, offset);
    close(now);
    seed = getpid();
}

static int note(int fd, const char *path, int flags)
{
    const char *wanted = getenv("STOMPKIT_POWER_FILE");
    if (fd < 0 || fd >= MOST_DESCRIPTORS)
        return fd;
    kinds[fd] = OTHER;
    if (!wanted || strcmp(path, wanted))
        return fd;
    kinds[fd] = flags & O_DSYNC ? SYNCHRONOUS : PLAIN;
    pthread_mutex_lock(&lock);
    if (durable < 0)
        begin(path);
    pthread_mutex_unlock(&lock);
    return fd;
}

static void wrote(int fd, const void *data, ssize_t size, off_t offset)
{
    if (size <= 0 || fd < 0 || fd >= MOST_DESCRIPTORS || kinds[fd] == OTHER)
        return;
    pthread_mutex_lock(&lock);
    if (kinds[fd] == SYNCHRONOUS || rand_r(&seed) % WRITTEN_BACK_EARLY == 0)
        put(durable, data, size, offset);
    if (kinds[fd] == PLAIN) {
        /* Kept all the same: an earlier write to the place must not come after it. */
        struct pending *new = malloc(sizeof *new + size);
        if (!new)
            abort();
        new->next = NULL, new->offset = offset, new->size = size;
        memcpy(new->data, data, size);
        *last = new, last = &new->next;
    }
    pthread_mutex_unlock(&lock);
}

static void synced(int fd)
{
    if (fd < 0 || fd >= MOST_DESCRIPTORS || kinds[fd] == OTHER)
        return;
    pthread_mutex_lock(&lock);
    while (first) {
        struct pending *done = first;
        put(durable, done->data, done->size, done->offset);
        first = done->next;
        free(done);
    }
    last = &first;
    pthread_mutex_unlock(&lock);
}

#define OPEN(name)                                                                               \
    int name(const char *path, int flags, ...)                                                   \
    {                                                                                            \
        static int (*call)(const char *, int, ...);                                              \
        mode_t mode = 0;                                                                         \
        if (flags & (O_CREAT | __O_TMPFILE)) {                                                   \
            va_list more;                                                                        \
            va_start(more, flags);                                                               \
            mode = va_arg(more, mode_t);                                                         \
            va_end(more);                                                                        \
        }                                                                                        \
        if (!call)                                                                               \
            call = real(#name);                                                                  \
        return note(call(path, flags, mode), path, flags);                                       \
    }

OPEN(open)
OPEN(open64)

#define PWRITE(name)                                                                             \
    ssize_t name(int fd, const void *data, size_t size, off_t offset)                            \
    {                                                                                            \
        static ssize_t (*call)(int, const void *, size_t, off_t);                                \
        if (!call)                                                                               \
            call = real(#name);                                                                  \
        ssize_t n = call(fd, data, size, offset);                                                \
        wrote(fd, data, n, offset);                                                              \
        return n;                                                                                \
    }

PWRITE(pwrite)
PWRITE(pwrite64)

ssize_t write(int fd, const void *data, size_t size)
{
    static ssize_t (*call)(int, const void *, size_t);
    if (!call)
        call = real("write");
    int ours = fd >= 0 && fd < MOST_DESCRIPTORS && kinds[fd] != OTHER;
    off_t offset = ours ? lseek(fd, 0, SEEK_CUR) : 0;
    ssize_t n = call(fd, data, size);
    if (ours)
        wrote(fd, data, n, offset);
    return n;
}

static void wrote_all(int fd, const struct iovec *parts, int count, ssize_t n, off_t offset)
{
    for (int i = 0; i < count && n > 0; i++) {
        ssize_t size = (ssize_t)parts[i].iov_len < n ? (ssize_t)parts[i].iov_len : n;
        wrote(fd, parts[i].iov_base, size, offset);
        offset += size, n -= size;
    }
}

#define PWRITEV(name)                                                                            \
    ssize_t name(int fd, const struct iovec *parts, int count, off_t offset)                     \
    {                                                                                            \
        static ssize_t (*call)(int, const struct iovec *, int, off_t);                           \
        if (!call)                                                                               \
            call = real(#name);                                                                  \
        ssize_t n = call(fd, parts, count, offset);                                              \
        wrote_all(fd, parts, count, n, offset);                                                  \
        return n;                                                                                \
    }

PWRITEV(pwritev)
PWRITEV(pwritev64)

ssize_t writev(int fd, const struct iovec *parts, int count)
{
    static ssize_t (*call)(int, const struct iovec *, int);
    if (!call)
        call = real("writev");
    int ours = fd >= 0 && fd < MOST_DESCRIPTORS && kinds[fd] != OTHER;
    off_t offset = ours ? lseek(fd, 0, SEEK_CUR) : 0;
    ssize_t n = call(fd, parts, count);
    if (ours)
        wrote_all(fd, parts, count, n, offset);
    return n;
}

#define SYNC(name)                                                                               \
    int name(int fd)                                                                             \
    {                                                                                            \
        static int (*call)(int);                                                                 \
        if (!call)                                                                               \
            call = real(#name);                                                                  \
        int failed = call(fd);                                                                   \
        if (!failed)                                                                             \
            synced(fd);                                                                          \
        return failed;                                                                           \
    }

SYNC(fsync)
SYNC(fdatasync)

int close(int fd)
{
    static int (*call)(int);
    if (!call)
        call = real("close");
    if (fd >= 0 && fd < MOST_DESCRIPTORS)
        kinds[fd] = OTHER;
    return call(fd);
}
