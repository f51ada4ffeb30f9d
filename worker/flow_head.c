/* flow_head.c - the upstream's quotas, as its answers' heads tell them; see flow_head.h. */
#include "worker/flow_head.h"

#include "worker/request.h"

/* Of tokens of all kinds; where input and output are counted apart only, their sum is the most there
 * can be. */
static struct ratelimit tokens_of(const struct ratelimit_headers *headers)
{
    const struct ratelimit *all = &headers->units[RATELIMIT_TOKENS];
    const struct ratelimit *in = &headers->units[RATELIMIT_INPUT_TOKENS];
    const struct ratelimit *out = &headers->units[RATELIMIT_OUTPUT_TOKENS];
    struct ratelimit sum = {.limit = -1, .remaining = -1};

    if (all->limit > 0 || all->remaining >= 0)
        return *all;
    if (in->limit > 0 && out->limit > 0)
        sum.limit = in->limit + out->limit;
    if (in->remaining >= 0 && out->remaining >= 0)
        sum.remaining = in->remaining + out->remaining;
    return sum;
}

struct flow_told flow_head_told(const struct ratelimit_headers *headers, enum flow_unit unit)
{
    const struct ratelimit *requests = &headers->units[RATELIMIT_REQUESTS];
    struct flow_told told = {.requests = {.limit = requests->limit, .left = requests->remaining},
                             .units = {.limit = -1, .left = -1}};

    if (unit == FLOW_UNIT_TOKENS) {
        const struct ratelimit tokens = tokens_of(headers);

        told.units.limit = tokens.limit;
        told.units.left = tokens.remaining;
    }
    return told;
}

void flow_head_hear(const struct attempt *attempt, const struct http_head *head)
{
    struct request *request = attempt->request;
    const struct flow_terms *terms;
    struct ratelimit_headers headers;
    struct flow_told told;

    if (attempt->flow_place == NO_INDEX)
        return;
    terms = &request->flow_targets.terms[attempt->candidate];
    if (terms->strategy < FLOW_STRATEGY_RATE || terms->ignores_told)
        return;
    ratelimit_headers_begin(&headers);
    for (size_t i = 0; i < head->header_count; i++)
        ratelimit_headers_read(&headers, head->headers[i].name, head->headers[i].value);
    if (!headers.any)
        return;
    told = flow_head_told(&headers, terms->unit);
    told.refused = head->status >= 400;
    flow_hear(&request->worker->gate, attempt->flow_place, &told, attempt->last_ns);
}
