/*
 * run_scenarios.c - plays tests/scenarios/ *.txt: one call each, driven through worker/plan.h on a
 * false clock. Each scenario is a test; its name carries the numbers of the rules that it shows.
 *
 * A file holds scenarios one after another; # begins a comment. Times are seconds. Order is free but
 * for sources before tries, and the expected steps among themselves.
 *
 *   scenario NAME
 *   terms KEY VALUE ...       budget (2) fallbacks (0) throttle_retries (yes) retry_unknown (no)
 *                             image (no) hedge_after stall_budget (1200) backoff_base (0.5)
 *                             backoff_max (8) retry_hold deadline seed (1)
 *                             may_hedge (with hedge_after and two sources: yes)
 *   source NAME [account NAME] [busy|open|out|quota [from T] [until T]]
 *                             in order of preference; the account is its quota group; from T (0)
 *                             until T (for ever) it cannot be had
 *   try NAME N BEHAVIOUR      what the N-th attempt at that source does, times from its start:
 *                               hang
 *                               content after T [done T | cut T]    done: the last byte
 *                               throttle|quota_day|money|credential|request|transient|unsent|
 *                               unknown|ours after T [retry_after T] [out T] [should_retry no]
 *                               [no_answer]                          no_answer: nothing to pass on
 *                             sent T: when its first byte goes out (0)
 *   at T STEP                 expected; T may be a span, 1..1.5, where there is jitter:
 *                               start NAME            start hedge NAME        skip hedge
 *                               refused busy|open|out|quota|none              wait until T
 *                               cancel lost NAME      cancel deadline NAME    take back NAME
 *                             and as the last one:
 *                               commit NAME           answer NAME             fallback
 *                               fail deadline|credential|no_source|busy       fail transport NAME
 *                             A wait beside a running attempt is no step; nor are the further ticks
 *                             of a wait for a busy source.
 *   result KEY VALUE ...      rounds retries hedges skipped hedge_won (1, 0) units (of the budget)
 *                             stall_ms retry_after_ms should_retry generation_ms total_ms; spans as
 *                             above; none = not said
 *   rows NAME WORD, ...       each attempt in the order of its start: ok, cut, hedge_cancelled,
 *                             deadline, or the class of its failure
 *   breaks TEXT               this scenario is wrong, and the complaint must contain TEXT: shows that
 *                             the runner finds what it should
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/scenarios/scenario.h"

#include <glob.h>
#include <stdlib.h>
#include <string.h>

#define FILES "tests/scenarios/*.txt"
#define SCENARIOS_MAX 400U

static struct scenario *scenarios;
static struct CMUnitTest tests[SCENARIOS_MAX];
static size_t count;

static void play(void **state)
{
    const struct scenario *scenario = *state;
    const char *breaks = scenario->breaks + strspn(scenario->breaks, " ");
    struct complaint complaint = {""};

    scenario_play(scenario, &complaint);
    if (*breaks == '\0' && complaint.text[0] != '\0')
        fail_msg("%s", complaint.text);
    if (*breaks != '\0' && strstr(complaint.text, breaks) == NULL)
        fail_msg("should complain '%s', complained '%s'", breaks, complaint.text);
}

static void read_file(const char *path)
{
    const char *base = strrchr(path, '/') + 1;
    FILE *file = fopen(path, "r");
    char label[64];
    int line = 0;

    if (file == NULL) {
        perror(path);
        exit(1);
    }
    (void)snprintf(label, sizeof label, "%.*s", (int)strcspn(base, "."), base);
    while (count < SCENARIOS_MAX && scenario_read(file, &line, label, &scenarios[count])) {
        tests[count] =
            (struct CMUnitTest){scenarios[count].name, play, NULL, NULL, &scenarios[count]};
        count++;
    }
    (void)fclose(file);
}

int main(void)
{
    glob_t files = {0};
    int failed = 1;

    scenarios = calloc(SCENARIOS_MAX, sizeof *scenarios);
    if (scenarios == NULL || glob(FILES, 0, NULL, &files) != 0) {
        fputs("no scenarios: " FILES "\n", stderr);
        exit(1);
    }
    for (size_t i = 0; i < files.gl_pathc; i++)
        read_file(files.gl_pathv[i]);
    globfree(&files);
    if (count == SCENARIOS_MAX)
        fputs("more scenarios than there is room for\n", stderr);
    else
        failed = _cmocka_run_group_tests("scenarios", tests, count, NULL, NULL);
    free(scenarios);
    return failed;
}
