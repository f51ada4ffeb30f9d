/*
 * options.h - the configuration: one table (options_list.h), read from files and the environment.
 *
 * A struct options is immutable once loaded and owns all its memory; a process loads one at start.
 * Errors never stop at the first: options_load reports all of them, each as
 *   file:line: section.key: what is wrong; what is allowed; did you mean ...
 *
 * Threads: reading a loaded struct needs no lock. Not part of shared/: that gets plain numbers.
 */
#ifndef WORKER_OPTIONS_H
#define WORKER_OPTIONS_H

#include "base/check.h"
#include "base/text.h"
#include "shared/flow_terms.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define EXIT_BAD_CONFIGURATION 78 /* EX_CONFIG; systemd's RestartPreventExitStatus */

enum overflow_mode { OVERFLOW_REJECT, OVERFLOW_WAIT };
enum client_gone_policy { CLIENT_GONE_CANCEL, CLIENT_GONE_FINISH };
/* Order of the words of scope.balance and scope.when_all_open. */
enum balance { BALANCE_ORDERED, BALANCE_WEIGHTED };
enum all_open_policy { ALL_OPEN_TRY, ALL_OPEN_REFUSE };
/* Order of the words of source.limit_headers. */
enum limit_headers {
    LIMIT_HEADERS_BELIEVE,
    LIMIT_HEADERS_RELY, /* likewise, and rpm and tpm need not be known beforehand */
    LIMIT_HEADERS_IGNORE,
};

/* Order of the words of source.flow_unit and scope.flow: enum flow_unit, enum flow_strategy
 * (shared/flow_terms.h). Of scope.tpm_charge: */
enum tpm_charge { TPM_CHARGE_PREDICTED, TPM_CHARGE_INPUT };
/* scope.flow_class is an enum flow_class, the index in .weights and .max_wait_ms too;
 * scope.flow_class_header_max besides: */
#define CLASS_CLAIM_NONE 3
enum dialect_name {
    DIALECT_OPENAI,
    DIALECT_DASHSCOPE,
    DIALECT_AZURE,
    DIALECT_GEMINI,
    DIALECT_ANTHROPIC,
    DIALECT_PLAIN,
};
/* Order of the words of route.kind; ROUTE_KIND_AUTO first. */
enum route_kind {
    ROUTE_KIND_AUTO,
    ROUTE_KIND_CHAT,
    ROUTE_KIND_RESPONSES,
    ROUTE_KIND_EMBEDDING,
    ROUTE_KIND_IMAGE,
    ROUTE_KIND_OCR,
    ROUTE_KIND_OTHER,
};

#define OPTION_FIELD_BOOL(field) bool field;
#define OPTION_FIELD_COUNT(field) int64_t field;
#define OPTION_FIELD_SECONDS(field) int64_t field;
#define OPTION_FIELD_SIZE(field) int64_t field;
#define OPTION_FIELD_STRING(field) const char *field;
#define OPTION_FIELD_CHOICE(field) int field;
#define OPTION_FIELD_LIST(field) const char *const *field;
#define OPTION_FIELD_SECRET(field) const char *field;
#define OPTION_FIELD_MODE(field) int64_t field;

#define MODEL_LIMITS_MAX 64U  /* of one source */
#define EXTRA_HEADERS_MAX 16U /* of one source */

struct option_pair {
    const char *name, *value;
};
/* What the account is granted per minute for models that the glob names; 0: not known. */
struct model_limit {
    const char *glob;
    int64_t rpm, tpm;
};
struct source_options;
struct scope_options;
struct scope_member {
    const struct source_options *source;
    uint32_t weight; /* 1 when not written */
};
/* Where a throttled call goes next (H20): another scope, with the model as asked, or another model
 * in the same scope. */
struct scope_fallback {
    const struct scope_options *scope; /* NULL: the same */
    const char *model;                 /* NULL: as asked */
};

/* The members of each section's struct come from the table: OPTION_IN_<section> picks its rows. */
#define OPTION_FIELD(TYPE, field) OPTION_FIELD_##TYPE(field)

#define OPTION(section, key, field, TYPE, fallback, min, max, reload, help)                        \
    OPTION_PICK_##section(TYPE, field)

#define OPTION_PICK_penstock(TYPE, field) OPTION_FIELD(TYPE, field)
#define OPTION_PICK_image_concurrency(TYPE, field)
#define OPTION_PICK_source(TYPE, field)
#define OPTION_PICK_scope(TYPE, field)
#define OPTION_PICK_route(TYPE, field)
struct penstock_options {
#include "worker/options_list.h"
};
#undef OPTION_PICK_penstock
#undef OPTION_PICK_image_concurrency

#define OPTION_PICK_penstock(TYPE, field)
#define OPTION_PICK_image_concurrency(TYPE, field) OPTION_FIELD(TYPE, field)
struct image_concurrency_options {
#include "worker/options_list.h"
    bool active;                              /* enabled and max_concurrent_requests > 0 */
    struct queue_terms classes[FLOW_CLASSES]; /* .class_weights, .class_max_waiting; 0 = none */
};
#undef OPTION_PICK_image_concurrency
#undef OPTION_PICK_source

#define OPTION_PICK_image_concurrency(TYPE, field)
#define OPTION_PICK_source(TYPE, field) OPTION_FIELD(TYPE, field)
struct source_options {
    const char *name;
#include "worker/options_list.h"
    /* .quota_group is never empty: a source without one is alone in the group of its own name. */
    unsigned index; /* in options.sources */
    /* model_aliases and add_headers, taken apart; pairs end with a NULL name. */
    const struct option_pair *aliases;
    const struct option_pair *extra_headers;
    const struct model_limit *limits; /* model_limits, taken apart; ends with a NULL glob */
};
#undef OPTION_PICK_source
#undef OPTION_PICK_scope

#define OPTION_PICK_source(TYPE, field)
#define OPTION_PICK_scope(TYPE, field) OPTION_FIELD(TYPE, field)
struct scope_options {
    const char *name;
#include "worker/options_list.h"
    /* .hedge_max_extra is 1 whatever the file says: more is for later. */
    /* No [scope] of the file: made for a route that names a source, with its name and all options
     * at their defaults but for a retry_budget of 0. Nothing is tried twice, and the upstream's
     * answers pass as they are. */
    bool direct;
    const struct scope_member *members;     /* in order of preference */
    size_t member_count;                    /* 1..SOURCES_MAX */
    int64_t stall_budget_settled_ms;        /* stall_budget_s, or twice the longest timeout_s */
    const struct scope_fallback *fallbacks; /* .fallback, taken apart */
    size_t fallback_count;
    uint32_t weights[FLOW_CLASSES];    /* .flow_weights */
    int64_t max_wait_ms[FLOW_CLASSES]; /* .flow_max_wait_s */
};
#undef OPTION_PICK_scope
#undef OPTION_PICK_route

#define OPTION_PICK_scope(TYPE, field)
#define OPTION_PICK_route(TYPE, field) OPTION_FIELD(TYPE, field)
struct route_options {
    const char *name;
#include "worker/options_list.h"
    const struct scope_options *to; /* that .scope names, or made for .source; never NULL */
};
#undef OPTION_PICK_penstock
#undef OPTION_PICK_image_concurrency
#undef OPTION_PICK_source
#undef OPTION_PICK_scope
#undef OPTION_PICK_route
#undef OPTION

struct options {
    struct penstock_options penstock;
    struct image_concurrency_options image;
    struct source_options *sources;
    size_t source_count;
    struct scope_options *scopes; /* of the file, then those made for routes */
    size_t scope_count;
    struct route_options *routes; /* longest path first */
    size_t route_count;
    struct options_private *own; /* memory and the origin of every value */
};

/* Read path (NULL: no file, defaults only) with its conf.d/ *.conf files, and the environment.
 * The seconds options image_stream_data_interval_timeout and image_first_byte_timeout_seconds are
 * -1 when the operator did not set them and the gate is not active.
 *
 * Without any [source], $PENSTOCK_UPSTREAM becomes source "default"; without it there is no source
 * and no route, which is a warning: every call is answered 503. Without any [route] everything
 * under /v1/ goes to the first [scope], without one to the first source. A route's .to is never
 * NULL, a base_url never ends in / or /v1.
 *
 * Returns true and *ret_options when there is no error; report gets all errors and warnings, one
 * line each, either way. */
MUST_CHECK bool options_load(const char *path, struct text *report, struct options **ret_options);
/* The same for one who needs no secret, and may not be allowed to read any: each is "". */
MUST_CHECK bool options_load_public(const char *path, struct text *report,
                                    struct options **ret_options);
/* Free; takes NULL. Secrets are wiped. */
void options_free(struct options *options);

/* What the source's account is granted per minute for a model, as the source calls it; 0: not
 * known. */
struct model_limit options_limit_of(const struct source_options *source, const char *model);
uint64_t options_flow_origin(const struct scope_options *scope);
/* What the scope says of calls of this model at this source. */
struct flow_terms options_flow_terms(const struct scope_options *scope,
                                     const struct source_options *source, const char *model);

/* penstockd -T: every option with its value and where it comes from; secrets masked. */
void options_dump(const struct options *options, FILE *out);
/* "section.key = value" lines of the options that only a restart changes. */
void options_fixed(const struct options *options, struct text *out);
/* The option list for the manual page (mdoc) and for the commented example file. */
void options_print_manual(FILE *out);
void options_print_example(FILE *out);

/* What the thread check of product.md yields: total threads needed for slots, queue and reserve. */
int64_t options_threads_needed(const struct options *options);
/* Worker processes and threads per worker after "auto" is resolved for this machine. */
int64_t options_workers(const struct options *options);
int64_t options_threads(const struct options *options);
/* Request threads of each worker that calls waiting in flows may take, but for image calls, which have
 * theirs: the reserve stays free. */
int64_t options_flow_waiters(const struct options *options);

#endif
