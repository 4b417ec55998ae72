/* Which GPUs this process can reach at all: in a container those whose device files are in it. */
#ifndef GPU_EMULATOR_PRESENCE_H
#define GPU_EMULATOR_PRESENCE_H

#include <stdbool.h>

/* True when GPU_EMULATOR_DEV_ROOT has nvidia<minor>, or is not set. */
bool is_present(int minor);
/* How many of the first `count` minors are present. */
int present_among(int count);
/* The minor of the present device with that index, -1 when there is none among the first `count`. */
int present_at(int index, int count);

#endif
