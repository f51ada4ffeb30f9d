/* test_segment.c - the shared memory object: one truth, whoever comes and goes (M6, M8, M9). */
#include "tests/shared/gate_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static char directory[] = "/tmp/penstock-test-XXXXXX";
static char gate_name[40];
static struct text why;

static int make(void **state)
{
    (void)state;
    (void)snprintf(directory, sizeof directory, "/tmp/penstock-test-XXXXXX");
    (void)snprintf(gate_name, sizeof gate_name, "unit-%d", (int)getpid());
    text_init(&why, 500);
    return mkdtemp(directory) ? 0 : -1;
}

static int drop(void **state)
{
    char path[128];

    (void)state;
    segment_unlink(gate_name);
    (void)snprintf(path, sizeof path, "%s/gate-%s.presence", directory, gate_name);
    (void)unlink(path);
    (void)rmdir(directory);
    text_release(&why);
    return 0;
}

static bool attach(struct segment *segment)
{
    const struct segment_place place = {.gate = gate_name, .runtime_directory = directory};

    text_clear(&why);
    return segment_attach(segment, &place, &why);
}

static void it_survives_those_who_use_it(void **state)
{
    struct segment first;
    struct segment second;
    uint64_t boot;
    int id;

    (void)state;
    assert_true(attach(&first));
    boot = segment_core(&first)->boot;
    id = segment_core(&first)->semaphore_id;
    segment_core(&first)->limit = 8;
    segment_detach(&first);
    assert_true(attach(&second));
    assert_true(segment_core(&second)->boot == boot);
    assert_int_equal(segment_core(&second)->semaphore_id, id);
    assert_int_equal(segment_core(&second)->limit, 8);
    fixture_close(&second);
}

static void two_processes_see_the_same(void **state)
{
    struct segment segment;
    int status;
    pid_t pid;

    (void)state;
    assert_true(attach(&segment));
    pid = fork();
    if (pid == 0) {
        struct segment other;

        if (!attach(&other))
            _exit(1);
        segment_core(&other)->limit = 77;
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_int_equal(segment_core(&segment)->limit, 77);
    fixture_close(&segment);
}

static void m9_a_removed_name_never_makes_a_second_truth(void **state)
{
    struct segment segment;
    struct segment other;

    (void)state;
    assert_true(attach(&segment));
    assert_true(segment_is_linked(&segment));
    segment_unlink(gate_name);
    assert_false(segment_is_linked(&segment));
    assert_false(attach(&other));
    assert_non_null(
        strstr(text_string(&why), "was removed while processes that use it still live"));
    fixture_close(&segment);
    assert_true(attach(&other)); /* nobody lives any more */
    fixture_close(&other);
}

static void m6_another_namespace_and_m8_another_version_are_refused(void **state)
{
    struct segment segment;
    struct segment other;

    (void)state;
    assert_true(attach(&segment));
    segment_core(&segment)->ipc_namespace++;
    assert_false(attach(&other));
    assert_non_null(strstr(text_string(&why), "namespace"));
    segment_core(&segment)->ipc_namespace--;
    segment_core(&segment)->core_version++;
    assert_false(attach(&other));
    assert_non_null(strstr(text_string(&why), "core version"));
    segment_core(&segment)->core_version--;
    segment_core(&segment)->total_bytes -= sizeof(uint64_t);
    assert_false(attach(&other));
    assert_non_null(strstr(text_string(&why), "another build"));
    segment_core(&segment)->core_version++;
    fixture_close(&segment);
    assert_true(attach(&other)); /* of another version, used by nobody: made anew */
    assert_int_equal(segment_core(&other)->core_version, CORE_VERSION);
    fixture_close(&other);
}

static void a_shorter_object_is_never_mapped(void **state)
{
    struct segment segment;
    struct segment other;

    (void)state;
    assert_true(attach(&segment));
    assert_int_equal(semctl(segment_core(&segment)->semaphore_id, 0, IPC_RMID), 0);
    assert_int_equal(ftruncate(segment.fd, 4096), 0);
    assert_false(attach(&other));
    assert_non_null(strstr(text_string(&why), "another version"));
    assert_int_equal(ftruncate(segment.fd, sizeof(struct segment_area)), 0);
    segment_detach(&segment);
}

static void another_users_object_is_refused(void **state)
{
    struct segment segment;
    struct segment other;

    (void)state;
    if (geteuid() != 0)
        skip(); /* only root can give a file away */
    assert_true(attach(&segment));
    assert_int_equal(fchown(segment.fd, 65534, 65534), 0);
    assert_false(attach(&other));
    assert_non_null(strstr(text_string(&why), "another user"));
    assert_int_equal(fchown(segment.fd, 0, 0), 0);
    fixture_close(&segment);
}

static void a_half_made_segment_is_made_again(void **state)
{
    struct segment segment;

    (void)state;
    assert_true(attach(&segment));
    atomic_store(&segment_core(&segment)->magic, 0);
    fixture_close(&segment);
    assert_true(attach(&segment));
    assert_true(atomic_load(&segment_core(&segment)->magic) == SEGMENT_MAGIC);
    fixture_close(&segment);
}

static void an_instance_is_known_by_its_state_directory(void **state)
{
    struct segment segment;
    uint32_t first;

    (void)state;
    assert_true(attach(&segment));
    assert_true(segment_join_instance(&segment, "/var/lib/a", 1, &why));
    first = segment.instance;
    assert_true(segment_join_instance(&segment, "/var/lib/b", 1, &why));
    assert_int_not_equal(segment.instance, first);
    assert_true(segment_join_instance(&segment, "/var/lib/a", 1, &why));
    assert_int_equal(segment.instance, first);
    fixture_close(&segment);
}

static void a_gates_name_is_checked(void **state)
{
    static const char *const bad[] = {"", "a/b", "a b", "..",
                                      "01234567890123456789012345678901234567890"};
    struct segment segment;

    (void)state;
    for (size_t i = 0; i < LENGTH(bad); i++) {
        const struct segment_place place = {.gate = bad[i], .runtime_directory = directory};

        text_clear(&why);
        assert_false(segment_attach(&segment, &place, &why));
        assert_non_null(strstr(text_string(&why), "a gate's name"));
    }
}

#define SEGMENT_TEST(name) cmocka_unit_test_setup_teardown(name, make, drop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        SEGMENT_TEST(it_survives_those_who_use_it),
        SEGMENT_TEST(two_processes_see_the_same),
        SEGMENT_TEST(m9_a_removed_name_never_makes_a_second_truth),
        SEGMENT_TEST(m6_another_namespace_and_m8_another_version_are_refused),
        SEGMENT_TEST(a_shorter_object_is_never_mapped),
        SEGMENT_TEST(another_users_object_is_refused),
        SEGMENT_TEST(a_half_made_segment_is_made_again),
        SEGMENT_TEST(an_instance_is_known_by_its_state_directory),
        SEGMENT_TEST(a_gates_name_is_checked),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
