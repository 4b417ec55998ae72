/* The helper thread inside a CUDA process that carries out locks, checkpoints and restores (cuCheckpointProcessGetRestoreThreadId). */
#ifndef GPU_EMULATOR_RESTORE_THREAD_H
#define GPU_EMULATOR_RESTORE_THREAD_H

/* Connects to the daemon and sets this process up; returns when the inventory is known. SUCCESS, NO_DEVICE or what the daemon says. */
int restore_thread_start(void);

#endif
