/* Resolves the host moving.test to the address in the file that the variable MOVING_NAME names; an
   empty file makes the lookup fail. rare_faults.rs preloads this library. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int look_up(const char *, const char *, const struct addrinfo *, struct addrinfo **);

int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
                struct addrinfo **found) {
    look_up *real = (look_up *)dlsym(RTLD_NEXT, "getaddrinfo");
    char address[64] = "";
    if (node != NULL && strcmp(node, "moving.test") == 0) {
        const char *path = getenv("MOVING_NAME");
        FILE *file = path == NULL ? NULL : fopen(path, "r");
        if (file == NULL) return EAI_NONAME;
        if (fgets(address, sizeof address, file) == NULL) address[0] = '\0';
        fclose(file);
        address[strcspn(address, "\n")] = '\0';
        if (address[0] == '\0') return EAI_NONAME;
        node = address;
    }
    return real(node, service, hints, found);
}
