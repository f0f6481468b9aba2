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
    static const int numbers[] = {SIGTERM, SIGINT};
    word = asked;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        struct sigaction action = {.sa_handler = ask, .sa_flags = SA_RESTART}, before;
        if (sigaction(numbers[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN)
            sigaction(numbers[i], &action, NULL);
    }
}
