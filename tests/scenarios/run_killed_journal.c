/*
 * run_killed_journal.c - a process is killed after each single store that it makes into the segment (killed.h):
 * as the journal is written and drained, and as an owner is remembered.
 */
#include "tests/scenarios/killed.h"

#include "base/hash.h"
#include "shared/journal.h"
#include "shared/owners.h"

/* ---- the journal ------------------------------------------------------------------------------ */

/* Every byte tells whether the row is whole. */
static void fill(void *record, size_t size, char with)
{
    memset(record, with, size);
}

static void write_rows(struct gate *own)
{
    struct call_record call;
    struct attempt_record attempt;
    char detail[sizeof((struct event_record *)0)->detail];

    fill(&call, sizeof call, 'c');
    fill(&attempt, sizeof attempt, 'a');
    fill(detail, sizeof detail, 'e');
    detail[sizeof detail - 1] = '\0';
    gate_journal_call(own, &call, &attempt);
    gate_journal_event(own, 7, "told", detail);
}

static void check_bytes(const void *record, size_t size, char with)
{
    for (size_t i = 0; i < size; i++)
        assert_int_equal(((const char *)record)[i], with);
}

/* What lies ready is whole; a call comes with its attempt. Attempts and calls are one booking, but a row of
 * the attempt alone says nothing wrong. */
static void check_rows(void)
{
    const struct journal_count ready = journal_ready(killed_journal());
    const struct call_record *call = journal_peek_call(killed_journal(), 0);
    const struct attempt_record *attempt = journal_peek_attempt(killed_journal(), 0);
    const struct event_record *event;

    assert_in_range(ready.attempts, ready.calls, 1);
    if (attempt)
        check_bytes(attempt, sizeof *attempt, 'a');
    if (call)
        check_bytes(call, sizeof *call, 'c');
    for (uint64_t i = 0; (event = journal_peek_event(killed_journal(), i)) != NULL; i++)
        if (strcmp(event->name, "told") == 0) {
            assert_int_equal(i, 0);
            assert_int_equal(event->wall_ms, 7);
            assert_int_equal(strspn(event->detail, "e"), sizeof event->detail - 1);
        }
}

static void discard(void)
{
    journal_discard(killed_journal());
}

static void m3_rows_for_the_ledger(void **state)
{
    const struct killed_scene scene = {.act = write_rows, .before = discard, .after = check_rows};

    (void)state;
    killed_at_every_store(&scene, 20);
}

static void begin_drain(void)
{
    discard();
    write_rows(&killed_gate);
}

/* As the ledger does after COMMIT. */
static void drain(struct gate *own)
{
    struct journal_count ready;

    (void)own;
    INVARIANT(journal_sit_down(killed_journal()));
    ready = journal_ready(killed_journal());
    journal_advance(killed_journal(), &ready);
    journal_stand_up(killed_journal());
}

/* The seat is free for the next, who finds what was not passed over, whole: it may write a row again that is
 * committed, and never misses one. */
static void check_drained(void)
{
    check_rows();
    assert_true(journal_sit_down(killed_journal()));
    journal_stand_up(killed_journal());
    drain(&killed_gate);
    assert_int_equal(journal_ready(killed_journal()).calls, 0);
    assert_int_equal(journal_ready(killed_journal()).attempts, 0);
}

static void m3_the_drainer_of_the_journal(void **state)
{
    const struct killed_scene scene = {.act = drain, .before = begin_drain, .after = check_drained};

    (void)state;
    killed_at_every_store(&scene, 5);
}

/* ---- owners of ids ---------------------------------------------------------------------------- */

static char ids[5][16]; /* of one group of four places */

static void find_ids(void)
{
    uint64_t group = 0;

    for (unsigned number = 0, found = 0; found < LENGTH(ids); number++) {
        uint64_t hash;

        (void)snprintf(ids[found], sizeof ids[0], "resp_%u", number);
        hash = hash_bytes(ids[found], strlen(ids[found])) % (OWNERS_MAX / 4);
        group = found == 0 ? hash : group;
        found += hash == group;
    }
}

static void begin_owners(void)
{
    memset(segment_instance(&killed_segment)->owners, 0,
           sizeof segment_instance(&killed_segment)->owners);
    for (unsigned i = 0; i < 4; i++)
        owner_remember(&killed_gate, ids[i], i, killed_now_ns + i * NS_PER_S);
}

static void remember(struct gate *own)
{
    owner_remember(own, ids[4], 4, killed_now_ns + 4 * NS_PER_S);
}

/* Nobody is taken for another; only the oldest gives way. */
static void check_owners(void)
{
    const uint32_t newest = owner_of(&killed_gate, ids[4]);
    const uint32_t oldest = owner_of(&killed_gate, ids[0]);

    for (unsigned i = 1; i < 4; i++)
        assert_int_equal(owner_of(&killed_gate, ids[i]), i);
    assert_true(newest == NO_INDEX || newest == 4);
    assert_true(oldest == 0 || oldest == NO_INDEX);
    remember(&killed_gate);
    assert_int_equal(owner_of(&killed_gate, ids[4]), 4);
}

static void m3_the_owner_of_an_id(void **state)
{
    const struct killed_scene scene = {
        .act = remember, .before = begin_owners, .after = check_owners};

    (void)state;
    find_ids();
    killed_at_every_store(&scene, 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(m3_rows_for_the_ledger, killed_open, killed_close),
        cmocka_unit_test_setup_teardown(m3_the_drainer_of_the_journal, killed_open, killed_close),
        cmocka_unit_test_setup_teardown(m3_the_owner_of_an_id, killed_open, killed_close),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
