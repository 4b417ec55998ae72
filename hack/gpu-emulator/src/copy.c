#define _GNU_SOURCE
#include "copy.h"

#include "gate.h"

#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>

#define CHUNK ((size_t)4 << 20)
#define MAX_WORKERS 4

struct job {
    pthread_mutex_t mutex;
    const struct span *spans;
    size_t count, current, offset;
    uint64_t taken, bandwidth, started;
};

/* Takes the next chunk; `end` is the number of bytes of the whole job up to its last byte. */
static bool take_chunk(struct job *job, struct span *chunk, uint64_t *end) {
    pthread_mutex_lock(&job->mutex);
    bool found = job->current < job->count;
    if (found) {
        const struct span *span = &job->spans[job->current];
        size_t size = span->size - job->offset < CHUNK ? span->size - job->offset : CHUNK;
        *chunk = (struct span){span->to + job->offset, span->from + job->offset, size};
        job->offset += size;
        job->taken += size;
        *end = job->taken;
        if (job->offset == span->size) {
            job->current++;
            job->offset = 0;
        }
    }
    pthread_mutex_unlock(&job->mutex);
    return found;
}

static void sleep_until(uint64_t when) {
    struct timespec until = {(time_t)(when / 1000000000u), (long)(when % 1000000000u)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) != 0)
        ;
}

static void *work(void *argument) {
    struct job *job = argument;
    struct span chunk;
    uint64_t end;
    while (take_chunk(job, &chunk, &end)) {
        memcpy(chunk.to, chunk.from, chunk.size);
        if (job->bandwidth)
            sleep_until(job->started + (uint64_t)((double)end * 1e9 / (double)job->bandwidth));
    }
    return NULL;
}

static int workers_for(uint64_t bytes) {
    cpu_set_t cores;
    int usable = sched_getaffinity(0, sizeof cores, &cores) == 0 ? CPU_COUNT(&cores) : 1;
    int useful = (int)(bytes / (2 * CHUNK) < MAX_WORKERS ? bytes / (2 * CHUNK) : MAX_WORKERS);
    int workers = usable < useful ? usable : useful;
    return workers > 1 ? workers : 1;
}

void copy_spans(const struct span *spans, size_t count, uint64_t bandwidth) {
    struct job job = {.spans = spans, .count = count, .bandwidth = bandwidth, .started = now_ns()};
    uint64_t bytes = 0;
    for (size_t i = 0; i < count; i++)
        bytes += spans[i].size;
    pthread_mutex_init(&job.mutex, NULL);
    pthread_t threads[MAX_WORKERS];
    int started = 0;
    while (started < workers_for(bytes) - 1 && pthread_create(&threads[started], NULL, work, &job) == 0)
        started++;
    work(&job);
    while (started > 0)
        pthread_join(threads[--started], NULL);
    pthread_mutex_destroy(&job.mutex);
}
