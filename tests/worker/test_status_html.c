/* test_status_html.c - the status page for browsers (O3): well-formed, self-contained, harmless. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/worker/snapshots.h"
#include "worker/status_html.h"

static struct snapshot snapshot;
static struct snapshot_place places[SNAPSHOT_PLACES];
static struct text out;

static int set_up(void **state)
{
    (void)state;
    snapshot_fill(&snapshot, places);
    text_init(&out, 1 << 20);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    text_release(&out);
    return 0;
}

static const char *page(bool full)
{
    const struct status_view view = {.full = full, .now_wall_ms = SNAPSHOT_WALL_MS};

    text_clear(&out);
    status_html(&snapshot, &view, &out);
    assert_false(out.overflowed);
    return text_string(&out);
}

static bool is_void(const char *name)
{
    return strcmp(name, "meta") == 0 || strcmp(name, "!doctype") == 0;
}

/* Every element that begins ends, in order; <style> has no tags in it. */
static void assert_well_formed(const char *html)
{
    char open[64][16];
    size_t depth = 0;

    for (const char *at = strchr(html, '<'); at; at = strchr(at + 1, '<')) {
        bool ends = at[1] == '/';
        const char *begin = at + 1 + ends;
        size_t length = strcspn(begin, " >\n");
        char name[16];

        assert_true(length > 0 && length < sizeof name);
        memcpy(name, begin, length);
        name[length] = '\0';
        assert_non_null(strchr(at, '>'));
        if (ends) {
            assert_true(depth > 0);
            assert_string_equal(name, open[--depth]);
        } else if (!is_void(name)) {
            assert_true(depth < 64);
            memcpy(open[depth++], name, sizeof name);
        }
    }
    assert_int_equal(depth, 0);
}

static void o3_page_shows_slots_queue_processes_and_refusals(void **state)
{
    const char *html = page(false);

    (void)state;
    assert_well_formed(html);
    assert_non_null(strstr(html, "<div class=\"big\">2 / 8</div>"));
    assert_non_null(strstr(html, "at most 100; the first for 4.0&nbsp;s"));
    assert_non_null(strstr(html, "<td class=\"n\">2</td><td class=\"n\">1.5&nbsp;s</td>"));
    assert_non_null(strstr(html, "5 of 64"));
    assert_non_null(strstr(html, "draining, of another instance"));
    assert_non_null(strstr(html, "gate default <b class=\"good\">on</b>"));
    assert_non_null(strstr(html, "<p class=\"bad\">to be written; 10 lost"));
}

static void sources_are_shown_with_what_keeps_calls_away_H7(void **state)
{
    const char *html = page(false);

    (void)state;
    assert_null(strstr(html, "<h2>Sources</h2>"));
    snapshot_add_sources(&snapshot);
    (void)text_copy(snapshot.sources[1].out_reason, sizeof snapshot.sources[1].out_reason, "<b>&x");
    html = page(false);
    assert_well_formed(html);
    assert_non_null(strstr(html, "<td>openai</td><td>acme</td><td class=\"good\">ready</td>"
                                 "<td>–</td><td class=\"n\">7</td>"
                                 "<td class=\"n\">96.3&nbsp;%</td>"
                                 "<td class=\"n\">2.5&nbsp;s</td>"
                                 "<td class=\"n\">2 of 40</td></tr>"));
    assert_non_null(strstr(html, "<td class=\"bad\">open, 4&nbsp;s</td><td>&lt;b&gt;&amp;x</td>"));
}

static void o3_page_needs_nothing_from_elsewhere_and_no_script(void **state)
{
    static const char *const foreign[] = {"http:",   "https:", "src=",   "url(", "@import",
                                          "<script", "<link",  "onload", "//"};
    const char *html = page(true);

    (void)state;
    for (size_t i = 0; i < LENGTH(foreign); i++)
        assert_null(strstr(html, foreign[i]));
    assert_non_null(strstr(html, "<meta http-equiv=\"refresh\" content=\"2\">"));
    assert_non_null(strstr(html, "prefers-color-scheme:dark"));
    assert_non_null(strstr(html, "width=device-width"));
}

static void what_clients_send_cannot_become_markup(void **state)
{
    const char *html;

    (void)state;
    snapshot_make_hostile(&snapshot);
    html = page(true);
    assert_well_formed(html);
    assert_null(strstr(html, "<script"));
    assert_non_null(strstr(html, "&lt;script&gt;&quot;&#39;&amp;"));
}

static void long_lists_are_cut_unless_full(void **state)
{
    (void)state;
    snapshot_make_long(&snapshot, 60);
    assert_non_null(strstr(page(false), "and 35 more</a>"));
    assert_well_formed(page(false));
    assert_null(strstr(page(true), "more</a>"));
}

static void an_empty_machine_has_a_page(void **state)
{
    const char *html;

    (void)state;
    memset(&snapshot, 0, sizeof snapshot);
    html = page(false);
    assert_well_formed(html);
    assert_non_null(strstr(html, "Nobody waits."));
    assert_non_null(strstr(html, "No master process runs."));
    assert_non_null(strstr(html, "no limit"));
    assert_null(strstr(html, "nan"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(o3_page_shows_slots_queue_processes_and_refusals, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(sources_are_shown_with_what_keeps_calls_away_H7, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(o3_page_needs_nothing_from_elsewhere_and_no_script, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(what_clients_send_cannot_become_markup, set_up, tear_down),
        cmocka_unit_test_setup_teardown(long_lists_are_cut_unless_full, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_empty_machine_has_a_page, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
