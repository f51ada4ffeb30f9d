/*
 * estimate_tokens.c - Penstock's own estimate of requests' input tokens, learned from one to the next as
 * in production: worker/estimate with shared/calibration. For tests/front/estimate.mjs.
 *
 * Each line of standard input is "USAGE PATH BODY", of the same model; for each line a line of output:
 * "ESTIMATE PREDICTED", the second calibrated by the lines before.
 */
#include "shared/calibration.h"
#include "worker/intent.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct token_estimate estimate(const char *path, const char *body)
{
    static const char *const no_models[] = {NULL};
    static struct intent_reader reader;
    const struct intent_request request = {.method = "POST",
                                           .path = path,
                                           .content_type = "application/json",
                                           .image_models = no_models};

    intent_begin(&reader, &request);
    intent_feed(&reader, body, strlen(body));
    intent_end(&reader);
    return (struct token_estimate){.tokens = reader.intent.est_input,
                                   .script = reader.intent.est_script};
}

int main(void)
{
    struct estimate_row row = {0};
    char *line = NULL;
    size_t size = 0;
    ssize_t length;

    while ((length = getline(&line, &size, stdin)) > 0) {
        char *path, *body;
        long long usage = strtoll(line, &path, 10);

        line[length - 1] = '\0';
        body = *path == ' ' ? strchr(++path, ' ') : NULL;
        if (usage <= 0 || !body) {
            (void)fprintf(stderr, "estimate_tokens: not \"USAGE PATH BODY\"\n");
            return 2;
        }
        *body++ = '\0';
        const struct token_estimate tokens = estimate(path, body);

        printf("%lld %lld\n", (long long)tokens.tokens,
               (long long)calibration_tokens(calibration_ratios(&row), &tokens));
        calibration_learn(&row, &tokens, usage, 0);
    }
    free(line);
    return 0;
}
