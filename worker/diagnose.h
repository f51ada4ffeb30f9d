/*
 * diagnose.h - which limits of an upstream were met, told from its refusals and from their pattern in time
 * (F12). One error code can come from several limits: a quota per minute refuses now and then, one per
 * second where many calls begin at once, one of growth at a start. Pure; the ledger's rows come in,
 * findings go out. What to do about them is diagnose_advice.h.
 */
#ifndef WORKER_DIAGNOSE_H
#define WORKER_DIAGNOSE_H

#include "shared/layout.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum diagnose_limit {
    DIAGNOSE_RPM,
    DIAGNOSE_RPS,
    DIAGNOSE_TPM,
    DIAGNOSE_TPS,
    DIAGNOSE_BURST,
    DIAGNOSE_SATURATION,
    DIAGNOSE_DAY,
    DIAGNOSE_MONEY,
    DIAGNOSE_UNKNOWN, /* the upstream did not say */
    DIAGNOSE_LIMITS,
    /* Not yet told apart; diagnose_look does it. */
    DIAGNOSE_REQUESTS = DIAGNOSE_LIMITS,
    DIAGNOSE_TOKENS,
    DIAGNOSE_NONE /* not refused */
};
const char *diagnose_limit_name(enum diagnose_limit limit);
/* Of the ledger's word (attempts.limit_kind). */
enum diagnose_limit diagnose_limit_of(const char *word);

/* What most refusals of a limit have in common, the most telling first. */
enum diagnose_pattern {
    DIAGNOSE_FEW,          /* too few to tell */
    DIAGNOSE_AT_START,     /* within DIAGNOSE_START_MS of a start, or of idle time */
    DIAGNOSE_LONG_TEXTS,   /* refused ones are at least twice as long as answered ones */
    DIAGNOSE_AT_SURGES,    /* when many began in the same second */
    DIAGNOSE_ALL,          /* from the first on, nothing was answered */
    DIAGNOSE_INTERMITTENT, /* in several minutes, between good answers */
    DIAGNOSE_AT_ONCE,      /* in one piece */
};
const char *diagnose_pattern_name(enum diagnose_pattern pattern);

#define DIAGNOSE_IDLE_MS 30000  /* without an exchange: what follows is a start */
#define DIAGNOSE_START_MS 15000 /* of a start */
#define DIAGNOSE_LEAST 3U       /* refusals that show a pattern */

struct diagnose_exchange {
    int64_t started_ms, ended_ms;
    int64_t tokens; /* used, as far as that is known */
    int64_t input;  /* estimated; 0 = not known */
    enum diagnose_limit limit;
    bool good;
    uint8_t code; /* index into codes + 1; 0 = none */
};

struct diagnose_finding {
    size_t count;
    size_t
        in_force; /* of them, those since the configuration was loaded: what numbers are made of */
    enum diagnose_pattern pattern;
    unsigned percent; /* of the refusals that show it; LONG_TEXTS, INTERMITTENT: 100 */
    unsigned minutes; /* in which there were any */
    /* The least at which it was refused: sends and tokens of the 60 s before, the refused one
     * included; exchanges in progress. */
    int64_t sends_60s, tokens_60s, in_progress;
    int64_t sends_in_force, tokens_in_force; /* likewise, of those since then */
    int64_t
        long_ratio_percent; /* length of refused to that of answered ones, medians; 0 = not known */
    char code[48];          /* the upstream's, of the newest */
};

#define DIAGNOSE_CODES 16U /* of one flow; more are not told */
/* One (quota group, model). */
struct diagnose_flow {
    char quota_group[NAME_SIZE], model[NAME_SIZE];
    struct diagnose_exchange *exchanges; /* by started_ms; some may be older than since_ms */
    size_t count, room;
    char codes[DIAGNOSE_CODES][48];
    unsigned code_count;
    int64_t rpm, tpm;           /* as configured; 0 = not known */
    int64_t loaded_ms;          /* since when; 0 = ever */
    int64_t rpm_told, tpm_told; /* by the upstream; 0 = not */
    size_t attempts, refused;   /* filled in, like the rest: since since_ms */
    struct diagnose_finding findings[DIAGNOSE_LIMITS];
};
/* For an exchange's code. */
uint8_t diagnose_code(struct diagnose_flow *flow, const char *code);
/* Older exchanges count for what came before, not as findings. False: out of memory. */
bool diagnose_look(struct diagnose_flow *flow, int64_t since_ms);

#endif
