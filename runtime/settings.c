/* The command line, and what this build cannot do yet, said by name. */

#include "runtime/settings.h"
#include "runtime/routing.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stddef.h>
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
    "  --watch               a view of the run on stderr, drawn in place on a terminal, else a line now and then: results, time\n"
    "                        and waits of a step against the planned ones, and whom ranks wait for (CPU ranks)\n"
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

/* a number from 0 on; why: what it is not, if it isn't */
static enum status read_number(const char *name, const char *text, const char *why, double *out)
{
    char *end;
    *out = strtod(text, &end);
    return *end || end == text || !(*out >= 0) || !isfinite(*out) ? usage(name, text, why) : STATUS_OK;
}

/* "RANK:STEP" */
static enum status read_flip(const char *name, const char *text, struct settings *o)
{
    unsigned rank, step;
    int n = 0;
    if (sscanf(text, "%9u:%9u%n", &rank, &step, &n) != 2 || text[n] || !step)
        return usage(name, text, "not RANK:STEP, as 2:10");
    o->flip[0] = rank;
    o->flip[1] = step;
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
static enum status read_interval(const char *name, const char *text, struct settings *o)
{
    static const struct {
        char unit;
        double seconds;
    } units[] = {{'s', 1}, {'m', 60}, {'h', 3600}};
    struct saver_rules *rules = &o->checkpoint;
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

static enum status read_ranks(const char *name, const char *text, struct settings *o)
{
    o->local_ranks = strcmp(text, "local") == 0;
    return o->local_ranks || strcmp(text, "all") == 0 ? STATUS_OK : usage(name, text, "neither local nor all");
}

/* What an option is: it says yes; a text; a whole number from 0 or from 1 on; a number from 0 on, and what another text
 * is not; one of some words, whose index is taken, or of two, of which the second says yes; read by a function; or help
 * and version, which are printed. */
enum kind { YES, TEXT, FROM_0, FROM_1, NUMBER, WORD, YES_WORD, READ, HELP, VERSION };

#define AT(field) offsetof(struct settings, field), NULL, NULL
#define WORDS(field, words) offsetof(struct settings, field), words, NULL
static const struct rule {
    const char *name;
    enum kind kind;
    size_t at; /* of its field in the settings */
    const char *words;
    enum status (*read)(const char *name, const char *text, struct settings *o);
} rules[] = {
    {"--data", TEXT, AT(data)},
    {"--steps", FROM_1, AT(steps)},
    {"--at", FROM_1, AT(at)},
    {"--goodput", YES, AT(goodput)},
    {"--init", TEXT, AT(init)},
    {"--save", TEXT, AT(save)},
    {"--eval", TEXT, AT(eval)},
    {"--eval-every", FROM_1, AT(eval_every)},
    {"--log", TEXT, AT(log)},
    {"--trace", TEXT, AT(trace)},
    {"--shuffle-queues", FROM_1, AT(shuffle_seed)},
    {"--dump-gradients", TEXT, AT(gradients)},
    {"--watchdog", NUMBER, WORDS(watchdog_s, "not a number of seconds")},
    {"--ranks", READ, 0, NULL, read_ranks},
    {"--device", YES_WORD, WORDS(cuda, "cpu cuda")},
    {"--transport", WORD, WORDS(transport, "shm nccl d2d mpi")},
    {"--rendezvous", TEXT, AT(rendezvous)},
    {"--rank", FROM_0, AT(rank)},
    {"--world", FROM_1, AT(ranks)},
    {"--replay", WORD, WORDS(replay, "eager segments graph")},
    {"--no-deterministic", YES, AT(free_order)},
    {"--checkpoint", TEXT, AT(checkpoint.dir)},
    {"--resume", YES, AT(resume)},
    {"--every", READ, 0, NULL, read_interval},
    {"--keep", FROM_0, AT(checkpoint.keep)},
    {"--check-replicas", FROM_1, AT(replicas_every)},
    {"--flip-bit", READ, 0, NULL, read_flip},
    {"--slow-rank", READ, 0, NULL, read_slow},
    {"--on-spike", YES_WORD, WORDS(stop_on_spike, "say stop")},
    {"--restarts", FROM_0, AT(restarts)},
    {"--keep-every", FROM_1, AT(checkpoint.keep_every)},
    {"--paced", TEXT, AT(paced)},
    {"--calibrate", YES, AT(calibrate)},
    {"--routing", TEXT, AT(routing[ROUTING_REPLAY])},
    {"--routing-save", TEXT, AT(routing[ROUTING_SAVE])},
    {"--routing-compare", TEXT, AT(routing[ROUTING_COMPARE])},
    {"--generate", TEXT, AT(generate)},
    {"--tokens", FROM_1, AT(tokens)},
    {"--temperature", NUMBER, WORDS(temperature, "not a number from 0 on")},
    {"--top-k", FROM_1, AT(top_k)},
    {"--seed", FROM_0, AT(seed)},
    {"--json", YES, AT(json)},
    {"--quiet", YES, AT(quiet)},
    {"--watch", YES, AT(watch)},
    {"--help", HELP, AT(dir)},
    {"--version", VERSION, AT(dir)},
};
enum { NRULES = sizeof rules / sizeof *rules, FIRST_RULE = 1000 /* beside short options' letters */ };

static enum status apply(struct settings *o, const struct rule *r, const char *text)
{
    void *field = (char *)o + r->at;
    int word = 0;
    switch (r->kind) {
    case YES:
        *(bool *)field = true;
        return STATUS_OK;
    case TEXT:
        *(const char **)field = text;
        return STATUS_OK;
    case FROM_0:
    case FROM_1:
        return read_count(r->name, text, r->kind == FROM_1, field);
    case NUMBER:
        return read_number(r->name, text, r->words, field);
    case WORD:
        return read_choice(r->name, text, r->words, field);
    case YES_WORD:
        TRY(read_choice(r->name, text, r->words, &word));
        *(bool *)field = word == 1;
        return STATUS_OK;
    case READ:
        return r->read(r->name, text, o);
    case HELP:
        printf("%s%s%s%s", help, help_devices, help_generate, help_end);
        return STATUS_OK;
    case VERSION:
        puts("llmrun " LLMRUN_VERSION);
        return STATUS_OK;
    }
    return STATUS_OK;
}

/* which of its options say how tokens are chosen that --generate writes */
static bool samples(const struct rule *r)
{
    return r->at == offsetof(struct settings, tokens) || r->at == offsetof(struct settings, temperature) ||
           r->at == offsetof(struct settings, top_k) || r->at == offsetof(struct settings, seed);
}

static enum status read_options(struct settings *o, int argc, char **argv, bool *done)
{
    struct option options[NRULES + 1] = {{NULL, 0, NULL, 0}};
    for (int i = 0; i < NRULES; i++) {
        bool alone = rules[i].kind == YES || rules[i].kind == HELP || rules[i].kind == VERSION;
        options[i] = (struct option){rules[i].name + 2, alone ? no_argument : required_argument, NULL, FIRST_RULE + i};
    }
    for (int option; !*done && (option = getopt_long(argc, argv, "o:", options, NULL)) != -1;) {
        if (option == 'o') {
            o->output = optarg;
        } else if (option >= FIRST_RULE) {
            const struct rule *r = &rules[option - FIRST_RULE];
            o->sampling = samples(r) ? r->name : o->sampling;
            *done = r->kind == HELP || r->kind == VERSION;
            TRY(apply(o, r, optarg));
        } else { /* getopt has said what is wrong */
            fputs("Try 'llmrun --help'.\n", stderr);
            return STATUS_USAGE;
        }
    }
    return STATUS_OK;
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
    TRY(read_options(o, argc, argv, done));
    if (*done)
        return STATUS_OK;
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
    if (o->watch && (o->quiet || o->generate))
        return usage("--watch", NULL, o->quiet ? "not with --quiet" : "shows training, not --generate");
    if (o->eval_every && !o->eval)
        return usage("--eval-every", NULL, "needs --eval FILE");
    return settle_device(o);
}
