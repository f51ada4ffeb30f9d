/* jobs.h - work that goes on after its call was answered: background responses, DashScope tasks. */
#ifndef TESTS_TOOLS_UPSTREAM_JOBS_H
#define TESTS_TOOLS_UPSTREAM_JOBS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define JOBS_MAX 4096 /* the oldest is forgotten when a newer one needs its row */

enum job_state { JOB_PENDING, JOB_RUNNING, JOB_SUCCEEDED, JOB_FAILED, JOB_CANCELLED };

struct job {
    uint64_t number; /* 0: free row */
    int64_t begun_ns;
    int64_t lasts_ns; /* pending for the first third of it, then running */
    bool image;
    bool cancelled;
    int64_t cancelled_ns;
    uint64_t pictures;
    uint64_t failing; /* so many of the pictures fail; all of them: the job fails */
    uint64_t size;    /* of a picture's base64 */
    uint64_t seed;
    char model[128];
};

struct jobs {
    struct job rows[JOBS_MAX];
    uint64_t last;
};

/* A fresh row with its number set; the caller fills in the rest. */
struct job *sim_jobs_add(struct jobs *jobs);
/* The job whose number is written in hexadecimal at the end of id; NULL when it is not known. */
struct job *sim_jobs_find(struct jobs *jobs, const char *id);
enum job_state sim_job_state(const struct job *job, int64_t now_ns);
/* False when it is too late, or when only a pending job may be cancelled. */
bool sim_job_cancel(struct job *job, int64_t now_ns, bool only_pending);
/* How many image jobs are not over. */
uint64_t sim_jobs_images_running(const struct jobs *jobs, int64_t now_ns);

#endif
