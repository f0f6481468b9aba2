/* The two signals.  A handler has no argument, so what it sets is reached from the file's own scope. */

#include "runtime/stop.h"

#include <signal.h>
#include <stddef.h>

static _Atomic uint32_t *word;

static void ask(int number)
{
    atomic_store(word, 1);
    signal(number, SIG_DFL);
}

void stop_on_signals(_Atomic uint32_t *asked)
{
    struct sigaction action = {.sa_handler = ask, .sa_flags = SA_RESTART};
    word = asked;
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
}
