#define _GNU_SOURCE
#include "memory.h"

#include "channel.h"
#include "context.h"
#include "copy.h"
#include "device.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* As the real allocator does, small requests share device pages. */
#define UNIT ((size_t)512)
#define UNITS (DEVICE_PAGE / UNIT)
#define SMALL_LIMIT ((size_t)1 << 20)

struct small {
    size_t used;
    uint16_t length_at[UNITS]; /* units of the allocation that starts here, 0 where none starts */
    bool taken[UNITS];
};

struct block {
    size_t page, pages; /* place in the window, in device pages */
    size_t bytes;
    CUcontext owner;
    struct small *small; /* NULL for a block with a single allocation */
};

static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static char *window, *shadow;
static size_t window_pages;
static struct block **blocks; /* sorted by page */
static size_t block_count, block_capacity;
static char *parked, *parked_mapping;
static size_t parked_mapping_size;

bool memory_set_up(size_t window_bytes) {
    window_pages = window_bytes / DEVICE_PAGE;
    size_t reserve = 2 * window_bytes + DEVICE_PAGE;
    char *space = mmap(NULL, reserve, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (space == MAP_FAILED)
        return false;
    window = (char *)(((uintptr_t)space + DEVICE_PAGE - 1) & ~(uintptr_t)(DEVICE_PAGE - 1));
    shadow = window + window_bytes;
    return true;
}

void memory_forget(void) {
    if (window)
        munmap(window, 2 * window_pages * DEVICE_PAGE);
}

static char *shadow_of_page(size_t page) {
    return shadow + page * DEVICE_PAGE;
}

static CUdeviceptr pointer_of(const struct block *block, size_t offset) {
    return (CUdeviceptr)(uintptr_t)(window + block->page * DEVICE_PAGE + offset);
}

static void close_view(const struct block *block) {
    mmap(shadow_of_page(block->page), block->pages * DEVICE_PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

/* Maps "count, then pairs of first page and length" of a device at the block's place. */
static bool open_view(const struct block *block, int physical, char **text) {
    size_t page = block->page;
    for (uint64_t extents = next_number(text); extents > 0; extents--) {
        uint64_t first = next_number(text), length = next_number(text);
        if (page + length > block->page + block->pages)
            return false;
        char *at = shadow_of_page(page);
        size_t size = length * DEVICE_PAGE;
        if (mmap(at, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, devices[physical].arena_fd, (off_t)(first * DEVICE_PAGE)) ==
            MAP_FAILED)
            return false;
        madvise(at, size, MADV_HUGEPAGE);
#ifdef MADV_POPULATE_WRITE
        madvise(at, size, MADV_POPULATE_WRITE);
#endif
        page += length;
    }
    return page == block->page + block->pages;
}

/* Index of the first block behind that page. */
static size_t index_behind(size_t page) {
    size_t low = 0, high = block_count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (blocks[middle]->page <= page)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static struct block *block_at(CUdeviceptr pointer) {
    uintptr_t base = (uintptr_t)window;
    if (!window || pointer < base || pointer >= base + window_pages * DEVICE_PAGE)
        return NULL;
    size_t page = (pointer - base) / DEVICE_PAGE;
    size_t index = index_behind(page);
    if (index == 0)
        return NULL;
    struct block *block = blocks[index - 1];
    return page < block->page + block->pages ? block : NULL;
}

static bool find_gap(size_t pages, size_t *page, size_t *index) {
    size_t free_from = 0;
    for (size_t i = 0; i <= block_count; i++) {
        size_t free_to = i < block_count ? blocks[i]->page : window_pages;
        if (free_to - free_from >= pages) {
            *page = free_from;
            *index = i;
            return true;
        }
        if (i < block_count)
            free_from = blocks[i]->page + blocks[i]->pages;
    }
    return false;
}

static bool make_room_in_table(void) {
    if (block_count < block_capacity)
        return true;
    size_t capacity = block_capacity ? 2 * block_capacity : 64;
    struct block **larger = realloc(blocks, capacity * sizeof *blocks);
    if (!larger)
        return false;
    blocks = larger;
    block_capacity = capacity;
    return true;
}

static int obtain_pages(struct block *block, int physical) {
    struct answer answer;
    int rc = ask(&answer, "alloc %d %zu %zu", physical, block->page, block->pages);
    if (rc == SUCCESS && !open_view(block, physical, &answer.text))
        rc = OUT_OF_MEMORY;
    answer_done(&answer);
    return rc == CHANNEL_LOST ? UNKNOWN : rc;
}

static void return_pages(const struct block *block) {
    struct answer answer;
    close_view(block);
    ask(&answer, "free %zu", block->page);
    answer_done(&answer);
}

static int add_block(CUcontext owner, size_t bytes, bool small, struct block **added) {
    struct block *block = calloc(1, sizeof *block);
    struct small *units = small ? calloc(1, sizeof *units) : NULL;
    size_t index;
    int rc = OUT_OF_MEMORY;
    if (block && (units || !small) && make_room_in_table()) {
        *block = (struct block){.pages = (bytes + DEVICE_PAGE - 1) / DEVICE_PAGE, .bytes = bytes, .owner = owner, .small = units};
        if (find_gap(block->pages, &block->page, &index))
            rc = obtain_pages(block, physical_of(owner->ordinal));
    }
    if (rc != SUCCESS) {
        free(units);
        free(block);
        return rc;
    }
    memmove(blocks + index + 1, blocks + index, (block_count - index) * sizeof *blocks);
    blocks[index] = *added = block;
    block_count++;
    return SUCCESS;
}

static void remove_block(struct block *block) {
    size_t index = index_behind(block->page) - 1;
    return_pages(block);
    memmove(blocks + index, blocks + index + 1, (block_count - index - 1) * sizeof *blocks);
    block_count--;
    free(block->small);
    free(block);
}

static bool take_units(struct small *small, size_t units, size_t *first) {
    size_t run = 0;
    for (size_t i = 0; i < UNITS; i++) {
        run = small->taken[i] ? 0 : run + 1;
        if (run < units)
            continue;
        *first = i + 1 - units;
        memset(small->taken + *first, true, units);
        small->length_at[*first] = (uint16_t)units;
        small->used += units;
        return true;
    }
    return false;
}

static int allocate_small(CUcontext owner, size_t bytes, CUdeviceptr *pointer) {
    size_t units = (bytes + UNIT - 1) / UNIT, first;
    for (size_t i = 0; i < block_count; i++) {
        if (blocks[i]->small && blocks[i]->owner == owner && take_units(blocks[i]->small, units, &first)) {
            *pointer = pointer_of(blocks[i], first * UNIT);
            return SUCCESS;
        }
    }
    struct block *block;
    int rc = add_block(owner, DEVICE_PAGE, true, &block);
    if (rc == SUCCESS && take_units(block->small, units, &first))
        *pointer = pointer_of(block, first * UNIT);
    return rc;
}

int memory_allocate(CUcontext owner, size_t bytes, CUdeviceptr *pointer) {
    if (!pointer || bytes == 0)
        return INVALID_VALUE;
    if (bytes > window_pages * DEVICE_PAGE)
        return OUT_OF_MEMORY;
    struct block *block;
    pthread_rwlock_wrlock(&rwlock);
    int rc;
    if (bytes <= SMALL_LIMIT) {
        rc = allocate_small(owner, bytes, pointer);
    } else {
        rc = add_block(owner, bytes, false, &block);
        if (rc == SUCCESS)
            *pointer = pointer_of(block, 0);
    }
    pthread_rwlock_unlock(&rwlock);
    return rc;
}

/* The allocation that a pointer lies in, as offset and size within its block. */
static bool find_allocation(const struct block *block, size_t offset, size_t *start, size_t *size) {
    if (!block->small) {
        *start = 0;
        *size = block->bytes;
        return offset < block->bytes;
    }
    size_t unit = offset / UNIT;
    if (!block->small->taken[unit])
        return false;
    while (block->small->length_at[unit] == 0)
        unit--;
    *start = unit * UNIT;
    *size = block->small->length_at[unit] * UNIT;
    return true;
}

static size_t offset_in(const struct block *block, CUdeviceptr pointer) {
    return (size_t)(pointer - pointer_of(block, 0));
}

int memory_free(CUdeviceptr pointer) {
    if (pointer == 0)
        return SUCCESS;
    size_t start, size;
    pthread_rwlock_wrlock(&rwlock);
    struct block *block = block_at(pointer);
    bool found = block && find_allocation(block, offset_in(block, pointer), &start, &size) && start == offset_in(block, pointer);
    if (found && block->small) {
        memset(block->small->taken + start / UNIT, false, size / UNIT);
        block->small->length_at[start / UNIT] = 0;
        block->small->used -= size / UNIT;
    }
    if (found && (!block->small || block->small->used == 0))
        remove_block(block);
    pthread_rwlock_unlock(&rwlock);
    return found ? SUCCESS : INVALID_VALUE;
}

void memory_free_owned_by(CUcontext owner) {
    pthread_rwlock_wrlock(&rwlock);
    for (size_t i = block_count; i > 0; i--)
        if (blocks[i - 1]->owner == owner)
            remove_block(blocks[i - 1]);
    pthread_rwlock_unlock(&rwlock);
}

int memory_range(CUdeviceptr pointer, CUdeviceptr *base, size_t *size) {
    size_t start, length;
    pthread_rwlock_rdlock(&rwlock);
    struct block *block = block_at(pointer);
    bool found = block && find_allocation(block, offset_in(block, pointer), &start, &length);
    if (found && base)
        *base = pointer_of(block, start);
    if (found && size)
        *size = length;
    pthread_rwlock_unlock(&rwlock);
    return found ? SUCCESS : INVALID_VALUE;
}

void memory_begin_access(void) {
    pthread_rwlock_rdlock(&rwlock);
}

void memory_end_access(void) {
    pthread_rwlock_unlock(&rwlock);
}

void *memory_view(CUdeviceptr pointer, size_t bytes) {
    size_t start, size;
    struct block *block = block_at(pointer);
    if (!block || !find_allocation(block, offset_in(block, pointer), &start, &size))
        return NULL;
    size_t offset = offset_in(block, pointer);
    if (bytes > start + size - offset)
        return NULL;
    return shadow_of_page(block->page) + offset;
}

/* Host memory of this process for the parked bytes: what makes its cgroup pay, and its OOM killer awake. */
static bool map_parked(size_t bytes) {
    parked_mapping_size = bytes + DEVICE_PAGE;
    parked_mapping = mmap(NULL, parked_mapping_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (parked_mapping == MAP_FAILED) {
        parked_mapping = NULL;
        return false;
    }
    parked = (char *)(((uintptr_t)parked_mapping + DEVICE_PAGE - 1) & ~(uintptr_t)(DEVICE_PAGE - 1));
    madvise(parked, bytes, MADV_HUGEPAGE);
    return true;
}

static void unmap_parked(void) {
    if (parked_mapping)
        munmap(parked_mapping, parked_mapping_size);
    parked = parked_mapping = NULL;
}

static uint64_t total_bytes(void) {
    uint64_t total = 0;
    for (size_t i = 0; i < block_count; i++)
        total += blocks[i]->pages * DEVICE_PAGE;
    return total;
}

static bool copy_everything(bool to_host, uint64_t bandwidth) {
    struct span *spans = malloc((block_count + 1) * sizeof *spans);
    if (!spans)
        return false;
    char *host = parked;
    for (size_t i = 0; i < block_count; i++) {
        char *device = shadow_of_page(blocks[i]->page);
        size_t size = blocks[i]->pages * DEVICE_PAGE;
        spans[i] = to_host ? (struct span){host, device, size} : (struct span){device, host, size};
        host += size;
    }
    copy_spans(spans, block_count, bandwidth);
    free(spans);
    return true;
}

int memory_park(uint64_t bandwidth, uint64_t *bytes) {
    *bytes = total_bytes();
    if (!map_parked(*bytes))
        return OUT_OF_MEMORY;
    if (!copy_everything(true, bandwidth)) {
        unmap_parked();
        return OUT_OF_MEMORY;
    }
    for (size_t i = 0; i < block_count; i++)
        close_view(blocks[i]);
    return SUCCESS;
}

static bool open_views(char **text) {
    if (next_number(text) != block_count)
        return false;
    for (size_t i = 0; i < block_count; i++) {
        bool in_order = next_number(text) == blocks[i]->page;
        int physical = (int)next_number(text);
        if (!in_order || !open_view(blocks[i], physical, text))
            return false;
    }
    return true;
}

int memory_resume(uint64_t bandwidth, char **text, uint64_t *bytes) {
    *bytes = total_bytes();
    if (!open_views(text) || !copy_everything(false, bandwidth)) {
        for (size_t i = 0; i < block_count; i++)
            close_view(blocks[i]);
        return OUT_OF_MEMORY;
    }
    unmap_parked();
    return SUCCESS;
}
