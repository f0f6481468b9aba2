/* Token files under libFuzzer.  First byte 0: a file that stands alone, a Megatron pair otherwise, whose
 * index is as long as the second byte says.  Whatever is accepted must give ids for any sample. */

#include "runtime/data.h"
#include "tests/fuzz/common.h"

#include <unistd.h>

/* alone.bin and pair.bin are one file, and beside the second is an index; returns the path of the one to be read */
static const char *write_files(const uint8_t *index, size_t nindex, const uint8_t *ids, size_t nids)
{
    static char alone[96], pair[96];
    static int bin = -1, idx;
    if (bin < 0) {
        snprintf(alone, sizeof alone, "%s/alone.bin", fuzz_folder());
        snprintf(pair, sizeof pair, "%s/pair.bin", fuzz_folder());
        bin = fuzz_file("alone.bin");
        idx = fuzz_file("pair.idx");
        require(!link(alone, pair));
    }
    fuzz_put(bin, ids, nids);
    if (nindex)
        fuzz_put(idx, index, nindex);
    return nindex ? pair : alone;
}

/* whatever the ids are, samples can be copied; ids that are fine come out as such */
static void read_samples(const struct batch_source *s, uint64_t sequence, uint64_t vocab)
{
    struct error error;
    int32_t ids[16];
    require(data_nsamples(s) && data_ntokens(s) >= data_nsamples(s) * sequence + 1);
    bool valid = data_check(s, UINT64_MAX, &error) == STATUS_OK;
    for (uint64_t i = 0; i < 40; i++) {
        data_copy(s, i, i & 1, (uint32_t)sequence, ids, 1);
        for (uint64_t j = 0; valid && j < sequence; j++)
            require(ids[j] >= 0 && ids[j] < (int64_t)vocab);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct error error;
    struct batch_source *s;
    if (size < 4)
        return 0;
    size_t index = data[0] ? data[1] : 0, rest = size - 4;
    index = index < rest ? index : rest;
    const char *path = write_files(data + 4, index, data + 4 + index, rest - index);
    uint64_t sequence = 1 + data[2] % 8, vocab = data[3] & 1 ? 300 : 70000;
    if (data_open(path, sequence, vocab, &s, &error) == STATUS_OK) {
        read_samples(s, sequence, vocab);
        data_close(s);
    }
    return 0;
}
