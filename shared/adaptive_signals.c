/*
 * adaptive_signals.c - how an upstream's slowness is seen: baselines, samples, the window.
 *
 * Time per token is taken from the decode cadence of streams only (first to last token), so that
 * network, queueing and the length of the input do not look like congestion. A window's value is
 * the quotient of sums, its slowness the quotient to the smallest window value of the last minutes.
 * A baseline learns only while the controller believes the upstream well (STARTUP, PROBING,
 * RECOVERY): otherwise it would get used to the congestion it should show; nor does it age then.
 *
 * An upstream that streams nothing is judged by whole answers: seconds per token of work, the
 * median of a window against the smallest such median.
 */
#include "base/clock.h"
#include "shared/adaptive.h"
#include "shared/adaptive_inside.h"

#include <string.h>

#define BASE_SLOT_NS (120 * NS_PER_S)
#define WINDOW_NS NS_PER_S
#define WINDOW_LONG_NS (5 * NS_PER_S) /* for a window with few completions */
#define WINDOW_COMPLETIONS 5U

#define STREAM_TOKENS 16 /* fewer say nothing about a cadence */
#define HIDDEN_TOKENS 64 /* paid for and not streamed */
#define STREAM_NS (200 * NS_PER_MS)
#define TOKENS_MAX INT64_C(100000000)
#define SAMPLE_NS_MAX (86400 * NS_PER_S)

/* Added to both sides of a quotient of first-token times: 50 ms instead of 15 is no congestion. */
#define TTFT_GRACE_S 0.2
#define QUEUED_UPSTREAM_S 1.0 /* so much later than usual: the upstream let it wait (F10) */
/* Work of a whole answer in output tokens: what reading an input token and a call as such cost. */
#define WORK_PER_INPUT (1.0 / 200)
#define WORK_PER_CALL 50.0

/* ---- baselines ------------------------------------------------------------------------------ */

double adaptive_base_value(const struct adaptive_base *base)
{
    double least = 0;

    for (unsigned i = 0; i < ADAPTIVE_BASE_SLOTS; i++)
        if (base->least[i] > 0 && (least == 0 || base->least[i] < least))
            least = base->least[i];
    return least;
}

void adaptive_base_add(struct adaptive_base *base, double value, int64_t now_ns)
{
    int64_t slot = now_ns / BASE_SLOT_NS;
    double *least;

    if (!(value > 0 && value < 1e9))
        return;
    if (slot - base->slot >= ADAPTIVE_BASE_SLOTS)
        memset(base->least, 0, sizeof base->least);
    else
        for (int64_t i = base->slot + 1; i <= slot; i++)
            base->least[i % ADAPTIVE_BASE_SLOTS] = 0;
    if (slot > base->slot)
        base->slot = slot;
    least = &base->least[base->slot % ADAPTIVE_BASE_SLOTS];
    if (*least == 0 || value < *least)
        *least = value;
}

static bool learns(const struct adaptive_row *row)
{
    return row->state == ADAPTIVE_STARTUP || row->state == ADAPTIVE_PROBING ||
           row->state == ADAPTIVE_RECOVERY;
}

/* ---- samples -------------------------------------------------------------------------------- */

static bool is_time(int64_t ns)
{
    return ns > 0 && ns <= SAMPLE_NS_MAX;
}

static bool is_count(int64_t tokens)
{
    return tokens >= 0 && tokens <= TOKENS_MAX;
}

static void add_cadence(struct adaptive_window *window, const struct adaptive_sample *sample)
{
    if (!is_count(sample->streamed_tokens) || sample->streamed_tokens < STREAM_TOKENS)
        return;
    if (!is_time(sample->decode_ns) || sample->decode_ns < STREAM_NS)
        return;
    /* so much of it was our own slowness that the rest cannot be trusted */
    if (is_time(sample->unread_ns) && sample->unread_ns > sample->decode_ns / 9)
        return;
    window->decode_s += adaptive_seconds(sample->decode_ns);
    window->decode_tokens += (double)sample->streamed_tokens;
}

static unsigned size_class(int64_t input_tokens)
{
    unsigned class = 0;

    for (int64_t left = input_tokens; left > 1 && class < ADAPTIVE_SIZES - 1; left /= 2)
        class ++;
    return class;
}

static void add_first_token(struct adaptive_row *row, const struct adaptive_sample *sample,
                            int64_t now_ns)
{
    struct adaptive_window *window = &row->window;
    struct adaptive_base *base;
    double ttft_s, usual_s;

    if (!is_time(sample->ttft_ns) || !is_count(sample->input_tokens))
        return;
    if (is_count(sample->output_tokens) && is_count(sample->streamed_tokens) &&
        sample->output_tokens - sample->streamed_tokens > HIDDEN_TOKENS)
        return; /* it thought first: that has no usual length */
    base = &row->ttft_base[size_class(sample->input_tokens)];
    ttft_s = adaptive_seconds(sample->ttft_ns);
    usual_s = adaptive_base_value(base);
    if (row->server_queueing && usual_s > 0 && ttft_s > usual_s + QUEUED_UPSTREAM_S &&
        row->slowness < 1.5) {
        window->queued_upstream++;
        return;
    }
    if (learns(row))
        adaptive_base_add(base, ttft_s, now_ns);
    if (usual_s > 0 && window->ttft_count < ADAPTIVE_RATIOS)
        window->ttft_ratio[window->ttft_count++] =
            (float)((ttft_s + TTFT_GRACE_S) / (usual_s + TTFT_GRACE_S));
}

static void add_whole(struct adaptive_window *window, const struct adaptive_sample *sample)
{
    double work;

    if (!is_time(sample->latency_ns) || !is_count(sample->output_tokens))
        return;
    work = WORK_PER_CALL + (double)sample->output_tokens;
    if (is_count(sample->input_tokens))
        work += WORK_PER_INPUT * (double)sample->input_tokens;
    if (window->whole_count < ADAPTIVE_RATIOS)
        window->whole_ratio[window->whole_count++] =
            (float)(adaptive_seconds(sample->latency_ns) / work);
}

void adaptive_completed(struct adaptive_row *row, const struct adaptive_sample *sample,
                        int64_t now_ns)
{
    if (row->state == ADAPTIVE_NONE)
        return;
    if (sample->output_tokens > 0 && is_count(sample->output_tokens)) {
        double output = (double)sample->output_tokens;

        row->mean_output = row->mean_output > 0 ? 0.9 * row->mean_output + 0.1 * output : output;
    }
    if (sample->epoch != row->epoch)
        return; /* tells of the time before a refusal */
    row->window.completions++;
    row->second_answers += row->second_answers < UINT32_MAX;
    if (sample->streamed_tokens >= 0) {
        add_cadence(&row->window, sample);
        add_first_token(row, sample, now_ns);
    } else {
        add_whole(&row->window, sample);
    }
}

/* ---- the window ----------------------------------------------------------------------------- */

void adaptive_window_begin(struct adaptive_row *row, int64_t now_ns)
{
    row->window = (struct adaptive_window){.from_ns = now_ns, .peak = row->in_flight};
    row->counted_ns = now_ns;
}

bool adaptive_window_is_due(const struct adaptive_row *row, int64_t now_ns)
{
    int64_t length_ns = now_ns - row->window.from_ns;

    return length_ns >= WINDOW_LONG_NS ||
           (length_ns >= WINDOW_NS && row->window.completions >= WINDOW_COMPLETIONS);
}

/* Of at most ADAPTIVE_RATIOS values, which it sorts. */
static double median(float *values, uint32_t count)
{
    for (uint32_t i = 1; i < count; i++) {
        float value = values[i];
        uint32_t at = i;

        for (; at > 0 && values[at - 1] > value; at--)
            values[at] = values[at - 1];
        values[at] = value;
    }
    return count % 2 ? (double)values[count / 2]
                     : ((double)values[count / 2 - 1] + (double)values[count / 2]) / 2;
}

/* The quotient to the baseline, which learns first: a best value is 1. */
static double quotient(struct adaptive_row *row, struct adaptive_base *base, double value,
                       int64_t now_ns)
{
    double usual;

    if (learns(row))
        adaptive_base_add(base, value, now_ns);
    usual = adaptive_base_value(base);
    return usual > 0 && value > 0 ? adaptive_least(value / usual, 1e6) : 1;
}

struct adaptive_slowness adaptive_window_slowness(struct adaptive_row *row, int64_t now_ns)
{
    struct adaptive_window *window = &row->window;
    struct adaptive_slowness slowness = {1, 1};

    if (window->decode_tokens > 0)
        slowness.tokens =
            quotient(row, &row->tpt_base, window->decode_s / window->decode_tokens, now_ns);
    else if (window->whole_count > 0)
        slowness.tokens = quotient(row, &row->whole_base,
                                   median(window->whole_ratio, window->whole_count), now_ns);
    if (window->ttft_count > 0)
        slowness.first = median(window->ttft_ratio, window->ttft_count);
    return slowness;
}
