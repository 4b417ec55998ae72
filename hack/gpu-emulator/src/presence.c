#define _GNU_SOURCE
#include "presence.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

bool is_present(int minor) {
    const char *root = getenv("GPU_EMULATOR_DEV_ROOT");
    char path[600];
    if (!root || !*root)
        return true;
    snprintf(path, sizeof path, "%s/nvidia%d", root, minor);
    return access(path, F_OK) == 0;
}

int present_among(int count) {
    int found = 0;
    for (int minor = 0; minor < count; minor++)
        found += is_present(minor);
    return found;
}

int present_at(int index, int count) {
    for (int minor = 0; minor < count; minor++)
        if (is_present(minor) && index-- == 0)
            return minor;
    return -1;
}
