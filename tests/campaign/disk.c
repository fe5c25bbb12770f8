/* A disk and a clock that fail on request, for all files in one directory.
 *
 * Preloaded into a process, it acts on what is opened below the directory STOMPKIT_DISK. What it
 * does is said by the numbers in the file STOMPKIT_DISK_CONTROL, which both sides map into their
 * memory; tests/campaign/disk.py has their names.
 *
 * With STOMPKIT_DISK_SHADOW it keeps in that directory what the disk would hold if the power failed
 * now. A write gets there when its file is synced, at once where the descriptor was opened to be
 * synchronous, and by chance before that, whole or in part, as the kernel may write back what it
 * likes when it likes. New files are there once they or their directory have been synced; what
 * was renamed or removed is, once anything has been by fsync. After a sync that has failed, what
 * it was to write never gets there: the kernel takes it for clean, and so did all of them.
 */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define MOST_DESCRIPTORS 65536
#define MOST_FILES 256
#define LONGEST 1024
/* One write in this many is written back, in whole or in part, before anybody asks for it. */
#define WRITTEN_BACK_EARLY 4
#define SECTOR 512
/* At the end of the name of what the disk does not know yet. */
#define NOT_YET ".not-yet"

/* Places of the numbers. */
enum {
    WRITE_ERROR,  /* errno of writes that fail; 0 for none */
    GROW_ERROR,   /* errno of writes beyond the end of a file; 0 for none */
    SYNC_ERROR,   /* errno of syncs that fail; 0 for none */
    SHORT_WRITES, /* whether writes write half */
    EVERY,        /* by chance one in so many is hit; 0 for all */
    SYNC_DELAY,   /* microseconds that a sync, or a synchronous write, takes longer */
    CLOCK,        /* seconds that the clock of the day is ahead */
    DIE_AFTER,    /* the process kills itself within the write of this number; 0 for none */
    WRITES,       /* how many writes there were */
    STRUCK,       /* how many operations were hit */
    NUMBERS
};

enum { OTHER, PLAIN, SYNCHRONOUS, DIRECTORY };
enum { DATA, TRUNCATE, EXTEND };

struct pending {
    struct pending *next;
    int what;
    off_t offset;
    size_t size;
    char data[];
};

struct file {
    char name[LONGEST]; /* relative to the directory, as the process knows it */
    int durable;        /* descriptor of what the disk holds */
    int is_new;         /* whether the disk does not know it yet */
    struct pending *first, **last;
};

/* A name that was changed, and the disk does not know; no new name where it was removed. */
struct renaming {
    struct renaming *next;
    struct file *file;
    char from[LONGEST], to[LONGEST];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned char kinds[MOST_DESCRIPTORS];
static struct file *files[MOST_DESCRIPTORS];
static struct file known[MOST_FILES];
static int known_files;
static struct renaming *renamed, **last_renamed = &renamed;
static const char *directory, *shadow;
static volatile int *numbers;
static unsigned int seed;

static void *real(const char *name)
{
    void *found = dlsym(RTLD_NEXT, name);
    if (!found)
        abort();
    return found;
}

#define REAL(type, name, ...)                                                                    \
    static type (*call)(__VA_ARGS__);                                                            \
    if (!call)                                                                                   \
    call = (type(*)(__VA_ARGS__))real(name)

static int real_open(const char *path, int flags, mode_t mode)
{
    REAL(int, "open64", const char *, int, ...);
    return call(path, flags, mode);
}

static int real_close(int fd)
{
    REAL(int, "close", int);
    return call(fd);
}

static ssize_t real_pwrite(int fd, const void *data, size_t size, off_t offset)
{
    REAL(ssize_t, "pwrite64", int, const void *, size_t, off64_t);
    return call(fd, data, size, offset);
}

static int real_truncate(int fd, off_t size)
{
    REAL(int, "ftruncate64", int, off64_t);
    return call(fd, size);
}

__attribute__((constructor)) static void begin(void)
{
    const char *control = getenv("STOMPKIT_DISK_CONTROL");
    directory = getenv("STOMPKIT_DISK");
    shadow = getenv("STOMPKIT_DISK_SHADOW");
    if (!control)
        return;
    seed = getpid();
    int fd = real_open(control, O_RDWR | O_CLOEXEC, 0);
    if (fd < 0)
        abort();
    void *memory = mmap(NULL, NUMBERS * sizeof(int), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED)
        abort();
    numbers = memory;
    real_close(fd);
}

static int number(int which)
{
    return numbers ? numbers[which] : 0;
}

/* The number, where it hits; or 0. It may be another one a moment later: who failed with the errno 0
 * would be taken for one that has done what it was to do. */
static int hit(int which)
{
    int found = number(which);
    if (!found)
        return 0;
    int every = number(EVERY);
    if (every > 1 && rand_r(&seed) % every)
        return 0;
    __sync_fetch_and_add(&numbers[STRUCK], 1);
    return found;
}

/* The same as an answer: with errno, where it hits. */
static int is_hit(int which)
{
    int found = hit(which);
    if (found)
        errno = found;
    return found != 0;
}

/* What the disk holds. All of it is called with the lock. */

static void put(int fd, const char *data, size_t size, off_t offset)
{
    while (size) {
        ssize_t n = real_pwrite(fd, data, size, offset);
        if (n < 0)
            abort();
        data += n, offset += n, size -= n;
    }
}

static void place(char *path, const char *name, int is_new)
{
    if (snprintf(path, 2 * LONGEST, "%s/%s%s", shadow, name, is_new ? NOT_YET : "") >= 2 * LONGEST)
        abort();
    /* The shadow is flat. */
    for (char *at = path + strlen(shadow) + 1; *at; at++)
        if (*at == '/')
            *at = '%';
}

static struct file *known_as(const char *name)
{
    for (int i = 0; i < known_files; i++)
        if (!strcmp(known[i].name, name))
            return &known[i];
    return NULL;
}

static void forget(struct file *file, int is_written);

/* A place for one more file: that of one which has neither a name nor anybody who has it open. */
static struct file *free_place(void)
{
    static char is_used[MOST_FILES];
    if (known_files < MOST_FILES)
        return &known[known_files++];
    memset(is_used, 0, sizeof is_used);
    for (int fd = 0; fd < MOST_DESCRIPTORS; fd++)
        if ((kinds[fd] == PLAIN || kinds[fd] == SYNCHRONOUS) && files[fd])
            is_used[files[fd] - known] = 1;
    for (struct renaming *each = renamed; each; each = each->next)
        if (each->file)
            is_used[each->file - known] = 1;
    for (int i = 0; i < MOST_FILES; i++)
        if (!is_used[i] && !strcmp(known[i].name, "\n")) {
            forget(&known[i], 0);
            if (known[i].durable >= 0)
                real_close(known[i].durable);
            return &known[i];
        }
    abort();
}

static struct file *know(const char *name, const char *path, int was_there)
{
    struct file *file = known_as(name);
    if (file)
        return file;
    if (strlen(name) >= LONGEST)
        abort();
    file = free_place();
    strcpy(file->name, name);
    file->first = NULL;
    file->last = &file->first;
    file->is_new = !was_there;
    file->durable = -1;
    if (!shadow)
        return file;
    char there[2 * LONGEST], block[65536];
    place(there, name, file->is_new);
    file->durable = real_open(there, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (file->durable < 0)
        abort();
    if (was_there) {
        int now = real_open(path, O_RDONLY | O_CLOEXEC, 0);
        off_t offset = 0;
        for (ssize_t n; now >= 0 && (n = read(now, block, sizeof block)) > 0; offset += n)
            put(file->durable, block, n, offset);
        if (now >= 0)
            real_close(now);
    }
    return file;
}

static void made(struct file *file)
{
    char from[2 * LONGEST], to[2 * LONGEST];
    if (!file->is_new)
        return;
    /* Under the name that the disk will know it by: a later one has to be synced. */
    const char *name = file->name;
    for (struct renaming *each = renamed; each; each = each->next)
        if (each->file == file) {
            name = each->from;
            break;
        }
    place(from, name, 1), place(to, name, 0);
    rename(from, to);
    file->is_new = 0;
}

static void carry_out(struct file *file, struct pending *done)
{
    struct stat now;
    if (done->what == DATA)
        put(file->durable, done->data, done->size, done->offset);
    else if (done->what == TRUNCATE || (!fstat(file->durable, &now) && now.st_size < done->offset))
        if (real_truncate(file->durable, done->offset))
            abort();
}

static void forget(struct file *file, int is_written)
{
    while (file->first) {
        struct pending *done = file->first;
        if (is_written)
            carry_out(file, done);
        file->first = done->next;
        free(done);
    }
    file->last = &file->first;
}

static void sync_names(void)
{
    while (renamed) {
        struct renaming *done = renamed;
        char from[2 * LONGEST], to[2 * LONGEST];
        int is_new = done->file && done->file->is_new;
        place(from, done->from, is_new);
        if (*done->to) {
            place(to, done->to, is_new);
            rename(from, to);
        } else {
            unlink(from);
        }
        renamed = done->next;
        free(done);
    }
    last_renamed = &renamed;
}

static void note(struct file *file, int what, const void *data, size_t size, off_t offset)
{
    struct pending *new = malloc(sizeof *new + (data ? size : 0));
    if (!new)
        abort();
    new->next = NULL, new->what = what, new->offset = offset, new->size = size;
    if (data)
        memcpy(new->data, data, size);
    *file->last = new, file->last = &new->next;
}

static void wrote(int fd, const void *data, ssize_t size, off_t offset)
{
    struct file *file = files[fd];
    if (size <= 0 || !shadow)
        return;
    pthread_mutex_lock(&lock);
    if (kinds[fd] == SYNCHRONOUS) {
        /* What was written to the place before must not come after it. */
        if (file->first)
            note(file, DATA, data, size, offset);
        put(file->durable, data, size, offset);
        made(file);
    } else {
        if (rand_r(&seed) % WRITTEN_BACK_EARLY == 0) {
            size_t sectors = size / SECTOR + 1;
            size_t part = (size_t)(rand_r(&seed) % (sectors + 1)) * SECTOR;
            put(file->durable, data, part < (size_t)size ? part : (size_t)size, offset);
        }
        note(file, DATA, data, size, offset);
    }
    pthread_mutex_unlock(&lock);
}

/* Files. */

static int is_ours(int fd)
{
    return fd >= 0 && fd < MOST_DESCRIPTORS && (kinds[fd] == PLAIN || kinds[fd] == SYNCHRONOUS);
}

static const char *below(const char *path)
{
    size_t length = directory ? strlen(directory) : 0;
    if (!length || strncmp(path, directory, length))
        return NULL;
    if (!path[length])
        return "";
    return path[length] == '/' ? path + length + 1 : NULL;
}

/* Locks are nobody's data. */
static int is_lock(const char *name)
{
    size_t length = strlen(name);
    return !strcmp(name, "lock") || (length >= 8 && !strcmp(name + length - 8, "lock.mdb"));
}

static int opened(int fd, const char *path, int flags, int was_there)
{
    if (fd < 0 || fd >= MOST_DESCRIPTORS)
        return fd;
    kinds[fd] = OTHER;
    const char *name = below(path);
    if (!name || is_lock(name))
        return fd;
    struct stat now;
    if (!*name || (!fstat(fd, &now) && S_ISDIR(now.st_mode))) {
        kinds[fd] = DIRECTORY;
        return fd;
    }
    if ((flags & O_ACCMODE) == O_RDONLY)
        return fd;
    pthread_mutex_lock(&lock);
    files[fd] = know(name, path, was_there);
    if (shadow && flags & O_TRUNC && was_there)
        note(files[fd], TRUNCATE, NULL, 0, 0);
    pthread_mutex_unlock(&lock);
    kinds[fd] = flags & O_DSYNC ? SYNCHRONOUS : PLAIN;
    return fd;
}

static int open_it(int (*call)(const char *, int, ...), const char *path, int flags, mode_t mode)
{
    int was_there = below(path) && access(path, F_OK) == 0;
    return opened(call(path, flags, mode), path, flags, was_there);
}

#define MODE(flags)                                                                              \
    mode_t mode = 0;                                                                             \
    if (flags & (O_CREAT | __O_TMPFILE)) {                                                       \
        va_list more;                                                                            \
        va_start(more, flags);                                                                   \
        mode = va_arg(more, mode_t);                                                             \
        va_end(more);                                                                            \
    }

#define OPEN(name)                                                                               \
    int name(const char *path, int flags, ...)                                                   \
    {                                                                                            \
        REAL(int, #name, const char *, int, ...);                                                \
        MODE(flags)                                                                              \
        return open_it(call, path, flags, mode);                                                 \
    }

OPEN(open)
OPEN(open64)

#define OPENAT(name)                                                                             \
    int name(int where, const char *path, int flags, ...)                                        \
    {                                                                                            \
        REAL(int, #name, int, const char *, int, ...);                                           \
        MODE(flags)                                                                              \
        int was_there = below(path) && access(path, F_OK) == 0;                                  \
        return opened(call(where, path, flags, mode), path, flags, was_there);                   \
    }

OPENAT(openat)
OPENAT(openat64)

int close(int fd)
{
    if (fd >= 0 && fd < MOST_DESCRIPTORS)
        kinds[fd] = OTHER;
    return real_close(fd);
}

static void renamed_to(const char *from, const char *to)
{
    const char *old = below(from), *new = to ? below(to) : "";
    if (!shadow || !old || !new || is_lock(old))
        return;
    pthread_mutex_lock(&lock);
    struct file *file = known_as(old), *other = to ? known_as(new) : NULL;
    struct renaming *change = calloc(1, sizeof *change);
    if (!change || strlen(old) >= LONGEST || strlen(new) >= LONGEST)
        abort();
    change->file = file;
    strcpy(change->from, old), strcpy(change->to, new);
    *last_renamed = change, last_renamed = &change->next;
    /* Who has the one that was there open goes on with it; it has no name any more. */
    if (other)
        strcpy(other->name, "\n");
    if (file)
        strcpy(file->name, to ? new : "\n");
    pthread_mutex_unlock(&lock);
}

int rename(const char *from, const char *to)
{
    REAL(int, "rename", const char *, const char *);
    int failed = call(from, to);
    if (!failed)
        renamed_to(from, to);
    return failed;
}

int unlink(const char *path)
{
    REAL(int, "unlink", const char *);
    int failed = call(path);
    if (!failed)
        renamed_to(path, NULL);
    return failed;
}

#define TRUNCATE_IT(name, type)                                                                  \
    int name(int fd, type size)                                                                  \
    {                                                                                            \
        if (is_ours(fd) && is_hit(WRITE_ERROR))                                                  \
            return -1;                                                                           \
        int failed = real_truncate(fd, size);                                                    \
        if (!failed && is_ours(fd) && shadow) {                                                  \
            pthread_mutex_lock(&lock);                                                           \
            note(files[fd], TRUNCATE, NULL, 0, size);                                            \
            pthread_mutex_unlock(&lock);                                                         \
        }                                                                                        \
        return failed;                                                                           \
    }

TRUNCATE_IT(ftruncate, off_t)
TRUNCATE_IT(ftruncate64, off64_t)

static int would_grow(int fd, off_t end)
{
    struct stat now;
    return !fstat(fd, &now) && now.st_size < end;
}

/* Room that is made ahead; gives an errno. */
static int make_room(int fd, off_t offset, off_t size)
{
    static int (*call)(int, off64_t, off64_t);
    if (!call)
        call = real("posix_fallocate64");
    int failed = is_ours(fd) && would_grow(fd, offset + size) ? hit(GROW_ERROR) : 0;
    if (failed)
        return failed;
    failed = call(fd, offset, size);
    if (!failed && is_ours(fd) && shadow) {
        pthread_mutex_lock(&lock);
        note(files[fd], EXTEND, NULL, 0, offset + size);
        pthread_mutex_unlock(&lock);
    }
    return failed;
}

int posix_fallocate(int fd, off_t offset, off_t size)
{
    return make_room(fd, offset, size);
}

int posix_fallocate64(int fd, off64_t offset, off64_t size)
{
    return make_room(fd, offset, size);
}

static void delay(void)
{
    if (number(SYNC_DELAY))
        usleep(number(SYNC_DELAY));
}

/* One write. Everything that writes comes here, so that all of it can fail in the same ways. */
static ssize_t write_it(int fd, const void *data, size_t size, off_t offset)
{
    int count = numbers ? __sync_add_and_fetch(&numbers[WRITES], 1) : 0;
    if (number(DIE_AFTER) && count >= number(DIE_AFTER)) {
        size_t half = size / 2;
        wrote(fd, data, real_pwrite(fd, data, half, offset), offset);
        numbers[DIE_AFTER] = 0;
        kill(getpid(), SIGKILL);
    }
    if (is_hit(WRITE_ERROR))
        return -1;
    if (number(GROW_ERROR) && would_grow(fd, offset + size) && is_hit(GROW_ERROR))
        return -1;
    if (size > 1 && is_hit(SHORT_WRITES))
        size /= 2;
    if (kinds[fd] == SYNCHRONOUS) {
        delay();
        int failed = hit(SYNC_ERROR);
        if (failed) {
            /* The kernel keeps it, and whoever reads gets it. The disk may have some of it. */
            real_pwrite(fd, data, size, offset);
            if (rand_r(&seed) % 2)
                wrote(fd, data, size / 2, offset);
            errno = failed;
            return -1;
        }
    }
    ssize_t n = real_pwrite(fd, data, size, offset);
    wrote(fd, data, n, offset);
    return n;
}

#define PWRITE(name)                                                                             \
    ssize_t name(int fd, const void *data, size_t size, off_t offset)                            \
    {                                                                                            \
        return is_ours(fd) ? write_it(fd, data, size, offset)                                    \
                           : real_pwrite(fd, data, size, offset);                                \
    }

PWRITE(pwrite)
PWRITE(pwrite64)

static off_t where(int fd)
{
    return fcntl(fd, F_GETFL) & O_APPEND ? lseek(fd, 0, SEEK_END) : lseek(fd, 0, SEEK_CUR);
}

static ssize_t moved(int fd, off_t offset, ssize_t n)
{
    if (n > 0)
        lseek(fd, offset + n, SEEK_SET);
    return n;
}

ssize_t write(int fd, const void *data, size_t size)
{
    REAL(ssize_t, "write", int, const void *, size_t);
    if (!is_ours(fd))
        return call(fd, data, size);
    off_t offset = where(fd);
    /* Linux appends what pwrite() writes to a descriptor of that kind: the offset is right. */
    return moved(fd, offset, write_it(fd, data, size, offset));
}

static ssize_t write_parts(int fd, const struct iovec *parts, int count, off_t offset)
{
    size_t size = 0, at = 0;
    for (int i = 0; i < count; i++)
        size += parts[i].iov_len;
    char *data = malloc(size ? size : 1);
    if (!data)
        abort();
    for (int i = 0; i < count; at += parts[i++].iov_len)
        memcpy(data + at, parts[i].iov_base, parts[i].iov_len);
    ssize_t n = write_it(fd, data, size, offset);
    int problem = errno;
    free(data);
    errno = problem;
    return n;
}

ssize_t writev(int fd, const struct iovec *parts, int count)
{
    REAL(ssize_t, "writev", int, const struct iovec *, int);
    if (!is_ours(fd))
        return call(fd, parts, count);
    off_t offset = where(fd);
    return moved(fd, offset, write_parts(fd, parts, count, offset));
}

#define PWRITEV(name)                                                                            \
    ssize_t name(int fd, const struct iovec *parts, int count, off_t offset)                     \
    {                                                                                            \
        REAL(ssize_t, #name, int, const struct iovec *, int, off_t);                             \
        return is_ours(fd) ? write_parts(fd, parts, count, offset)                               \
                           : call(fd, parts, count, offset);                                     \
    }

PWRITEV(pwritev)
PWRITEV(pwritev64)

static int sync_it(int (*call)(int), int fd, int has_names)
{
    int kind = fd >= 0 && fd < MOST_DESCRIPTORS ? kinds[fd] : OTHER;
    if (kind == OTHER)
        return call(fd);
    delay();
    int failed = hit(SYNC_ERROR);
    if (failed) {
        pthread_mutex_lock(&lock);
        if (kind != DIRECTORY && shadow)
            forget(files[fd], 0);
        pthread_mutex_unlock(&lock);
        errno = failed;
        return -1;
    }
    failed = call(fd);
    if (failed || !shadow)
        return failed;
    pthread_mutex_lock(&lock);
    if (kind == DIRECTORY) {
        for (int i = 0; i < known_files; i++)
            made(&known[i]);
    } else {
        forget(files[fd], 1);
        made(files[fd]);
    }
    if (has_names)
        sync_names();
    pthread_mutex_unlock(&lock);
    return 0;
}

int fsync(int fd)
{
    REAL(int, "fsync", int);
    return sync_it(call, fd, 1);
}

int fdatasync(int fd)
{
    REAL(int, "fdatasync", int);
    return sync_it(call, fd, 0);
}

/* The clock of the day. */

int clock_gettime(clockid_t clock, struct timespec *now)
{
    REAL(int, "clock_gettime", clockid_t, struct timespec *);
    int failed = call(clock, now);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        now->tv_sec += number(CLOCK);
    return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    REAL(int, "gettimeofday", struct timeval *, void *);
    int failed = call(now, zone);
    if (!failed)
        now->tv_sec += number(CLOCK);
    return failed;
}

time_t time(time_t *into)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (into)
        *into = now.tv_sec;
    return now.tv_sec;
}
