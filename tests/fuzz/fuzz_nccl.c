/* NCCL dumps: the bytes stand inside a node type whose GPUs and NICs the first byte chooses, so that both
 * agreement and contradiction are met. */

#include "compiler/topology/topo.h"
#include "tests/fuzz/common.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const nics[] = {"", "<nic count='1' bandwidth='100Gb/s'/>",
                                       "<nic count='8' bandwidth='400Gb/s'/>",
                                       "<nic count='2' bandwidth='1GB/s'/><nic count='2' bandwidth='2GB/s'/>"};
    if (!size || memchr(data, 0, size))
        return 0;
    struct arena *a = empty_arena();
    struct diag *d = diag_new(a);
    unsigned shape = data[0];
    char *text = arena_printf(a,
                              "<cluster version='1'><node-type id='x' gpus='%u'>"
                              "<gpu model='%s'/>%s%s%.*s</node-type>"
                              "<nodes type='x' count='2'/><fabric><tier name='a' span='all'/></fabric>"
                              "</cluster>",
                              1 + shape % 8, shape & 8 ? "H100-SXM" : "A100-SXM",
                              shape & 16 ? "<scale-up kind='nvswitch' bandwidth='450GB/s' span='2'/>" : "",
                              nics[shape >> 5 & 3], (int)(size - 1), (const char *)data + 1);
    struct source s = {.name = "fuzz.xml", .text = text, .size = strlen(text)};
    struct topo *t = topo_parse(a, d, &s, NULL);
    require(!t == (diag_errors(d) > 0));
    const struct topo_detail *detail = t ? t->types[0].detail : NULL;
    if (detail) {
        double sum = detail->nvlink_bytes_s;
        for (uint32_t i = 0; i < detail->ngpus * detail->nnics; i++)
            sum += detail->gpu_nic_bytes_s[i];
        require(sum >= 0 && detail->ngpus <= 64);
    }
    diag_print_json(d, nowhere());
    return 0;
}
