/* The vocabulary of cluster.xml as tables, and `llmc help cluster`, which prints them.  <system> is a pasted NCCL dump:
 * its inside is left to the reader of dumps. */

#include "compiler/topology/topo_vocabulary.h"

#include "compiler/support/strbuf.h"
#include "compiler/support/vec.h"
#include "compiler/topology/topo_rules.h"

const char *const topo_scale_up_words[4] = {"none", "nvswitch", "mesh", "pcie"};
const char *const topo_dtype_words[6] = {"fp32", "tf32", "bf16", "fp16", "fp8", "fp4"};
static const char *const yesno_words[] = {"no", "yes"};
static const char *const version_words[] = {"1"};
const char *const topo_medium_words[6] = {"infiniband", "roce", "efa", "ethernet", "slingshot", "ici"};
const char *const topo_op_words[6] = {"all_reduce", "all_gather", "reduce_scatter",
                                      "all_to_all", "send_recv",  "broadcast"};
static const char *const dump_words[] = {"nccl", "hwloc"};
static const char *const table_words[] = {"nccl-tests"};

#define WORDS(w) (w), ARRAY_LEN(w)
#define NEED(name, kind, example, meaning)                                                                             \
    {                                                                                                                  \
        name, kind, true, example, NULL, 0, meaning                                                                    \
    }
#define MAY(name, kind, example, meaning)                                                                              \
    {                                                                                                                  \
        name, kind, false, example, NULL, 0, meaning                                                                   \
    }
#define NEED_WORD(name, words, meaning)                                                                                \
    {                                                                                                                  \
        name, VALUE_WORD, true, NULL, WORDS(words), meaning                                                            \
    }
#define MAY_WORD(name, words, meaning)                                                                                 \
    {                                                                                                                  \
        name, VALUE_WORD, false, NULL, WORDS(words), meaning                                                           \
    }

static const struct attr_rule cluster_attrs[] = {NEED_WORD("version", version_words, "of this language"),
                                                 MAY("name", VALUE_TEXT, "my-cluster", "what views call it")};
static const struct attr_rule node_type_attrs[] = {
    NEED("id", VALUE_ID, "dgx", "its name, for nodes"),
    NEED("gpus", VALUE_GPUS, "8", "GPUs of one operating system"),
    MAY("cores", VALUE_COUNT, "64", "CPU cores that its ranks share, where they are CPU ranks"),
    MAY("host-memory", VALUE_BYTES, "2TiB", "of a node"),
    MAY("host-bandwidth", VALUE_BYTES_S, "25GB/s", "per GPU, to host memory, and to GPUs that scale-up does not join"),
    MAY("mtbf", VALUE_SECONDS, "264d", "mean time between interruptions that one node causes"),
    MAY("restart", VALUE_SECONDS, "10min", "from an interruption until steps go on")};
static const struct attr_rule gpu_attrs[] = {
    NEED("model", VALUE_TEXT, "H100-SXM", "a known one ('llmc help gpus'), cpu, or any name with memory and a peak"),
    MAY("memory", VALUE_BYTES, "80GiB", "as its driver reports it"),
    MAY("reserve", VALUE_BYTES, "2GiB", "what no plan takes: context, buffers of NCCL"),
    MAY("memory-bandwidth", VALUE_BYTES_S, "3.35TB/s", "of its own memory")};
static const struct attr_rule peak_attrs[] = {
    NEED_WORD("dtype", topo_dtype_words, "of products"),
    NEED("rate", VALUE_FLOP_S, "989TFLOP/s", "dense, as the data-sheet has it"),
    MAY("efficiency", VALUE_FRACTION, "0.8", "share of it that large products reach")};
static const struct attr_rule scale_up_attrs[] = {
    {"kind", VALUE_WORD, true, "nvswitch", WORDS(topo_scale_up_words),
     "how GPUs of a node are joined; mesh: links between pairs"},
    MAY("bandwidth", VALUE_BYTES_S, "450GB/s", "per GPU, one direction; or bidirectional, not both"),
    MAY("bidirectional", VALUE_BYTES_S, "900GB/s", "the data-sheet's figure of both directions"),
    MAY("latency", VALUE_SECONDS, "2us", "of one message"),
    MAY("span", VALUE_COUNT, "18", "nodes that it joins (NVL72: 18)"),
    MAY("gpus", VALUE_COUNT, "2", "where it joins fewer than a node has"),
    MAY_WORD("multicast", yesno_words, "sums within the switch")};
static const struct attr_rule nic_attrs[] = {
    NEED("count", VALUE_COUNT, "8", "of a node"), NEED("bandwidth", VALUE_BYTES_S, "400Gb/s", "of each, one direction"),
    MAY("latency", VALUE_SECONDS, "4us", "of one message"), MAY_WORD("gdr", yesno_words, "reads GPU memory by itself")};
static const struct attr_rule topology_attrs[] = {
    NEED_WORD("format", dump_words, "of the dump"),
    NEED("href", VALUE_TEXT, "node.xml", "the dump of one node, beside this file")};
static const struct attr_rule nodes_attrs[] = {
    NEED("type", VALUE_ID, "dgx", "which kind of node"), MAY("count", VALUE_COUNT, "16", "how many"),
    MAY("names", VALUE_TEXT, "gpu[001-016]", "their host names, as Slurm writes them")};
static const struct attr_rule fabric_attrs[] = {
    MAY_WORD("medium", topo_medium_words, "of the network"),
    MAY("rails", VALUE_COUNT, "8", "switches of a lowest group; GPU i is on rail i mod rails"),
    MAY_WORD("cross-rail", yesno_words, "do rails meet above?")};
static const struct attr_rule tier_attrs[] = {
    NEED("name", VALUE_ID, "leaf", "its name"),
    NEED("span", VALUE_SPAN, "all", "nodes below one group of its switches, innermost tier first"),
    MAY("oversubscription", VALUE_RATIO, "2", "bandwidth below over bandwidth above"),
    MAY("latency", VALUE_SECONDS, "1us", "that it adds, one way")};
static const struct attr_rule group_attrs[] = {
    NEED("tier", VALUE_ID, "leaf", "a tier whose groups are not equal runs of nodes"),
    NEED("name", VALUE_ID, "row1", "of the group"), NEED("nodes", VALUE_TEXT, "gpu[001-016]", "in it")};
static const struct attr_rule torus_attrs[] = {NEED("dims", VALUE_TEXT, "16x16x16", "nodes along each axis"),
                                               NEED("link", VALUE_BYTES_S, "100GB/s", "of one link, one direction"),
                                               MAY("latency", VALUE_SECONDS, "1us", "of one message"),
                                               MAY_WORD("wrap", yesno_words, "do axes close to rings?")};
static const struct attr_rule exclude_attrs[] = {MAY("nodes", VALUE_TEXT, "gpu007", "not used"),
                                                 MAY("gpus", VALUE_TEXT, "gpu007:0,3", "not used: host:first,second"),
                                                 MAY("reason", VALUE_TEXT, "ECC", "printed where it matters")};
static const struct attr_rule spare_attrs[] = {MAY("nodes", VALUE_TEXT, "gpu[015-016]", "kept free"),
                                               MAY("count", VALUE_COUNT, "2", "nodes kept free"),
                                               MAY("per", VALUE_ID, "pod", "in each group of that tier"),
                                               MAY("reason", VALUE_TEXT, "hot spare", "printed where it matters")};
static const struct attr_rule degraded_attrs[] = {
    MAY("nodes", VALUE_TEXT, "gpu007", "that are slower"), MAY("gpus", VALUE_TEXT, "gpu007:0,3", "that are slower"),
    MAY("nic-bandwidth", VALUE_BYTES_S, "200Gb/s", "what their NICs reach"),
    MAY("compute", VALUE_FRACTION, "0.9", "share of the usual rate"),
    MAY("reason", VALUE_TEXT, "slow link", "printed where it matters")};
static const struct attr_rule measured_attrs[] = {MAY("date", VALUE_DATE, "2026-01-31", "of the measurement")};
static const struct attr_rule collective_attrs[] = {NEED_WORD("op", topo_op_words, "what was measured"),
                                                    NEED("ranks", VALUE_COUNT, "8", "that took part"),
                                                    MAY("per-node", VALUE_COUNT, "8", "of them on each node"),
                                                    MAY("tier", VALUE_ID, "leaf", "over which it went"),
                                                    MAY("type", VALUE_ID, "dgx", "of the nodes"),
                                                    MAY_WORD("format", table_words, "of a table"),
                                                    MAY("href", VALUE_TEXT, "table.txt", "the table of nccl-tests")};
static const struct attr_rule collective_point_attrs[] = {
    NEED("size", VALUE_BYTES, "1MiB", "of the message, as nccl-tests counts it"),
    MAY("busbw", VALUE_BYTES_S, "360GB/s", "or time"), MAY("time", VALUE_SECONDS, "48us", "or busbw")};
static const struct attr_rule gemm_attrs[] = {NEED_WORD("dtype", topo_dtype_words, "of products"),
                                              MAY("type", VALUE_ID, "dgx", "of the nodes")};
static const struct attr_rule gemm_point_attrs[] = {
    NEED("m", VALUE_COUNT, "8192", "rows"), NEED("n", VALUE_COUNT, "8192", "columns"),
    NEED("k", VALUE_COUNT, "8192", "summed over"), MAY("rate", VALUE_FLOP_S, "700TFLOP/s", "or efficiency"),
    MAY("efficiency", VALUE_FRACTION, "0.7", "share of the peak")};
static const struct attr_rule kernel_attrs[] = {NEED("op", VALUE_TEXT, "RMSNORM", "an instruction ('llmc isa')"),
                                                NEED_WORD("dtype", topo_dtype_words, "of its operands"),
                                                MAY("type", VALUE_ID, "dgx", "of the nodes")};
static const struct attr_rule kernel_point_attrs[] = {NEED("size", VALUE_BYTES, "1MiB", "bytes read and written"),
                                                      NEED("time", VALUE_SECONDS, "90us", "that it takes")};
static const struct attr_rule attention_point_attrs[] = {
    NEED("sequence", VALUE_COUNT, "4096", "tokens"), NEED("head", VALUE_COUNT, "128", "width of a head"),
    NEED("forward", VALUE_FLOP_S, "30GFLOP/s", "rate of the forward pass"),
    NEED("backward", VALUE_FLOP_S, "40GFLOP/s", "rate of the backward pass")};

const struct element_rule topo_elements[] = {
    {"cluster", "", ONCE, WORDS(cluster_attrs), ""},
    {"node-type", "cluster", ONCE_OR_MORE, WORDS(node_type_attrs),
     "<node-type id=\"dgx\" gpus=\"8\"><gpu model=\"H100-SXM\"/></node-type>"},
    {"gpu", "node-type", ONCE, WORDS(gpu_attrs), "<gpu model=\"H100-SXM\"/>"},
    {"peak", "gpu", ANY, WORDS(peak_attrs), ""},
    {"scale-up", "node-type", AT_MOST_ONCE, WORDS(scale_up_attrs), ""},
    {"nic", "node-type", ANY, WORDS(nic_attrs), ""},
    {"topology", "node-type", AT_MOST_ONCE, WORDS(topology_attrs), ""},
    {"system", "node-type", AT_MOST_ONCE, NULL, 0, ""},
    {"nodes", "cluster", ONCE_OR_MORE, WORDS(nodes_attrs), "<nodes type=\"dgx\" count=\"16\"/>"},
    {"fabric", "cluster", AT_MOST_ONCE, WORDS(fabric_attrs), ""},
    {"tier", "fabric", ANY, WORDS(tier_attrs), ""},
    {"group", "fabric", ANY, WORDS(group_attrs), ""},
    {"torus", "fabric", AT_MOST_ONCE, WORDS(torus_attrs), ""},
    {"exclude", "cluster", ANY, WORDS(exclude_attrs), ""},
    {"spare", "cluster", ANY, WORDS(spare_attrs), ""},
    {"degraded", "cluster", ANY, WORDS(degraded_attrs), ""},
    {"measured", "cluster", ANY, WORDS(measured_attrs), ""},
    {"collective", "measured", ANY, WORDS(collective_attrs), ""},
    {"point", "collective", ANY, WORDS(collective_point_attrs), ""},
    {"gemm", "measured", ANY, WORDS(gemm_attrs), ""},
    {"point", "gemm", ONCE_OR_MORE, WORDS(gemm_point_attrs),
     "<point m=\"8192\" n=\"8192\" k=\"8192\" efficiency=\"0.7\"/>"},
    {"attention", "measured", ANY, WORDS(gemm_attrs), ""},
    {"point", "attention", ONCE_OR_MORE, WORDS(attention_point_attrs),
     "<point sequence=\"4096\" head=\"128\" forward=\"30GFLOP/s\" backward=\"40GFLOP/s\"/>"},
    {"kernel", "measured", ANY, WORDS(kernel_attrs), ""},
    {"point", "kernel", ONCE_OR_MORE, WORDS(kernel_point_attrs), "<point size=\"1MiB\" time=\"90us\"/>"},
};
const size_t topo_nelements = ARRAY_LEN(topo_elements);

static const char introduction[] =
    "The cluster file, version 1: XML, every number with its unit, one direction, per GPU or per NIC.\n"
    "\n"
    "  <cluster version=\"1\" name=\"small\">\n"
    "    <node-type id=\"hgx\" gpus=\"8\">\n"
    "      <gpu model=\"H100-SXM\"/>\n"
    "      <nic count=\"8\" bandwidth=\"400Gb/s\"/>\n"
    "    </node-type>\n"
    "    <nodes type=\"hgx\" count=\"32\"/>\n"
    "    <fabric medium=\"infiniband\">\n"
    "      <tier name=\"leaf\" span=\"all\"/>\n"
    "    </fabric>\n"
    "  </cluster>\n"
    "\n"
    "Units: 80GiB 80GB, 400Gb/s 50GB/s, 989TFLOP/s, ns us ms s. A known GPU needs nothing but its name, and brings the\n"
    "usual machine's scale-up. Two nodes or more want a NIC and a fabric. 'llmc topo show FILE' prints what was understood.\n";

/* what an attribute may be: its words, or a value */
static void print_values(struct strbuf *b, const struct attr_rule *r)
{
    for (size_t i = 0; i < r->nwords; i++)
        strbuf_printf(b, "%s%s", i ? " | " : "", r->words[i]);
    if (!r->nwords)
        strbuf_text(b, r->example);
}

void topo_help(FILE *out)
{
    enum { MEANING = 53, WIDTH = 110 };
    static const char *const often[] = {"once", "at most once", "once or more", "any number"};
    fputs(introduction, out);
    for (size_t e = 0; e < topo_nelements; e++) {
        const struct element_rule *x = &topo_elements[e];
        fprintf(out, "\n<%s>%s%s%s%s%s\n", x->name, *x->parent ? " in <" : "", x->parent, *x->parent ? ">, " : "",
                *x->parent ? often[x->occurs] : "", x->nattrs ? "" : ": a node's NCCL dump, as it is");
        for (size_t k = 0; k < x->nattrs; k++) {
            struct strbuf row = {0};
            strbuf_printf(&row, "  %-18s ", x->attrs[k].name);
            print_values(&row, &x->attrs[k]);
            if (row.length > MEANING - 2)
                strbuf_char(&row, '\n');
            strbuf_repeat(&row, ' ', row.length > MEANING - 2 ? MEANING : MEANING - row.length);
            struct strbuf meaning = {0};
            strbuf_printf(&meaning, "%s%s", x->attrs[k].meaning, x->attrs[k].required ? "; required" : "");
            strbuf_wrap(&row, meaning.text, MEANING, MEANING, WIDTH);
            strbuf_free(&meaning);
            fprintf(out, "%s\n", row.text);
            strbuf_free(&row);
        }
    }
}
