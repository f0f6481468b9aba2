/* See fake_cuda.h: the fake device's memory, its tables, and what it complains about.
 *
 * A stream is a list of operations, of which the first may run: a kernel or copy, the recording of an event, the wait for
 * one, a graph, or a communication that is asked again and again until it is done.  Events count their recordings; a wait
 * is for the recording that was the last one when the wait was issued.  One lock around everything: the ranks of a gang are
 * threads. */

#include "tests/fake/fake_inside.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

struct fake fake;

void fake_cuda_lock(void)
{
    pthread_mutex_lock(&fake.lock);
}
void fake_cuda_unlock(void)
{
    pthread_mutex_unlock(&fake.lock);
}

void fake_cuda_breach(const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    if (!fake.breach[0])
        vsnprintf(fake.breach, sizeof fake.breach, format, ap);
    va_end(ap);
}

void fake_cuda_pending(int by)
{
    fake.pending += by;
}

uint64_t fake_cuda_draw(uint64_t n)
{
    uint64_t z = fake.random += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return (z ^ (z >> 31)) % n;
}

/* --- of a thread --- */

int fake_cuda_error(int rc)
{
    static _Thread_local int last;
    int before = last;
    if (rc < 0) { /* asked for, and forgotten */
        last = 0;
        return before;
    }
    last = rc ? rc : before;
    return rc;
}

const char *fake_cuda_launched(void)
{
    int last = fake_cuda_error(-1);
    return fake.broken ? "an earlier kernel has broken the device" : last ? fake.plugin.runtime->GetErrorString(last) : NULL;
}

int fake_cuda_captures(int by)
{
    static _Thread_local int open;
    return open += by;
}

void fake_cuda_unless_capturing(const char *what)
{
    if (fake_cuda_captures(0))
        fake_cuda_breach("%s while this thread captures", what);
}

/* --- memory --- */

struct allocation *fake_cuda_find(const void *p, size_t bytes)
{
    for (int i = 0; i < MOST_ALLOCATIONS; i++) {
        struct allocation *a = &fake.allocations[i];
        if (a->start && (const uint8_t *)p >= a->start && (const uint8_t *)p + bytes <= a->start + a->bytes)
            return a;
    }
    return NULL;
}

bool fake_cuda_is_device(const void *p, size_t bytes)
{
    const struct allocation *a = fake_cuda_find(p, bytes);
    return a && a->device;
}

static void *keep(void *p, size_t bytes, bool device)
{
    for (int i = 0; p && i < MOST_ALLOCATIONS; i++)
        if (!fake.allocations[i].start) {
            fake.allocations[i] = (struct allocation){p, bytes, device};
            return p;
        }
    return NULL;
}

void *fake_cuda_allocate(size_t bytes)
{
    uint64_t at = (fake.used + 511) / 512 * 512;
    if (bytes > fake.s.memory_bytes || at > fake.s.memory_bytes - bytes)
        return NULL;
    fake.used = at + bytes;
    return keep(fake.memory + (size_t)fake.device * fake.s.memory_bytes + at, bytes, true);
}

void fake_cuda_release(void *p)
{
    struct allocation *a = fake_cuda_find(p, 1);
    fake_cuda_unless_capturing("memory is freed");
    if (!a || a->start != p)
        fake_cuda_breach("memory is freed that was not allocated");
    else if (fake.hung)
        fake_cuda_breach("memory is freed on a device that hangs, which never returns");
    else
        *a = (struct allocation){NULL, 0, false};
}

static int f_malloc(void **p, size_t bytes)
{
    fake_cuda_lock();
    fake_cuda_unless_capturing("memory is allocated");
    *p = fake_cuda_allocate(bytes);
    fake_cuda_unlock();
    return fake_cuda_error(*p ? 0 : ERROR_MEMORY);
}
static int f_free(void *p)
{
    fake_cuda_lock();
    fake_cuda_release(p);
    fake_cuda_unlock();
    return 0;
}
static int f_host_alloc(void **p, size_t bytes, unsigned flags)
{
    (void)flags;
    fake_cuda_lock();
    fake_cuda_unless_capturing("memory is allocated");
    void *memory = aligned_alloc(512, (bytes + 511) / 512 * 512);
    *p = keep(memory, bytes, false);
    fake_cuda_unlock();
    return fake_cuda_error(*p ? 0 : ERROR_MEMORY);
}
static int f_free_host(void *p)
{
    fake_cuda_lock();
    fake_cuda_release(p);
    free(p);
    fake_cuda_unlock();
    return 0;
}

/* --- the rest --- */

static int f_device_count(int *count)
{
    *count = fake.s.devices;
    return 0;
}
static int f_set_device(int device)
{
    if (device < 0 || device >= fake.s.devices)
        return fake_cuda_error(ERROR_VALUE);
    fake.device = device;
    return 0;
}
static int f_attribute(int *value, int attribute, int device)
{
    (void)device;
    *value = attribute == 75 ? 9 : 0;
    return 0;
}
static int f_bus_id(char *out, int size, int device)
{
    snprintf(out, (size_t)size, "0000:%02x:00.0", (unsigned)device & 0xff);
    return 0;
}
static int f_version(int *version)
{
    *version = 13000;
    return 0;
}
static int f_mem_info(size_t *available, size_t *total)
{
    *total = fake.s.memory_bytes;
    *available = fake.s.memory_bytes - fake.used;
    return 0;
}
static int f_last_error(void)
{
    int last = fake_cuda_error(-1);
    return fake.broken ? ERROR_LAUNCH : last;
}
static const char *f_error_string(int error)
{
    return error == ERROR_LAUNCH     ? "an illegal memory access was encountered"
           : error == ERROR_MEMORY   ? "out of memory"
           : error == ERROR_UNJOINED ? "capture ends with unjoined work"
           : error == ERROR_CAPTURE  ? "operation not permitted when stream is capturing"
           : error == CUDA_NOT_READY ? "device not ready"
                                     : "invalid argument";
}
static void plugin_describe(int device, char *out, size_t size)
{
    snprintf(out, size, "a fake device %d", device);
}
static const char *plugin_open(struct cuda_libraries **out, int device, bool deterministic)
{
    (void)device;
    (void)deterministic;
    fake_cuda_lock();
    *out = fake_cuda_allocate(FAKE_LIBRARY_BYTES);
    fake_cuda_unlock();
    return *out ? NULL : "there is no room for libraries";
}
static void plugin_close(struct cuda_libraries *l)
{
    f_free(l);
}
static const char *plugin_check(enum op op, const struct kernel_args *k)
{
    (void)op;
    (void)k;
    return NULL;
}
size_t fake_cuda_workspace(enum op op)
{
    return isa_info(op)->unit == UNIT_MATMUL ? 4096 : 0;
}
static size_t plugin_workspace(enum op op, const struct kernel_args *k, int sm)
{
    (void)k;
    return sm == 90 ? fake_cuda_workspace(op) : 0;
}

/* as kernels/cuda of a linear layer's output */
static const char *plugin_note(enum op op, const struct kernel_args *k, int sm)
{
    bool odd = sm == 90 && op == OP_MATMUL_NT && k->attr[ATTR(MATMUL_NT, fp8)].i &&
               (k->operand[OPND(MATMUL_NT, c)].cols % 16 || k->operand[OPND(MATMUL_NT, a)].cols % 16);
    return odd ? "its dimensions are no multiples of 16" : NULL;
}

/* one for the process, filled once */
static const struct cuda_runtime *fake_runtime(struct cuda_plugin *p)
{
    static struct cuda_runtime t;
    t = (struct cuda_runtime){.GetDeviceCount = f_device_count,
                              .SetDevice = f_set_device,
                              .DeviceGetAttribute = f_attribute,
                              .DeviceGetPCIBusId = f_bus_id,
                              .DriverGetVersion = f_version,
                              .RuntimeGetVersion = f_version,
                              .MemGetInfo = f_mem_info,
                              .Malloc = f_malloc,
                              .Free = f_free,
                              .HostAlloc = f_host_alloc,
                              .FreeHost = f_free_host,
                              .GetLastError = f_last_error,
                              .GetErrorString = f_error_string};
    fake_streams_table(&t);
    fake_graphs_table(&t);
    fake_launches_table(&t, p);
    return &t;
}

/* of the devices' memory; not nothing where there is none, which cannot be mapped */
static size_t all_bytes(const struct fake_setup *s)
{
    return s->memory_bytes * (size_t)(s->devices ? s->devices : 1);
}

const struct cuda_plugin *fake_cuda_open(const struct fake_setup *s)
{
    memset(&fake, 0, sizeof fake);
    fake.s = *s;
    fake.random = s->seed;
    pthread_mutex_init(&fake.lock, NULL);
    void *map = mmap(NULL, all_bytes(s), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    fake.memory = map == MAP_FAILED ? NULL : map;
    fake.plugin = (struct cuda_plugin){.fingerprint = isa_fingerprint,
                                       .describe = plugin_describe,
                                       .open = plugin_open,
                                       .close = plugin_close,
                                       .check = plugin_check,
                                       .note = plugin_note,
                                       .workspace_bytes = plugin_workspace};
    fake.plugin.runtime = fake_runtime(&fake.plugin);
    return fake.memory ? &fake.plugin : NULL;
}

void fake_cuda_complaints(char *out, size_t size)
{
    uint32_t allocations = 0;
    snprintf(out, size, "%s", fake.breach);
    for (int i = 0; i < MOST_ALLOCATIONS; i++)
        allocations += fake.allocations[i].start != NULL && !fake.hung && !fake.broken; /* freeing would hang */
    if (!*out && (fake.nstreams || fake.nevents || fake.ngraphs || fake.nexecs || allocations))
        snprintf(out, size, "left behind: %u streams, %u events, %u graphs, %u executable graphs, %u allocations", fake.nstreams,
                 fake.nevents, fake.ngraphs, fake.nexecs, allocations);
}

uint64_t fake_cuda_launches(void)
{
    return fake.launches;
}

void fake_cuda_close(void)
{
    while (fake.dead) {
        struct CUevent_st *next = fake.dead->next_dead;
        free(fake.dead);
        fake.dead = next;
    }
    for (int i = 0; i < MOST_ALLOCATIONS; i++) /* pinned memory that a broken device may still use is not given back */
        if (fake.allocations[i].start && !fake.allocations[i].device)
            free(fake.allocations[i].start);
    if (fake.memory)
        munmap(fake.memory, all_bytes(&fake.s));
    pthread_mutex_destroy(&fake.lock);
    memset(&fake, 0, sizeof fake);
}
