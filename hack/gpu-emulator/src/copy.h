/* Bulk copies between host and device pages, on several cores, paced to a bandwidth. */
#ifndef GPU_EMULATOR_COPY_H
#define GPU_EMULATOR_COPY_H

#include <stddef.h>
#include <stdint.h>

struct span {
    char *to;
    const char *from;
    size_t size;
};

/* bandwidth in bytes/s, 0 without limit. */
void copy_spans(const struct span *spans, size_t count, uint64_t bandwidth);

#endif
