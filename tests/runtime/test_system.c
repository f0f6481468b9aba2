/* What the runtime asks of the operating system: where links lead to, that a file is replaced whole or not at
 * all and the failure named, and what the process's memory consists of. */

#include "runtime/file.h"
#include "runtime/memory.h"
#include "tests/e2e/e2e.h"

#include <CUnit/CUnit.h>
#include <errno.h>
#include <glob.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

typedef char path[E2E_PATH + 64];

static void in_folder(path out, const char *folder, const char *name)
{
    snprintf(out, sizeof(path), "%s/%s", folder, name);
}

/* ---- names ---- */

static void expect_resolved(const char *folder, const char *name, const char *want)
{
    char target[FILE_PATH];
    path from, to;
    in_folder(from, folder, name);
    in_folder(to, folder, want);
    memset(target, '/', sizeof target);
    CU_ASSERT_PTR_NULL(file_resolve(from, target));
    CU_ASSERT_STRING_EQUAL(target, to);
    if (strcmp(target, to))
        printf("\n    %s leads to %s", from, target);
}

/* a link leads from the folder that it lies in; what it leads to need not exist; no slash at the end */
static void test_links(void)
{
    static const char *const links[][2] = {{"sub/plain", "file"},          {"sub/up", "../file"},
                                           {"sub/slashes", "../sub///"}, {"chain", "sub/plain"},
                                           {"loop", "loop2"},            {"loop2", "loop"}};
    char folder[E2E_PATH], target[FILE_PATH], name[FILE_PATH + 8];
    path at;
    e2e_folder(folder, "system-links");
    in_folder(at, folder, "sub");
    CU_ASSERT_EQUAL_FATAL(mkdir(at, 0777), 0);
    for (size_t i = 0; i < sizeof links / sizeof *links; i++) {
        in_folder(at, folder, links[i][0]);
        CU_ASSERT_EQUAL(symlink(links[i][1], at), 0);
    }
    in_folder(at, folder, "sub/absolute");
    CU_ASSERT_EQUAL(symlink("/nowhere/file/", at), 0);
    CU_ASSERT_PTR_NULL(file_resolve(at, target));
    CU_ASSERT_STRING_EQUAL(target, "/nowhere/file");
    expect_resolved(folder, "none", "none");
    expect_resolved(folder, "sub", "sub");
    expect_resolved(folder, "sub/", "sub");
    expect_resolved(folder, "sub///", "sub");
    expect_resolved(folder, "sub/plain", "sub/file");
    expect_resolved(folder, "sub/up", "sub/../file");
    expect_resolved(folder, "sub/slashes/", "sub/../sub");
    expect_resolved(folder, "chain", "sub/file");
    CU_ASSERT_PTR_NULL(file_resolve("/", target));
    CU_ASSERT_STRING_EQUAL(target, "/");
    CU_ASSERT_PTR_NULL(file_resolve("///", target));
    CU_ASSERT_STRING_EQUAL(target, "/");
    in_folder(at, folder, "loop");
    CU_ASSERT_STRING_EQUAL(file_resolve(at, target), strerror(ELOOP));
    memset(name, 'x', sizeof name);
    name[FILE_PATH] = 0;
    CU_ASSERT_STRING_EQUAL(file_resolve(name, target), strerror(ENAMETOOLONG));
    name[FILE_PATH - 1] = 0;
    CU_ASSERT_PTR_NULL(file_resolve(name, target));
    CU_ASSERT_STRING_EQUAL(target, name);
}

/* ---- files that are replaced ---- */

static void write_file(const char *name, const char *text)
{
    FILE *f = fopen(name, "wb");
    CU_ASSERT_FATAL(f && fputs(text, f) >= 0 && !fclose(f));
}

static void expect_file(const char *name, const char *want)
{
    char text[64], temporary[sizeof(path) + 8];
    glob_t left;
    e2e_read_text(name, text, sizeof text);
    CU_ASSERT_STRING_EQUAL(text, want);
    snprintf(temporary, sizeof temporary, "%s.tmp*", name);
    CU_ASSERT_EQUAL(glob(temporary, 0, NULL, &left), GLOB_NOMATCH);
    globfree(&left);
}

static void begin(const char *name, struct file_out *out, const char *text)
{
    CU_ASSERT_PTR_NULL_FATAL(file_create(name, out));
    CU_ASSERT_FATAL(fputs(text, out->stream) >= 0);
}

static void test_replaced(void)
{
    char folder[E2E_PATH];
    path name, link;
    struct file_out out;
    struct stat about;
    e2e_folder(folder, "system-replaced");
    in_folder(name, folder, "file");
    in_folder(link, folder, "link");
    CU_ASSERT_EQUAL(symlink("file", link), 0);
    begin(name, &out, "first");
    CU_ASSERT(out.replaces && access(name, F_OK));
    CU_ASSERT_PTR_NULL(file_publish(&out));
    expect_file(name, "first");
    CU_ASSERT_EQUAL(chmod(name, 0640), 0);
    begin(link, &out, "second");
    expect_file(link, "first");
    CU_ASSERT_PTR_NULL(file_publish(&out));
    expect_file(name, "second");
    CU_ASSERT(!lstat(name, &about) && S_ISREG(about.st_mode) && (about.st_mode & 0777) == 0640);
    CU_ASSERT(!lstat(link, &about) && S_ISLNK(about.st_mode));
    begin(name, &out, "third");
    file_discard(&out);
    expect_file(name, "second");
}

/* Whichever call it is that fails, its own cause is told, none that an earlier call left in errno; what stood
 * there stays. */
static void test_not_written(void)
{
    char folder[E2E_PATH];
    path name;
    struct file_out out;
    e2e_folder(folder, "system-lost");
    in_folder(name, folder, "file");
    write_file(name, "old");
    begin(name, &out, "new"); /* flushing */
    close(fileno(out.stream));
    errno = ENOENT;
    CU_ASSERT_STRING_EQUAL(file_publish(&out), strerror(EBADF));
    expect_file(name, "old");
    begin("/dev/full", &out, "new");
    CU_ASSERT_FALSE(out.replaces);
    errno = ENOENT;
    CU_ASSERT_STRING_EQUAL(file_publish(&out), strerror(ENOSPC));
    CU_ASSERT_PTR_NULL_FATAL(file_create("/dev/null", &out)); /* closing, with nothing left to flush */
    close(fileno(out.stream));
    errno = ENOENT;
    CU_ASSERT_STRING_EQUAL(file_publish(&out), strerror(EBADF));
    begin(name, &out, "new"); /* moving it into its place */
    CU_ASSERT(!unlink(name) && !mkdir(name, 0777));
    errno = ENOENT;
    CU_ASSERT_STRING_EQUAL(file_publish(&out), strerror(EISDIR));
    CU_ASSERT_EQUAL(rmdir(name), 0);
}

/* ---- memory ---- */

enum { FIRST = 1 << 20, SECOND = 1 << 19, HEAP = 1 << 16 };

/* two mappings side by side, which the kernel never makes one; all of their pages are there */
static uint8_t *map_two(void)
{
    int flags = MAP_SHARED | MAP_ANONYMOUS, access = PROT_READ | PROT_WRITE;
    uint8_t *at = mmap(NULL, FIRST + SECOND, access, flags, -1, 0);
    CU_ASSERT_FATAL(at != MAP_FAILED);
    CU_ASSERT_FATAL(mmap(at + FIRST, SECOND, access, flags | MAP_FIXED, -1, 0) == at + FIRST);
    memset(at, 1, FIRST + SECOND);
    return at;
}

static uint64_t sum(const uint64_t bytes[NMEMORY])
{
    uint64_t all = 0;
    for (int i = 0; i < NMEMORY; i++)
        all += bytes[i];
    return all;
}

static bool near(uint64_t a, uint64_t b)
{
    return fabs((double)a - (double)b) < 0.05 * (double)b;
}

/* A mapping that no range names is a file's, as far as the account knows, and the lines together are the process. */
static bool adds_up(const uint64_t both[NMEMORY], const uint64_t one[NMEMORY], uint64_t total)
{
    return one[MEMORY_CODE] > both[MEMORY_CODE] + SECOND / 2 && near(sum(both), total) && near(sum(one), total);
}

/* Each mapping is in the line of its range, and only there; the lines together are the process; old figures are gone.
 * The process's share of code changes whenever another one that maps it begins or ends, perhaps between two readings:
 * what depends on it must hold in one try of many. */
static void test_memory(void)
{
    uint8_t *at = map_two(), *heap = sbrk(HEAP); /* whatever the allocator uses */
    CU_ASSERT_FATAL(heap != (void *)-1);
    memset(heap, 1, HEAP);
    for (int line = MEMORY_ARENA; line <= MEMORY_DATA; line++) {
        int next = line == MEMORY_DATA ? MEMORY_ARENA : line + 1;
        const struct memory_range ranges[] = {{at, FIRST, (enum memory_line)line},
                                              {at + FIRST, SECOND, (enum memory_line)next}};
        bool agree = false;
        for (int tries = 0; tries < 200 && !agree; tries++) {
            uint64_t both[NMEMORY], one[NMEMORY];
            memset(both, 0xff, sizeof both);
            memset(one, 0xff, sizeof one);
            memory_measure(ranges, 2, both);
            memory_measure(ranges, 1, one);
            for (int i = 0; i < MEMORY_HEAP; i++) {
                CU_ASSERT_EQUAL(both[i], i == line ? FIRST : i == next ? SECOND : 0);
                CU_ASSERT_EQUAL(one[i], i == line ? FIRST : 0);
            }
            CU_ASSERT(both[MEMORY_HEAP] >= HEAP - 4096 && both[MEMORY_STACK] > 0 && both[MEMORY_CODE] > 0);
            agree = adds_up(both, one, memory_total());
        }
        CU_ASSERT(agree);
    }
    munmap(at, FIRST + SECOND);
    for (int i = 0; i < NMEMORY; i++)
        for (int j = 0; j < i; j++)
            CU_ASSERT_STRING_NOT_EQUAL(memory_line_name((enum memory_line)i),
                                       memory_line_name((enum memory_line)j));
    CU_ASSERT(memory_available() > FIRST);
}

void suite_system(void);
void suite_system(void)
{
    CU_pSuite s = CU_add_suite("system", NULL, NULL);
    CU_add_test(s, "where links lead to", test_links);
    CU_add_test(s, "files replaced whole", test_replaced);
    CU_add_test(s, "files that cannot be written", test_not_written);
    CU_add_test(s, "memory by name", test_memory);
}
