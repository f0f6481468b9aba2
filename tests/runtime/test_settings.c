/* llmrun's command line: what each option sets, every refusal with the option and its value in the sentence,
 * which options go with which device, and what holds where nothing is said. */

#include "runtime/settings.h"
#include "runtime/routing.h"

#include <CUnit/CUnit.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char hint[] = "\nTry 'llmrun --help'.\n";

struct parse {
    char words[300], said[600]; /* the settings point into the words */
    struct settings o;
    enum status status;
    bool done;
};

/* `words` with blanks between them as llmrun's arguments; what goes to stderr in `said` */
static void parse(struct parse *p, const char *words)
{
    char *argv[40] = {"llmrun"};
    int argc = 1;
    snprintf(p->words, sizeof p->words, "%s", words);
    for (char *at = strtok(p->words, " "); at; at = strtok(NULL, " "))
        argv[argc++] = at;
    FILE *err = tmpfile();
    CU_ASSERT_PTR_NOT_NULL_FATAL(err);
    fflush(stderr);
    int old = dup(STDERR_FILENO);
    dup2(fileno(err), STDERR_FILENO);
    optind = 0; /* getopt begins anew */
    p->status = settings_parse(&p->o, argc, argv, &p->done);
    fflush(stderr);
    dup2(old, STDERR_FILENO);
    close(old);
    rewind(err);
    p->said[fread(p->said, 1, sizeof p->said - 1, err)] = 0;
    fclose(err);
}

static void expect_refused(const char *words, enum status status, const char *says, const char *end)
{
    static struct parse p;
    char want[600];
    parse(&p, words);
    snprintf(want, sizeof want, "llmrun: %s%s", says, end);
    CU_ASSERT_EQUAL(p.status, status);
    CU_ASSERT_STRING_EQUAL(p.said, want);
    if (strcmp(p.said, want))
        printf("\n    %s: status %d, %s", words, (int)p.status, p.said);
}

static void test_refused(void)
{
    static const char *const cases[][2] = {
        {"", "PLAN: missing: the folder that 'llmc plan' wrote"},
        {"p", "--data: missing: a file of tokens ('llmc tokens' makes one from text)"},
        {"p q --data t", "q: one plan at a time, or PLAN TRANSITION PLAN with --at N"},
        {"p --data t --steps 0", "--steps 0: not a whole number from 1 on"},
        {"p --data t --steps 1x", "--steps 1x: not a whole number from 1 on"},
        {"p --data t --steps -1", "--steps -1: not a whole number from 1 on"},
        {"p --data t --rank 9223372036854775808", "--rank 9223372036854775808: not a whole number"},
        {"p --data t --rank 18446744073709551616", "--rank 18446744073709551616: not a whole number"},
        {"p --data t --eval e --eval-every 0", "--eval-every 0: not a whole number from 1 on"},
        {"p --data t --shuffle-queues 0", "--shuffle-queues 0: not a whole number from 1 on"},
        {"p --data t --world 0", "--world 0: not a whole number from 1 on"},
        {"p --data t --rank x", "--rank x: not a whole number"},
        {"p --data t --watchdog soon", "--watchdog soon: not a number of seconds"},
        {"p --data t --watchdog 1s", "--watchdog 1s: not a number of seconds"},
        {"p --data t --watchdog -1", "--watchdog -1: not a number of seconds"},
        {"p --data t --watchdog nan", "--watchdog nan: not a number of seconds"},
        {"p --data t --watchdog inf", "--watchdog inf: not a number of seconds"},
        {"p --data t --ranks some", "--ranks some: neither local nor all"},
        {"p --data t --device gpu", "--device gpu: not one of: cpu cuda"},
        {"p --data t --transport tcp", "--transport tcp: not one of: shm nccl d2d mpi"},
        {"p --data t --replay lazy", "--replay lazy: not one of: eager segments graph"},
        {"p --data t --eval-every 1", "--eval-every: needs --eval FILE"},
        {"p --data t --on-spike stop", "--on-spike stop: needs --checkpoint DIR, where the checkpoint goes"},
        {"p --data t --on-spike cry", "--on-spike cry: not one of: say stop"},
        {"p --data t --slow-rank 2", "--slow-rank 2: not RANK:N, as 2:1.5"},
        {"p --data t --slow-rank 2:0.5", "--slow-rank 2:0.5: not RANK:N, as 2:1.5"},
        {"p --data t --checkpoint c --every 0", "--every 0: neither steps (200) nor a time (30s, 10m, 2h)"},
        {"p --data t --checkpoint c --every 1.5", "--every 1.5: neither steps (200) nor a time (30s, 10m, 2h)"},
        {"p --data t --checkpoint c --every -1m", "--every -1m: neither steps (200) nor a time (30s, 10m, 2h)"},
        {"p --data t --checkpoint c --every 5d", "--every 5d: neither steps (200) nor a time (30s, 10m, 2h)"},
        {"p --data t --checkpoint c --every nan", "--every nan: neither steps (200) nor a time (30s, 10m, 2h)"},
        {"p --data t --checkpoint c --keep many", "--keep many: not a whole number"},
        {"p --data t --checkpoint c --keep-every 0", "--keep-every 0: not a whole number from 1 on"},
        {"p --data t --resume", "--resume: needs --checkpoint DIR, where the checkpoints are"},
        {"p --data t --restarts 3", "--restarts: needs --checkpoint DIR, where the checkpoints are"},
        {"p --data t --flip-bit 3", "--flip-bit 3: not RANK:STEP, as 2:10"},
        {"p --data t --flip-bit 3:0", "--flip-bit 3:0: not RANK:STEP, as 2:10"},
        {"p --data t --check-replicas 0", "--check-replicas 0: not a whole number from 1 on"},
        {"p --data t -o x", "-o: is for --calibrate"},
        {"p --calibrate", "p: --calibrate takes no plan"},
        {"p --generate a --init i --tokens 0", "--tokens 0: not a whole number from 1 on"},
        {"p --generate a --init i --tokens 1.5", "--tokens 1.5: not a whole number from 1 on"},
        {"p --generate a --init i --top-k 0", "--top-k 0: not a whole number from 1 on"},
        {"p --generate a --init i --seed -1", "--seed -1: not a whole number"},
        {"p --generate a --init i --temperature hot", "--temperature hot: not a number from 0 on"},
        {"p --generate a --init i --temperature -1", "--temperature -1: not a number from 0 on"},
        {"p --generate a --init i --temperature inf", "--temperature inf: not a number from 0 on"},
        {"p --generate a", "--generate: needs --init DIR, weights that --save or --checkpoint has written"},
        {"p --generate a --init i --device cuda", "--generate: runs on CPU ranks, not with --device cuda"},
        {"p --data t --tokens 1", "--tokens: needs --generate PROMPT"},
        {"p --data t --top-k 1", "--top-k: needs --generate PROMPT"},
        {"p --data t --seed 1", "--seed: needs --generate PROMPT"},
        {"p --data t --temperature 1", "--temperature: needs --generate PROMPT"},
        {"--calibrate --transport nccl", "--transport nccl: needs --device cuda"},
        {"--calibrate --transport mpi", "--transport mpi: not with --calibrate"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect_refused(cases[i][0], STATUS_USAGE, cases[i][1], hint);
}

/* each of the options that exclude another does so alone */
static void test_excluded(void)
{
    static const char cuda[] = "--device cuda: not with --shuffle-queues, --paced, --routing-save or "
                               "--routing-compare",
                      paced[] = "--paced: computes nothing: no --init, --eval, --save or --dump-gradients",
                      routing[] = "--routing: one of --routing, --routing-save and --routing-compare",
                      rank[] = "--rank: needs --rendezvous and --world, which is greater",
                      kept[] = "--checkpoint: not with --paced, --routing-save or --routing-compare",
                      mpi[] = "--transport mpi: not with --trace, --paced, --restarts, --check-replicas, --generate, "
                              "--routing-save or --routing-compare",
                      meet[] = "--rendezvous: needs --device cuda --transport nccl",
                      generate[] = "--generate: trains nothing: no --data, --steps, --eval, --save, --checkpoint, --log, "
                                   "--trace, --dump-gradients, --paced or --routing";
    static const char *const cases[][2] = {
        {"p --data t --device cuda --shuffle-queues 1", cuda},
        {"p --data t --device cuda --paced f", cuda},
        {"p --data t --device cuda --routing-save f", cuda},
        {"p --data t --device cuda --routing-compare f", cuda},
        {"p --paced f --checkpoint g", kept},
        {"p --data t --checkpoint g --routing-save f", kept},
        {"p --data t --checkpoint g --routing-compare f", kept},
        {"p --paced f --init g", paced},
        {"p --paced f --eval g", paced},
        {"p --paced f --save g", paced},
        {"p --paced f --dump-gradients g", paced},
        {"p --data t --routing f --routing-save g", routing},
        {"p --data t --routing f --routing-compare g", routing},
        {"p --data t --routing-save f --routing-compare g", routing},
        {"p --generate a --init i --data f", generate},
        {"p --generate a --init i --steps 1", generate},
        {"p --generate a --init i --eval f", generate},
        {"p --generate a --init i --save f", generate},
        {"p --generate a --init i --log f", generate},
        {"p --generate a --init i --checkpoint f", generate},
        {"p --generate a --init i --trace f", generate},
        {"p --generate a --init i --dump-gradients f", generate},
        {"p --generate a --init i --routing f", generate},
        {"p --generate a --init i --routing-save f", generate},
        {"p --generate a --init i --routing-compare f", generate},
        {"p --data t --transport mpi --trace f", mpi},
        {"p --data t --transport mpi --paced f", mpi},
        {"p --data t --transport mpi --checkpoint c --restarts 1", mpi},
        {"p --data t --transport mpi --check-replicas 2", mpi},
        {"p --transport mpi --generate a --init i", mpi},
        {"p --data t --transport mpi --routing-save f", mpi},
        {"p --data t --transport mpi --routing-compare f", mpi},
        {"p --data t --transport mpi --device cuda", "--transport mpi: is for CPU ranks; on GPUs nccl or d2d"},
        {"p --data t --transport mpi --rendezvous h:1", meet},
        {"p --data t --transport nccl", "--transport nccl: needs --device cuda"},
        {"p --data t --transport d2d", "--transport d2d: needs --device cuda"},
        {"p --data t --device cuda --transport shm", "--transport shm: does not reach GPUs: nccl or d2d"},
        {"p --data t --replay eager", "--replay: needs --device cuda"},
        {"p --data t --rendezvous h:1", meet},
        {"p --data t --device cuda --transport d2d --rendezvous h:1", meet},
        {"p --data t --rank 1", rank},
        {"p --data t --world 2", rank},
        {"p --data t --device cuda --rendezvous h:1 --rank 2 --world 2", rank},
        {"p --data t --device cuda --rendezvous h:1 --rank 1", rank},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect_refused(cases[i][0], STATUS_USAGE, cases[i][1], hint);
}

static const struct settings *accepted(struct parse *p, const char *words)
{
    parse(p, words);
    CU_ASSERT_EQUAL(p->status, STATUS_OK);
    CU_ASSERT_STRING_EQUAL(p->said, "");
    CU_ASSERT_FALSE(p->done);
    return &p->o;
}

static void test_accepted(void)
{
    static struct parse p;
    const struct settings *o = accepted(&p, "p --data t");
    CU_ASSERT_STRING_EQUAL(o->dir, "p");
    CU_ASSERT_STRING_EQUAL(o->data, "t");
    CU_ASSERT(!o->steps && !o->eval_every && !o->shuffle_seed && o->watchdog_s == 60);
    CU_ASSERT(!o->json && !o->quiet && !o->local_ranks && !o->calibrate);
    CU_ASSERT(!o->cuda && !o->nccl && !o->free_order && o->transport == -1 && o->replay == -1);
    CU_ASSERT(!o->init && !o->save && !o->eval && !o->log && !o->trace);
    CU_ASSERT(!o->gradients && !o->paced && !o->routing[ROUTING_REPLAY] && !o->rendezvous && !o->output);
    CU_ASSERT(!o->generate && !o->sampling);
    o = accepted(&p, "--data t --init i --save s --eval e --log l --trace c --dump-gradients g "
                     "--routing-save r p --steps 9223372036854775807 --eval-every 2 --shuffle-queues 3 "
                     "--watchdog 0.5 --ranks local --json --quiet");
    CU_ASSERT_STRING_EQUAL(o->dir, "p");
    CU_ASSERT_STRING_EQUAL(o->init, "i");
    CU_ASSERT_STRING_EQUAL(o->save, "s");
    CU_ASSERT_STRING_EQUAL(o->eval, "e");
    CU_ASSERT_STRING_EQUAL(o->log, "l");
    CU_ASSERT_STRING_EQUAL(o->trace, "c");
    CU_ASSERT_STRING_EQUAL(o->gradients, "g");
    CU_ASSERT_STRING_EQUAL(o->routing[ROUTING_SAVE], "r");
    CU_ASSERT(o->steps == INT64_MAX && o->eval_every == 2 && o->shuffle_seed == 3 && o->watchdog_s == 0.5);
    CU_ASSERT(o->local_ranks && o->json && o->quiet);
    CU_ASSERT_FALSE(accepted(&p, "p --data t --ranks all --watchdog 0")->local_ranks);
    CU_ASSERT_STRING_EQUAL(accepted(&p, "p --paced f")->paced, "f");
    CU_ASSERT_STRING_EQUAL(accepted(&p, "p --data t --routing-compare f")->routing[ROUTING_COMPARE], "f");
    o = accepted(&p, "p --generate hello --init i --json");
    CU_ASSERT_STRING_EQUAL(o->generate, "hello");
    CU_ASSERT(o->tokens == 100 && !o->top_k && !o->seed && fabs(o->temperature - 0.8) < 1e-9);
    o = accepted(&p, "p --generate a --init i --tokens 3 --top-k 4 --seed 0 --temperature 0 --shuffle-queues 5");
    CU_ASSERT(o->tokens == 3 && o->top_k == 4 && !o->seed && !(o->temperature > 0) && o->shuffle_seed == 5);
    CU_ASSERT(accepted(&p, "p --generate a --init i --seed 9223372036854775807")->seed == INT64_MAX);
    o = accepted(&p, "--calibrate -o x");
    CU_ASSERT(o->calibrate && !o->nccl);
    CU_ASSERT_STRING_EQUAL(o->output, "x");
}

/* a GPU's ranks meet by NCCL and replay one graph unless something else is said */
static void test_cuda(void)
{
    static struct parse p;
    const struct settings *o = accepted(&p, "p --data t --device cuda");
    CU_ASSERT(o->cuda && o->nccl && o->replay == 2 && !o->free_order);
    o = accepted(&p, "p --data t --transport mpi --shuffle-queues 1 --eval e --save s");
    CU_ASSERT(o->mpi && !o->cuda && !o->nccl);
    CU_ASSERT_FALSE(accepted(&p, "p --data t --transport shm")->mpi);
    o = accepted(&p, "p --data t --device cuda --transport d2d --replay segments --no-deterministic");
    CU_ASSERT(o->cuda && !o->nccl && o->replay == 1 && o->free_order);
    o = accepted(&p, "p --data t --device cuda --routing f --replay eager");
    CU_ASSERT(o->nccl && o->replay == 0);
    CU_ASSERT_STRING_EQUAL(o->routing[ROUTING_REPLAY], "f");
    o = accepted(&p, "p --data t --device cuda --transport nccl --rendezvous h:1 --rank 1 --world 2");
    CU_ASSERT(o->nccl && o->rank == 1 && o->ranks == 2);
    CU_ASSERT_STRING_EQUAL(o->rendezvous, "h:1");
    CU_ASSERT_FALSE(accepted(&p, "--calibrate --device cuda")->nccl);
    CU_ASSERT(accepted(&p, "--calibrate --device cuda --transport nccl")->nccl);
}

void suite_settings(void);
void suite_settings(void)
{
    CU_pSuite s = CU_add_suite("settings", NULL, NULL);
    CU_add_test(s, "refused values", test_refused);
    CU_add_test(s, "options that exclude each other", test_excluded);
    CU_add_test(s, "what options set", test_accepted);
    CU_add_test(s, "of GPUs", test_cuda);
}
