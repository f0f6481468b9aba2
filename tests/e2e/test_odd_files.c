/* What stands where a file is read or written and is none: a folder, FIFO, device or socket; links; and what
 * cannot be written. Every command is bounded in time, so that one that waits for a FIFO's other end fails.
 * Devices are made by the test, in its own folder; where that is not permitted, those cases are skipped.  No
 * name in /dev is given to a command to write to: a fault might replace what stands there. */

#include "tests/e2e/e2e.h"
#include "tests/skip.h"

#include <CUnit/CUnit.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

void suite_odd_files(void);

enum kind { FOLDER, FIFO, DEVICE, SOCKET, NKINDS };
static const char *const words[NKINDS] = {"folder", "FIFO", "device", "socket"};
static const char *const is_still[NKINDS] = {"-d", "-p", "-c", "-S"};

static const char model[] =
    "llmc 1\n"
    "model small {\n    vocab 256\n    width 32\n    norm rmsnorm\n    embed tokens\n"
    "    repeat 2 { layer { attn gqa(heads=4, kv=2, rope=10_000); moe swiglu(48) { experts 4; active 2; "
    "router softmax } } }\n"
    "    head untied\n}\n"
    "train {\n    sequence 32\n    batch 4 sequences\n    precision fp32\n    optimizer adamw(lr=1e-3)\n}\n"
    "plan {\n    microbatch = 1 sequence\n    recompute none\n    schedule 1f1b\n}\n";

struct place {
    char dir[E2E_PATH];
    bool devices; /* mknod is permitted */
    int code;
    char out[1 << 12], err[1 << 12];
};

/* a shell script with L, R, D, C as in test_cli.c */
static void shell(struct place *p, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void shell(struct place *p, const char *format, ...)
{
    char path[E2E_PATH + 16], command[4 * E2E_PATH];
    va_list ap;
    snprintf(path, sizeof path, "%s/script", p->dir);
    FILE *script = fopen(path, "w");
    CU_ASSERT_PTR_NOT_NULL_FATAL(script);
    fprintf(script, "L=%s/llmc R=%s/llmrun C=topologies/cpu8.xml D='%s'\n", e2e_build(), e2e_build(), p->dir);
    va_start(ap, format);
    vfprintf(script, format, ap);
    va_end(ap);
    fclose(script);
    snprintf(command, sizeof command, "timeout 400 sh '%s' >'%s/stdout' 2>'%s/stderr' </dev/null", path,
             p->dir, p->dir);
    int status = system(command);
    p->code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    snprintf(path, sizeof path, "%s/stdout", p->dir);
    e2e_read_text(path, p->out, sizeof p->out);
    snprintf(path, sizeof path, "%s/stderr", p->dir);
    e2e_read_text(path, p->err, sizeof p->err);
}

/* the script ends with this code, and stderr has this line whole: "llmc: " or what else is in front included;
 * "" = says nothing */
static void expect(struct place *p, const char *script, int code, const char *line)
{
    char text[sizeof p->err + 2], wanted[1024];
    shell(p, "%s\n", script);
    snprintf(text, sizeof text, "\n%s", p->err);
    snprintf(wanted, sizeof wanted, "\n%s\n", line);
    bool fine = p->code == code && (*line ? strstr(text, wanted) != NULL : !*p->err);
    if (!fine)
        printf("\n    %s\n    exit %d, wanted %d%s\n    stderr, wanted: %s\n    stderr: %s\n", script,
               p->code, code, p->code == 124 ? " (it waited)" : "", line, p->err);
    CU_ASSERT(fine);
}

static bool make_odd(const char *path, enum kind kind)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    switch (kind) {
    case FOLDER:
        return mkdir(path, 0777) == 0;
    case FIFO:
        return mkfifo(path, 0666) == 0;
    case DEVICE:
        return mknod(path, S_IFCHR | 0666, makedev(1, 3)) == 0;
    case SOCKET:
        break;
    case NKINDS:
        return false;
    }
    if (strlen(path) >= sizeof a.sun_path)
        return false;
    memcpy(a.sun_path, path, strlen(path) + 1);
    int s = socket(AF_UNIX, SOCK_STREAM, 0);
    bool made = s >= 0 && bind(s, (const struct sockaddr *)&a, sizeof a) == 0;
    if (s >= 0)
        close(s);
    return made;
}

/* a folder with a model, tokens t, their form of the text, a plan p of one rank with experts, and odd/ with
 * one of each kind */
static void begin(struct place *p, const char *name)
{
    char path[E2E_PATH + 32];
    e2e_folder(p->dir, name);
    snprintf(path, sizeof path, "%s/m.llm", p->dir);
    FILE *out = fopen(path, "w");
    CU_ASSERT_FATAL(out && fputs(model, out) >= 0 && fclose(out) == 0);
    shell(p, "cp LICENSE $D/text && $L tokens $D/text -q -o $D/t && $L plan $D/m.llm $C -q --set gpus=1 -o "
             "$D/p >/dev/null && "
             "mkdir $D/odd");
    CU_ASSERT_EQUAL_FATAL(p->code, 0);
    for (int k = 0; k < NKINDS; k++) {
        snprintf(path, sizeof path, "%s/odd/%s", p->dir, words[k]);
        bool made = make_odd(path, (enum kind)k);
        if (k == DEVICE)
            p->devices = made;
        else
            CU_ASSERT_FATAL(made);
    }
    snprintf(path, sizeof path, "%s/full", p->dir);
    p->devices = p->devices && mknod(path, S_IFCHR | 0666, makedev(1, 7)) == 0;
    if (!p->devices)
        test_skip("devices cannot be made here (mknod)");
}

static bool has(const struct place *p, int kind)
{
    return kind != DEVICE || p->devices;
}

/* ---- reading ---- */

/* a command that reads $X, which is made by putting an odd file in its place; how the refusal begins and ends
 */
struct reader {
    const char *place, *command, *before, *after;
    bool folder_is_fine;
};

static void expect_refused(struct place *p, const struct reader *r)
{
    char script[1024], line[1024];
    for (int k = 0; k < NKINDS; k++) {
        if (!has(p, k) || (k == FOLDER && r->folder_is_fine))
            continue;
        snprintf(script, sizeof script, "X=$D/%s; rm -rf $X; cp -a $D/odd/%s $X; %s", r->place, words[k],
                 r->command);
        snprintf(line, sizeof line, "%s%s/%s%sit is a %s, not a file", r->before, p->dir, r->place, r->after,
                 words[k]);
        expect(p, script, 3, line);
    }
}

static void test_inputs(void)
{
    static const struct reader readers[] = {
        {"x", "$L estimate $X $C", "error: cannot read '", "': ", false},
        {"x", "$L plan $X $C -o $D/q", "error: cannot read '", "': ", false},
        {"x", "$L fmt $X", "error: cannot read '", "': ", false},
        {"x", "$L import $X", "error: cannot read '", "': ", false},
        {"x", "$L topo show $X", "error: cannot read '", "': ", false},
        {"x", "$L topo import slurm $X", "error: cannot read '", "': ", false},
        {"x", "$L estimate $D/m.llm $X", "error: cannot read '", "': ", false},
        {"x", "$L estimate $D/m.llm $X --sweep tp=1,2", "error: cannot read '", "': ", false},
        {"imports/dumps/pair.xml", "$L topo show $D/imports/cluster.xml", "error: cannot read '",
         "': ", false},
        {"x", "$L estimate $D/m.llm $C --set 'schedule=\"x\"'", "error: cannot read '", "': ", false},
        {"x", "$L diff $D/p $X", "llmc: ", ": ", true}, /* a folder is read as another plan */
        {"x", "$R $D/p --steps 1 --data $X", "llmrun: ", ": ", false},
        {"x", "$R $D/p --steps 1 --data $D/t --eval $X", "llmrun: ", ": ", false},
        {"pair.idx", "cp $D/t $D/pair.bin; $R $D/p --steps 1 --data $D/pair.bin", "llmrun: ", ": ", false},
        {"x", "$R $D/p --steps 1 --data $D/t --init $X", "llmrun: ", ": ", true},
        {"w/model.safetensors", "$R $D/p --steps 1 --data $D/t --init $D/w", "llmrun: ", ": ", false},
        {"w2/model.safetensors.index.json", "$R $D/p --steps 1 --data $D/t --init $D/w2", "llmrun: ", ": ",
         false},
        {"w3/part", "$R $D/p --steps 1 --data $D/t --init $D/w3", "llmrun: ", ": ", false},
        {"x", "$R $D/p --paced $X", "llmrun: ", ": ", false},
        {"x", "$R $D/p --steps 1 --data $D/t --routing $X", "llmrun: ", ": ", false},
        {"x", "$R $D/p --steps 1 --data $D/t --routing-compare $X", "llmrun: ", ": ", false},
    };
    struct place *p = malloc(sizeof *p);
    begin(p, "odd-inputs");
    shell(p, "mkdir $D/w $D/w2 $D/w3 && cp -r tests/cases/imports tests/cases/topology $D && "
             "echo '{\"weight_map\": {\"a\": \"part\"}}' >$D/w3/model.safetensors.index.json");
    CU_ASSERT_EQUAL(p->code, 0);
    for (size_t i = 0; i < sizeof readers / sizeof *readers; i++)
        expect_refused(p, &readers[i]);
    free(p);
}

/* every file of a plan folder, by both programs */
static void test_plan_files(void)
{
    static const char *const files[] = {"MANIFEST",  "plan.json",      "model.llm",          "cluster.xml",
                                        "ranks.bin", "programs/0.bin", "programs/eval-0.bin"};
    struct place *p = malloc(sizeof *p);
    begin(p, "odd-plan");
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char place[64], check[128], run[128];
        snprintf(place, sizeof place, "q/%s", files[i]);
        snprintf(check, sizeof check, "$L check $D/q");
        snprintf(run, sizeof run, "$R $D/q --steps 1 --data $D/t");
        shell(p, "rm -rf $D/q; cp -r $D/p $D/q");
        expect_refused(p, &(struct reader){place, check, "llmc: ", ": ", false});
        expect_refused(p, &(struct reader){place, run, "llmrun: ", ": ", false});
    }
    free(p);
}

/* text for tokens may come through a FIFO or standard input, and nobody waits for a writer who does not come
 */
static void test_tokens_in(void)
{
    struct place *p = malloc(sizeof *p);
    char line[1024];
    begin(p, "odd-tokens");
    for (int k = 0; k < NKINDS; k++) {
        char script[256];
        if (!has(p, k))
            continue;
        snprintf(script, sizeof script, "$L tokens $D/odd/%s -o $D/u", words[k]);
        snprintf(line, sizeof line,
                 k == FIFO ? "llmc: %s/odd/FIFO: it is a FIFO that nobody writes into"
                           : "llmc: %s/odd/%s: it is a %s, not a file",
                 p->dir, words[k], words[k]);
        expect(p, script, 3, line);
    }
    expect(p, "test ! -e $D/u", 0, "");
    static const char *const fine[] = {
        "cat $D/text >$D/odd/FIFO & $L tokens $D/odd/FIFO -q -o $D/u; wait",
        "(sleep 0.4; cat $D/text >$D/odd/FIFO) & $L tokens $D/odd/FIFO -q -o $D/u; wait",
        "(exec 3>$D/odd/FIFO; sleep 2.5; cat $D/text >&3) & $L tokens $D/odd/FIFO -q -o $D/u; wait",
        "cat $D/text | $L tokens - -q -o $D/u",
        "$L tokens - -q -o $D/u <$D/text",
        "ln -sf /proc/self/fd/0 $D/in; cat $D/text | $L tokens $D/in -q -o $D/u",
        "cat $D/text | $L tokens - -q -o - >$D/u",
        "ln -sf /proc/self/fd/1 $D/out; $L tokens $D/text -q -o $D/out >$D/u",
        "ln -sf /proc/self/fd/1 $D/out; $L tokens $D/text -q -o $D/out | cat >$D/u",
    };
    for (size_t i = 0; i < sizeof fine / sizeof *fine; i++) {
        char script[512];
        snprintf(script, sizeof script, "rm -f $D/u; %s; cmp $D/u $D/t", fine[i]);
        expect(p, script, 0, "");
    }
    snprintf(line, sizeof line, "llmc: %s/odd/FIFO: empty", p->dir);
    expect(p, "(exec 3>$D/odd/FIFO) & $L tokens $D/odd/FIFO -q -o $D/v; s=$?; wait; exit $s", 3, line);
    free(p);
}

/* ---- writing ---- */

/* commands that write a stream to $X */
static const char *const streams[] = {
    "$L tokens $D/text -q -o $X",
    "$L trace $D/p -o $X",
    "$L trace $D/p --times -o $X",
    "$R $D/p --steps 1 --data $D/t --quiet --log $X",
    "$R $D/p --steps 1 --data $D/t --quiet --trace $X",
};
enum { NSTREAMS = sizeof streams / sizeof *streams };

/* a device or FIFO is written into and stays what it is; a folder or socket is refused */
static void test_streams(void)
{
    struct place *p = malloc(sizeof *p);
    char script[1024], line[1024];
    begin(p, "odd-streams");
    for (int i = 0; i < NSTREAMS; i++) {
        const char *name = streams[i][1] == 'L' ? "llmc" : "llmrun";
        for (int k = 0; k < NKINDS; k++) {
            if (!has(p, k) || k == FIFO)
                continue;
            snprintf(script, sizeof script, "X=$D/odd/%s; %s; s=$?; test %s $X || exit 99; exit $s", words[k],
                     streams[i], is_still[k]);
            snprintf(line, sizeof line, "%s: %s/odd/%s: it is a %s, not a file", name, p->dir, words[k],
                     words[k]);
            expect(p, script, k == DEVICE ? 0 : 4, k == DEVICE ? "" : line);
        }
        snprintf(script, sizeof script,
                 "X=$D/odd/FIFO; cat $X >$D/got & %s; s=$?; wait; test -p $X || exit 99; test -s $D/got || "
                 "exit 98; exit $s",
                 streams[i]);
        expect(p, script, 0, "");
        snprintf(script, sizeof script, "X=$D/odd/FIFO; %s", streams[i]);
        snprintf(line, sizeof line, "%s: %s/odd/FIFO: it is a FIFO that nobody reads", name, p->dir);
        expect(p, script, 4, line);
        if (!p->devices)
            continue;
        /* a link to a device stays one, and what a device does not take is lost and said */
        snprintf(script, sizeof script,
                 "X=$D/link; ln -sf odd/device $X; %s; s=$?; test -c $X && test -L $X || exit 99; exit $s",
                 streams[i]);
        expect(p, script, 0, "");
        bool log = strstr(streams[i], "--log") != NULL;
        snprintf(script, sizeof script, "X=$D/full; %s; s=$?; test -c $X || exit 99; exit $s", streams[i]);
        snprintf(line, sizeof line, "%s: %s/full: No space left on device%s", name, p->dir,
                 log ? "; the run goes on without its log" : "");
        expect(p, script, 4, line);
    }
    shell(p, "ls -A $D/odd | wc -l; ls -A $D | grep tmp");
    CU_ASSERT_STRING_EQUAL(p->out, p->devices ? "4\n" : "3\n"); /* and no temporary file */
    free(p);
}

/* the file at a link's end is replaced whole or not at all, by one with its rights; the link stays */
static void test_links(void)
{
    struct place *p = malloc(sizeof *p);
    char script[1024], line[1024];
    begin(p, "odd-links");
    for (int i = 0; i < NSTREAMS; i++) {
        const char *name = streams[i][1] == 'L' ? "llmc" : "llmrun";
        snprintf(script, sizeof script,
                 "mkdir -p $D/a/b; echo old >$D/a/b/file; chmod 640 $D/a/b/file; ln -sf b/file $D/a/near; ln "
                 "-sf $PWD/$D/a/near $D/far; "
                 "X=$D/far; %s && test -L $D/far && test -L $D/a/near && test ! -L $D/a/b/file && ! grep -qx "
                 "old $D/a/b/file && "
                 "test $(stat -c %%a $D/a/b/file) = 640 && test $(ls -A $D/a/b | wc -l) = 1 && test $(ls -A "
                 "$D/a | wc -l) = 2",
                 streams[i]);
        expect(p, script, 0, "");
        snprintf(script, sizeof script,
                 "rm -f $D/new; ln -sf new $D/open; X=$D/open; %s && test -L $D/open && test -s $D/new",
                 streams[i]);
        expect(p, script, 0, "");
        snprintf(script, sizeof script, "ln -sf none/new $D/lost; X=$D/lost; %s", streams[i]);
        snprintf(line, sizeof line, "%s: %s/lost: No such file or directory", name, p->dir);
        expect(p, script, 4, line);
        snprintf(script, sizeof script, "ln -sf ring $D/ring; X=$D/ring; %s", streams[i]);
        snprintf(line, sizeof line, "%s: %s/ring: Too many levels of symbolic links", name, p->dir);
        expect(p, script, 4, line);
    }
    /* a trace never replaces what it is the trace of */
    snprintf(line, sizeof line, "llmc: %s/p/plan.json: it is a file of the plan itself", p->dir);
    expect(p, "$L trace $D/p -o $D/p/plan.json", 4, line);
    snprintf(line, sizeof line, "llmc: %s/zero: it is a file of the plan itself", p->dir);
    expect(p, "ln -s p/programs/0.bin $D/zero && $L trace $D/p -o $D/zero", 4, line);
    /* a file that becomes too large leaves the old one */
    snprintf(line, sizeof line, "llmc: %s/old: File too large", p->dir);
    expect(p, "echo old >$D/old; trap '' XFSZ; ulimit -f 1; $L tokens $D/text -o $D/old", 4, line);
    expect(p, "ulimit -f 1; trap '' XFSZ; $L trace $D/p -o $D/old", 4, line);
    expect(p, "grep -qx old $D/old && ! ls $D/old.*  2>/dev/null", 0, "");
    free(p);
}

/* a plan's folder: nothing but a folder or a regular file is displaced, also with --force; of a link, what it
 * leads to */
static void test_plan_out(void)
{
    struct place *p = malloc(sizeof *p);
    char script[1024], line[1024];
    begin(p, "odd-plan-out");
    for (int k = FIFO; k < NKINDS; k++)
        for (int force = 0; has(p, k) && force < 2; force++) {
            snprintf(line, sizeof line, "llmc: %s/odd/%s: it is a %s, not a folder, and a plan is a folder",
                     p->dir, words[k], words[k]);
            snprintf(script, sizeof script,
                     "$L plan $D/m.llm $C -q --set gpus=1 -o $D/odd/%s %s; s=$?; test %s $D/odd/%s || exit "
                     "99; exit $s",
                     words[k], force ? "--force" : "", is_still[k], words[k]);
            expect(p, script, 4, line);
        }
    expect(p,
           "P=\"$L plan $D/m.llm $C -q --set gpus=1\"; cp -r $D/p $D/q; rm $D/q/plan.json; ln -s q $D/link; "
           "$P -o $D/link/ >/dev/null && "
           "test -L $D/link && cmp $D/q/plan.json $D/p/plan.json && ln -s fresh $D/open && $P -o $D/open "
           ">/dev/null && "
           "test -L $D/open && cmp $D/fresh/plan.json $D/p/plan.json && ! ls -d $D/*.tmp-* $D/*.old-* "
           "2>/dev/null",
           0, "");
    /* what is no part of a plan is nobody's to remove, also among its programs */
    static const char *const foreign[] = {"programs/notes.txt", "programs/0.bin.orig", "notes"};
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++) {
        snprintf(script, sizeof script,
                 "rm -rf $D/q; cp -r $D/p $D/q; echo mine >$D/q/%s; $L plan $D/m.llm $C -q --set gpus=1 -o "
                 "$D/q 2>&1 | "
                 "grep -q 'holds more than a plan' && grep -qx mine $D/q/%s",
                 foreign[i], foreign[i]);
        expect(p, script, 0, "");
    }
    expect(p,
           "rm -rf $D/q; cp -r $D/p $D/q; rm $D/q/ranks.bin; mkfifo $D/q/ranks.bin; $L plan $D/m.llm $C -q "
           "--set gpus=1 -o $D/q 2>&1 | "
           "grep -q 'holds more than a plan' && test -p $D/q/ranks.bin",
           0, "");
    free(p);
}

/* weights and choices of experts are mapped: only a regular file will do, and that is known before the first
 * step */
static void test_weights_out(void)
{
    static const char *const options[] = {"--save", "--dump-gradients"}, *const stems[] = {"model",
                                                                                           "gradients"};
    static const char *const ends[] = {"", ".tmp"};
    struct place *p = malloc(sizeof *p);
    char script[1024], line[1024];
    begin(p, "odd-weights");
    for (int k = 0; k < NKINDS; k++) {
        if (!has(p, k))
            continue;
        for (int o = 0; o < 2; o++) {
            snprintf(line, sizeof line,
                     "llmrun: %s/odd/%s: it is a %s, not a folder, and weights go into a folder", p->dir,
                     words[k], words[k]);
            snprintf(
                script, sizeof script,
                "$R $D/p --steps 1 --data $D/t %s $D/odd/%s; s=$?; test %s $D/odd/%s || exit 99; exit $s",
                options[o], words[k], is_still[k], words[k]);
            if (k != FOLDER)
                expect(p, script, 4, line);
            for (int e = 0; e < 2; e++) {
                snprintf(line, sizeof line, "llmrun: %s/w/%s.safetensors%s: it is a %s, not a file", p->dir,
                         stems[o], ends[e], words[k]);
                snprintf(script, sizeof script,
                         "rm -rf $D/w; mkdir $D/w; X=$D/w/%s.safetensors%s; cp -a $D/odd/%s $X; $R $D/p "
                         "--steps 1 --data $D/t %s $D/w; s=$?; "
                         "test %s $X || exit 99; exit $s",
                         stems[o], ends[e], words[k], options[o], is_still[k]);
                expect(p, script, 4, line);
                CU_ASSERT(!strstr(p->err, "loss"));
            }
        }
        snprintf(line, sizeof line, "llmrun: %s/odd/%s: it is a %s, not a file", p->dir, words[k], words[k]);
        snprintf(script, sizeof script, "$R $D/p --steps 1 --data $D/t --routing-save $D/odd/%s", words[k]);
        expect(p, script, 4, line);
    }
    expect(p,
           "mkdir $D/real; ln -s real $D/dir; $R $D/p --steps 1 --data $D/t --quiet --save $D/dir && test -f "
           "$D/real/model.safetensors",
           0, "");
    /* a link in the folder is replaced itself: what it leads to may be others' too */
    expect(p,
           "rm -rf $D/w; mkdir $D/w; echo theirs >$D/blob; ln -s ../blob $D/w/model.safetensors; $R $D/p "
           "--steps 1 --data $D/t "
           "--quiet --save $D/w && test ! -L $D/w/model.safetensors && grep -qx theirs $D/blob",
           0, "");
    free(p);
}

/* ---- what cannot be written ---- */

static void test_dash(void)
{
    struct place *p = malloc(sizeof *p);
    begin(p, "odd-dash");
    expect(p,
           "$R $D/p --steps 2 --data $D/t --quiet --log - >$D/log && test $(grep -c '^{\"step\"' $D/log) = 2",
           0, "");
    expect(p, "$R $D/p --steps 1 --data $D/t --quiet --trace - >$D/got && grep -q '^{\"traceEvents\"' $D/got", 0, "");
    expect(p, "$L trace $D/p -o $D/trace && $L trace $D/p -o - | cmp - $D/trace", 0, "");
    expect(p, "test ! -e ./-", 0, "");
    free(p);
}

static void test_full_stdout(void)
{
    static const char *const commands[] = {"$L help",
                                           "$L help plan",
                                           "$L help language",
                                           "$L --help",
                                           "$L version",
                                           "$L isa",
                                           "$L isa --json",
                                           "$L isa MATMUL_NT",
                                           "$L fmt $D/m.llm",
                                           "$L topo show $C",
                                           "$L topo show $C --json",
                                           "$L estimate $D/m.llm $C",
                                           "$L estimate $D/m.llm $C --json",
                                           "$L estimate $D/m.llm $C --sweep tp=1,2",
                                           "$L explain $D/p",
                                           "$L explain $D/p --json",
                                           "$L check $D/p",
                                           "$L check $D/p --json",
                                           "$L show $D/p",
                                           "$L show $D/p --json",
                                           "$L show $D/p --memory",
                                           "$L show $D/p --traffic",
                                           "$L show $D/p --timeline",
                                           "$L show $D/p --schedule",
                                           "$L show $D/p --code",
                                           "$L trace $D/p -o -",
                                           "$L tokens $D/text -q -o -",
                                           "$L diff $D/p $D/trace",
                                           "$L dump sched $D/m.llm $C",
                                           "$L plan $D/m.llm $C -q --set gpus=1 -o $D/q",
                                           "$L plan $D/m.llm $C -q --set gpus=1 -o $D/q --json",
                                           "$R --help",
                                           "$R --version",
                                           "$R $D/p --steps 1 --data $D/t --quiet --json",
                                           /* of one core: every one that it may use is measured for seconds */
                                           "taskset -c $(taskset -cp $$ | sed 's/.* //; s/[,-].*//') $R --calibrate"};
    struct place *p = malloc(sizeof *p);
    begin(p, "odd-stdout");
    shell(p, "$R $D/p --steps 1 --data $D/t --quiet --trace $D/trace");
    CU_ASSERT_EQUAL(p->code, 0);
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        bool slow = strstr(commands[i], "--calibrate") != NULL;
        if (slow && !test_whole())
            continue;
        shell(p, "%s >/dev/full\n", commands[i]);
        bool dash = strstr(commands[i], "-o -") != NULL;
        bool fine =
            p->code == 4 && (dash ? strstr(p->err, "llmc: -: No space left on device\n") != NULL
                                  : strstr(p->err, ": stdout: No space left on device\n") ||
                                        strstr(p->err, ": stdout: not everything could be written\n"));
        if (!fine)
            printf("\n    %s >/dev/full: exit %d: %s\n", commands[i], p->code, p->err);
        CU_ASSERT(fine);
    }
    free(p);
}

/* a log that cannot be written is said at once; the run goes on, saves its weights, and fails at its end */
static void test_broken_log(void)
{
    struct place *p = malloc(sizeof *p);
    char line[1024];
    begin(p, "odd-log");
    snprintf(line, sizeof line, "llmrun: %s/odd/FIFO: Broken pipe; the run goes on without its log", p->dir);
    expect(p,
           ": <$D/odd/FIFO & $R $D/p --steps 300 --data $D/t --quiet --log $D/odd/FIFO --save $D/w; s=$?; "
           "wait; exit $s",
           4, line);
    expect(p, "test -s $D/w/model.safetensors", 0, "");
    if (p->devices) {
        snprintf(line, sizeof line, "llmrun: %s/full: the log is not complete", p->dir);
        expect(p, "rm -r $D/w; $R $D/p --steps 3 --data $D/t --log $D/full --save $D/w --trace $D/trace", 4,
               line);
        CU_ASSERT_PTR_NOT_NULL(strstr(p->err, "step 3/3"));
        const char *once = strstr(p->err, "the run goes on without its log\n");
        CU_ASSERT(once && !strstr(strchr(once, '\n'), "without its log\n"));
        expect(p, "test -s $D/w/model.safetensors && test -s $D/trace", 0, "");
    }
    free(p);
}

void suite_odd_files(void)
{
    CU_pSuite s = CU_add_suite("odd_files", NULL, NULL);
    CU_add_test(s, "inputs that are no files", test_inputs);
    CU_add_test(s, "plan folders with what is no file", test_plan_files);
    CU_add_test(s, "text through FIFOs and standard input", test_tokens_in);
    CU_add_test(s, "streams into devices, FIFOs, sockets, folders", test_streams);
    CU_add_test(s, "outputs by links", test_links);
    CU_add_test(s, "plans in place of what is no folder", test_plan_out);
    CU_add_test(s, "weights in place of what is no file", test_weights_out);
    CU_add_test(s, "- is standard output", test_dash);
    CU_add_test(s, "standard output that takes nothing", test_full_stdout);
    CU_add_test(s, "a log that takes nothing", test_broken_log);
}
