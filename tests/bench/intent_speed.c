/*
 * intent_speed.c - P9: what it costs to read the intent of a body as it arrives, beside a json-c
 * tree of the same bytes.
 *
 *   intent_speed [ROUNDS]
 * Prints a JSON array, one object a body: name, bytes, cpu_ms (median), tree_ms, growth_kb.
 */
#include "worker/intent.h"

#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#define PIECE_BYTES 65536
#define ROUNDS_MAX 101
#define SMALL_BYTES 1000000 /* below it, many passes are timed as one */
#define BOUNDARY "penstock-bench-boundary"

struct sample {
    const char *name;
    const char *path, *type;
    const char *head, *unit, *tail; /* unit is repeated until the body has so many bytes */
    size_t bytes;
    bool tree; /* also as a json-c tree */
};

static const struct sample samples[] = {
    {"chat of 700 bytes", "/v1/chat/completions", "application/json",
     "{\"model\":\"gpt-5\",\"stream\":true,\"messages\":[{\"role\":\"user\",\"content\":\"",
     "a plain word and \\u00e4 ", "\"}]}", 700, true},
    {"chat of 270 kB", "/v1/chat/completions", "application/json",
     "{\"model\":\"gpt-5\",\"messages\":[{\"role\":\"system\",\"content\":\"x\"}",
     ",{\"role\":\"user\",\"content\":\"What is the capital of the next country on my list?\\n\"}",
     "]}", 270000, true},
    {"JSON of 20 MB of base64", "/v1/responses", "application/json",
     "{\"model\":\"gpt-5\",\"input\":[{\"role\":\"user\",\"content\":[{\"type\":\"input_image\","
     "\"image_url\":\"data:image/png;base64,",
     "iVBORw0KGgoAAAANSUhEUgAABAAAAAQACAIAAADwf7zUAAEAAElEQVR4nOz9WYxs", "\"}]}]}", 20000000, true},
    {"multipart of 60 MB", "/v1/images/edits", "multipart/form-data; boundary=" BOUNDARY,
     "--" BOUNDARY "\r\nContent-Disposition: form-data; name=\"image\"; filename=\"a.png\"\r\n"
     "Content-Type: image/png\r\n\r\n",
     "\x89PNG\r\n\x1a\n\x01\x02some binary bytes\r\n--penstock\xff\xfe\x03 and further ones\x04",
     "\r\n--" BOUNDARY "\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\ngpt-image-2\r\n"
     "--" BOUNDARY "--\r\n",
     60000000, false},
};

static char *make_body(const struct sample *sample, size_t *ret_bytes)
{
    size_t unit = strlen(sample->unit), head = strlen(sample->head), tail = strlen(sample->tail);
    char *body = malloc(head + sample->bytes + unit + tail + 1), *at = body;

    if (!body)
        return NULL;
    memcpy(at, sample->head, head);
    at += head;
    do {
        memcpy(at, sample->unit, unit);
        at += unit;
    } while ((size_t)(at - body) + unit + tail <= sample->bytes);
    memcpy(at, sample->tail, tail + 1);
    *ret_bytes = (size_t)(at - body) + tail;
    return body;
}

static void read_intent(const struct sample *sample, const char *body, size_t bytes)
{
    static const char *const image_models[] = {"gpt-image-*", "dall-e-*", "imagen-*", NULL};
    static struct intent_reader reader;
    const struct intent_request request = {.method = "POST",
                                           .path = sample->path,
                                           .content_type = sample->type,
                                           .image_models = image_models,
                                           .count_chat_images = true};

    intent_begin(&reader, &request);
    for (size_t at = 0; at < bytes; at += PIECE_BYTES)
        intent_feed(&reader, body + at, bytes - at < PIECE_BYTES ? bytes - at : PIECE_BYTES);
    intent_end(&reader);
    if (strncmp(reader.intent.model, "gpt-", 4) != 0) {
        (void)fprintf(stderr, "%s: the model was not found\n", sample->name);
        exit(1);
    }
}

static void build_tree(const struct sample *sample, const char *body, size_t bytes)
{
    struct json_tokener *tokener = json_tokener_new();
    struct json_object *tree = json_tokener_parse_ex(tokener, body, (int)bytes);

    if (!tree)
        (void)fprintf(stderr, "%s: json-c refuses it\n", sample->name);
    (void)json_object_put(tree);
    json_tokener_free(tokener);
}

static double cpu_ms(void)
{
    struct timespec time;

    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return (double)time.tv_sec * 1e3 + (double)time.tv_nsec / 1e6;
}

static int compare_values(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

typedef void reader_function(const struct sample *sample, const char *body, size_t bytes);

static double median_ms(reader_function *reader, const struct sample *sample, const char *body,
                        size_t bytes, unsigned rounds)
{
    double times[ROUNDS_MAX];
    unsigned passes = bytes < SMALL_BYTES ? (unsigned)(SMALL_BYTES / bytes) : 1;

    for (unsigned round = 0; round < rounds; round++) {
        double begun = cpu_ms();

        for (unsigned pass = 0; pass < passes; pass++)
            reader(sample, body, bytes);
        times[round] = (cpu_ms() - begun) / passes;
    }
    qsort(times, rounds, sizeof *times, compare_values);
    return times[rounds / 2];
}

static long peak_kb(void)
{
    struct rusage usage;

    (void)getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss;
}

static bool measure(const struct sample *sample, unsigned rounds)
{
    size_t bytes;
    char *body = make_body(sample, &bytes);
    long before;
    double own, tree;

    if (!body)
        return false;
    before = peak_kb();
    own = median_ms(read_intent, sample, body, bytes, rounds);
    (void)printf("{\"name\":\"%s\",\"bytes\":%zu,\"cpu_ms\":%.5f,\"growth_kb\":%ld", sample->name,
                 bytes, own, peak_kb() - before);
    tree = sample->tree ? median_ms(build_tree, sample, body, bytes, rounds) : 0.0;
    (void)printf(",\"tree_ms\":%.5f}", tree);
    free(body);
    return true;
}

int main(int argc, char **argv)
{
    unsigned long rounds = argc > 1 ? strtoul(argv[1], NULL, 10) : 5;

    if (rounds < 1 || rounds > ROUNDS_MAX)
        return 64;
    (void)printf("[");
    for (size_t i = 0; i < LENGTH(samples); i++) {
        (void)printf("%s", i ? ",\n" : "");
        if (!measure(&samples[i], (unsigned)rounds))
            return 1;
    }
    (void)printf("]\n");
    return 0;
}
