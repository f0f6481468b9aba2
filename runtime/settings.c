/* The command line, and what this build cannot do yet, said by name. */

#include "runtime/settings.h"
#include "runtime/routing.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LLMRUN_VERSION "0.1"

static const char help[] =
    "Usage: llmrun PLAN --data FILE [options]\n"
    "       llmrun PLAN TRANSITION PLAN --at N --data FILE [options]\n"
    "       llmrun PLAN --generate PROMPT --init DIR [options]\n"
    "Replay a plan made by llmc: one process per rank, on CPUs over shared memory, or on several hosts with MPI.\n"
    "\n"
    "  --data FILE           tokens: flat uint16 or uint32, with or without a 1,024-byte header, or Megatron "
    ".bin/.idx\n"
    "  --steps N             training steps (default: the length the job states)\n"
    "  --at N                with two plans and the transition between them ('llmc transition'): N steps by the first, then\n"
    "                        weights and moments move in memory, and the second goes on.  CPU ranks of one machine\n"
    "  --init DIR            start from Hugging Face safetensors instead of the seeded initial values\n"
    "  --save DIR            write the final weights as DIR/model.safetensors\n"
    "  --checkpoint DIR      take checkpoints, as generations DIR/step-N that any plan of the job can go on from: at the end,\n"
    "                        when SIGTERM or SIGINT asks for the end (exit code 75), and in between\n"
    "  --every N|TIME        every N steps, or every 30s, 10m, 2h (10m)\n"
    "  --keep N              keep the newest N generations (3; 0 = all)\n"
    "  --keep-every N        and those of all steps that are multiples of N\n"
    "  --resume              go on from the newest intact checkpoint in DIR, or from the beginning if there is none\n"
    "  --check-replicas N    compare, every N steps, what ranks hold that must hold the same bits, and name who differs; without it\n"
    "                        this happens where a checkpoint is taken.  Ranks of one machine\n"
    "  --restarts N          where a rank dies or hangs, start all of them again from the newest checkpoint, N times at most;\n"
    "                        not where it fails three times in the same words\n"
    "  --goodput             at the end: what share of the time went into steps that count, and what was lost to what\n"
    "  --on-spike say|stop   a step whose loss or gradient norm is far above that of the steps before is said (say); stop: and\n"
    "                        the run stops after a checkpoint, as for SIGTERM\n"
    "  --eval FILE           held-out tokens; their loss is measured at the end\n"
    "  --eval-every N        and every N steps\n"
    "  --log FILE            one JSON line per step: step, loss, grad_norm, lr, tokens (so far), "
    "step_time_s, tokens_per_s,\n"
    "                        core_s (seconds on cores of all ranks);\n"
    "                        if it cannot be written the run goes on, and ends with exit code 4; - is stdout\n"
    "  --trace FILE          what the last step really did, for ui.perfetto.dev or chrome://tracing\n"
    "  --flip-bit RANK:STEP  damage a weight of a rank after a step (a test: it must be found)\n"
    "  --slow-rank RANK:N    a rank's kernels take N times as long (a test: it must be named)\n"
    "  --shuffle-queues SEED run ready queues in a seeded adversarial order (a test: results must not "
    "change)\n"
    "  --dump-gradients DIR  write the first step's gradients, reduced and not clipped, as "
    "DIR/gradients.safetensors\n"
    "  --paced FILE          every kernel and transfer only takes its planned time ('llmc trace DIR --times -o FILE'):\n"
    "                        how close does the step come to the simulated one?  Nothing is computed\n"
    "  --routing FILE        let tokens go to the experts that another run chose\n"
    "  --routing-save FILE   record what this run chooses\n"
    "  --routing-compare FILE count the tokens whose choice differs from the recorded one, and by what margin (--json)\n"
    "  --watchdog SECONDS    fail, with a list of who waits for whom, after so long without progress (60; 0 "
    "= never)\n"
    "  --ranks local|all     refuse plans for several nodes, or start all their ranks here (default: all)\n";

static const char help_devices[] =
    "  --device cpu|cuda     where kernels run (cpu); cuda needs the plugin llmrun-cuda.so, NVIDIA's driver and a GPU per rank,\n"
    "                        or one for all with --transport d2d\n"
    "  --transport shm|mpi|nccl|d2d\n"
    "                        how ranks exchange data: on CPUs shm (one host) or mpi (one or several: mpirun -n N llmrun ...,\n"
    "                        or srun --mpi=pmix; it needs the plugin llmrun-mpi.so and Open MPI, and --save and\n"
    "                        --checkpoint a file system that the hosts share); on GPUs nccl (a GPU per rank) or d2d (all ranks on one GPU).  shm and mpi give\n"
    "                        equal results in every bit\n"
    "  --replay eager|segments|graph\n"
    "                        on GPUs: instruction by instruction, stretches as CUDA graphs, or each step as one (graph); results\n"
    "                        are equal in every bit\n"
    "  --rendezvous HOST:PORT ranks on several machines meet at rank 0's address, with --transport nccl; LLMRUN_SECRET in the\n"
    "                        environment is what all must know.  Default: MASTER_ADDR and the port behind MASTER_PORT, where\n"
    "                        a plan for several nodes is started by torchrun\n"
    "  --rank N --world N    which rank this is, of how many, where no launcher's variables say so\n"
    "  --no-deterministic    on GPUs: kernels may add in an order that differs from run to run, where that is faster\n"
    "  --calibrate           without a plan: measure this machine, in a few seconds.  CPU ranks: kernels and collectives, as a\n"
    "                        whole cluster file of --world N ranks (as many as there are cores).  With --device cuda: the\n"
    "                        <measured> block of one, kernels, or with --transport nccl collectives, a process per GPU under\n"
    "                        torchrun and the like\n"
    "  -o FILE               where --calibrate writes (stdout)\n"
    "  --json                print a summary with memory figures on stdout at the end\n"
    "  --quiet               no progress on stderr\n"
    "  --help, --version\n"
    "\n";

static const char help_generate[] =
    "What a trained model writes, on CPU ranks, without training:\n"
    "  --generate PROMPT     continue the prompt; both go to stdout, token by token.  A vocabulary of 256 to 272 entries is\n"
    "                        bytes, and the prompt any text; for any other the prompt is token ids between commas or spaces,\n"
    "                        and ids come out.  Keys and values are not kept: each token costs an evaluation of the plan's\n"
    "                        whole batch, so that a plan for one rank with a batch of one sequence is the fastest, and takes\n"
    "                        the weights of all other plans of the model\n"
    "  --init DIR            the weights: what --save has written, or a generation of --checkpoint, DIR/step-N\n"
    "  --tokens N            so many new tokens (100)\n"
    "  --temperature T       0: always the likeliest token; 1: each as often as the model has it (0.8)\n"
    "  --top-k K             one of the K likeliest\n"
    "  --seed S              another text (0); the same on every plan, unless rounding decides\n"
    "  --json                one object at the end, with text, ids and seconds\n"
    "\n";

static const char help_end[] =
    "Started under torchrun, mpirun or srun (RANK and WORLD_SIZE, or their variables, are set), it runs that "
    "one rank:\n"
    "with --transport mpi on any hosts, else of one host.\n"
    "Exit codes: 0 fine, 2 usage, 3 bad input or changed plan, 4 environment, 5 plan and hosts don't match, "
    "70 a bug,\n75 stopped by a signal after a checkpoint; under mpirun, where a rank was killed, mpirun's: 128 and the signal.\n";

enum {
    OPT_DATA = 1000,
    OPT_STEPS,
    OPT_GOODPUT,
    OPT_AT,
    OPT_INIT,
    OPT_SAVE,
    OPT_EVAL,
    OPT_EVAL_EVERY,
    OPT_LOG,
    OPT_TRACE,
    OPT_SHUFFLE,
    OPT_GRADIENTS,
    OPT_WATCHDOG,
    OPT_RANKS,
    OPT_DEVICE,
    OPT_TRANSPORT,
    OPT_REPLAY,
    OPT_RENDEZVOUS,
    OPT_RANK,
    OPT_WORLD,
    OPT_FREE_ORDER,
    OPT_JSON,
    OPT_QUIET,
    OPT_HELP,
    OPT_VERSION,
    OPT_CHECKPOINT,
    OPT_RESUME,
    OPT_EVERY,
    OPT_KEEP,
    OPT_REPLICAS,
    OPT_FLIP,
    OPT_SLOW,
    OPT_SPIKE,
    OPT_RESTARTS,
    OPT_KEEP_EVERY,
    OPT_PACED,
    OPT_CALIBRATE,
    OPT_ROUTING,
    OPT_ROUTING_SAVE,
    OPT_ROUTING_COMPARE,
    OPT_GENERATE,
    OPT_TOKENS,
    OPT_TEMPERATURE,
    OPT_TOP_K,
    OPT_SEED
};

static const struct option long_options[] = {{"data", required_argument, NULL, OPT_DATA},
                                             {"steps", required_argument, NULL, OPT_STEPS},
                                             {"at", required_argument, NULL, OPT_AT},
                                             {"goodput", no_argument, NULL, OPT_GOODPUT},
                                             {"init", required_argument, NULL, OPT_INIT},
                                             {"save", required_argument, NULL, OPT_SAVE},
                                             {"eval", required_argument, NULL, OPT_EVAL},
                                             {"eval-every", required_argument, NULL, OPT_EVAL_EVERY},
                                             {"log", required_argument, NULL, OPT_LOG},
                                             {"trace", required_argument, NULL, OPT_TRACE},
                                             {"shuffle-queues", required_argument, NULL, OPT_SHUFFLE},
                                             {"dump-gradients", required_argument, NULL, OPT_GRADIENTS},
                                             {"watchdog", required_argument, NULL, OPT_WATCHDOG},
                                             {"ranks", required_argument, NULL, OPT_RANKS},
                                             {"device", required_argument, NULL, OPT_DEVICE},
                                             {"transport", required_argument, NULL, OPT_TRANSPORT},
                                             {"rendezvous", required_argument, NULL, OPT_RENDEZVOUS},
                                             {"rank", required_argument, NULL, OPT_RANK},
                                             {"world", required_argument, NULL, OPT_WORLD},
                                             {"replay", required_argument, NULL, OPT_REPLAY},
                                             {"no-deterministic", no_argument, NULL, OPT_FREE_ORDER},
                                             {"checkpoint", required_argument, NULL, OPT_CHECKPOINT},
                                             {"resume", no_argument, NULL, OPT_RESUME},
                                             {"every", required_argument, NULL, OPT_EVERY},
                                             {"keep", required_argument, NULL, OPT_KEEP},
                                             {"check-replicas", required_argument, NULL, OPT_REPLICAS},
                                             {"flip-bit", required_argument, NULL, OPT_FLIP},
                                             {"slow-rank", required_argument, NULL, OPT_SLOW},
                                             {"on-spike", required_argument, NULL, OPT_SPIKE},
                                             {"restarts", required_argument, NULL, OPT_RESTARTS},
                                             {"keep-every", required_argument, NULL, OPT_KEEP_EVERY},
                                             {"paced", required_argument, NULL, OPT_PACED},
                                             {"calibrate", no_argument, NULL, OPT_CALIBRATE},
                                             {"routing", required_argument, NULL, OPT_ROUTING},
                                             {"routing-save", required_argument, NULL, OPT_ROUTING_SAVE},
                                             {"routing-compare", required_argument, NULL, OPT_ROUTING_COMPARE},
                                             {"generate", required_argument, NULL, OPT_GENERATE},
                                             {"tokens", required_argument, NULL, OPT_TOKENS},
                                             {"temperature", required_argument, NULL, OPT_TEMPERATURE},
                                             {"top-k", required_argument, NULL, OPT_TOP_K},
                                             {"seed", required_argument, NULL, OPT_SEED},
                                             {"json", no_argument, NULL, OPT_JSON},
                                             {"quiet", no_argument, NULL, OPT_QUIET},
                                             {"help", no_argument, NULL, OPT_HELP},
                                             {"version", no_argument, NULL, OPT_VERSION},
                                             {NULL, 0, NULL, 0}};

static enum status usage(const char *what, const char *value, const char *why)
{
    fprintf(stderr, "llmrun: %s%s%s: %s\nTry 'llmrun --help'.\n", what, value ? " " : "", value ? value : "", why);
    return STATUS_USAGE;
}

static enum status read_count(const char *name, const char *text, uint64_t least, uint64_t *out)
{
    char *end;
    errno = 0;
    unsigned long long n = strtoull(text, &end, 10);
    if (errno || end == text || *end || text[0] == '-' || n < least || n > INT64_MAX)
        return usage(name, text, least ? "not a whole number from 1 on" : "not a whole number");
    *out = n;
    return STATUS_OK;
}

/* the index of value in a list of words between spaces */
static enum status read_choice(const char *name, const char *value, const char *words, int *out)
{
    char why[128];
    int index = 0;
    size_t n = strlen(value);
    for (const char *word = words; *word; word += strcspn(word, " "), word += *word == ' ', index++)
        if (n && strcspn(word, " ") == n && strncmp(word, value, n) == 0) {
            *out = index;
            return STATUS_OK;
        }
    snprintf(why, sizeof why, "not one of: %s", words);
    return usage(name, value, why);
}

/* options that only name something */
static const char **path_of(struct settings *o, int option)
{
    const struct {
        int option;
        const char **path;
    } paths[] = {{OPT_DATA, &o->data},
                 {OPT_INIT, &o->init},
                 {OPT_SAVE, &o->save},
                 {OPT_EVAL, &o->eval},
                 {OPT_LOG, &o->log},
                 {OPT_TRACE, &o->trace},
                 {OPT_RENDEZVOUS, &o->rendezvous},
                 {OPT_GRADIENTS, &o->gradients},
                 {OPT_CHECKPOINT, &o->checkpoint.dir},
                 {OPT_PACED, &o->paced},
                 {OPT_GENERATE, &o->generate},
                 {OPT_ROUTING, &o->routing[ROUTING_REPLAY]},
                 {OPT_ROUTING_SAVE, &o->routing[ROUTING_SAVE]},
                 {OPT_ROUTING_COMPARE, &o->routing[ROUTING_COMPARE]}};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        if (paths[i].option == option)
            return paths[i].path;
    return NULL;
}

/* a number from 0 on; why: what it is not, if it isn't */
static enum status read_number(const char *name, const char *text, const char *why, double *out)
{
    char *end;
    *out = strtod(text, &end);
    return *end || end == text || !(*out >= 0) || !isfinite(*out) ? usage(name, text, why) : STATUS_OK;
}

/* options of --generate */
static enum status apply_sampling(struct settings *o, int option)
{
    if (option == OPT_TEMPERATURE) {
        o->sampling = "--temperature";
        return read_number(o->sampling, optarg, "not a number from 0 on", &o->temperature);
    }
    o->sampling = option == OPT_TOKENS ? "--tokens" : option == OPT_TOP_K ? "--top-k" : "--seed";
    return read_count(o->sampling, optarg, option != OPT_SEED,
                      option == OPT_TOKENS  ? &o->tokens
                      : option == OPT_TOP_K ? &o->top_k
                                            : &o->seed);
}

/* "RANK:STEP" */
static enum status read_flip(const char *name, const char *text, uint64_t flip[2])
{
    unsigned rank, step;
    int n = 0;
    if (sscanf(text, "%9u:%9u%n", &rank, &step, &n) != 2 || text[n] || !step)
        return usage(name, text, "not RANK:STEP, as 2:10");
    flip[0] = rank;
    flip[1] = step;
    return STATUS_OK;
}

/* "RANK:N" */
static enum status read_slow(const char *name, const char *text, struct settings *o)
{
    unsigned rank;
    int n = 0;
    if (sscanf(text, "%9u:%lf%n", &rank, &o->slow_by, &n) != 2 || text[n] || !(o->slow_by >= 1) || o->slow_by > 1000)
        return usage(name, text, "not RANK:N, as 2:1.5");
    o->slow_rank = rank;
    return STATUS_OK;
}

/* "200": steps; "30s", "10m", "2h": time */
static enum status read_interval(const char *name, const char *text, struct saver_rules *rules)
{
    static const struct {
        char unit;
        double seconds;
    } units[] = {{'s', 1}, {'m', 60}, {'h', 3600}};
    char *end;
    double n = strtod(text, &end);
    bool time = false;
    rules->every_steps = 0;
    rules->every_s = 0;
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (*end == units[i].unit && end[1] == 0) {
            rules->every_s = units[i].seconds * n;
            time = true;
        }
    if (!(n > 0) || n > 1e15 || (*end && !time) || (!time && n != floor(n)))
        return usage(name, text, "neither steps (200) nor a time (30s, 10m, 2h)");
    rules->every_steps = time ? 0 : (uint64_t)n;
    return STATUS_OK;
}

/* options of what a run survives; *known false: another option */
static enum status apply_lasting(struct settings *o, int option, bool *known)
{
    int choice = 0;
    *known = true;
    switch (option) {
    case OPT_EVERY:
        return read_interval("--every", optarg, &o->checkpoint);
    case OPT_KEEP:
        return read_count("--keep", optarg, 0, &o->checkpoint.keep);
    case OPT_KEEP_EVERY:
        return read_count("--keep-every", optarg, 1, &o->checkpoint.keep_every);
    case OPT_RESTARTS:
        return read_count("--restarts", optarg, 0, &o->restarts);
    case OPT_REPLICAS:
        return read_count("--check-replicas", optarg, 1, &o->replicas_every);
    case OPT_FLIP:
        return read_flip("--flip-bit", optarg, o->flip);
    case OPT_GOODPUT:
        o->goodput = true;
        return STATUS_OK;
    case OPT_SPIKE:
        TRY(read_choice("--on-spike", optarg, "say stop", &choice));
        o->stop_on_spike = choice == 1;
        return STATUS_OK;
    case OPT_SLOW:
        return read_slow("--slow-rank", optarg, o);
    case OPT_RESUME:
        o->resume = true;
        return STATUS_OK;
    case OPT_TOKENS:
    case OPT_TEMPERATURE:
    case OPT_TOP_K:
    case OPT_SEED:
        return apply_sampling(o, option);
    default:
        *known = false;
        return STATUS_OK;
    }
}

static enum status apply(struct settings *o, int option, bool *done)
{
    const char **path = path_of(o, option);
    int choice = 0;
    bool known;
    if (path) {
        *path = optarg;
        return STATUS_OK;
    }
    TRY(apply_lasting(o, option, &known));
    if (known)
        return STATUS_OK;
    switch (option) {
    case OPT_STEPS:
        return read_count("--steps", optarg, 1, &o->steps);
    case OPT_AT:
        return read_count("--at", optarg, 1, &o->at);
    case OPT_EVAL_EVERY:
        return read_count("--eval-every", optarg, 1, &o->eval_every);
    case OPT_SHUFFLE:
        return read_count("--shuffle-queues", optarg, 1, &o->shuffle_seed);
    case OPT_WATCHDOG:
        return read_number("--watchdog", optarg, "not a number of seconds", &o->watchdog_s);
    case OPT_RANKS:
        o->local_ranks = strcmp(optarg, "local") == 0;
        return o->local_ranks || strcmp(optarg, "all") == 0 ? STATUS_OK
                                                            : usage("--ranks", optarg, "neither local nor all");
    case OPT_DEVICE:
        TRY(read_choice("--device", optarg, "cpu cuda", &choice));
        o->cuda = choice == 1;
        return STATUS_OK;
    case OPT_TRANSPORT:
        return read_choice("--transport", optarg, "shm nccl d2d mpi", &o->transport);
    case OPT_REPLAY:
        return read_choice("--replay", optarg, "eager segments graph", &o->replay);
    case OPT_RANK:
        return read_count("--rank", optarg, 0, &o->rank);
    case OPT_WORLD:
        return read_count("--world", optarg, 1, &o->ranks);
    case OPT_FREE_ORDER:
        o->free_order = true;
        return STATUS_OK;
    case OPT_CALIBRATE:
        o->calibrate = true;
        return STATUS_OK;
    case 'o':
        o->output = optarg;
        return STATUS_OK;
    case OPT_JSON:
        o->json = true;
        return STATUS_OK;
    case OPT_QUIET:
        o->quiet = true;
        return STATUS_OK;
    case OPT_HELP:
        fputs(help, stdout);
        fputs(help_devices, stdout);
        fputs(help_generate, stdout);
        fputs(help_end, stdout);
        *done = true;
        return STATUS_OK;
    case OPT_VERSION:
        puts("llmrun " LLMRUN_VERSION);
        *done = true;
        return STATUS_OK;
    default: /* getopt has said what is wrong */
        fputs("Try 'llmrun --help'.\n", stderr);
        return STATUS_USAGE;
    }
}

/* options whose ranks share memory, or start each other */
static bool needs_memory(const struct settings *o)
{
    return o->trace || o->paced || o->restarts || o->replicas_every || o->generate || o->routing[ROUTING_SAVE] ||
           o->routing[ROUTING_COMPARE];
}

/* what goes with which device */
static enum status settle_device(struct settings *o)
{
    enum { SHM, NCCL, D2D, MPI };
    o->mpi = o->transport == MPI;
    if (!o->cuda && (o->transport == NCCL || o->transport == D2D))
        return usage("--transport", o->transport == NCCL ? "nccl" : "d2d", "needs --device cuda");
    if (!o->cuda && o->replay >= 0)
        return usage("--replay", NULL, "needs --device cuda");
    if (o->rendezvous && (!o->cuda || o->transport == D2D))
        return usage("--rendezvous", NULL, "needs --device cuda --transport nccl");
    if ((o->rank || o->ranks) && (!o->rendezvous || o->rank >= o->ranks))
        return usage("--rank", NULL, "needs --rendezvous and --world, which is greater");
    if (o->mpi && needs_memory(o))
        return usage("--transport", "mpi",
                     "not with --trace, --paced, --restarts, --check-replicas, --generate, --routing-save or "
                     "--routing-compare");
    if (!o->cuda)
        return STATUS_OK;
    if (o->mpi)
        return usage("--transport", "mpi", "is for CPU ranks; on GPUs nccl or d2d");
    if (o->transport == SHM)
        return usage("--transport", "shm", "does not reach GPUs: nccl or d2d");
    if (o->shuffle_seed || o->paced || o->routing[ROUTING_SAVE] || o->routing[ROUTING_COMPARE])
        return usage("--device", "cuda", "not with --shuffle-queues, --paced, --routing-save or --routing-compare");
    o->nccl = o->transport != D2D;
    o->replay = o->replay < 0 ? 2 : o->replay;
    return STATUS_OK;
}

/* what --generate needs and excludes */
static enum status settle_generation(const struct settings *o)
{
    bool routes = false;
    for (int i = 0; i < 4; i++)
        routes |= o->routing[i] != NULL;
    if (!o->generate)
        return o->sampling ? usage(o->sampling, NULL, "needs --generate PROMPT") : STATUS_OK;
    if (!o->init)
        return usage("--generate", NULL, "needs --init DIR, weights that --save or --checkpoint has written");
    if (o->cuda)
        return usage("--generate", NULL, "runs on CPU ranks, not with --device cuda");
    if (o->data || o->steps || o->eval || o->save || o->log || o->trace || o->gradients || o->paced || routes ||
        o->checkpoint.dir)
        return usage("--generate", NULL,
                     "trains nothing: no --data, --steps, --eval, --save, --checkpoint, --log, --trace, "
                     "--dump-gradients, --paced or --routing");
    return STATUS_OK;
}

/* PLAN, or PLAN TRANSITION PLAN */
static enum status take_plans(struct settings *o, int n, char **words)
{
    if (n < 1)
        return usage("PLAN", NULL, "missing: the folder that 'llmc plan' wrote");
    if (n != 1 && n != 3)
        return usage(words[1], NULL, "one plan at a time, or PLAN TRANSITION PLAN with --at N");
    o->dir = words[0];
    o->transition = n == 3 ? words[1] : NULL;
    o->then = n == 3 ? words[2] : NULL;
    if ((n == 3) != (o->at > 0))
        return n == 3 ? usage("--at", NULL, "missing: after how many steps the second plan goes on")
                      : usage("--at", NULL, "is for PLAN TRANSITION PLAN");
    bool routes = o->routing[ROUTING_SAVE] || o->routing[ROUTING_REPLAY] || o->routing[ROUTING_COMPARE];
    if (o->then && (o->cuda || o->transport > 0 || o->resume || o->restarts || o->goodput || o->trace || o->paced ||
                    o->generate || o->gradients || routes))
        return usage(
            "--at", NULL,
            "not with --device cuda, --transport, --resume, --restarts, --goodput, --trace, --paced, --generate, "
            "--dump-gradients or --routing: the second plan's --resume goes on from a checkpoint of the first");
    return STATUS_OK;
}

enum status settings_parse(struct settings *o, int argc, char **argv, bool *done)
{
    *o = (struct settings){.watchdog_s = 60,
                           .transport = -1,
                           .replay = -1,
                           .checkpoint = {.every_s = 600, .keep = 3},
                           .tokens = 100,
                           .temperature = 0.8};
    *done = false;
    for (int option; (option = getopt_long(argc, argv, "o:", long_options, NULL)) != -1;) {
        TRY(apply(o, option, done));
        if (*done)
            return STATUS_OK;
    }
    if (o->calibrate) { /* kernels, or with --transport nccl what goes between GPUs */
        if (optind < argc)
            return usage(argv[optind], NULL, "--calibrate takes no plan");
        TRY(o->transport > 0 ? settle_device(o) : STATUS_OK);
        return o->mpi ? usage("--transport", "mpi", "not with --calibrate") : STATUS_OK;
    }
    if (o->output)
        return usage("-o", NULL, "is for --calibrate");
    TRY(take_plans(o, argc - optind, argv + optind));
    int routings = 0;
    for (int i = 0; i < 4; i++)
        routings += o->routing[i] != NULL;
    if (routings > 1)
        return usage("--routing", NULL, "one of --routing, --routing-save and --routing-compare");
    if (o->paced && (o->eval || o->save || o->init || o->gradients))
        return usage("--paced", NULL, "computes nothing: no --init, --eval, --save or --dump-gradients");
    o->checkpoint.patience_s = o->watchdog_s;
    if (o->checkpoint.dir && (o->paced || o->routing[ROUTING_SAVE] || o->routing[ROUTING_COMPARE]))
        return usage("--checkpoint", NULL, "not with --paced, --routing-save or --routing-compare");
    if ((o->resume || o->restarts) && !o->checkpoint.dir)
        return usage(o->resume ? "--resume" : "--restarts", NULL, "needs --checkpoint DIR, where the checkpoints are");
    if (o->stop_on_spike && !o->checkpoint.dir)
        return usage("--on-spike", "stop", "needs --checkpoint DIR, where the checkpoint goes");
    TRY(settle_generation(o));
    if (!o->data && !o->paced && !o->generate)
        return usage("--data", NULL, "missing: a file of tokens ('llmc tokens' makes one from text)");
    if (o->eval_every && !o->eval)
        return usage("--eval-every", NULL, "needs --eval FILE");
    return settle_device(o);
}
