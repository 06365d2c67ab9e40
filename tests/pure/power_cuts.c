/* Logs the program's file operations below $DISK_ROOT, in order, to the file $DISK_LOG.
   power_cuts.rs preloads this library. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static int is_below_root(const char *path) {
    const char *root = getenv("DISK_ROOT");
    return root != NULL && strncmp(path, root, strlen(root)) == 0;
}

static void record(const char *operation, const char *path, const char *data, size_t length) {
    FILE *log = fopen(getenv("DISK_LOG"), "a");
    fprintf(log, "%s %s ", operation, path);
    for (size_t at = 0; at < length; at++) {
        fprintf(log, "%02x", (unsigned char)data[at]);
    }
    fprintf(log, "\n");
    fclose(log);
}

/* Writes the path of an open file to `path`; returns whether it is below $DISK_ROOT. */
static int path_of(int fd, char *path, size_t size) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, size - 1);
    path[length > 0 ? length : 0] = 0;
    return is_below_root(path);
}

int open64(const char *path, int flags, ...) {
    va_list more;
    va_start(more, flags);
    mode_t mode = flags & O_CREAT ? va_arg(more, mode_t) : 0;
    va_end(more);
    if ((flags & O_CREAT) && is_below_root(path) && access(path, F_OK) != 0) {
        record("create", path, "", 0);
    }
    return REAL(open64)(path, flags, mode);
}

int mkdir(const char *path, mode_t mode) {
    int result = REAL(mkdir)(path, mode);
    if (result == 0 && is_below_root(path)) {
        record("mkdir", path, "", 0);
    }
    return result;
}

ssize_t write(int fd, const void *bytes, size_t length) {
    char path[4096];
    if (path_of(fd, path, sizeof path)) {
        record("write", path, bytes, length);
    }
    return REAL(write)(fd, bytes, length);
}

int fsync(int fd) {
    char path[4096];
    if (path_of(fd, path, sizeof path)) {
        record("fsync", path, "", 0);
    }
    return REAL(fsync)(fd);
}

int rename(const char *from, const char *to) {
    if (is_below_root(from)) {
        record("rename", from, to, strlen(to));
    }
    return REAL(rename)(from, to);
}

int unlink(const char *path) {
    if (is_below_root(path)) {
        record("unlink", path, "", 0);
    }
    return REAL(unlink)(path);
}
