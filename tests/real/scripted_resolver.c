/* Looks up names in .invalid. `late.invalid` fails at the first lookup, and is 127.0.0.1 from then
   on; any other name fails after a minute. Appends a line for each lookup to the file that the
   variable RESOLVER_LOG names. outages.rs and peers.rs preload this library. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef int look_up(const char *, const char *, const struct addrinfo *, struct addrinfo **);

int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
                struct addrinfo **found) {
    if (node && strstr(node, ".invalid")) {
        int is_first = access(getenv("RESOLVER_LOG"), F_OK) != 0;
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        FILE *lookups = fopen(getenv("RESOLVER_LOG"), "a");
        if (lookups) {
            long long now_ms = (long long)now.tv_sec * 1000 + now.tv_nsec / 1000000;
            fprintf(lookups, "%s %lld\n", node, now_ms);
            fclose(lookups);
        }
        if (strcmp(node, "late.invalid") != 0) {
            sleep(60);
            return EAI_AGAIN;
        }
        if (is_first) return EAI_AGAIN;
        node = "127.0.0.1";
    }
    look_up *real = (look_up *)dlsym(RTLD_NEXT, "getaddrinfo");
    return real(node, service, hints, found);
}
