/* Token files under libFuzzer.  First byte 0: a file that stands alone, a Megatron pair otherwise, whose
 * index is as long as the second byte says.  Whatever is accepted must give ids for any sample. */

#include "runtime/data.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void write_file(const char *path, const uint8_t *bytes, size_t n)
{
    FILE *out = fopen(path, "wb");
    if (!out || fwrite(bytes, 1, n, out) != n || fclose(out))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char bin[64], idx[64];
    struct error error;
    struct batch_source *s;
    if (size < 4)
        return 0;
    snprintf(bin, sizeof bin, "/dev/shm/llmc-fuzz-%d.bin", (int)getpid());
    snprintf(idx, sizeof idx, "/dev/shm/llmc-fuzz-%d.idx", (int)getpid());
    size_t index = data[0] ? data[1] : 0, rest = size - 4;
    index = index < rest ? index : rest;
    if (index)
        write_file(idx, data + 4, index);
    write_file(bin, data + 4 + index, rest - index);
    uint64_t sequence = 1 + data[2] % 8, vocab = data[3] & 1 ? 300 : 70000;
    if (data_open(bin, sequence, vocab, &s, &error) == STATUS_OK) {
        int32_t ids[16];
        if (!data_nsamples(s) || data_ntokens(s) < data_nsamples(s) * sequence + 1)
            abort();
        bool valid = data_check(s, UINT64_MAX, &error) == STATUS_OK;
        for (uint64_t i = 0; i < 40; i++) {
            data_copy(s, i, i & 1, (uint32_t)sequence, ids, 1);
            for (uint64_t j = 0; valid && j < sequence; j++)
                if (ids[j] < 0 || ids[j] >= (int64_t)vocab)
                    abort();
        }
        data_close(s);
    }
    unlink(idx);
    unlink(bin);
    return 0;
}
