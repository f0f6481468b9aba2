#include "tests/e2e/shot.h"

#include "tests/e2e/e2e.h"

#include <CUnit/CUnit.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

void shoot(struct shot *s, const char *dir, const char *format, ...)
{
    char whole[4 * E2E_PATH], path[E2E_PATH + 16];
    va_list ap;
    snprintf(path, sizeof path, "%s/script", dir);
    FILE *script = fopen(path, "w");
    CU_ASSERT_PTR_NOT_NULL_FATAL(script);
    fprintf(script, "L=%s/llmc R=%s/llmrun M=plans/tiny-llama/model.llm C=topologies/cpu8.xml D='%s'\n",
            e2e_build(), e2e_build(), dir);
    va_start(ap, format);
    vfprintf(script, format, ap);
    va_end(ap);
    fputs("\n", script);
    fclose(script);
    snprintf(whole, sizeof whole, "timeout 600 sh '%s' >'%s/stdout' 2>'%s/stderr' </dev/null", path, dir,
             dir);
    int status = system(whole);
    s->code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    snprintf(path, sizeof path, "%s/stdout", dir);
    e2e_read_text(path, s->out, sizeof s->out);
    snprintf(path, sizeof path, "%s/stderr", dir);
    e2e_read_text(path, s->err, sizeof s->err);
}

void expect(struct shot *s, const char *dir, const char *command, int code, const char *says)
{
    shoot(s, dir, "%s", command);
    bool fine = s->code == code && (says ? strstr(s->err, says) != NULL : !*s->err) && (!code || !*s->out);
    if (!fine)
        printf("\n    %s\n    exit %d, wanted %d; stderr wanted: %s\n    stderr: %s    stdout: %.200s\n",
               command, s->code, code, says ? says : "(nothing)", s->err, s->out);
    CU_ASSERT(fine);
}
