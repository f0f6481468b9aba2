/* The two signals.  A handler has no argument, so what it sets is reached from the file's own scope. */

#include "runtime/stop.h"

#include <signal.h>
#include <stddef.h>

static _Atomic uint32_t *word[2];

static void ask(int number)
{
    for (int i = 0; i < 2; i++)
        if (word[i])
            atomic_store(word[i], 1); /* ASKED_BY_SIGNAL */
    signal(number, SIG_DFL);
}

void stop_on_signals(_Atomic uint32_t *const *asked, uint32_t n)
{
    static const int numbers[] = {SIGTERM, SIGINT};
    for (uint32_t i = 0; i < 2; i++)
        word[i] = i < n ? asked[i] : NULL;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        struct sigaction action = {.sa_handler = ask, .sa_flags = SA_RESTART}, before;
        if (sigaction(numbers[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN)
            sigaction(numbers[i], &action, NULL);
    }
}
