#ifndef LLMC_TOPO_NCCL_H
#define LLMC_TOPO_NCCL_H

/* An NCCL topology dump (NCCL_TOPO_DUMP_FILE), or one written by hand for NCCL_TOPO_FILE: the <system> tree
 * as a list of GPUs and NICs with the PCIe ports above them.  Partial files are the rule; what is absent is 0
 * or NULL here. */

#include "compiler/topology/topo_xml.h"

#include "compiler/support/vec.h"

#define NCCL_DEVICES_MAX 256u

struct nccl_gpu {
    const struct xml_element *pci, *gpu; /* gpu: NULL in partial files */
    uint32_t host;
    int64_t dev; /* NVML index, -1 = not stated */
    uint32_t sm; /* 0 = not stated */
    uint32_t nvlinks;
    bool nvswitch;        /* its NVLinks lead to switches, not to GPUs */
    unsigned long device; /* PCI device id of vendor 0x10de, 0 = not stated */
};

struct nccl_nic {
    const struct xml_element *pci; /* NULL: virtual, directly below a CPU */
    uint32_t host;
    const char *guid; /* of its first port, or NULL */
    double bytes_s;   /* of all its ports; 0 = not stated */
};

struct nccl_dump {
    VEC(struct nccl_gpu) gpus;
    VEC(struct nccl_nic) nics; /* ports of one card (same guid) are one NIC */
    uint32_t nnuma, nhosts;    /* nhosts >= 1 */
    bool has_gpu, has_net;     /* <gpu> and <net> rows exist: then PCI devices without one do not count */
};

/* false after an error; oddities are warnings */
bool nccl_read(struct arena *a, struct diag *d, const struct xml_element *system, struct nccl_dump *dump);

/* PCIe bytes/s between two devices, counting only ports below the lowest switch that both are under; 0 when
 * they meet at the CPU only. */
double nccl_path_bytes_s(const struct xml_element *pci_a, const struct xml_element *pci_b);

/* effective bytes/s of one NVLink, one direction, of a GPU generation */
double nccl_nvlink_bytes_s(uint32_t sm);

#endif
