/* ledger_schema.c - tables and views in SQL; see ledger_schema.h. Read it beside
 * penstock-ledger(5). */
#include "shared/ledger_schema.h"

/* Indexes are few, since every row pays for them: what is open now, what is old (retention), a call
 * by its id, and the few attempts that were hedges or were refused for a limit. All but those on a call's id grow at their right
 * edge; so do these, as ids begin with their time, and the order of attempts is that of time too. */
static const char schema_1[] =
    "CREATE TABLE waits ("
    " boot INTEGER NOT NULL,"
    " arrival_seq INTEGER NOT NULL,"
    " grant_seq INTEGER,"
    " call_id TEXT NOT NULL,"
    " state TEXT NOT NULL,"
    " refusal TEXT,"
    " class TEXT NOT NULL,"
    " client TEXT NOT NULL,"
    " scope TEXT NOT NULL,"
    " model TEXT NOT NULL,"
    " endpoint TEXT NOT NULL,"
    " position INTEGER NOT NULL,"
    " arrived_at TEXT NOT NULL,"
    " granted_at TEXT,"
    " ended_at TEXT,"
    " wait_ms INTEGER,"
    " hold_ms INTEGER,"
    " arrived_ns INTEGER NOT NULL,"
    " granted_ns INTEGER,"
    " released_ns INTEGER,"
    " in_use_at_arrival INTEGER NOT NULL,"
    " waiting_at_arrival INTEGER NOT NULL,"
    " in_use_at_grant INTEGER,"
    " waiting_at_grant INTEGER,"
    " pid INTEGER NOT NULL,"
    " PRIMARY KEY (boot, arrival_seq)) WITHOUT ROWID;"
    "CREATE INDEX waits_open ON waits (boot, arrival_seq) WHERE ended_at IS NULL;"
    "CREATE INDEX waits_arrived ON waits (arrived_at);"

    "CREATE TABLE calls ("
    " id INTEGER PRIMARY KEY,"
    " call_id TEXT NOT NULL UNIQUE,"
    " arrived_at TEXT NOT NULL,"
    " kind TEXT NOT NULL,"
    " client TEXT NOT NULL,"
    " route TEXT NOT NULL,"
    " scope TEXT NOT NULL,"
    " source TEXT NOT NULL,"
    " endpoint TEXT NOT NULL,"
    " model_asked TEXT NOT NULL,"
    " model_served TEXT NOT NULL,"
    " status INTEGER NOT NULL,"
    " upstream_status INTEGER,"
    " outcome TEXT NOT NULL,"
    " error_code TEXT,"
    " stream INTEGER NOT NULL,"
    " queue_ms INTEGER,"
    " ttft_ms INTEGER,"
    " generation_ms INTEGER,"
    " total_latency_ms INTEGER,"
    " attempts INTEGER NOT NULL,"
    " retries INTEGER NOT NULL,"
    " hedges INTEGER NOT NULL,"
    " hedge_won INTEGER NOT NULL,"
    " fallback INTEGER NOT NULL,"
    " tokens_in INTEGER,"
    " tokens_out INTEGER,"
    " tokens_cached INTEGER,"
    " tokens_reasoning INTEGER,"
    " image_tokens_in INTEGER,"
    " image_tokens_out INTEGER,"
    " images INTEGER NOT NULL,"
    " image_size TEXT,"
    " image_quality TEXT,"
    " image_format TEXT,"
    " bytes_in INTEGER,"
    " bytes_out INTEGER,"
    " pid INTEGER NOT NULL,"
    " upstream_id TEXT);"
    "CREATE INDEX calls_upstream ON calls (upstream_id) WHERE upstream_id IS NOT NULL;"
    "CREATE INDEX calls_arrived ON calls (arrived_at);"

    "CREATE TABLE attempts ("
    " logical_call_id TEXT NOT NULL,"
    " n INTEGER NOT NULL,"
    " source TEXT NOT NULL,"
    " hedge INTEGER NOT NULL,"
    " started_at TEXT NOT NULL,"
    " ended_at TEXT,"
    " ttft_ms INTEGER,"
    " generation_ms INTEGER,"
    " status INTEGER,"
    " error TEXT,"
    " est_tokens INTEGER,"
    " settled_tokens INTEGER,"
    " kept_est INTEGER NOT NULL,"
    " pid INTEGER NOT NULL,"
    " PRIMARY KEY (logical_call_id, n)) WITHOUT ROWID;"
    "CREATE INDEX attempts_open ON attempts (pid) WHERE ended_at IS NULL;"
    "CREATE INDEX attempts_hedges ON attempts (logical_call_id, n) WHERE hedge <> 0;"

    "CREATE TABLE jobs ("
    " job_id TEXT PRIMARY KEY,"
    " client TEXT NOT NULL,"
    " scope TEXT NOT NULL,"
    " endpoint TEXT NOT NULL,"
    " model TEXT NOT NULL,"
    " state TEXT NOT NULL,"
    " created_at TEXT NOT NULL,"
    " started_at TEXT,"
    " ended_at TEXT,"
    " attempts INTEGER NOT NULL,"
    " status INTEGER,"
    " error TEXT) WITHOUT ROWID;"

    "CREATE TABLE sources ("
    " name TEXT PRIMARY KEY,"
    " base_url TEXT NOT NULL,"
    " dialect TEXT NOT NULL,"
    " quota_group TEXT NOT NULL,"
    " max_in_flight INTEGER NOT NULL,"
    " loaded_at TEXT NOT NULL) WITHOUT ROWID;"

    "CREATE TABLE config ("
    " key TEXT PRIMARY KEY,"
    " value TEXT NOT NULL,"
    " origin TEXT NOT NULL) WITHOUT ROWID;"

    "CREATE TABLE events ("
    " at TEXT NOT NULL,"
    " pid INTEGER NOT NULL,"
    " name TEXT NOT NULL,"
    " detail TEXT NOT NULL,"
    " PRIMARY KEY (at, pid, name, detail)) WITHOUT ROWID;";

/* Which limit of the upstream an attempt ran into. */
static const char schema_2[] =
    "ALTER TABLE attempts ADD COLUMN limit_kind TEXT;"
    "CREATE INDEX attempts_limit ON attempts (started_at) WHERE limit_kind IS NOT NULL;";

/* A call of one attempt that went well is one row. Views that know the old table stand in the way of its
 * new name; all are made anew in any case. */
static const char schema_3[] =
    "DROP VIEW IF EXISTS show_attempts; DROP VIEW IF EXISTS show_throttles;"
    "DROP VIEW IF EXISTS show_hedges; DROP VIEW IF EXISTS show_sources;"
    "ALTER TABLE attempts RENAME TO attempts_more;"
    "ALTER TABLE calls ADD COLUMN attempt_start_ms INTEGER;"
    "ALTER TABLE calls ADD COLUMN attempt_ms INTEGER;"
    "ALTER TABLE calls ADD COLUMN est_tokens INTEGER;";

const char *const ledger_migrations[LEDGER_MIGRATIONS] = {schema_1, schema_2, schema_3};

/* Milliseconds from a column's time until now. julianday's double is exact to 0.05 ms. */
#define SINCE_MS(column)                                                                           \
    "max(0, CAST(round((julianday('now') - julianday(" column ")) * 86400000.0) AS INTEGER))"

#define HOUR_AGO "strftime('%Y-%m-%dT%H:%M:%fZ', 'now', '-1 hour')"

/* The value that `percent` of the group's n rows do not pass (nearest rank); ranks count from the
 * smallest. */
#define PERCENTILE(percent, column)                                                                \
    "max(CASE WHEN rank = (n * " #percent " + 99) / 100 THEN " column " END)"

/* The column's time and so many milliseconds. */
#define LATER(column, ms)                                                                          \
    "strftime('%Y-%m-%dT%H:%M:%fZ', " column ", printf('+%d.%03d seconds', (" ms ") / 1000, (" ms  \
    ") % 1000))"

/* Of an attempt that its call's row tells. */
#define TOLD_START LATER("arrived_at", "attempt_start_ms")
#define TOLD_END LATER("arrived_at", "attempt_start_ms + attempt_ms")

/* SQL is laid out as SQL. */
/* clang-format off */
const struct ledger_view ledger_views[LEDGER_VIEWS] = {
    {"show_queue",
     "SELECT row_number() OVER (PARTITION BY class ORDER BY arrival_seq) AS position,"
     " " SINCE_MS("arrived_at") " AS waited_ms,"
     " arrived_at AS since, call_id, client, class, scope, model, endpoint,"
     " position AS position_at_arrival, arrival_seq, pid"
     " FROM waits WHERE ended_at IS NULL AND state = 'waiting' ORDER BY arrival_seq"},

    {"show_slots",
     "SELECT grant_seq, " SINCE_MS("granted_at") " AS held_ms,"
     " granted_at AS since, wait_ms, call_id, client, class, scope, model, endpoint,"
     " in_use_at_grant, waiting_at_grant, pid"
     " FROM waits WHERE ended_at IS NULL AND state = 'granted' ORDER BY grant_seq"},

    /* Waits of calls that were refused at once say nothing: they are counted, not ranked. */
    {"show_stats",
     "WITH hours AS ("
     "  SELECT substr(arrived_at, 1, 13) || ':00Z' AS hour, state, wait_ms, hold_ms FROM waits),"
     " counted AS ("
     "  SELECT hour, count(*) AS calls,"
     "   sum(state = 'waiting') AS waiting, sum(state = 'granted') AS granted,"
     "   sum(state = 'done') AS done, sum(state = 'refused') AS refused,"
     "   sum(state = 'timed_out') AS timed_out, sum(state = 'client_gone') AS client_gone,"
     "   sum(state = 'worker_died') AS worker_died, sum(state = 'shutdown') AS shutdown"
     "  FROM hours GROUP BY hour),"
     " waits_ranked AS ("
     "  SELECT hour, wait_ms, row_number() OVER (PARTITION BY hour ORDER BY wait_ms) AS rank,"
     "   count(*) OVER (PARTITION BY hour) AS n"
     "  FROM hours WHERE wait_ms IS NOT NULL AND state <> 'refused'),"
     " waits_ranks AS ("
     "  SELECT hour, " PERCENTILE(50, "wait_ms") " AS wait_p50_ms,"
     "   " PERCENTILE(95, "wait_ms") " AS wait_p95_ms,"
     "   " PERCENTILE(99, "wait_ms") " AS wait_p99_ms,"
     "   max(wait_ms) AS wait_max_ms FROM waits_ranked GROUP BY hour),"
     " holds_ranked AS ("
     "  SELECT hour, hold_ms, row_number() OVER (PARTITION BY hour ORDER BY hold_ms) AS rank,"
     "   count(*) OVER (PARTITION BY hour) AS n"
     "  FROM hours WHERE hold_ms IS NOT NULL),"
     " holds_ranks AS ("
     "  SELECT hour, " PERCENTILE(50, "hold_ms") " AS hold_p50_ms,"
     "   " PERCENTILE(95, "hold_ms") " AS hold_p95_ms,"
     "   " PERCENTILE(99, "hold_ms") " AS hold_p99_ms,"
     "   max(hold_ms) AS hold_max_ms FROM holds_ranked GROUP BY hour)"
     " SELECT hour, calls, waiting, granted, done, refused, timed_out, client_gone, worker_died,"
     "  shutdown, wait_p50_ms, wait_p95_ms, wait_p99_ms, wait_max_ms,"
     "  hold_p50_ms, hold_p95_ms, hold_p99_ms, hold_max_ms"
     " FROM counted LEFT JOIN waits_ranks USING (hour) LEFT JOIN holds_ranks USING (hour)"
     " ORDER BY hour DESC"},

    {"show_refusals",
     "SELECT ended_at AS at, CASE state WHEN 'refused' THEN refusal"
     "  WHEN 'timed_out' THEN 'queue_timeout' ELSE state END AS reason,"
     " wait_ms, call_id, client, class, scope, model, endpoint,"
     " in_use_at_arrival, waiting_at_arrival, pid"
     " FROM waits WHERE state IN ('refused', 'timed_out')"
     "  OR (state = 'shutdown' AND granted_at IS NULL)"
     " ORDER BY arrived_at DESC"},

    {"show_calls",
     "SELECT arrived_at, call_id, client, kind, endpoint, scope, source, model_asked, model_served,"
     " status, outcome, error_code, stream, queue_ms, ttft_ms, generation_ms, total_latency_ms,"
     " attempts, retries, hedges, hedge_won, fallback, tokens_in, tokens_out, tokens_cached,"
     " tokens_reasoning, images, bytes_in, bytes_out, pid"
     " FROM calls ORDER BY arrived_at DESC"},

    /* The attempt that a call's own row tells, as if it had a row. */
    {"attempts",
     "SELECT logical_call_id, n, source, hedge, started_at, ended_at, ttft_ms, generation_ms,"
     " status, error, est_tokens, settled_tokens, kept_est, pid, limit_kind FROM attempts_more"
     " UNION ALL SELECT call_id, 1, source, 0, " TOLD_START ", " TOLD_END ", ttft_ms, generation_ms,"
     " upstream_status, NULL, est_tokens, " LEDGER_TOLD_TOKENS ", 0, pid, NULL"
     " FROM calls WHERE attempt_start_ms IS NOT NULL"},

    /* Not of the view above: ordered here, both parts come from their indexes and nothing is sorted. */
    {"show_attempts",
     "SELECT started_at, logical_call_id, n, source, hedge, ended_at, ttft_ms, generation_ms,"
     " status, error, limit_kind, est_tokens, settled_tokens, kept_est, pid FROM attempts_more"
     " UNION ALL SELECT " TOLD_START ", call_id, 1, source, 0, " TOLD_END ", ttft_ms, generation_ms,"
     " upstream_status, NULL, NULL, est_tokens, " LEDGER_TOLD_TOKENS ", 0, pid"
     " FROM calls WHERE attempt_start_ms IS NOT NULL ORDER BY logical_call_id DESC, n DESC"},

    {"show_throttles",
     "SELECT substr(started_at, 1, 16) || 'Z' AS minute,"
     " coalesce(sources.quota_group, refused.source) AS quota_group, model_asked AS model,"
     " limit_kind, count(*) AS refused, max(refused.error) AS error,"
     " max(refused.est_tokens) AS est_tokens_max"
     " FROM attempts_more AS refused LEFT JOIN calls ON calls.call_id = refused.logical_call_id"
     "  LEFT JOIN sources ON sources.name = refused.source"
     " WHERE limit_kind IS NOT NULL"
     " GROUP BY 1, 2, 3, 4 ORDER BY 1 DESC, 2, 3, 4"},

    /* A hedge and the attempt it ran beside: the one before it that is none. Each of the two that
     * lost is a line. */
    {"show_hedges",
     "WITH pairs AS (SELECT logical_call_id, n AS hedge_n, (SELECT max(beside.n)"
     "   FROM attempts_more AS beside WHERE beside.logical_call_id = hedges.logical_call_id"
     "    AND beside.n < hedges.n AND beside.hedge = 0) AS primary_n"
     "  FROM attempts_more AS hedges WHERE hedges.hedge <> 0)"
     " SELECT loser.started_at AS at, loser.logical_call_id AS logical_call_id,"
     "  winner.n AS winner_n, winner.source AS winner_source, winner.hedge AS hedge_won,"
     "  winner.ttft_ms AS winner_ttft_ms, winner.generation_ms AS winner_generation_ms,"
     "  loser.n AS loser_n, loser.source AS loser_source, loser.ttft_ms AS loser_ttft_ms,"
     "  loser.generation_ms AS loser_generation_ms, loser.error AS loser_error,"
     "  loser.settled_tokens AS loser_tokens, loser.kept_est AS loser_kept_est"
     " FROM pairs JOIN attempts_more AS loser ON loser.logical_call_id = pairs.logical_call_id"
     "   AND loser.n IN (hedge_n, primary_n) AND loser.error IS NOT NULL"
     "  LEFT JOIN attempts_more AS winner ON winner.logical_call_id = pairs.logical_call_id"
     "   AND winner.n IN (hedge_n, primary_n) AND winner.error IS NULL"
     "   AND winner.ended_at IS NOT NULL"
     " ORDER BY pairs.logical_call_id DESC, loser.n DESC"},

    {"show_usage",
     "SELECT substr(arrived_at, 1, 10) AS day, client,"
     " CASE model_served WHEN '' THEN model_asked ELSE model_served END AS model,"
     " count(*) AS calls, sum(outcome <> 'ok') AS failed,"
     " sum(tokens_in) AS tokens_in, sum(tokens_out) AS tokens_out,"
     " sum(tokens_cached) AS tokens_cached, sum(tokens_reasoning) AS tokens_reasoning,"
     " sum(images) AS images"
     " FROM calls GROUP BY 1, 2, 3 ORDER BY 1 DESC, 2, 3"},

    /* Whom we left says nothing about the source: it counts as an exchange, not as a failure. */
    {"show_sources",
     "WITH recent AS (SELECT more.source, more.started_at, more.hedge, more.ttft_ms,"
     "   more.error IS NOT NULL"
     "    AND more.error NOT IN ('hedge_cancelled', 'client_cancelled') AS failed"
     "  FROM calls JOIN attempts_more AS more ON more.logical_call_id = calls.call_id"
     "  WHERE calls.arrived_at >= " HOUR_AGO
     "  UNION ALL SELECT source, " TOLD_START ", 0, ttft_ms, 0"
     "  FROM calls WHERE arrived_at >= " HOUR_AGO " AND attempt_start_ms IS NOT NULL),"
     " counted AS (SELECT source, count(*) AS attempts, sum(failed) AS failed,"
     "   sum(hedge <> 0) AS hedges, max(started_at) AS last_at FROM recent GROUP BY source),"
     " ranked AS (SELECT source, ttft_ms,"
     "   row_number() OVER (PARTITION BY source ORDER BY ttft_ms) AS rank,"
     "   count(*) OVER (PARTITION BY source) AS n FROM recent WHERE ttft_ms IS NOT NULL),"
     " ranks AS (SELECT source, " PERCENTILE(50, "ttft_ms") " AS ttft_p50_ms,"
     "   " PERCENTILE(95, "ttft_ms") " AS ttft_p95_ms FROM ranked GROUP BY source)"
     " SELECT name, base_url, dialect, quota_group, max_in_flight, loaded_at,"
     "  coalesce(counted.attempts, 0) AS attempts_last_hour,"
     "  coalesce(counted.failed, 0) AS failed_last_hour,"
     "  coalesce(counted.hedges, 0) AS hedges_last_hour,"
     "  ttft_p50_ms, ttft_p95_ms, counted.last_at AS last_attempt_at"
     " FROM sources LEFT JOIN counted ON counted.source = sources.name"
     "  LEFT JOIN ranks ON ranks.source = sources.name"
     " ORDER BY name"},

    {"show_config", "SELECT key, value, origin FROM config ORDER BY key"},
};
