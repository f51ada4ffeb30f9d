/* test_flow_state.c - what was learned, through a file and back; and files that are none of ours (F5). */
#include "tests/shared/flow_fixture.h"
#include "tests/worker/loading.h"

#include "base/hash.h"
#include "worker/flow_state.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#define WALL_MS INT64_C(1800000000000)
#define NOW_NS (5000 * NS_PER_S)

static struct segment segment;
static struct gate gate;
static struct flow_view views[FLOWS_MAX];
static struct flow_state_entry entries[FLOWS_MAX];
static struct text content, why;
static char directory[64], path[96];

static void fill_view(struct flow_view *view, const char *group, const char *model)
{
    *view = (struct flow_view){
        .strategy = FLOW_STRATEGY_ADAPTIVE,
        .adaptive_state = ADAPTIVE_PROBING,
        .learned = {.watermark = 41.25,
                    .pace = 1.0 / 3,
                    .growth = 0.05,
                    .requests_share = 0.9,
                    .tokens_share = 1,
                    .tokens_learned = 123456.789,
                    .mean_output = 301.5,
                    .tpt_base_s = 0.0123},
        .estimate = {.latin_latin = 17.0 / 3,
                     .latin_script = 0.1,
                     .script_script = 2.0 / 7,
                     .latin_used = 5.9,
                     .script_used = 1.0 / 3,
                     .ratio_samples = 33,
                     .output_samples = 44,
                     .output_parts = INT64_C(1) << 40},
        .requests_told = 60,
        .units_told = INT64_MAX,
        .idle_ns = 90 * NS_PER_S,
    };
    (void)text_copy(view->quota_group, NAME_SIZE, group);
    (void)text_copy(view->model, NAME_SIZE, model);
}

static int set_up(void **state)
{
    (void)state;
    fixture_open(&segment, &gate, 2, 5);
    (void)snprintf(directory, sizeof directory, "/tmp/penstock-test-state.XXXXXX");
    assert_non_null(mkdtemp(directory));
    (void)snprintf(path, sizeof path, "%s/" FLOW_STATE_NAME, directory);
    text_init(&content, FLOW_STATE_BYTES_MAX);
    text_init(&why, 800);
    fill_view(&views[0], "acme", "qwen-max");
    fill_view(&views[1], "acme", "a b%\n\"\xc3\xa9=");
    fill_view(&views[2], "elsewhere", "qwen-max");
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    (void)unlink(path);
    assert_int_equal(rmdir(directory), 0); /* nothing else was left there */
    text_release(&content);
    text_release(&why);
    fixture_close(&segment);
    return 0;
}

static unsigned decode(const char *bytes, int64_t now_wall_ms)
{
    unsigned count;

    text_clear(&why);
    if (flow_state_decode(bytes, now_wall_ms, entries, &count, &why)) {
        assert_int_equal(why.length, 0);
        return count;
    }
    assert_true(why.length > 0);
    assert_int_equal(count, 0);
    return UINT32_MAX;
}

static void what_is_written_comes_back_to_the_last_bit_F5(void **state)
{
    (void)state;
    flow_state_encode(views, 3, WALL_MS, &content);
    assert_int_equal(decode(text_string(&content), WALL_MS + 10000), 3);
    for (unsigned i = 0; i < 3; i++) {
        assert_string_equal(entries[i].quota_group, views[i].quota_group);
        assert_string_equal(entries[i].model, views[i].model);
        assert_memory_equal(&entries[i].memory.learned, &views[i].learned, sizeof views[i].learned);
        assert_memory_equal(&entries[i].memory.estimate, &views[i].estimate,
                            sizeof views[i].estimate);
        assert_int_equal(entries[i].memory.requests_told, 60);
        assert_true(entries[i].memory.units_told == INT64_MAX);
        assert_int_equal(entries[i].memory.age_ns, 100 * NS_PER_S);
    }
    assert_int_equal(decode(text_string(&content), WALL_MS - 100000), 3);
    assert_int_equal(entries[0].memory.age_ns, -1); /* the clock went back */
}

static void what_has_learned_nothing_is_left_out(void **state)
{
    (void)state;
    views[0].adaptive_state = ADAPTIVE_NONE;
    views[0].estimate = (struct estimate_row){0};
    views[0].requests_told = views[0].units_told = 0;
    views[1].idle_ns = FLOW_ESTIMATE_MEMORY_NS + 1;
    flow_state_encode(views, 3, WALL_MS, &content);
    assert_int_equal(decode(text_string(&content), WALL_MS), 1);
    assert_string_equal(entries[0].quota_group, "elsewhere");
}

/* As many as there can be, with the longest names that there can be. */
static void the_largest_state_fits(void **state)
{
    (void)state;
    for (unsigned i = 0; i < FLOWS_MAX; i++) {
        fill_view(&views[i], "", "");
        memset(views[i].quota_group, '\n', NAME_SIZE - 1);
        memset(views[i].model, '%', NAME_SIZE - 1);
        views[i].learned.pace = -1.2345678901234567e-300;
    }
    flow_state_encode(views, FLOWS_MAX, WALL_MS, &content);
    assert_false(content.overflowed);
    assert_int_equal(decode(text_string(&content), WALL_MS), FLOWS_MAX);
    assert_string_equal(entries[FLOWS_MAX - 1].quota_group, views[0].quota_group);
}

/* Every byte that is changed, and every end that is cut off, is noticed. */
static void damage_is_noticed_wherever_it_is_F5(void **state)
{
    char *bytes;

    (void)state;
    flow_state_encode(views, 2, WALL_MS, &content);
    bytes = strdup(text_string(&content));
    assert_non_null(bytes);
    for (size_t i = 0; i < content.length; i++) {
        bytes[i] ^= 1;
        assert_int_equal(decode(bytes, WALL_MS), UINT32_MAX);
        bytes[i] ^= 1;
    }
    for (size_t i = content.length; i-- > 0;) {
        bytes[i] = '\0';
        assert_int_equal(decode(bytes, WALL_MS), UINT32_MAX);
    }
    free(bytes);
}

/* What another version has learned means nothing here, and is begun anew: with its right check sum, as it
 * would stand there after an upgrade or a downgrade. */
static void other_versions_are_not_taken_F5(void **state)
{
    (void)state;
    for (char version = '0'; version <= '9'; version++) {
        char *end;

        text_clear(&content);
        flow_state_encode(views, 2, WALL_MS, &content);
        char *bytes = strdup(text_string(&content));

        assert_non_null(bytes);
        bytes[strlen("penstock flow state ")] = version;
        end = strstr(bytes, "end flows=");
        assert_non_null(end);
        (void)sprintf(end, "end flows=2 check=%016llx\n",
                      (unsigned long long)hash_bytes(bytes, (size_t)(end - bytes)));
        assert_int_equal(decode(bytes, WALL_MS), version == '3' ? 2 : UINT32_MAX);
        free(bytes);
    }
}

static void foreign_files_are_none_of_ours_F5(void **state)
{
    static const char *const foreign[] = {
        "",
        "\n",
        "{\"flows\":[]}",
        "penstock flow state 1\nend flows=0 check=0000000000000000\n",
        "penstock flow state 3\nend flows=0 check=0000000000000000\n",
        "penstock flow state 3\n",
        "penstock flow state 3\nflow group=a model=b\n",
        "penstock flow state 3\nflow group=%0 model=b used_ms=1\n",
        "penstock flow state 3\nflow group=%00 model=b used_ms=1\n",
        "penstock flow state 3\nflow group= model= used_ms=1 watermark=nan\n",
        "penstock flow state 3\nflow group= model= used_ms=99999999999999999999\n",
    };

    (void)state;
    for (size_t i = 0; i < LENGTH(foreign); i++)
        assert_int_equal(decode(foreign[i], WALL_MS), UINT32_MAX);
}

/* ---- the file -------------------------------------------------------------------------------- */

static unsigned restore(const char *flow)
{
    char conf[600];
    struct loading loading;
    unsigned restored;

    (void)snprintf(conf, sizeof conf,
                   "[penstock]\nstate_directory = %s\n[source a]\nbase_url = https://a.example\n"
                   "quota_group = acme\nrpm = 600\ntpm = 100000\n[scope main]\nsources = a\n"
                   "flow = %s\n[route r]\npath = /v1/\nscope = main\n",
                   directory, flow);
    loading = load(conf);
    if (!loading.options)
        fail_msg("%s", report_of(&loading));
    text_clear(&why);
    restored = flow_state_restore(&gate, loading.options, NOW_NS, WALL_MS, &why);
    unload(&loading);
    return restored;
}

static void save(void)
{
    text_clear(&content);
    flow_state_encode(views, 3, WALL_MS, &content);
    assert_true(flow_state_save(directory, &content, &why));
}

static void flows_that_the_configuration_knows_are_restored_F5(void **state)
{
    struct flow_view restored[FLOWS_MAX];
    struct stat status;

    (void)state;
    assert_int_equal(restore("adaptive"), 0); /* no file: nothing to say */
    assert_int_equal(why.length, 0);
    save();
    save(); /* replaces it */
    assert_int_equal(stat(path, &status), 0);
    assert_int_equal(status.st_mode & 0777, 0600);
    assert_int_equal(restore("adaptive"), 2); /* not those of the group elsewhere */
    assert_int_equal(why.length, 0);
    assert_int_equal(flow_views_locked(&gate, NOW_NS, restored), 2);
    assert_string_equal(restored[1].model, views[1].model);
    assert_true(restored[0].learned.watermark == 41.25);
    assert_int_equal(restored[0].requests_quota, 600);
    assert_int_equal(restore("adaptive"), 0); /* as after a reload */
}

static void without_flow_control_nothing_is(void **state)
{
    (void)state;
    save();
    assert_int_equal(restore("none"), 0);
    assert_int_equal(why.length, 0);
}

static void put_file(const void *bytes, size_t length)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, length), length);
    assert_int_equal(close(fd), 0);
}

static void a_file_that_cannot_be_used_is_told_and_harms_nothing_F5(void **state)
{
    static char zeroes[FLOW_STATE_BYTES_MAX + 1];

    (void)state;
    put_file("garbage", 7);
    assert_int_equal(restore("adaptive"), 0);
    assert_string_equal(text_string(&why), "it is no flow state of version 3");
    put_file(zeroes, sizeof zeroes);
    assert_int_equal(restore("adaptive"), 0);
    assert_string_equal(text_string(&why), "it is too large");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(restore("adaptive"), 0);
    assert_string_equal(text_string(&why), "it is no file");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(symlink("/dev/zero", path), 0);
    assert_int_equal(restore("adaptive"), 0);
    assert_true(why.length > 0);
    save(); /* the link is replaced, not followed */
    assert_int_equal(restore("adaptive"), 2);
}

static void what_cannot_be_written_is_told_and_leaves_nothing(void **state)
{
    (void)state;
    save();
    text_clear(&content);
    content.limit = 100;
    flow_state_encode(views, 3, WALL_MS, &content);
    assert_true(content.overflowed);
    assert_false(flow_state_save(directory, &content, &why));
    assert_int_equal(restore("adaptive"), 2); /* the old one is whole */
    assert_false(flow_state_save("/nonexistent", &content, &why));
}

int main(void)
{
#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(what_is_written_comes_back_to_the_last_bit_F5),
        TEST(what_has_learned_nothing_is_left_out),
        TEST(the_largest_state_fits),
        TEST(damage_is_noticed_wherever_it_is_F5),
        TEST(other_versions_are_not_taken_F5),
        TEST(foreign_files_are_none_of_ours_F5),
        TEST(flows_that_the_configuration_knows_are_restored_F5),
        TEST(without_flow_control_nothing_is),
        TEST(a_file_that_cannot_be_used_is_told_and_harms_nothing_F5),
        TEST(what_cannot_be_written_is_told_and_leaves_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
