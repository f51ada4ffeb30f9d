/* jobs.c - see jobs.h. */
#include "tests/tools/upstream/jobs.h"

#include <stdlib.h>
#include <string.h>

struct job *sim_jobs_add(struct jobs *jobs)
{
    struct job *job;

    jobs->last++;
    job = &jobs->rows[jobs->last % JOBS_MAX];
    *job = (struct job){.number = jobs->last};
    return job;
}

struct job *sim_jobs_find(struct jobs *jobs, const char *id)
{
    const char *digits = id + strlen(id);
    uint64_t number;

    while (digits > id && digits[-1] && strchr("0123456789abcdef", digits[-1]))
        digits--;
    number = strtoull(digits, NULL, 16);
    if (number == 0 || jobs->rows[number % JOBS_MAX].number != number)
        return NULL;
    return &jobs->rows[number % JOBS_MAX];
}

enum job_state sim_job_state(const struct job *job, int64_t now_ns)
{
    int64_t age_ns = now_ns - job->begun_ns;

    if (job->cancelled)
        return JOB_CANCELLED;
    if (age_ns < job->lasts_ns / 3)
        return JOB_PENDING;
    if (age_ns < job->lasts_ns)
        return JOB_RUNNING;
    return job->failing >= job->pictures && job->failing > 0 ? JOB_FAILED : JOB_SUCCEEDED;
}

bool sim_job_cancel(struct job *job, int64_t now_ns, bool only_pending)
{
    enum job_state state = sim_job_state(job, now_ns);

    if (state != JOB_PENDING && (only_pending || state != JOB_RUNNING))
        return false;
    job->cancelled = true;
    job->cancelled_ns = now_ns;
    return true;
}

uint64_t sim_jobs_images_running(const struct jobs *jobs, int64_t now_ns)
{
    uint64_t running = 0;

    for (size_t i = 0; i < JOBS_MAX; i++) {
        const struct job *job = &jobs->rows[i];

        if (job->number && job->image && !job->cancelled && now_ns - job->begun_ns < job->lasts_ns)
            running++;
    }
    return running;
}
