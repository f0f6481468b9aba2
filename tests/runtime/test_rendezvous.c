/* Ranks that meet over TCP: blobs and sums arrive; another plan, another secret, a rank too many, and a rank that dies or
 * fails end the meeting for all, in words. */

#include "runtime/rendezvous.h"

#include <CUnit/CUnit.h>
#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { RANKS = 4, HELLO = 104, PROOF = 81, ANSWER = 408, WORDS = 400 };

struct rank {
    struct rendezvous_setup s;
    bool dies, fails;
    enum status status;
    struct error error;
    uint8_t blob[RENDEZVOUS_BLOB];
    uint64_t sum;
};

static void *run(void *argument)
{
    struct rank *k = argument;
    struct rendezvous *r = NULL;
    memset(k->blob, (int)k->s.rank + 1, sizeof k->blob);
    k->status = rendezvous_join(&r, &k->s, k->blob, &k->error);
    for (int round = 0; round < 3 && k->status == STATUS_OK; round++) {
        uint64_t value[2] = {k->s.rank + 1, 10};
        if (round == 1 && k->dies)
            break;
        if (round == 1 && k->fails)
            rendezvous_fail(r, "rank 2: the sky falls");
        if (round == 1 && k->fails)
            break;
        k->status = rendezvous_sum(r, value, 2, &k->error);
        k->sum += value[0] + value[1];
    }
    rendezvous_close(r);
    return NULL;
}

static uint16_t free_port(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof a;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    bind(fd, (struct sockaddr *)&a, sizeof a);
    getsockname(fd, (struct sockaddr *)&a, &n);
    close(fd);
    return ntohs(a.sin_port);
}

static const char plan[] = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

static void set_up(struct rank *ranks)
{
    uint16_t port = free_port();
    for (uint32_t r = 0; r < RANKS; r++)
        ranks[r] = (struct rank){.s = {"localhost", port, r, RANKS, plan, "open sesame", 7, 3}};
}

static void run_all(struct rank *ranks)
{
    pthread_t threads[RANKS];
    for (uint32_t r = 0; r < RANKS; r++)
        pthread_create(&threads[r], NULL, run, &ranks[r]);
    for (uint32_t r = 0; r < RANKS; r++)
        pthread_join(threads[r], NULL);
}

static void test_meeting(void)
{
    struct rank ranks[RANKS];
    set_up(ranks);
    run_all(ranks);
    for (uint32_t r = 0; r < RANKS; r++) {
        if (ranks[r].status != STATUS_OK)
            printf("\n    %s", ranks[r].error.text);
        CU_ASSERT_EQUAL(ranks[r].status, STATUS_OK);
        CU_ASSERT_EQUAL(ranks[r].blob[0], 1);
        CU_ASSERT_EQUAL(ranks[r].blob[RENDEZVOUS_BLOB - 1], 1);
        CU_ASSERT_EQUAL(ranks[r].sum, 3 * (1 + 2 + 3 + 4 + 40));
    }
}

static void expect(const struct rank *k, const char *words)
{
    if (k->status == STATUS_OK || !strstr(k->error.text, words))
        printf("\n    rank %u: status %d, %s", k->s.rank, (int)k->status, k->error.text);
    CU_ASSERT(k->status != STATUS_OK && strstr(k->error.text, words) != NULL);
}

static void test_refusals(void)
{
    struct rank ranks[RANKS];
    set_up(ranks);
    ranks[2].s.plan_hash = "ff23456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
    run_all(ranks);
    expect(&ranks[0], "rank 2 has another plan than rank 0");
    expect(&ranks[2], "rank 2 has another plan than rank 0");
    set_up(ranks);
    ranks[3].s.secret = "open barley";
    run_all(ranks);
    expect(&ranks[3], "has another secret");
    CU_ASSERT_EQUAL(ranks[3].status, STATUS_MISMATCH);
    expect(&ranks[0], "3 of 4 ranks came within 3 s");
    set_up(ranks);
    ranks[3].s.nranks = 5;
    run_all(ranks);
    expect(&ranks[1], "wants to join, the run has 4 ranks");
}

static void test_builds(void)
{
    struct rank ranks[RANKS];
    set_up(ranks);
    ranks[1].s.build = 8;
    run_all(ranks);
    expect(&ranks[0], "rank 1 runs another build of llmrun than rank 0");
    expect(&ranks[1], "rank 1 runs another build of llmrun than rank 0");
    set_up(ranks);
    ranks[3].s.rank = 2;
    run_all(ranks);
    expect(&ranks[0], "rank 2 was started twice");
}

/* ---- strangers ---- */

struct crowd {
    uint16_t port;
    uint32_t seed;
    atomic_bool ends;
    uint32_t came;
};

static int knock(uint16_t port)
{
    const struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd >= 0 && connect(fd, (const struct sockaddr *)&a, sizeof a) == 0)
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

/* Comes again and again: says nothing, garbage, a hello's beginning, or a whole one and then garbage for a proof; and
 * leaves, or stays until the end. */
static void *crowd(void *argument)
{
    enum { STAY = 100 };
    struct crowd *c = argument;
    int stay[STAY];
    uint8_t bytes[HELLO + PROOF];
    memset(stay, 0xff, sizeof stay);
    while (!atomic_load(&c->ends)) {
        int fd = knock(c->port), *place = &stay[c->came % STAY];
        for (size_t i = 0; i < sizeof bytes; i++)
            bytes[i] = (uint8_t)((c->seed = c->seed * 1103515245 + 12345) >> 16);
        if (c->came % 2)
            memcpy(bytes, "rendvz02", 8);
        static const size_t lengths[] = {0, 1, 8, 50, HELLO, HELLO + PROOF};
        if (fd < 0) {
            usleep(1000);
            continue;
        }
        size_t n = lengths[c->came++ % (sizeof lengths / sizeof *lengths)];
        if (send(fd, bytes, n, MSG_NOSIGNAL) < 0 || c->came % 3 == 0) {
            close(fd);
            continue;
        }
        if (*place >= 0)
            close(*place);
        *place = fd;
    }
    for (int i = 0; i < STAY; i++)
        if (stay[i] >= 0)
            close(stay[i]);
    return NULL;
}

/* rank 0 listens for a while before the others come */
static void *late(void *argument)
{
    const struct rank *k = argument;
    usleep(k->s.rank ? 700000 : 0);
    return run(argument);
}

static void test_crowd(void)
{
    enum { CROWDS = 3 };
    struct rank ranks[RANKS];
    struct crowd crowds[CROWDS];
    pthread_t threads[RANKS], strangers[CROWDS];
    uint32_t came = 0;
    set_up(ranks);
    for (uint32_t r = 0; r < RANKS; r++)
        ranks[r].s.timeout_s = 8;
    for (uint32_t i = 0; i < CROWDS; i++)
        crowds[i] = (struct crowd){.port = ranks[0].s.port, .seed = i + 1};
    for (uint32_t r = 0; r < RANKS; r++)
        pthread_create(&threads[r], NULL, late, &ranks[r]);
    for (uint32_t i = 0; i < CROWDS; i++)
        pthread_create(&strangers[i], NULL, crowd, &crowds[i]);
    for (uint32_t r = 0; r < RANKS; r++)
        pthread_join(threads[r], NULL);
    for (uint32_t i = 0; i < CROWDS; i++)
        atomic_store(&crowds[i].ends, true);
    for (uint32_t i = 0; i < CROWDS; i++) {
        pthread_join(strangers[i], NULL);
        came += crowds[i].came;
    }
    CU_ASSERT(came > 500);
    printf("(%u) ", came);
    for (uint32_t r = 0; r < RANKS; r++) {
        if (ranks[r].status != STATUS_OK)
            printf("\n    rank %u: %s", r, ranks[r].error.text);
        CU_ASSERT_EQUAL(ranks[r].status, STATUS_OK);
        CU_ASSERT_EQUAL(ranks[r].sum, 3 * (1 + 2 + 3 + 4 + 40));
    }
}

static void test_ends(void)
{
    struct rank ranks[RANKS];
    set_up(ranks);
    ranks[2].dies = true;
    run_all(ranks);
    expect(&ranks[0], "rank 2 is gone");
    expect(&ranks[3], "rank 2 is gone");
    set_up(ranks);
    ranks[2].fails = true;
    run_all(ranks);
    expect(&ranks[0], "the sky falls");
    expect(&ranks[1], "the sky falls");
}

/* ---- between a rank and rank 0, one connection of which the last words are spoilt ---- */

struct between {
    int listener;
    uint16_t port; /* rank 0's */
};

/* n bytes from one side to the other; what they are, where somebody wants to know */
static bool hand_on(int from, int to, size_t n, uint8_t *what)
{
    uint8_t own[ANSWER], *bytes = what ? what : own;
    for (size_t have = 0; have < n;) {
        ssize_t come = recv(from, bytes + have, n - have, 0);
        if (come <= 0)
            return false;
        have += (size_t)come;
    }
    return to < 0 || send(to, bytes, n, MSG_NOSIGNAL) == (ssize_t)n;
}

static void *spoil(void *argument)
{
    const struct between *b = argument;
    const struct sockaddr_in a = {.sin_family = AF_INET,
                                  .sin_port = htons(b->port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int client = accept(b->listener, NULL, NULL), server = socket(AF_INET, SOCK_STREAM, 0);
    uint8_t answer[ANSWER];
    for (int i = 0; i < 100 && connect(server, (const struct sockaddr *)&a, sizeof a); i++)
        usleep(20000);
    if (hand_on(client, server, HELLO, NULL) && hand_on(server, client, PROOF, NULL) &&
        hand_on(client, server, PROOF, NULL) && hand_on(server, -1, ANSWER, answer)) {
        memcpy(answer, &(const uint32_t){1}, sizeof(uint32_t)); /* it failed, */
        memset(answer + ANSWER - WORDS, 'x', WORDS);            /* and its words have no end */
        send(client, answer, ANSWER, MSG_NOSIGNAL);
    }
    close(client);
    close(server);
    return NULL;
}

static void test_endless_words(void)
{
    struct rank ranks[2];
    struct between b;
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof a;
    pthread_t threads[3];
    char want[WORDS];
    b.port = free_port();
    b.listener = socket(AF_INET, SOCK_STREAM, 0);
    CU_ASSERT_FATAL(!bind(b.listener, (struct sockaddr *)&a, n) && !listen(b.listener, 1) &&
                    !getsockname(b.listener, (struct sockaddr *)&a, &n));
    for (uint32_t r = 0; r < 2; r++)
        ranks[r] = (struct rank){.s = {r ? "127.0.0.1" : "localhost", r ? ntohs(a.sin_port) : b.port, r, 2,
                                       plan, "open sesame", 7, 3}};
    for (uint32_t r = 0; r < 2; r++)
        pthread_create(&threads[r], NULL, run, &ranks[r]);
    pthread_create(&threads[2], NULL, spoil, &b);
    for (uint32_t i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    close(b.listener);
    memset(want, 'x', WORDS - 1);
    want[WORDS - 1] = 0;
    CU_ASSERT_EQUAL(ranks[1].status, STATUS_WORLD);
    CU_ASSERT_STRING_EQUAL(ranks[1].error.text, want);
    expect(&ranks[0], "rank 1 is gone");
}

/* a port that another process listens on is refused at once, in words, and no other one is taken */
static void test_port_taken(void)
{
    struct rank k = {.s = {"localhost", 0, 0, 2, plan, "open sesame", 7, 1}};
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_ANY)};
    socklen_t n = sizeof a;
    int other = socket(AF_INET, SOCK_STREAM, 0);
    CU_ASSERT_FATAL(!bind(other, (struct sockaddr *)&a, n) && !listen(other, 1) &&
                    !getsockname(other, (struct sockaddr *)&a, &n));
    k.s.port = ntohs(a.sin_port);
    run(&k);
    char want[100];
    snprintf(want, sizeof want, "cannot listen on port %u: %s", k.s.port, strerror(EADDRINUSE));
    CU_ASSERT_EQUAL(k.status, STATUS_WORLD);
    CU_ASSERT_STRING_EQUAL(k.error.text, want);
    close(other);
}

static void test_address(void)
{
    char host[64];
    uint16_t port = 0;
    CU_ASSERT(rendezvous_address("node-0.local:29500", host, sizeof host, &port) && port == 29500);
    CU_ASSERT_STRING_EQUAL(host, "node-0.local");
    CU_ASSERT(!rendezvous_address("node-0", host, sizeof host, &port));
    CU_ASSERT(!rendezvous_address(":1", host, sizeof host, &port));
    CU_ASSERT(!rendezvous_address("a:0", host, sizeof host, &port));
    CU_ASSERT(!rendezvous_address("a:65536", host, sizeof host, &port));
    CU_ASSERT(!rendezvous_address("a:1x", host, sizeof host, &port));
}

void suite_rendezvous(void);
void suite_rendezvous(void)
{
    CU_pSuite s = CU_add_suite("rendezvous", NULL, NULL);
    CU_add_test(s, "blobs and sums", test_meeting);
    CU_add_test(s, "other plans, secrets and sizes", test_refusals);
    CU_add_test(s, "other builds, a rank twice", test_builds);
    CU_add_test(s, "a crowd at the door", test_crowd);
    CU_add_test(s, "deaths and failures", test_ends);
    CU_add_test(s, "words without an end", test_endless_words);
    CU_add_test(s, "a port that is taken", test_port_taken);
    CU_add_test(s, "addresses", test_address);
}
