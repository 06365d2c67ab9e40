/* Delays each fsync by the number of milliseconds in the file $SLOW_DISK. A new number also applies
 * to an fsync that already waits. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static long milliseconds(void) {
    long value = 0;
    FILE *file = fopen(getenv("SLOW_DISK"), "r");
    if (file != NULL) {
        if (fscanf(file, "%ld", &value) != 1) {
            value = 0;
        }
        fclose(file);
    }
    return value;
}

int fsync(int fd) {
    int (*real_fsync)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    for (long waited_ms = 0; waited_ms < milliseconds(); waited_ms += 10) {
        usleep(10000);
    }
    return real_fsync(fd);
}
