/* Resolves names in .invalid: `late.invalid` to 127.0.0.1 from the second lookup on; any other name fails after a minute.
   Appends a line for each lookup to the file that the variable RESOLVER_LOG names. outages.rs and peers.rs preload it. */
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
        int is_first = access(getenv("RESOLVER_LOG"), F_OK) != 0;
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        FILE *lookups = fopen(getenv("RESOLVER_LOG"), "a");
        if (lookups) {
            fprintf(lookups, "%s %lld\n", node, (long long)now.tv_sec * 1000 + now.tv_nsec / 1000000);
            fclose(lookups);
        }
        if (strcmp(node, "late.invalid") != 0) {
            sleep(60);
            return EAI_AGAIN;
        }
        if (is_first) return EAI_AGAIN;
        node = "127.0.0.1";
    }
    int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **) =
        (int (*)(const char *, const char *, const struct addrinfo *, struct addrinfo **))dlsym(RTLD_NEXT, "getaddrinfo");
    return real(node, service, hints, found);
}
