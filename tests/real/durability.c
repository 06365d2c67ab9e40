/* Logs the program's fsync and rename calls and its PUBACKs, in order, to the file that the
   variable DURABILITY_LOG names. durability.rs preloads this library. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static void record(const char *operation, const char *path) {
    char line[8192];
    int length = snprintf(line, sizeof line, "%s %s\n", operation, path);
    int log = open(getenv("DURABILITY_LOG"), O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (log >= 0 && length > 0 && write(log, line, (size_t)length) == length) {
        close(log);
    }
}

int fsync(int fd) {
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    int result = real(fd);
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    path[length > 0 ? length : 0] = 0;
    record(result == 0 ? "fsync" : "failed-fsync", path);
    return result;
}

int rename(const char *from, const char *to) {
    int (*real)(const char *, const char *) =
        (int (*)(const char *, const char *))dlsym(RTLD_NEXT, "rename");
    record("rename", from);
    return real(from, to);
}

ssize_t send(int fd, const void *bytes, size_t length, int flags) {
    ssize_t (*real)(int, const void *, size_t, int) =
        (ssize_t(*)(int, const void *, size_t, int))dlsym(RTLD_NEXT, "send");
    /* The fixed header of a PUBACK without a reason code: type 4, remaining length 2. */
    if (length >= 4 && memcmp(bytes, "\x40\x02", 2) == 0) {
        record("puback", "");
    }
    return real(fd, bytes, length, flags);
}
