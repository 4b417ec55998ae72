#define _GNU_SOURCE
#include "gate.h"

#include "cuda_abi.h"

#include <pthread.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t opened = PTHREAD_COND_INITIALIZER;
static bool ready, closed, lost, forked;
static int in_flight;
static int drain_fd = -1;
static uint64_t busy_until;

uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

bool gate_set_up(void) {
    drain_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    ready = drain_fd >= 0;
    return ready;
}

int gate_enter(void) {
    if (forked)
        return NOT_INITIALIZED;
    pthread_mutex_lock(&mutex);
    while (closed && !lost)
        pthread_cond_wait(&opened, &mutex);
    int rc = !ready ? NOT_INITIALIZED : lost ? UNKNOWN : SUCCESS;
    if (rc == SUCCESS)
        in_flight++;
    pthread_mutex_unlock(&mutex);
    return rc;
}

void gate_leave(void) {
    pthread_mutex_lock(&mutex);
    in_flight--;
    if (closed && in_flight == 0)
        (void)!write(drain_fd, &(uint64_t){1}, sizeof(uint64_t));
    pthread_mutex_unlock(&mutex);
}

void gate_close(void) {
    pthread_mutex_lock(&mutex);
    closed = true;
    pthread_mutex_unlock(&mutex);
}

void gate_open(void) {
    pthread_mutex_lock(&mutex);
    closed = false;
    pthread_cond_broadcast(&opened);
    pthread_mutex_unlock(&mutex);
}

bool gate_drained(void) {
    pthread_mutex_lock(&mutex);
    bool drained = closed && in_flight == 0 && now_ns() >= busy_until;
    pthread_mutex_unlock(&mutex);
    return drained;
}

int gate_drain_fd(void) {
    return drain_fd;
}

uint64_t gate_busy_left(void) {
    pthread_mutex_lock(&mutex);
    uint64_t now = now_ns();
    uint64_t left = busy_until > now ? busy_until - now : 0;
    pthread_mutex_unlock(&mutex);
    return left;
}

void gate_add_busy(uint64_t nanoseconds) {
    pthread_mutex_lock(&mutex);
    uint64_t now = now_ns();
    busy_until = (busy_until > now ? busy_until : now) + nanoseconds;
    pthread_mutex_unlock(&mutex);
}

void gate_lose(void) {
    pthread_mutex_lock(&mutex);
    lost = true;
    pthread_cond_broadcast(&opened);
    pthread_mutex_unlock(&mutex);
}

void gate_forked(void) {
    forked = true;
    if (drain_fd >= 0)
        close(drain_fd);
    drain_fd = -1;
}

bool gate_is_forked(void) {
    return forked;
}
