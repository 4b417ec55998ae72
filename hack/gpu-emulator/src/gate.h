/* The gate that every CUDA call of a process passes: closed while the process is not RUNNING. */
#ifndef GPU_EMULATOR_GATE_H
#define GPU_EMULATOR_GATE_H

#include <stdbool.h>
#include <stdint.h>

/* Waits until the gate is open and counts the call as in flight. SUCCESS, NOT_INITIALIZED or, when the daemon is gone, UNKNOWN. */
int gate_enter(void);
void gate_leave(void);

void gate_close(void);
void gate_open(void);
/* True when the gate is closed, no call is in flight and the device is idle. */
bool gate_drained(void);
/* Descriptor which becomes readable when the last call in flight has left a closed gate. */
int gate_drain_fd(void);
/* Nanoseconds until the work launched so far has ended; 0 when the device is idle. */
uint64_t gate_busy_left(void);
/* Adds work of that length to the device's queue. */
void gate_add_busy(uint64_t nanoseconds);

bool gate_set_up(void);
/* The daemon is gone: blocked and later calls return UNKNOWN. */
void gate_lose(void);
/* This process is the child of a fork: calls return NOT_INITIALIZED. */
void gate_forked(void);
bool gate_is_forked(void);

uint64_t now_ns(void);

#endif
