/* The table of schedule.def. */

#include "compiler/model/orders.h"

static const struct {
    const char *name;
    uint32_t chunks;
    unsigned traits;
    order_function *order;
} rows[NSCHEDULES] = {
#define SCHEDULE(KIND, word, arguments, stages, traits) {word, stages, traits, NULL},
#define ORDERED(KIND, word, arguments, stages, traits) {word, stages, traits, order_##KIND},
#include "compiler/model/schedule.def"
    [SCHED_AUTO] = {"auto", 0, 0, NULL}, [SCHED_FILE] = {"file", 0, 0, NULL}};

/* an order has no way to say that two actions run together */
#define SCHEDULE(KIND, word, arguments, stages, traits)
#define ORDERED(KIND, word, arguments, stages, traits)                                                                 \
    _Static_assert(!((traits)&SCHEDULE_PAIRS), word " is ORDERED and has pairs");
#include "compiler/model/schedule.def"

const char *schedule_name(enum schedule_kind k)
{
    return rows[k].name;
}

uint32_t schedule_chunks(enum schedule_kind k)
{
    return k < NSCHEDULES ? rows[k].chunks : 0;
}

bool schedule_has(enum schedule_kind k, enum schedule_trait trait)
{
    return k < NSCHEDULES && rows[k].traits & (unsigned)trait;
}

order_function *order_of(enum schedule_kind k)
{
    return k < NSCHEDULES ? rows[k].order : NULL;
}
