/* Command line parsing by table; did-you-mean by the edit distance of diag.c. */

#include "compiler/support/cli.h"

#include "compiler/support/diag.h"
#include "compiler/support/units.h"
#include "compiler/support/vec.h"

#include <stdlib.h>
#include <string.h>

struct command {
    const char *name, *args, *meaning;
    uint32_t least, most; /* positional arguments */
    const char *options;  /* space-separated */
    const char *more;     /* paragraphs behind them, or NULL */
};

static const char plan_more[] =
    "DIR gets programs for every rank, plan.json, and the two files as read; 'llmrun DIR --data FILE'\n"
    "trains with it. It is written whole or not at all, after its proofs. What cannot be emitted yet is\n"
    "not searched, and stderr says what it would have gained.\n"
    "With --spare-plans the same request is planned for fewer nodes, where dp and gpus give way; llmrun takes\n"
    "DIR.minus1 by itself where a launcher starts so many ranks. DIR.minus1.move is the transition to it.\n"
    "KEY is any word of the plan or train block ('llmc help language'):\n"
    "  --set tp=8 --set 'pp<=16' --set 'microbatch in [1, 2]' --set batch=\"2Mi tokens\"\n"
    "Where the train block says 'total N tokens', the whole run is told too: time, GPU hours, their --price, how\n"
    "often it is interrupted (node-type's mtbf and restart in the cluster file), the best interval of checkpoints\n"
    "and the goodput that is left.\n";
static const char show_more[] =
    "One view at a time; without one, a summary with the fullest rank's memory and the traffic. --rank\n"
    "and --stage choose one of the programs; --code shows the first if neither does. Drawings are as wide\n"
    "as the terminal, else as COLUMNS says, else 100 columns; so are the lines of estimate and explain. NO_COLOR\n"
    "and TERM=dumb are obeyed.\n"
    "A line of the timeline has as many columns of each kind as its rank spends time: with '~' in every fifth\n"
    "column a fifth of it is exposed communication. 'llmc report' has the same to zoom and click.\n";
static const char check_more[] =
    "The eight properties of the programs: structure, matching, no deadlock, no race, defined, memory,\n"
    "conservation, placement. And their origin: the plan is made once more of DIR's model.llm, cluster.xml,\n"
    "overrides and bounds of the search, and every file must be the same to the byte; what differs is named\n"
    "by key, instruction or line. That takes as long as planning did; a folder of another version of llmc\n"
    "is refused.\n"
    "--execute also runs the plan against one rank of the same job, modulo a prime in several orders and with\n"
    "llmrun: the folder's own programs, if they are for at most 16 ranks, 10^11 FLOPs a step (minutes), 256 MiB\n"
    "of arenas and all rows that experts can be sent; else the same decision at small dimensions, if the\n"
    "folder's programs are what it compiles to. It says which of the two it was.\n"
    "Exit code 1 if a property, the origin or a comparison fails, 3 if the folder was changed or contradicts\n"
    "its inputs.\n";
static const char estimate_more[] =
    "Prints the best plans by the cost model, whether or not they can be emitted yet, the first one "
    "itemised.\n"
    "KEY is any word of the plan or train block; a value with blanks or brackets needs the shell's quotes:\n"
    "  --set tp=8 --set 'pp<=16' --set 'microbatch in [1, 2]' --set batch=\"2Mi tokens\"\n"
    "  --sweep tp=1,2,4,8 --sweep microbatch=1,2     a table with a row for each of the eight combinations\n"
    "  --sweep gpus=256,512,1024 --json              a JSON object per line\n"
    "A row without a plan says why.  Exit code 1 if no row has one.\n"
    "--formulas shows how each figure comes about, with this job's values in it, and where that is from.\n";
static const char explain_more[] =
    "DIR is a plan folder; with MODEL CLUSTER the decision is made first, as llmc estimate does.  One screen "
    "says\n"
    "  where a step's time and the fullest stage's memory go: items that add up, and what gave each of "
    "them;\n"
    "  what one thing different loses, and what does not fit;\n"
    "  what the step time depends on: 10 % less or more of computing and of each bandwidth, a node at 90 %, "
    "jitter;\n"
    "  numbers of nodes that would be better, what ruled out the other plans, and how sure the choice is.\n"
    "For a request that nothing satisfies (exit code 1) it says which changes something would, and at what "
    "price.\n";
static const char report_more[] =
    "FILE is one HTML file that needs no network: the timeline to zoom and click, memory over the step, traffic,\n"
    "where the ranks are, what was proved, and what the search compared.\n";
static const char explore_more[] =
    "FILE is one HTML file that needs no network. It runs the compiler itself, so what it shows is what 'llmc\n"
    "estimate --json' prints for the same settings: degrees, ZeRO, microbatch, recomputation, schedule, sequence\n"
    "and batch, profile, and the model's own text. What is free is searched; what cannot be says why.\n"
    "--set says what the page begins with.\n";
static const char diff_more[] =
    "Of two plans: what was decided otherwise, what comes of it in time, memory, idle time and traffic, and whose\n"
    "programs differ; exit code 1 if anything does.\n";
static const char transition_more[] =
    "FROM and TO are plans of the same job; degrees, ZeRO, experts' placement, schedule and number of ranks\n"
    "may differ. 'llmrun FROM DIR TO --at N' trains N steps by the first plan, moves weights and moments in\n"
    "memory, and goes on by the second. Every element is proved to arrive exactly once; --check DIR proves it\n"
    "again from the folder. Both plans' state has to fit at once; where it does not, and where --lost takes\n"
    "what no other node holds, exit code 1 says so: 'llmrun TO --resume' then goes by a checkpoint.\n";
static const char trace_more[] =
    "json is Chrome's format, a line per event; perfetto is Perfetto's own, with the same tracks, slices, arrows,\n"
    "counters and arguments in a twentieth of the bytes, and the figures of plan.json on a track 'step'.\n";
static const char tokens_more[] =
    "IN may be a FIFO, or - for standard input; OUT a FIFO or device, or - for standard output. A regular\n"
    "file is replaced when all is written.\n";

static const char export_more[] =
    "What the form's stack cannot be told is named, with exit code 1, and nothing is written.\n";
static const char import_more[] =
    "FILE, by what it holds:\n"
    "  a config.json as Hugging Face's transformers keep it beside weights: the model, with a train block to start from;\n"
    "    where model.safetensors.index.json lies beside it, whether it says as many parameters\n"
    "  a script that starts Megatron-LM, or its arguments alone: model, training and plan, `target megatron-core`\n"
    "  YAML of Megatron-Bridge (logger.save_config_filepath) or of Megatron-LM (--yaml-cfg): the same\n"
    "  TOML of torchtitan, or the JSON that it writes (--debug.save_config_file): the same, `target torchtitan`\n"
    "A script is read, not run: of the shell, variables, arrays, quotes and the one command; 'if' and the like are refused.\n"
    "What it leaves open, --set says: a variable, or an argument (--set vocab-size=50257). The number of GPUs is the\n"
    "launcher's, or --set WORLD_SIZE=N; without it the plan leaves dp open. `llmc plan` then makes that very plan.\n"
    "What the language cannot say is refused by name, unless --leave-out names it: then a comment in the model file tells\n"
    "of it. Says how many parameters the model has.\n\n"
    "  llmc import config.json -o model.llm\n"
    "  llmc import train.sh --set NUM_NODES=16 --leave-out fp8-param-gather -o model.llm\n";
static const char topo_import_more[] =
    "FORMAT FILE, as many as there are; together they describe one cluster of one kind of node:\n"
    "  nccl        a node's dump (NCCL_TOPO_DUMP_FILE): GPUs, NVLinks, NICs, the kind of network. The cluster file names\n"
    "              a dump that lies in its folder or below, for the paths between GPUs and NICs\n"
    "  slurm       topology.conf or topology.yaml, switches or blocks: nodes and tiers; NodeName lines of slurm.conf: GPUs\n"
    "  nvidia-smi  what 'nvidia-smi topo -m' prints: GPUs, NVLinks, how many NICs\n"
    "  nccl-tests  what one of its programs prints: a measured curve, the GPUs' model\n"
    "  hwloc       a node's 'lstopo --of xml': GPUs, how many NICs, the kind of network\n"
    "What a cluster needs and no file says is asked for by the KEY that sets it. Files that contradict each other are an\n"
    "error; what is set beats them all, with a warning. KEY is one of\n"
    "  nodes     64, or gpu[001-064]; where Slurm's files name nodes, those of them that are meant\n"
    "  gpus gpu  8, of a node; H100-SXM, their model ('llmc help gpus')\n"
    "  nics nic  8, of a node; 400Gb/s, the bandwidth of each in one direction\n"
    "  medium    infiniband, roce, efa, ethernet, slingshot, ici\n"
    "  span      18, nodes that one NVLink domain joins\n"
    "  op ranks per-node   all_reduce, 16, 8: what a table is of that does not say it\n"
    "  name      what views call the cluster\n"
    "At the cluster file's head stands which file each fact is from, and what is assumed: no format says how tiers are\n"
    "oversubscribed, so that is yours to add ('llmc help cluster').\n"
    "  llmc topo import nccl node.xml slurm topology.conf nccl-tests all_reduce.txt -o cluster.xml\n"
    "  llmc topo import nvidia-smi topo.txt --set gpu=H100-SXM --set nodes=1\n";

static const struct command commands[] = {
    {"plan", "MODEL CLUSTER -o DIR", "search, lower, verify, simulate, write a plan", 2, 2,
     "output set top budget spare-plans price json force", plan_more},
    {"estimate", "MODEL CLUSTER", "predict only; no plan is written", 2, 2, "set sweep top budget price formulas json",
     estimate_more},
    {"explain", "DIR | MODEL CLUSTER", "why this plan: what it costs, what came close, what would change it", 1, 2,
     "set budget price all json", explain_more},
    {"check", "DIR", "prove a plan's properties from its files alone", 1, 1, "full execute json", check_more},
    {"show", "DIR", "summary; or memory, traffic, timeline, schedule, code", 1, 1,
     "memory traffic timeline schedule code rank stage from to zoom price json ascii", show_more},
    {"report", "DIR [DIR] -o FILE", "a plan, or two side by side, as a page for any browser", 1, 2, "output price",
     report_more},
    {"explore", "MODEL CLUSTER -o FILE", "a job's estimates as a page in which its settings move", 2, 2, "output set",
     explore_more},
    {"export", "DIR --to FORM", "the plan in another stack's words, on stdout or to -o FILE", 1, 1, "to output",
     export_more},
    {"trace", "DIR -o FILE", "predicted timeline for Perfetto or chrome://tracing", 1, 1, "output ranks format times",
     trace_more},
    {"diff", "DIR DIR | DIR TRACE", "two plans; or a trace that llmrun wrote against the predicted timeline", 2, 2,
     "json", diff_more},
    {"transition", "FROM TO -o DIR", "the proved programs that move a job's state from one plan to another", 2, 2,
     "output lost check json force", transition_more},
    {"topo show", "CLUSTER", "the cluster as resolved, with bandwidth per tier", 1, 1, "json", NULL},
    {"topo import", "FORMAT FILE ...", "a cluster file from files of NCCL, Slurm, nvidia-smi, nccl-tests, hwloc", 2, 32,
     "set output json", topo_import_more},
    {"import", "FILE [-o MODEL]", "a model file from a configuration of another stack", 1, 1,
     "set output leave-out json", import_more},
    {"tokens", "IN -o OUT", "any text file to byte-level tokens", 1, 1, "output", tokens_more},
    {"fmt", "FILE", "a model file in canonical form, on stdout", 1, 1, "", NULL},
    {"isa", "[NAME]", "the instruction set's manual", 0, 1, "json", NULL},
    {"dump", "STAGE MODEL CLUSTER", "print a stage: ast, sched, asm (short: -d STAGE)", 3, 3, "set rank", NULL},
    {"version", "", "name, version and licence", 0, 0, "", NULL},
    {"help", "[TOPIC]", "this text; or a command, language, cluster, gpus, target, a word of a model file", 0, 2, "",
     NULL},
};

enum value { FLAG, TEXT, NUMBER, MONEY, LIST };
struct option_row {
    const char *name;
    char letter;
    enum value value;
    size_t at;
    const char *argument, *meaning;
};

#define AT(field) offsetof(struct options, field)
static const struct option_row rows[] = {
    {"output", 'o', TEXT, AT(output), "PATH", "where to write"},
    {"set", 0, LIST, AT(sets), "KEY=VALUE",
     "override a statement of the plan or train block; KEY<=N, KEY>=N, KEY in [..]"},
    {"sweep", 0, LIST, AT(sweeps), "KEY=A,B,C", "one estimate for every value; repeatable: every combination"},
    {"top", 0, NUMBER, AT(top), "N", "how many of the best decisions to keep: to list, or to try until one fits"},
    {"budget", 0, NUMBER, AT(budget), "N",
     "how much the search may do, in evaluations, not time (3000000, about half a minute)"},
    {"spare-plans", 0, NUMBER, AT(spares), "N", "also plans for 1 to N nodes fewer, beside DIR: DIR.minus1, ..."},
    {"price", 0, MONEY, AT(price), "DOLLARS",
     "of a GPU hour: what the run costs, where the train block has its 'total' of tokens"},
    {"json", 0, FLAG, AT(json), NULL, "JSON on stdout"},
    {"force", 0, FLAG, AT(force), NULL, "where DIR holds more than a plan, move it aside first"},
    {"all", 0, FLAG, AT(all), NULL, "everything, not one screen"},
    {"full", 0, FLAG, AT(full), NULL, "unfold all ranks instead of proving by roles"},
    {"execute", 0, FLAG, AT(execute), NULL, "run it, or its decision at small dimensions, against one rank"},
    {"memory", 0, FLAG, AT(memory), NULL, "bytes by kind, over time"},
    {"traffic", 0, FLAG, AT(traffic), NULL, "bytes by group and network level"},
    {"timeline", 0, FLAG, AT(timeline), NULL, "the step drawn in the terminal"},
    {"schedule", 0, FLAG, AT(schedule), NULL, "actions per stage (torch's pipeline CSV)"},
    {"code", 0, FLAG, AT(code), NULL, "instructions"},
    {"formulas", 0, FLAG, AT(formulas), NULL, "what is behind each figure, with this job's values in it"},
    {"rank", 0, NUMBER, AT(rank), "R", "of rank R"},
    {"stage", 0, NUMBER, AT(stage_index), "S", "of pipeline stage S"},
    {"from", 0, TEXT, AT(from), "TIME", "draw the timeline from here on: 1.5s, 300ms after the step's begin"},
    {"to", 0, TEXT, AT(to), "TIME", "and up to here"},
    {"zoom", 0, NUMBER, AT(zoom), "N", "draw an Nth of the step, from --from on"},
    {"ranks", 0, TEXT, AT(ranks), "LIST", "ranks to draw: 0,8,16; all; default one per stage"},
    {"lost", 0, NUMBER, AT(lost), "NODE", "this node of the first plan is gone with its memory; TO is for the others"},
    {"check", 0, TEXT, AT(check), "DIR", "prove the transition in DIR instead of making one"},
    {"leave-out", 0, TEXT, AT(left_out), "FIELDS", "fields, with commas between them, to go on without"},
    {"format", 0, TEXT, AT(format), "FORMAT", "json (if not said) or perfetto"},
    {"times", 0, FLAG, AT(times), NULL, "every instruction's time alone, for 'llmrun --paced'"},
    {"ascii", 0, FLAG, AT(ascii), NULL, "draw with ASCII only"},
    {"help", 'h', FLAG, AT(help), NULL, "this text"},
    {"version", 'V', FLAG, AT(version), NULL, "name, version and licence"},
    {"quiet", 'q', FLAG, AT(quiet), NULL, "errors and warnings alone on stderr"},
};

/* by its whole name; the first word of a name of two stands for it */
static const struct command *find_command(const char *name)
{
    size_t n = strlen(name);
    for (size_t i = 0; i < ARRAY_LEN(commands); i++)
        if (!strncmp(commands[i].name, name, n) && (commands[i].name[n] == 0 || commands[i].name[n] == ' '))
            return &commands[i];
    return NULL;
}

static bool allowed(const struct command *c, const char *option)
{
    size_t n = strlen(option);
    if (!strcmp(option, "help") || !strcmp(option, "version") || !strcmp(option, "quiet"))
        return true;
    for (const char *p = c ? c->options : ""; *p; p += strspn(p, " ")) {
        size_t word = strcspn(p, " ");
        if (word == n && !strncmp(p, option, n))
            return true;
        p += word;
    }
    return false;
}

static void suggest(const char *what, const char *word, const char *const *names, size_t n)
{
    const char *near = diag_nearest(word, names, n), *dashes = *what == 'o' ? "--" : "";
    if (near)
        fprintf(stderr, "llmc: unknown %s '%s%s'; did you mean '%s%s'?\n", what, dashes, word, dashes, near);
    else
        fprintf(stderr, "llmc: unknown %s '%s%s'; see 'llmc help'\n", what, dashes, word);
}

static void suggest_command(const char *word)
{
    const char *names[ARRAY_LEN(commands)];
    for (size_t k = 0; k < ARRAY_LEN(commands); k++)
        names[k] = commands[k].name;
    suggest("command", word, names, ARRAY_LEN(commands));
}

static bool parse_number(const char *text, uint64_t *out)
{
    char *end;
    if (*text < '0' || *text > '9')
        return false;
    *out = strtoull(text, &end, 10);
    return !*end && end - text < 19;
}

static bool store(const struct option_row *r, const char *value, struct options *o)
{
    uint64_t n;
    char *base = (char *)o + r->at;
    switch (r->value) {
    case FLAG:
        *(bool *)base = true;
        return true;
    case TEXT:
        memcpy(base, &value, sizeof value);
        return true;
    case NUMBER:
        if (!parse_number(value, &n)) {
            fprintf(stderr, "llmc: --%s wants a number, not '%s'\n", r->name, value);
            return false;
        }
        if (r->at == AT(rank) || r->at == AT(stage_index) || r->at == AT(lost))
            *(uint32_t *)(void *)base = n < UINT32_MAX ? (uint32_t)n : UINT32_MAX - 1;
        else
            memcpy(base, &n, sizeof n);
        return true;
    case MONEY: {
        struct units_error e;
        double v = 0;
        if (!units_real(value, strlen(value), &v, &e) || !(v > 0 && v <= 1e6)) {
            fprintf(stderr, "llmc: --%s wants dollars per GPU hour, such as 2.50, not '%s'\n", r->name, value);
            return false;
        }
        memcpy(base, &v, sizeof v);
        return true;
    }
    case LIST: {
        bool set = r->at == AT(sets);
        uint32_t *count = set ? &o->nsets : &o->nsweeps;
        size_t room = set ? ARRAY_LEN(o->sets) : ARRAY_LEN(o->sweeps);
        bool formed = strchr(value, '=') || (set && (strstr(value, " in ") || strstr(value, " in[")));
        if (!formed || *count == room) {
            fprintf(stderr, formed ? "llmc: too many --%s\n" : "llmc: --%s wants %s\n", r->name, r->argument);
            return false;
        }
        (set ? o->sets : o->sweeps)[(*count)++] = value;
        return true;
    }
    }
    return false;
}

static const struct option_row *find_option(const char *name, size_t n, char letter)
{
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (letter ? rows[i].letter == letter : strlen(rows[i].name) == n && !strncmp(rows[i].name, name, n))
            return &rows[i];
    return NULL;
}

/* one option at argv[*i]; may take the next word */
static bool parse_option(int argc, char **argv, int *i, struct options *o, const struct command *c)
{
    const char *word = argv[*i], *value = NULL;
    bool is_long = word[1] == '-';
    const char *name = word + (is_long ? 2 : 1);
    size_t n = is_long ? strcspn(name, "=") : 1;
    const struct option_row *r = find_option(name, n, is_long ? 0 : *name);
    if (!r || !allowed(c, r->name)) {
        const char *names[ARRAY_LEN(rows)];
        size_t count = 0;
        for (size_t k = 0; k < ARRAY_LEN(rows); k++)
            if (allowed(c, rows[k].name))
                names[count++] = rows[k].name;
        char text[64];
        snprintf(text, sizeof text, "%.*s", (int)(n < 60 ? n : 60), name);
        suggest("option", text, names, count);
        return false;
    }
    if (is_long && name[n] == '=')
        value = name + n + 1;
    else if (!is_long && name[1])
        value = name + 1;
    if (r->value == FLAG && value) {
        fprintf(stderr, "llmc: --%s takes no value\n", r->name);
        return false;
    }
    if (r->value != FLAG && !value) {
        if (*i + 1 >= argc) {
            fprintf(stderr, "llmc: --%s wants %s\n", r->name, r->argument);
            return false;
        }
        value = argv[++*i];
    }
    return store(r, value, o);
}

/* the command's name: one word, or two for `topo show`, `topo import`; -d STAGE stands for dump STAGE */
static const struct command *parse_command(int argc, char **argv, int *next)
{
    if (argc > 2 && !strcmp(argv[1], "topo") && *argv[2] != '-') {
        char name[64];
        snprintf(name, sizeof name, "topo %.50s", argv[2]);
        *next = 3;
        for (size_t i = 0; i < ARRAY_LEN(commands); i++)
            if (!strcmp(commands[i].name, name))
                return &commands[i];
        suggest_command(name);
        return NULL;
    }
    *next = 2;
    if (!strcmp(argv[1], "-d"))
        return find_command("dump");
    const struct command *c = find_command(argv[1]);
    if (c)
        return c;
    suggest_command(argv[1]);
    return NULL;
}

bool cli_parse(int argc, char **argv, struct options *o)
{
    *o = (struct options){.rank = UINT32_MAX, .stage_index = UINT32_MAX, .lost = UINT32_MAX};
    const struct command *c = NULL;
    const char *word = NULL;
    int i = 1;
    if (argc > 1 && (argv[1][0] != '-' || !strcmp(argv[1], "-d"))) {
        c = parse_command(argc, argv, &i);
        if (!c)
            return false;
        o->command = c->name;
        if (i == 2 && argc > 2 && !strcmp(argv[1], "topo")) /* --help: of all commands that begin so */
            word = argv[1];
    }
    for (bool open = true; i < argc; i++) {
        if (open && !strcmp(argv[i], "--")) {
            open = false;
        } else if (open && argv[i][0] == '-' && argv[i][1]) {
            if (!parse_option(argc, argv, &i, o, c))
                return false;
        } else if (!c || o->nargs == c->most) {
            fprintf(stderr, "llmc: '%s' is one argument too many; usage: llmc %s %s\n", argv[i], c ? c->name : "",
                    c ? c->args : "COMMAND");
            return false;
        } else {
            o->args[o->nargs++] = argv[i];
        }
    }
    if (word && o->help)
        o->command = word;
    if (c && !o->help && o->nargs < c->least) {
        fprintf(stderr, "llmc: usage: llmc %s %s\n", c->name, c->args);
        return false;
    }
    return true;
}

bool cli_knows(const char *command)
{
    return find_command(command) != NULL;
}

/* options that mean something else to one command than to the others */
static const struct {
    const char *command, *option, *argument, *meaning;
} own_meanings[] = {
    {"export", "to", "FORM", "one of those below"},
    {"import", "set", "NAME=VALUE", "what the file leaves open: a variable, or a setting by its name; repeatable"},
    {"import", "leave-out", "NAMES", "settings, with commas between them, to go on without"},
    {"topo import", "set", "KEY=VALUE", "a fact, which beats what files say of it; repeatable"},
};

static void print_option(FILE *out, const struct command *c, const struct option_row *r)
{
    const char *argument = r->argument, *meaning = r->meaning;
    for (size_t i = 0; i < ARRAY_LEN(own_meanings); i++)
        if (!strcmp(own_meanings[i].command, c->name) && !strcmp(own_meanings[i].option, r->name)) {
            argument = own_meanings[i].argument;
            meaning = own_meanings[i].meaning;
        }
    char left[40], letter[5] = "";
    snprintf(left, sizeof left, "--%s%s%s", r->name, argument ? " " : "", argument ? argument : "");
    if (r->letter)
        snprintf(letter, sizeof letter, "-%c, ", r->letter);
    fprintf(out, "  %-4s%-20s %s\n", letter, left, meaning);
}

static void print_command(FILE *out, const struct command *c)
{
    fprintf(out, "usage: llmc %s%s%s [OPTIONS]\n%s\n\n", c->name, *c->args ? " " : "", c->args, c->meaning);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (allowed(c, rows[i].name))
            print_option(out, c, &rows[i]);
    if (c->more)
        fprintf(out, "\n%s", c->more);
}

bool cli_help(FILE *out, const char *command)
{
    const struct command *c = command ? find_command(command) : NULL;
    if (command && !c) {
        suggest_command(command);
        return false;
    }
    if (!c) {
        fprintf(out, "usage: llmc COMMAND [ARGUMENTS] [OPTIONS]\n\n");
        for (size_t i = 0; i < ARRAY_LEN(commands); i++)
            fprintf(out, "  %-10s %-22s %s\n", commands[i].name, commands[i].args, commands[i].meaning);
        fprintf(out, "\nllmc help COMMAND lists a command's options.\n"
                     "Exit codes: 0 fine, 1 no plan or a check failed, 2 usage, 3 bad input, 4 environment, "
                     "5 plan and hosts\n"
                     "don't match, 70 a bug in llmc.\n");
        return true;
    }
    size_t n = strlen(command);
    print_command(out, c);
    for (c++; c < commands + ARRAY_LEN(commands) && !strncmp(c->name, command, n) && c->name[n] == ' '; c++) {
        fputc('\n', out);
        print_command(out, c);
    }
    return true;
}
