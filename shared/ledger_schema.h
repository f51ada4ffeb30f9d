/*
 * ledger_schema.h - the ledger's tables, its views, and the way from each version to the next.
 *
 * penstock-ledger(5) documents every table and view; user_version is the number of migrations done.
 */
#ifndef SHARED_LEDGER_SCHEMA_H
#define SHARED_LEDGER_SCHEMA_H

/* "PNST": what file(1) and we tell a ledger from another database by. */
#define LEDGER_APPLICATION_ID 0x504e5354

/* Migration n leads from user_version n to n + 1; each is one script. */
#define LEDGER_MIGRATIONS 3
extern const char *const ledger_migrations[LEDGER_MIGRATIONS];

/* Tokens, in all, of an attempt that its call's row tells; NULL = not known. */
#define LEDGER_TOLD_TOKENS "coalesce(tokens_in + coalesce(tokens_out, 0), tokens_out)"

/* All views are dropped and made anew after the last migration: they hold nothing, so they have no
 * versions of their own. */
#define LEDGER_VIEWS 12
extern const struct ledger_view {
    const char *name, *query;
} ledger_views[LEDGER_VIEWS];

#endif
