/* The devices that the daemon told this process of, and their /dev nodes. */
#ifndef GPU_EMULATOR_DEVICE_H
#define GPU_EMULATOR_DEVICE_H

#include "cuda_abi.h"

#include <stdbool.h>

#define MAX_DEVICES 64

struct device {
    CUuuid uuid;
    char name[96];
    char bus_id[32];
    uint64_t total;
    int minor, domain, bus, slot, major_capability, minor_capability;
    int arena_fd;
    int node_fd;
    int contexts;
};

extern struct device devices[MAX_DEVICES];
extern int device_count;
extern int driver_version;

/* Reads one inventory line of the daemon into the next entry. */
void device_add(char *line, int arena_fd);
/* Those whose device files are there, as CUDA_VISIBLE_DEVICES chooses and orders them. */
void devices_choose_visible(void);
int visible_count(void);
/* Index into `devices` of a CUDA ordinal, -1 when there is none. */
int physical_of(CUdevice ordinal);
/* After a restore elsewhere: ordinals of device `from` now mean `to`. */
void devices_move(const int *from, const int *to, int count);

void nodes_set_root(const char *root);
void nodes_open_control(void);
void node_open(int physical);
/* At a checkpoint the process lets go of the hardware, at a restore it opens it again. */
void nodes_release(void);
void nodes_reopen(void);
void devices_forget(void);

#endif
