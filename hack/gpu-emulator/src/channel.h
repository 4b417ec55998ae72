/* Line protocol with the emulator daemon over its unix socket.
 *
 * A request is one line, an answer is one line that begins with a decimal code. Channels are pooled, so that a call which blocks in the
 * daemon (a lock, a scripted hang) never holds up another thread's call. */
#ifndef GPU_EMULATOR_CHANNEL_H
#define GPU_EMULATOR_CHANNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CHANNEL_LOST (-1)
#define CHANNEL_MAX_FDS 64

struct channel {
    int fd;
    bool idle;
    char *buffer;
    size_t start, end, capacity;
    struct channel *next;
};

/* Connects; NULL when no daemon listens at GPU_EMULATOR_SOCKET. */
struct channel *channel_open(void);
void channel_close(struct channel *channel);

/* Returns false when the daemon is gone. */
bool channel_send(struct channel *channel, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The next line without its newline, owned by the channel until the next call; NULL when the daemon is gone.
 * With fds, descriptors that came along are stored there and counted in *fd_count. */
char *channel_line(struct channel *channel, int *fds, size_t *fd_count);
bool channel_has_line(const struct channel *channel);

/* One request and its answer on a pooled channel. `text` is the cursor into what follows the code. */
struct answer {
    struct channel *channel;
    char *text;
};

/* The code of the answer, or CHANNEL_LOST. answer_done must follow in every case. */
int ask(struct answer *answer, const char *format, ...) __attribute__((format(printf, 2, 3)));
void answer_done(struct answer *answer);

/* Next number at the cursor (decimal or 0x hexadecimal), 0 at the end; the remaining text of the line. */
uint64_t next_number(char **cursor);
char *rest_of_line(char **cursor);

/* For the child of a fork: closes every inherited descriptor and starts with an empty pool. */
void channels_forget(void);
void channels_before_fork(void);
void channels_after_fork_in_parent(void);

#endif
