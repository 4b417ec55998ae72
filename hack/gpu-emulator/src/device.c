#define _GNU_SOURCE
#include "device.h"

#include "channel.h"
#include "presence.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct device devices[MAX_DEVICES];
int device_count;
int driver_version;

static int present[MAX_DEVICES]; /* indexes into `devices` */
static int present_total;
static int visible[MAX_DEVICES];
static int visible_total;
static char node_root[512];
static int control_fd = -1;

static void parse_hex(const char *text, unsigned char *bytes, size_t count) {
    for (size_t i = 0; i < count; i++) {
        unsigned value = 0;
        sscanf(text + 2 * i, "%2x", &value);
        bytes[i] = (unsigned char)value;
    }
}

/* total minor domain bus slot major minor uuid-hex bus-id name */
void device_add(char *line, int arena_fd) {
    struct device *device = &devices[device_count++];
    char uuid[33] = "";
    int consumed = 0;
    sscanf(line, "%lu %d %d %d %d %d %d %32s %31s %n", &device->total, &device->minor, &device->domain, &device->bus, &device->slot,
           &device->major_capability, &device->minor_capability, uuid, device->bus_id, &consumed);
    parse_hex(uuid, device->uuid.bytes, sizeof device->uuid.bytes);
    snprintf(device->name, sizeof device->name, "%s", line + consumed);
    device->arena_fd = arena_fd;
    device->node_fd = -1;
}

static void uuid_text(const struct device *device, char *text, size_t size) {
    const unsigned char *b = device->uuid.bytes;
    snprintf(text, size, "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0], b[1], b[2], b[3], b[4], b[5],
             b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]);
}

static int device_named(const char *word) {
    char *end;
    long index = strtol(word, &end, 10);
    if (end != word && *end == '\0')
        return index >= 0 && index < present_total ? present[index] : -1;
    for (int i = 0; i < present_total && strlen(word) > 4; i++) {
        char text[64];
        uuid_text(&devices[present[i]], text, sizeof text);
        if (strncasecmp(text, word, strlen(word)) == 0)
            return present[i];
    }
    return -1;
}

static void find_present(void) {
    present_total = 0;
    for (int i = 0; i < device_count; i++)
        if (is_present(devices[i].minor))
            present[present_total++] = i;
}

void devices_choose_visible(void) {
    const char *wanted = getenv("CUDA_VISIBLE_DEVICES");
    find_present();
    visible_total = 0;
    if (!wanted) {
        memcpy(visible, present, sizeof visible);
        visible_total = present_total;
        return;
    }
    char list[1024], *save = NULL;
    snprintf(list, sizeof list, "%s", wanted);
    for (char *word = strtok_r(list, ", ", &save); word && visible_total < MAX_DEVICES; word = strtok_r(NULL, ", ", &save)) {
        int physical = device_named(word);
        if (physical < 0)
            return; /* as the driver does: an invalid entry hides itself and all that follow */
        visible[visible_total++] = physical;
    }
}

int visible_count(void) {
    return visible_total;
}

int physical_of(CUdevice ordinal) {
    return ordinal >= 0 && ordinal < visible_total ? visible[ordinal] : -1;
}

void devices_move(const int *from, const int *to, int count) {
    int contexts[MAX_DEVICES];
    for (int i = 0; i < device_count; i++)
        contexts[i] = devices[i].contexts;
    for (int p = 0; p < count; p++)
        devices[from[p]].contexts -= contexts[from[p]];
    for (int p = 0; p < count; p++)
        devices[to[p]].contexts += contexts[from[p]];
    for (int i = 0; i < visible_total; i++) {
        for (int p = 0; p < count; p++) {
            if (visible[i] == from[p]) {
                visible[i] = to[p];
                break;
            }
        }
    }
}

void nodes_set_root(const char *root) {
    const char *own = getenv("GPU_EMULATOR_DEV_ROOT");
    snprintf(node_root, sizeof node_root, "%s", own && *own ? own : strcmp(root, "-") == 0 ? "" : root);
}

static int open_node(const char *name) {
    char path[600];
    if (!*node_root)
        return -1;
    snprintf(path, sizeof path, "%s/%s", node_root, name);
    return open(path, O_RDWR | O_CLOEXEC);
}

void nodes_open_control(void) {
    if (control_fd < 0)
        control_fd = open_node("nvidiactl");
}

void node_open(int physical) {
    char name[32];
    snprintf(name, sizeof name, "nvidia%d", devices[physical].minor);
    if (devices[physical].node_fd < 0)
        devices[physical].node_fd = open_node(name);
}

static void close_node(int *fd) {
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

void nodes_release(void) {
    close_node(&control_fd);
    for (int i = 0; i < device_count; i++)
        close_node(&devices[i].node_fd);
}

void nodes_reopen(void) {
    nodes_open_control();
    for (int i = 0; i < device_count; i++)
        if (devices[i].contexts > 0)
            node_open(i);
}

void devices_forget(void) {
    for (int i = 0; i < device_count; i++)
        close(devices[i].arena_fd);
}
