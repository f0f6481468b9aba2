/* Meeting over TCP.  Rank 0's process has a thread that serves all ranks, its own included, one request after the
 * other: nothing here is fast, and nothing needs to be.
 *
 * A secret is never sent: each side sends a random number and proves that it knows the secret by SHA-256 over secret,
 * both numbers, its role and the plan's hash (RFC 2104's construction is not needed, as lengths are fixed).  What comes
 * from the network is checked before use: sizes are fixed, counts bounded. */

#include "runtime/rendezvous.h"
#include "runtime/hash.h"
#include "runtime/world.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

enum { NONCE = 16, WORDS = 400, PATIENCE_MS = 10000, FAREWELL_S = 2 };
static const uint64_t MAGIC = 0x32307a76646e6572; /* "rendvz02" */

struct hello {
    uint64_t magic, build;
    uint32_t rank, nranks;
    char plan_hash[64];
    uint8_t nonce[NONCE];
};
struct proof {
    uint8_t nonce[NONCE];
    char digest[65];
};
struct request { /* n values follow */
    uint32_t fail, n;
    char words[WORDS];
};
struct answer { /* n values follow */
    uint32_t failed, n;
    char words[WORDS];
};
struct server {
    struct rendezvous_setup s;
    char plan_hash[65], secret[256];
    uint8_t blob[RENDEZVOUS_BLOB];
    int listener, *client; /* client: by rank, -1 = not yet */
    char failed[WORDS];
};
struct rendezvous {
    int socket;
    struct server *server; /* rank 0 */
    pthread_t thread;
    double timeout_s;
};

static bool transfer(int fd, void *data, size_t n, bool sending, int64_t end_ns)
{
    uint8_t *at = data;
    while (n) {
        int64_t left = (end_ns - world_now_ns()) / 1000000;
        struct pollfd p = {fd, sending ? POLLOUT : POLLIN, 0};
        if (left <= 0 || (poll(&p, 1, left > 1000 ? 1000 : (int)left) < 0 && errno != EINTR))
            return false;
        if (!p.revents)
            continue;
        ssize_t done = sending ? send(fd, at, n, MSG_NOSIGNAL | MSG_DONTWAIT) : recv(fd, at, n, MSG_DONTWAIT);
        if (done == 0 || (done < 0 && errno != EAGAIN && errno != EINTR))
            return false;
        at += done > 0 ? done : 0;
        n -= done > 0 ? (size_t)done : 0;
    }
    return true;
}

static int64_t deadline(double seconds)
{
    return world_now_ns() + (int64_t)(seconds * 1e9);
}

static void prove(char digest[65], const char *secret, const char *role, const struct hello *h, const uint8_t *nonce)
{
    struct sha256 s;
    sha256_start(&s);
    sha256_add(&s, secret, strlen(secret) + 1);
    sha256_add(&s, role, 6);
    sha256_add(&s, h, sizeof *h);
    sha256_add(&s, nonce, NONCE);
    sha256_finish(&s, digest);
}

/* equal, in a time that does not tell where they differ */
static bool same_digest(const char *a, const char *b)
{
    unsigned difference = 0;
    for (int i = 0; i < 64; i++)
        difference |= (unsigned)(a[i] ^ b[i]);
    return !difference;
}

/* --- the serving side --- */

/* Somebody who has connected and not proved anything.  Each has a place and a while; nobody waits for it, and where
 * places run out the oldest goes. */
struct guest {
    int fd; /* -1: the place is free */
    int64_t end_ns;
    bool greeted;
    size_t have; /* bytes of its hello, then of its proof */
    struct hello hello;
    struct proof own, theirs;
};
enum { GUESTS = 256 };

static void dismiss(struct guest *g)
{
    close(g->fd);
    g->fd = -1;
}

static void welcome(struct guest *guests, int fd)
{
    struct guest *g = guests;
    for (int i = 0; i < GUESTS && g->fd >= 0; i++)
        if (guests[i].fd < 0 || guests[i].end_ns < g->end_ns)
            g = &guests[i];
    if (g->fd >= 0)
        dismiss(g);
    *g = (struct guest){.fd = fd, .end_ns = world_now_ns() + (int64_t)PATIENCE_MS * 1000000};
}

/* Takes what the guest sends; true: its proof is complete.  One that is none of ours is dismissed. */
static bool listen_to(const struct server *v, struct guest *g)
{
    uint8_t *to = g->greeted ? (uint8_t *)&g->theirs : (uint8_t *)&g->hello;
    size_t all = g->greeted ? sizeof g->theirs : sizeof g->hello;
    ssize_t n = recv(g->fd, to + g->have, all - g->have, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR) && world_now_ns() < g->end_ns)
        return false;
    g->have += n > 0 ? (size_t)n : 0;
    if (n <= 0 || (g->have >= sizeof MAGIC && g->hello.magic != MAGIC)) {
        dismiss(g);
        return false;
    }
    if (g->have < all)
        return false;
    if (g->greeted)
        return true;
    g->greeted = true;
    g->have = 0;
    if (getrandom(g->own.nonce, NONCE, 0) == NONCE) {
        prove(g->own.digest, v->secret, "server", &g->hello, g->own.nonce);
        if (send(g->fd, &g->own, sizeof g->own, MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof g->own)
            return false;
    }
    dismiss(g);
    return false;
}

/* what is wrong with a guest, "": nothing */
static void judge(const struct server *v, const struct guest *g, char *text, size_t size)
{
    const struct hello *h = &g->hello;
    char want[65];
    prove(want, v->secret, "client", h, g->own.nonce);
    text[0] = 0;
    if (!same_digest(want, g->theirs.digest))
        snprintf(text, size, "a process with another secret wanted to join");
    else if (h->nranks != v->s.nranks || h->rank >= v->s.nranks)
        snprintf(text, size, "rank %u of %u wants to join, the run has %u ranks", h->rank, h->nranks, v->s.nranks);
    else if (h->build != v->s.build)
        snprintf(text, size, "rank %u runs another build of llmrun than rank 0", h->rank);
    else if (memcmp(h->plan_hash, v->plan_hash, sizeof h->plan_hash) != 0)
        snprintf(text, size, "rank %u has another plan than rank 0: %.16s..., not %.16s...", h->rank, h->plan_hash,
                 v->plan_hash);
    else if (v->client[h->rank] >= 0)
        snprintf(text, size, "rank %u was started twice", h->rank);
}

static void send_answer(int fd, const char *words, const uint64_t *values, uint32_t n)
{
    struct answer a = {.failed = words[0] != 0, .n = words[0] ? 0 : n};
    int64_t end = deadline(10);
    snprintf(a.words, sizeof a.words, "%s", words);
    if (transfer(fd, &a, sizeof a, true, end) && a.n)
        transfer(fd, (void *)(uintptr_t)values, n * sizeof *values, true, end);
}

/* The last words to every client have been sent: wait, not long, until each has read them and gone.  A socket closed
 * with unread bytes would reset the connection under the words. */
static void part(int *fds, uint32_t n)
{
    int64_t end = deadline(FAREWELL_S);
    uint8_t unread[4096];
    for (uint32_t i = 0; i < n; i++)
        if (fds[i] >= 0)
            shutdown(fds[i], SHUT_WR);
    for (uint32_t i = 0; i < n; i++) {
        if (fds[i] < 0)
            continue;
        while (transfer(fds[i], unread, sizeof unread, false, end))
            ;
        close(fds[i]);
    }
}

/* A guest's proof is complete: it is in, or hears why not.  A run that cannot be still waits a moment for the ranks on
 * their way, so that each of them prints the reason. */
static void decide(struct server *v, struct guest *g, uint32_t *come, int64_t *end)
{
    char text[WORDS];
    int fd = g->fd;
    const struct hello *h = &g->hello;
    judge(v, g, text, sizeof text);
    g->fd = -1;
    if (!text[0]) {
        v->client[h->rank] = fd;
        ++*come;
        return;
    }
    send_answer(fd, text, NULL, 0);
    part(&fd, 1);
    if (h->rank >= v->s.nranks || strstr(text, "secret"))
        return;
    *come += v->client[h->rank] < 0; /* one of ours, and wrong: the run cannot be */
    if (!v->failed[0]) {
        snprintf(v->failed, sizeof v->failed, "%s", text);
        *end = deadline(FAREWELL_S);
    }
}

/* waits a moment for guests and for what they send */
static void attend(struct server *v, struct guest *guests, uint32_t *come, int64_t *end)
{
    struct pollfd p[GUESTS + 1] = {{v->listener, POLLIN, 0}};
    for (int i = 0; i < GUESTS; i++)
        p[i + 1] = (struct pollfd){guests[i].fd, POLLIN, 0};
    poll(p, GUESTS + 1, 100);
    for (int i = 0; i < GUESTS; i++)
        if (guests[i].fd >= 0 && (p[i + 1].revents || world_now_ns() > guests[i].end_ns) && listen_to(v, &guests[i]))
            decide(v, &guests[i], come, end);
    int fd = p[0].revents ? accept4(v->listener, NULL, NULL, SOCK_CLOEXEC) : -1;
    if (fd >= 0)
        welcome(guests, fd);
    else if (p[0].revents)
        usleep(1000); /* out of descriptors, say */
}

/* false: somebody did not come, or should not have: v->failed says it */
static bool gather(struct server *v, struct guest *guests)
{
    int64_t end = deadline(v->s.timeout_s);
    for (int i = 0; i < GUESTS; i++)
        guests[i].fd = -1;
    for (uint32_t come = 0; come < v->s.nranks;) {
        if (world_now_ns() > end) {
            if (!v->failed[0])
                snprintf(v->failed, sizeof v->failed, "%u of %u ranks came within %.0f s", come, v->s.nranks,
                         v->s.timeout_s);
            break;
        }
        attend(v, guests, &come, &end);
    }
    for (int i = 0; i < GUESTS; i++)
        if (guests[i].fd >= 0)
            dismiss(&guests[i]);
    uint64_t blob[RENDEZVOUS_BLOB / 8];
    memcpy(blob, v->blob, sizeof blob);
    for (uint32_t r = 0; r < v->s.nranks; r++)
        if (v->client[r] >= 0)
            send_answer(v->client[r], v->failed, blob, RENDEZVOUS_BLOB / 8);
    return !v->failed[0];
}

/* one request of every rank; false: the run is over */
static bool serve_round(struct server *v, uint64_t *sums, uint64_t *values)
{
    uint32_t n = 0;
    memset(sums, 0, RENDEZVOUS_MOST * sizeof *sums);
    for (uint32_t r = 0; r < v->s.nranks && !v->failed[0]; r++) {
        struct request q;
        /* the first of a round may come late: between two meetings ranks train */
        int64_t end = r ? deadline(v->s.timeout_s) : INT64_MAX;
        if (!transfer(v->client[r], &q, sizeof q, false, end) || q.n > RENDEZVOUS_MOST ||
            !transfer(v->client[r], values, q.n * sizeof *values, false, deadline(10))) {
            if (r == 0)
                return false; /* rank 0 has left: the end of a run */
            snprintf(v->failed, sizeof v->failed, "rank %u is gone", r);
        } else if (q.fail) {
            snprintf(v->failed, sizeof v->failed, "%.*s", WORDS - 1, q.words);
        } else if (r && q.n != n) {
            snprintf(v->failed, sizeof v->failed, "rank %u meets the others elsewhere", r);
        }
        n = q.n;
        for (uint32_t i = 0; i < n && i < RENDEZVOUS_MOST; i++)
            sums[i] += values[i];
    }
    for (uint32_t r = 0; r < v->s.nranks; r++)
        send_answer(v->client[r], v->failed, sums, n);
    return !v->failed[0];
}

static void *serve(void *argument)
{
    struct server *v = argument;
    uint64_t *sums = calloc(2 * RENDEZVOUS_MOST, sizeof *sums);
    struct guest *guests = calloc(GUESTS, sizeof *guests);
    bool going = sums && guests && gather(v, guests);
    free(guests);
    while (going)
        going = serve_round(v, sums, sums + RENDEZVOUS_MOST);
    part(v->client, v->s.nranks);
    free(sums);
    return NULL;
}

static enum status start_server(struct rendezvous *r, const struct rendezvous_setup *s, const void *blob,
                                struct error *error)
{
    struct server *v = r->server = calloc(1, sizeof *v);
    struct sockaddr_in6 any = {.sin6_family = AF_INET6, .sin6_port = htons(s->port), .sin6_addr = in6addr_any};
    int yes = 1, no = 0;
    if (!v || !(v->client = malloc(s->nranks * sizeof *v->client)))
        return STATUS_WORLD;
    memset(v->client, 0xff, s->nranks * sizeof *v->client);
    v->s = *s;
    snprintf(v->plan_hash, sizeof v->plan_hash, "%s", s->plan_hash);
    snprintf(v->secret, sizeof v->secret, "%s", s->secret);
    memcpy(v->blob, blob, sizeof v->blob);
    v->listener = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(v->listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    setsockopt(v->listener, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
    struct sockaddr_in old = {.sin_family = AF_INET, .sin_port = htons(s->port)};
    bool bound = v->listener >= 0 && bind(v->listener, (struct sockaddr *)&any, sizeof any) == 0;
    if (!bound) { /* a machine without IPv6 */
        if (v->listener >= 0)
            close(v->listener);
        v->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        setsockopt(v->listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
        bound = v->listener >= 0 && bind(v->listener, (struct sockaddr *)&old, sizeof old) == 0;
    }
    if (!bound || listen(v->listener, 4096) || pthread_create(&r->thread, NULL, serve, v)) {
        enum status st = error_set(error, STATUS_WORLD, "cannot listen on port %u: %s", s->port, strerror(errno));
        if (v->listener >= 0)
            close(v->listener);
        free(v->client);
        free(v);
        r->server = NULL;
        return st;
    }
    return STATUS_OK;
}

/* --- the joining side --- */

static int connect_once(const char *host, uint16_t port)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list = NULL;
    char service[8];
    int fd = -1, yes = 1;
    snprintf(service, sizeof service, "%u", port);
    if (getaddrinfo(host, service, &hints, &list))
        return -1;
    for (const struct addrinfo *a = list; a && fd < 0; a = a->ai_next) {
        fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd >= 0 && connect(fd, a->ai_addr, a->ai_addrlen)) {
            close(fd);
            fd = -1;
        }
    }
    freeaddrinfo(list);
    if (fd >= 0)
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    return fd;
}

static enum status take_answer(struct rendezvous *r, uint64_t *values, uint32_t n, struct error *error)
{
    struct answer a;
    int64_t end = deadline(r->timeout_s + 5);
    if (!transfer(r->socket, &a, sizeof a, false, end))
        return error_set(error, STATUS_WORLD, "rank 0 is gone or does not answer");
    a.words[WORDS - 1] = 0;
    if (a.failed)
        return error_set(error, STATUS_WORLD, "%s", a.words);
    if (a.n != n || !transfer(r->socket, values, n * sizeof *values, false, end))
        return error_set(error, STATUS_WORLD, "rank 0 answers something else");
    return STATUS_OK;
}

static enum status introduce(struct rendezvous *r, const struct rendezvous_setup *s, struct error *error)
{
    struct hello h = {.magic = MAGIC, .build = s->build, .rank = s->rank, .nranks = s->nranks};
    struct proof theirs, own = {{0}, ""};
    char want[65];
    int64_t end = deadline(PATIENCE_MS * 1e-3);
    memcpy(h.plan_hash, s->plan_hash, strnlen(s->plan_hash, sizeof h.plan_hash));
    error_set(error, STATUS_WORLD, "%s:%u does not answer as a run would", s->host, s->port);
    if (getrandom(h.nonce, NONCE, 0) != NONCE || !transfer(r->socket, &h, sizeof h, true, end) ||
        !transfer(r->socket, &theirs, sizeof theirs, false, end))
        return STATUS_WORLD;
    prove(want, s->secret, "server", &h, theirs.nonce);
    if (!same_digest(want, theirs.digest)) {
        prove(own.digest, "", "refuse", &h, theirs.nonce);
        transfer(r->socket, &own, sizeof own, true, end);
        return error_set(error, STATUS_MISMATCH, "rank 0 at %s:%u has another secret", s->host, s->port);
    }
    prove(own.digest, s->secret, "client", &h, theirs.nonce);
    return transfer(r->socket, &own, sizeof own, true, end) ? STATUS_OK : STATUS_WORLD;
}

enum status rendezvous_join(struct rendezvous **out, const struct rendezvous_setup *s, void *blob, struct error *error)
{
    struct rendezvous *r = calloc(1, sizeof *r);
    int64_t end = deadline(s->timeout_s);
    if (!r)
        return STATUS_WORLD;
    r->socket = -1;
    r->timeout_s = s->timeout_s;
    enum status st = s->rank == 0 ? start_server(r, s, blob, error) : STATUS_OK;
    while (st == STATUS_OK && (r->socket = connect_once(s->rank ? s->host : "localhost", s->port)) < 0) {
        if (world_now_ns() > end)
            st = error_set(error, STATUS_WORLD, "rank 0 cannot be reached at %s:%u within %.0f s", s->host, s->port,
                           s->timeout_s);
        usleep(20000);
    }
    while (st == STATUS_OK && (st = introduce(r, s, error)) == STATUS_WORLD && world_now_ns() < end) {
        close(r->socket); /* where a crowd has pushed it out it tries again, not all at the same time */
        do
            usleep(20000 + s->rank % 16 * 5000);
        while ((r->socket = connect_once(s->rank ? s->host : "localhost", s->port)) < 0 && world_now_ns() < end);
        st = r->socket < 0 ? STATUS_WORLD : STATUS_OK;
    }
    uint64_t words[RENDEZVOUS_BLOB / 8];
    if (st == STATUS_OK)
        st = take_answer(r, words, RENDEZVOUS_BLOB / 8, error);
    if (st != STATUS_OK) {
        rendezvous_close(r);
        return st;
    }
    memcpy(blob, words, sizeof words);
    *out = r;
    return STATUS_OK;
}

enum status rendezvous_sum(struct rendezvous *r, uint64_t *values, uint32_t n, struct error *error)
{
    struct request q = {.n = n};
    int64_t end = deadline(r->timeout_s);
    if (n > RENDEZVOUS_MOST)
        return error_set(error, STATUS_WORLD, "%u values are too many for one sum", n);
    /* where rank 0 takes no more requests, its last words are still to be read */
    if (transfer(r->socket, &q, sizeof q, true, end))
        transfer(r->socket, values, n * sizeof *values, true, end);
    return take_answer(r, values, n, error);
}

void rendezvous_fail(struct rendezvous *r, const char *words)
{
    struct request q = {.fail = 1};
    snprintf(q.words, sizeof q.words, "%.*s", WORDS - 1, words);
    transfer(r->socket, &q, sizeof q, true, deadline(5));
}

void rendezvous_close(struct rendezvous *r)
{
    if (!r)
        return;
    if (r->socket >= 0)
        close(r->socket);
    if (r->server) {
        pthread_join(r->thread, NULL);
        close(r->server->listener);
        free(r->server->client);
        free(r->server);
    }
    free(r);
}

int rendezvous_address(const char *text, char *host, size_t size, uint16_t *port)
{
    const char *colon = strrchr(text, ':');
    char *end;
    if (!colon || colon == text || (size_t)(colon - text) >= size)
        return 0;
    unsigned long n = strtoul(colon + 1, &end, 10);
    memcpy(host, text, (size_t)(colon - text));
    host[colon - text] = 0;
    *port = (uint16_t)n;
    return *end == 0 && colon[1] && n > 0 && n < 65536;
}
