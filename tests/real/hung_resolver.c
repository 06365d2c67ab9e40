/* A resolver that answers nothing for a minute, for every name of .invalid: loaded before libc, see outages.rs. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints, struct addrinfo **found) {
    if (node && strstr(node, ".invalid")) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        FILE *asked = fopen(getenv("ASKED"), "a");
        if (asked) {
            fprintf(asked, "%s %lld\n", node, (long long)now.tv_sec * 1000 + now.tv_nsec / 1000000);
            fclose(asked);
        }
        sleep(60);
        return EAI_AGAIN;
    }
    int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **) =
        (int (*)(const char *, const char *, const struct addrinfo *, struct addrinfo **))dlsym(RTLD_NEXT, "getaddrinfo");
    return real(node, service, hints, found);
}
