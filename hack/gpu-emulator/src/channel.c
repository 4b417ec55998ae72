#define _GNU_SOURCE
#include "channel.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define DEFAULT_SOCKET "/run/gpu-emulator.sock"

static pthread_mutex_t pool_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct channel *all_channels;

static bool socket_address(struct sockaddr_un *address) {
    const char *path = getenv("GPU_EMULATOR_SOCKET");
    if (!path || !*path)
        path = DEFAULT_SOCKET;
    memset(address, 0, sizeof *address);
    address->sun_family = AF_UNIX;
    if (strlen(path) >= sizeof address->sun_path) {
        fprintf(stderr, "gpu-emulator: socket path is longer than %zu bytes: %s\n", sizeof address->sun_path - 1, path);
        return false;
    }
    strcpy(address->sun_path, path);
    return true;
}

static int connect_retrying(int fd, const struct sockaddr_un *address) {
    int rc;
    do
        rc = connect(fd, (const struct sockaddr *)address, sizeof *address);
    while (rc != 0 && errno == EINTR);
    return rc;
}

struct channel *channel_open(void) {
    struct sockaddr_un address;
    if (!socket_address(&address))
        return NULL;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return NULL;
    struct channel *channel = calloc(1, sizeof *channel);
    if (!channel || connect_retrying(fd, &address) != 0) {
        free(channel);
        close(fd);
        return NULL;
    }
    channel->fd = fd;
    pthread_mutex_lock(&pool_mutex);
    channel->next = all_channels;
    all_channels = channel;
    pthread_mutex_unlock(&pool_mutex);
    return channel;
}

void channel_close(struct channel *channel) {
    pthread_mutex_lock(&pool_mutex);
    struct channel **link = &all_channels;
    while (*link && *link != channel)
        link = &(*link)->next;
    if (*link)
        *link = channel->next;
    pthread_mutex_unlock(&pool_mutex);
    close(channel->fd);
    free(channel->buffer);
    free(channel);
}

static bool send_all(int fd, const char *data, size_t size) {
    while (size > 0) {
        ssize_t sent = send(fd, data, size, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent <= 0)
            return false;
        data += sent;
        size -= (size_t)sent;
    }
    return true;
}

static bool send_formatted(struct channel *channel, const char *format, va_list arguments) {
    char line[1024];
    int length = vsnprintf(line, sizeof line - 1, format, arguments);
    if (length < 0 || (size_t)length >= sizeof line - 1)
        return false;
    line[length++] = '\n';
    return send_all(channel->fd, line, (size_t)length);
}

bool channel_send(struct channel *channel, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    bool sent = send_formatted(channel, format, arguments);
    va_end(arguments);
    return sent;
}

static void keep_fds(struct msghdr *message, int *fds, size_t *fd_count) {
    for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c; c = CMSG_NXTHDR(message, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
            if (fds && *fd_count < CHANNEL_MAX_FDS)
                fds[(*fd_count)++] = fd;
            else
                close(fd);
        }
    }
}

static bool receive_more(struct channel *channel, int *fds, size_t *fd_count) {
    if (channel->start > 0) {
        memmove(channel->buffer, channel->buffer + channel->start, channel->end - channel->start);
        channel->end -= channel->start;
        channel->start = 0;
    }
    if (channel->capacity - channel->end < 4096) {
        size_t capacity = channel->capacity ? channel->capacity * 2 : 8192;
        char *larger = realloc(channel->buffer, capacity);
        if (!larger)
            return false;
        channel->buffer = larger;
        channel->capacity = capacity;
    }
    char control[CMSG_SPACE(CHANNEL_MAX_FDS * sizeof(int))];
    struct iovec piece = {channel->buffer + channel->end, channel->capacity - channel->end};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    ssize_t got;
    do
        got = recvmsg(channel->fd, &message, MSG_CMSG_CLOEXEC);
    while (got < 0 && errno == EINTR);
    if (got <= 0)
        return false;
    keep_fds(&message, fds, fd_count);
    channel->end += (size_t)got;
    return true;
}

static char *newline_in(const struct channel *channel) {
    if (channel->start == channel->end)
        return NULL;
    return memchr(channel->buffer + channel->start, '\n', channel->end - channel->start);
}

bool channel_has_line(const struct channel *channel) {
    return newline_in(channel) != NULL;
}

char *channel_line(struct channel *channel, int *fds, size_t *fd_count) {
    char *newline;
    while (!(newline = newline_in(channel)))
        if (!receive_more(channel, fds, fd_count))
            return NULL;
    char *line = channel->buffer + channel->start;
    *newline = '\0';
    channel->start = (size_t)(newline + 1 - channel->buffer);
    return line;
}

static struct channel *take_idle(void) {
    pthread_mutex_lock(&pool_mutex);
    struct channel *channel = all_channels;
    while (channel && !channel->idle)
        channel = channel->next;
    if (channel)
        channel->idle = false;
    pthread_mutex_unlock(&pool_mutex);
    return channel;
}

/* The daemon says nothing on an idle channel, so whatever can be read there is its end. */
static bool has_ended(const struct channel *channel) {
    char byte;
    ssize_t got = recv(channel->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return got == 0 || (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
}

static struct channel *borrow(void) {
    struct channel *channel;
    while ((channel = take_idle())) {
        if (!has_ended(channel))
            return channel;
        channel_close(channel); /* of a daemon that was ended; there may be another by now */
    }
    return channel_open();
}

/* A scripted crash of the caller: what a segmentation fault inside the driver library would do. */
static void crash(void) {
    signal(SIGSEGV, SIG_DFL);
    raise(SIGSEGV);
}

int ask(struct answer *answer, const char *format, ...) {
    answer->channel = borrow();
    answer->text = NULL;
    if (!answer->channel)
        return CHANNEL_LOST;
    va_list arguments;
    va_start(arguments, format);
    bool sent = send_formatted(answer->channel, format, arguments);
    va_end(arguments);
    char *line = sent ? channel_line(answer->channel, NULL, NULL) : NULL;
    if (!line) {
        channel_close(answer->channel);
        answer->channel = NULL;
        return CHANNEL_LOST;
    }
    if (strcmp(line, "crash") == 0)
        crash();
    answer->text = line;
    return (int)next_number(&answer->text);
}

void answer_done(struct answer *answer) {
    if (!answer->channel)
        return;
    pthread_mutex_lock(&pool_mutex);
    answer->channel->idle = true;
    pthread_mutex_unlock(&pool_mutex);
}

uint64_t next_number(char **cursor) {
    if (!*cursor)
        return 0;
    return strtoull(*cursor, cursor, 0);
}

char *rest_of_line(char **cursor) {
    static char nothing[1];
    if (!*cursor)
        return nothing;
    while (**cursor == ' ')
        ++*cursor;
    return *cursor;
}

void channels_before_fork(void) {
    pthread_mutex_lock(&pool_mutex);
}

void channels_after_fork_in_parent(void) {
    pthread_mutex_unlock(&pool_mutex);
}

void channels_forget(void) {
    for (struct channel *channel = all_channels; channel; channel = channel->next)
        close(channel->fd);
    all_channels = NULL; /* the memory is left alone: another thread of the parent may have been using it at the fork */
    pthread_mutex_init(&pool_mutex, NULL);
}
