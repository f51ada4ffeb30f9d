/*
 * calibration.c - what calls really used; see calibration.h.
 *
 * A call is a point (l, s) with l + s = 1, the shares of its estimate that are Latin and that are not,
 * and y = usage / estimate; wanted are the two ratios for which l * latin + s * script is nearest to y.
 * The row has the sums of the normal equations. What is learned of one kind of call is not forgotten
 * while only others come: before a point is added, the sums shrink in its direction alone, and there
 * only to CALIBRATION_SAMPLES - 1 points like it. So the first calls are averaged, and later ones are
 * followed.
 */
#include "shared/calibration.h"

#define PARTS 1000
/* In points: how much speaks for the same ratio in all scripts before anything was seen. It keeps the
 * equations solvable where all calls are of one kind. */
#define SAME_RATIO 0.1

static int64_t clamp(int64_t number, int64_t least, int64_t most)
{
    return number < least ? least : number > most ? most : number;
}

static double bounded_ratio(double ratio)
{
    return ratio < CALIBRATION_RATIO_MIN   ? CALIBRATION_RATIO_MIN
           : ratio > CALIBRATION_RATIO_MAX ? CALIBRATION_RATIO_MAX
                                           : ratio;
}

/* ---- ratios ---------------------------------------------------------------------------------- */

struct token_ratios calibration_ratios(const struct estimate_row *row)
{
    const double latin = row->latin_latin + SAME_RATIO;
    const double mixed = row->latin_script - SAME_RATIO;
    const double script = row->script_script + SAME_RATIO;
    const double determinant = latin * script - mixed * mixed;

    if (row->ratio_samples == 0 || !(determinant > 0))
        return (struct token_ratios){1, 1};
    return (struct token_ratios){
        .latin = bounded_ratio((row->latin_used * script - row->script_used * mixed) / determinant),
        .script = bounded_ratio((row->script_used * latin - row->latin_used * mixed) / determinant),
    };
}

/* Of at least one token. */
static double script_share(const struct token_estimate *estimate)
{
    const int64_t script = clamp(estimate->script, 0, estimate->tokens);

    return (double)script / (double)estimate->tokens;
}

int64_t calibration_tokens(struct token_ratios ratios, const struct token_estimate *estimate)
{
    const int64_t tokens = clamp(estimate->tokens, 0, CALIBRATION_TOKENS_MAX);
    double share;

    if (tokens == 0)
        return 0;
    share = script_share(estimate);
    return clamp(
        (int64_t)((double)tokens * ((1 - share) * ratios.latin + share * ratios.script) + 0.5), 1,
        INT64_MAX);
}

/* How much the points speak for what is in the direction (l, s) shrinks to that of the newest. */
static void forget(struct estimate_row *row, double l, double s)
{
    const double of_latin = row->latin_latin * l + row->latin_script * s;
    const double of_script = row->latin_script * l + row->script_script * s;
    const double weight = of_latin * l + of_script * s;
    const double most = (CALIBRATION_SAMPLES - 1) * (l * l + s * s) * (l * l + s * s);
    const double used = row->latin_used * l + row->script_used * s;
    double shrink;

    if (weight <= most)
        return;
    shrink = (weight - most) / (weight * weight);
    row->latin_latin -= shrink * of_latin * of_latin;
    row->latin_script -= shrink * of_latin * of_script;
    row->script_script -= shrink * of_script * of_script;
    row->latin_used -= shrink * of_latin * used;
    row->script_used -= shrink * of_script * used;
}

static void learn_ratio(struct estimate_row *row, const struct token_estimate *estimate,
                        int64_t input)
{
    const int64_t tokens = clamp(estimate->tokens, 1, CALIBRATION_TOKENS_MAX);
    const double s = script_share(estimate), l = 1 - s;
    const double y = bounded_ratio((double)input / (double)tokens);

    forget(row, l, s);
    row->latin_latin += l * l;
    row->latin_script += l * s;
    row->script_script += s * s;
    row->latin_used += l * y;
    row->script_used += s * y;
}

/* ---- answers --------------------------------------------------------------------------------- */

/* The n-th call weighs 1/n, until that has come down to one of CALIBRATION_SAMPLES; rounded. samples:
 * with this one. */
static int64_t average(int64_t mean, int64_t sample, uint32_t samples)
{
    int64_t step = sample - mean;
    int64_t weight = samples < CALIBRATION_SAMPLES ? samples : CALIBRATION_SAMPLES;

    return mean + (step + (step < 0 ? -weight : weight) / 2) / weight;
}

static uint32_t one_more(uint32_t samples)
{
    return samples < UINT32_MAX ? samples + 1 : samples;
}

int64_t calibration_output(const struct estimate_row *row, int64_t max_output)
{
    int64_t parts =
        row->output_samples > 0 ? row->output_parts : (int64_t)CALIBRATION_OUTPUT_TOKENS * PARTS;
    int64_t tokens = (parts + PARTS / 2) / PARTS;

    return max_output >= 0 && tokens > max_output ? max_output : tokens;
}

void calibration_learn(struct estimate_row *row, const struct token_estimate *estimate,
                       int64_t input, int64_t output)
{
    if (estimate->tokens > 0 && input > 0) {
        learn_ratio(row, estimate, clamp(input, 1, CALIBRATION_TOKENS_MAX));
        row->ratio_samples = one_more(row->ratio_samples);
    }
    if (output > 0) {
        int64_t sample = clamp(output, 1, CALIBRATION_TOKENS_MAX) * PARTS;

        row->output_samples = one_more(row->output_samples);
        row->output_parts = average(row->output_parts, sample, row->output_samples);
    }
}

/* ---- what can be ----------------------------------------------------------------------------- */

#define ROUNDING 1e-6
#define SUM_MAX (4 * CALIBRATION_SAMPLES * CALIBRATION_RATIO_MAX)

static bool is_within(double number, double least, double most)
{
    return number >= least - ROUNDING &&
           number <= most + ROUNDING; /* false for what is no number */
}

bool calibration_is_possible(const struct estimate_row *row)
{
    const bool sums =
        is_within(row->latin_latin, 0, SUM_MAX) && is_within(row->script_script, 0, SUM_MAX) &&
        row->latin_script * row->latin_script <= row->latin_latin * row->script_script + ROUNDING &&
        row->latin_latin + 2 * row->latin_script + row->script_script > 0;
    const bool used = is_within(row->latin_used, -SUM_MAX, SUM_MAX) &&
                      is_within(row->script_used, -SUM_MAX, SUM_MAX);
    const bool output =
        row->output_samples == 0 ||
        (row->output_parts > 0 && row->output_parts / PARTS <= CALIBRATION_TOKENS_MAX);

    return (row->ratio_samples == 0 || (sums && used)) && output &&
           (row->ratio_samples > 0 || row->output_samples > 0);
}
