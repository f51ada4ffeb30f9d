/* test_answer_events.c - what types of events mean (H4, I7); whole streams: test_pictures.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/check.h"
#include "worker/answer_events.h"

static void I7_events_that_only_accompany_are_unknown(void **state)
{
    static const char *const types[] = {
        "",     "response.created",    "response.in_progress", "response.output_item.added",
        "ping", "content_block_start", "content_block_stop",   "message_start",
    };

    (void)state;
    for (size_t i = 0; i < LENGTH(types); i++) {
        assert_null(answer_event_find(types[i]));
        assert_false(answer_event_is_piece(types[i]));
    }
}

static void H4_pieces_are_known_by_their_ending(void **state)
{
    (void)state;
    assert_true(answer_event_is_piece("response.output_text.delta"));
    assert_true(answer_event_is_piece("response.mcp_call.arguments_delta"));
    assert_true(answer_event_is_piece("response.output_text.done"));
    assert_false(answer_event_is_piece("response.output_text.delta.x"));
    assert_false(answer_event_is_piece("delta"));
}

static void H4_ends_errors_and_content(void **state)
{
    (void)state;
    assert_true(answer_event_find("response.completed")->content);
    assert_true(answer_event_find("response.completed")->terminal);
    assert_true(answer_event_find("response.failed")->error);
    assert_false(answer_event_find("response.failed")->content);
    assert_true(answer_event_find("error")->error);
    assert_false(answer_event_find("message_stop")->content);
    assert_true(answer_event_find("message_stop")->terminal);
    assert_true(answer_event_find("content_block_delta")->content);
    assert_true(answer_event_find("image_generation.partial_image")->content);
    assert_false(answer_event_find("image_generation.partial_image")->root);
    assert_true(answer_event_find("image_edit.completed")->root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(I7_events_that_only_accompany_are_unknown),
        cmocka_unit_test(H4_pieces_are_known_by_their_ending),
        cmocka_unit_test(H4_ends_errors_and_content),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
