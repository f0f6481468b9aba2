/* The safetensors reader under libFuzzer.  An even first byte: what follows is a header, to which the length
 * in front and as many bytes of data as the second byte says are added; odd: the whole file.  Whatever is
 * accepted must obey the format's rules as checked here once more, and every element must be readable. */

#include "runtime/safetensors.h"
#include "tests/fuzz/common.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static void check_accepted(const struct safetensors *s)
{
    for (uint32_t i = 0; i < safetensors_count(s); i++) {
        const struct weight *w = safetensors_at(s, i);
        uint64_t elements = 1;
        for (uint32_t d = 0; d < w->ndim; d++)
            elements *= w->shape[d];
        require(safetensors_find(s, w->name) == w);
        require(i == 0 || strcmp(safetensors_at(s, i - 1)->name, w->name) < 0);
        for (uint64_t e = 0; e < elements && w->dtype != WEIGHT_OTHER; e++) {
            float x;
            safetensors_load(w, e, 1, 1, &x);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[64];
    struct error error;
    struct safetensors *s;
    static uint8_t file[1 << 16];
    static int fd = -1;
    if (size < 2 || size > sizeof file - 300)
        return 0;
    if (fd < 0)
        require((fd = memfd_create("weights", 0)) >= 0);
    uint64_t length = size - 2;
    size_t n = data[0] & 1 ? 0 : sizeof length, behind = data[0] & 1 ? 0 : data[1];
    memcpy(file, &length, n);
    memcpy(file + n, data + 2, length);
    memset(file + n + length, 0, behind);
    n += length + behind;
    require(pwrite(fd, file, n, 0) == (ssize_t)n && !ftruncate(fd, (off_t)n));
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (safetensors_open(path, &s, &error) == STATUS_OK) {
        check_accepted(s);
        safetensors_close(s);
    } else {
        require(strlen(error.text) > 0);
    }
    return 0;
}
