/* usage_option.c - asks a stream for its usage; see usage_option.h. */
#include "worker/usage_option.h"

#include <string.h>

bool usage_option_edit(const struct intent *intent, struct body_edit *ret)
{
    /* A body with a stream has a member, so that what is put before it ends with a comma. */
    static const char *const texts[] = {
        [USAGE_UNFIT] = NULL,
        [USAGE_ASKED] = NULL,
        [USAGE_BODY] = "\"stream_options\":{\"include_usage\":true},",
        [USAGE_EMPTY] = "\"include_usage\":true",
        [USAGE_OPTIONS] = "\"include_usage\":true,",
        [USAGE_NULL] = "{\"include_usage\":true}",
        [USAGE_VALUE] = "true",
    };
    const char *text = texts[intent->usage];

    if (!text)
        return false;
    *ret = (struct body_edit){.at = intent->usage_at,
                              .bytes = intent->usage_bytes,
                              .text = text,
                              .text_bytes = strlen(text)};
    return true;
}
