#define _GNU_SOURCE
#include "restore_thread.h"

#include "channel.h"
#include "cuda_abi.h"
#include "device.h"
#include "gate.h"
#include "memory.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MIN_WINDOW ((size_t)64 << 30)

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t started = PTHREAD_COND_INITIALIZER;
static int outcome = -1;

static struct channel *daemon_channel;
static uint64_t locking; /* sequence number of the lock under way, 0 without one */

static const char *word_from_env(const char *name, char *buffer, size_t size) {
    const char *value = getenv(name);
    if (!value || !*value)
        return "-";
    snprintf(buffer, size, "%s", value);
    for (char *c = buffer; *c; c++)
        if ((unsigned char)*c <= ' ')
            *c = '_';
    return buffer;
}

static bool read_inventory(char *line, const int *fds, size_t fd_count) {
    driver_version = (int)next_number(&line);
    uint64_t count = next_number(&line);
    nodes_set_root(rest_of_line(&line));
    if (count > MAX_DEVICES || count != fd_count)
        return false;
    for (uint64_t i = 0; i < count; i++) {
        char *device = channel_line(daemon_channel, NULL, NULL);
        if (!device)
            return false;
        device_add(device, fds[i]);
    }
    return true;
}

static size_t window_size(void) {
    size_t total = 0;
    for (int i = 0; i < device_count; i++)
        total += devices[i].total;
    return 4 * total > MIN_WINDOW ? (4 * total + DEVICE_PAGE - 1) / DEVICE_PAGE * DEVICE_PAGE : MIN_WINDOW;
}

static int introduce(void) {
    char flags[256], name[256];
    int fds[CHANNEL_MAX_FDS];
    size_t fd_count = 0;
    daemon_channel = channel_open();
    if (!daemon_channel)
        return NO_DEVICE;
    if (!channel_send(daemon_channel, "job %ld %s %s", syscall(SYS_gettid), word_from_env("GPU_EMULATOR_FLAGS", flags, sizeof flags),
                      word_from_env("GPU_EMULATOR_NAME", name, sizeof name)))
        return NO_DEVICE;
    char *line = channel_line(daemon_channel, fds, &fd_count);
    if (!line)
        return NO_DEVICE;
    int rc = (int)next_number(&line);
    if (rc != SUCCESS)
        return rc;
    if (!read_inventory(line, fds, fd_count))
        return NO_DEVICE;
    devices_choose_visible();
    if (visible_count() == 0)
        return NO_DEVICE;
    if (!memory_set_up(window_size()) || !gate_set_up())
        return OPERATING_SYSTEM;
    nodes_open_control();
    return SUCCESS;
}

static void report(uint64_t sequence, int rc, uint64_t bytes) {
    channel_send(daemon_channel, "%lu %d %lu", sequence, rc, bytes);
}

static void checkpoint(uint64_t sequence, uint64_t bandwidth) {
    uint64_t bytes = 0;
    int rc = memory_park(bandwidth, &bytes);
    if (rc == SUCCESS)
        nodes_release();
    report(sequence, rc, bytes);
}

static void restore(uint64_t sequence, char *text) {
    int from[MAX_DEVICES], to[MAX_DEVICES];
    uint64_t bytes = 0;
    uint64_t bandwidth = next_number(&text);
    int moves = (int)next_number(&text);
    for (int i = 0; i < moves && i < MAX_DEVICES; i++) {
        from[i] = (int)next_number(&text);
        to[i] = (int)next_number(&text);
    }
    int rc = memory_resume(bandwidth, &text, &bytes);
    if (rc == SUCCESS) {
        devices_move(from, to, moves);
        nodes_reopen();
    }
    report(sequence, rc, bytes);
}

static void obey(char *line) {
    uint64_t sequence = next_number(&line);
    char *verb = rest_of_line(&line);
    char *arguments = strchr(verb, ' ');
    if (arguments)
        *arguments++ = '\0';
    if (strcmp(verb, "lock") == 0) {
        gate_close();
        locking = sequence;
    } else if (strcmp(verb, "cancel") == 0) {
        locking = 0;
        gate_open();
    } else if (strcmp(verb, "unlock") == 0) {
        gate_open();
        report(sequence, SUCCESS, 0);
    } else if (strcmp(verb, "checkpoint") == 0) {
        checkpoint(sequence, next_number(&arguments));
    } else if (strcmp(verb, "restore") == 0) {
        restore(sequence, arguments);
    }
}

static void finish_lock_when_drained(void) {
    if (locking && gate_drained()) {
        report(locking, SUCCESS, 0);
        locking = 0;
    }
}

/* Sleeps until the daemon speaks, the last call in flight leaves, or the launched work ends. */
static bool wait_for_something(void) {
    struct pollfd watched[2] = {{daemon_channel->fd, POLLIN, 0}, {gate_drain_fd(), POLLIN, 0}};
    uint64_t left = locking ? gate_busy_left() / 1000000 + 1 : 0;
    int timeout = !locking || gate_busy_left() == 0 ? -1 : left > 3600000 ? 3600000 : (int)left;
    poll(watched, 2, timeout);
    uint64_t drained;
    if (watched[1].revents & POLLIN)
        (void)!read(watched[1].fd, &drained, sizeof drained);
    return watched[0].revents != 0;
}

static void serve(void) {
    for (;;) {
        while (channel_has_line(daemon_channel))
            obey(channel_line(daemon_channel, NULL, NULL));
        finish_lock_when_drained();
        if (!wait_for_something())
            continue;
        char *line = channel_line(daemon_channel, NULL, NULL);
        if (!line)
            return;
        obey(line);
    }
}

static void *run(void *unused) {
    (void)unused;
    int rc = introduce();
    pthread_mutex_lock(&mutex);
    outcome = rc;
    pthread_cond_signal(&started);
    pthread_mutex_unlock(&mutex);
    if (rc == SUCCESS) {
        serve();
        gate_lose();
    }
    if (daemon_channel)
        channel_close(daemon_channel);
    return NULL;
}

int restore_thread_start(void) {
    pthread_t thread;
    sigset_t all, before;
    sigfillset(&all);
    outcome = -1;
    device_count = 0;
    /* Signals are the application's own business: this thread takes none. */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int created = pthread_create(&thread, NULL, run, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (created != 0)
        return OPERATING_SYSTEM;
    pthread_detach(thread);
    pthread_mutex_lock(&mutex);
    while (outcome < 0)
        pthread_cond_wait(&started, &mutex);
    int rc = outcome;
    pthread_mutex_unlock(&mutex);
    return rc;
}
