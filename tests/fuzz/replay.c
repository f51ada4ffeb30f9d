/*
 * replay.c - run a fuzz target over its kept seeds without a fuzzer, with any compiler and
 * sanitizer.
 *
 *   fuzz_NAME [FILE|DIRECTORY]...   without arguments: tests/fuzz/corpus/fuzz_NAME
 */
#include <dirent.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define PATH_BYTES 4096
#define SEED_BYTES_MAX ((size_t)64 << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static unsigned seeds_run;

static void fail(const char *path, const char *what)
{
    (void)fprintf(stderr, "%s: %s\n", path, what);
    exit(1);
}

static void replay_file(const char *path, size_t size)
{
    FILE *file = fopen(path, "rb");
    /* Exactly as large as the seed, so that AddressSanitizer sees a read past its end. */
    uint8_t *data = malloc(size > 0 ? size : 1);
    if (file == NULL || data == NULL || fread(data, 1, size, file) != size)
        fail(path, strerror(errno));
    (void)fclose(file);
    (void)LLVMFuzzerTestOneInput(data, size);
    free(data);
    seeds_run++;
}

static void replay_path(const char *path)
{
    struct stat about;
    if (stat(path, &about) != 0)
        fail(path, strerror(errno));
    if (!S_ISDIR(about.st_mode)) {
        if ((size_t)about.st_size > SEED_BYTES_MAX)
            fail(path, "too large for a seed");
        replay_file(path, (size_t)about.st_size);
        return;
    }
    DIR *directory = opendir(path);
    if (directory == NULL)
        fail(path, strerror(errno));
    for (struct dirent *entry = readdir(directory); entry != NULL; entry = readdir(directory)) {
        char below[PATH_BYTES];
        if (entry->d_name[0] == '.')
            continue;
        int length = snprintf(below, sizeof below, "%s/%s", path, entry->d_name);
        if (length < 0 || (size_t)length >= sizeof below)
            fail(path, "path too long");
        replay_path(below);
    }
    (void)closedir(directory);
}

int main(int argc, char **argv)
{
    if (argc > 1) {
        for (int i = 1; i < argc; i++)
            replay_path(argv[i]);
    } else {
        const char *name = strrchr(argv[0], '/');
        char seeds[PATH_BYTES];
        name = strstr(name != NULL ? name : argv[0], "fuzz_");
        if (name == NULL)
            fail(argv[0], "is not called fuzz_NAME");
        (void)snprintf(seeds, sizeof seeds, "tests/fuzz/corpus/%s", name);
        replay_path(seeds);
    }
    if (seeds_run == 0)
        fail(argv[0], "no seeds");
    /* In cmocka's words, so that tests/run.sh counts the seeds as one test. */
    (void)printf("%u seeds\n[  PASSED  ] 1 test(s).\n", seeds_run);
    return 0;
}
