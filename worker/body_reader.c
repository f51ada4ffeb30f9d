/* body_reader.c - a request's body for one attempt; see body_reader.h. */
#include "worker/body_reader.h"

#include "base/check.h"

#include <string.h>

void body_reader_init(struct body_reader *reader, const struct spool *spool,
                      const struct body_edit *edit)
{
    *reader = (struct body_reader){.spool = spool};
    if (edit)
        body_reader_edit(reader, edit);
}

void body_reader_edit(struct body_reader *reader, const struct body_edit *edit)
{
    struct body_edit *edits = reader->edits;
    size_t place = reader->edit_count;

    if (edit->bytes < 0)
        return;
    REQUIRE(reader->edit_count < BODY_EDITS_MAX && reader->read_at == 0);
    REQUIRE(edit->at >= 0 && edit->at <= reader->spool->bytes - edit->bytes);
    for (; place > 0 && edits[place - 1].at > edit->at; place--)
        edits[place] = edits[place - 1];
    edits[place] = *edit;
    reader->edit_count++;
    for (size_t i = 1; i < reader->edit_count; i++)
        REQUIRE(edits[i - 1].at + edits[i - 1].bytes <= edits[i].at);
}

int64_t body_reader_bytes(const struct body_reader *reader)
{
    int64_t bytes = reader->spool->bytes;

    for (size_t i = 0; i < reader->edit_count; i++)
        bytes += (int64_t)reader->edits[i].text_bytes - reader->edits[i].bytes;
    return bytes;
}

static size_t at_most(size_t size, int64_t bytes)
{
    return size > (uint64_t)bytes ? (size_t)bytes : size;
}

ssize_t body_reader_read(void *context, char *bytes, size_t size)
{
    struct body_reader *reader = context;
    const struct body_edit *edit = reader->edits;
    const struct body_edit *end = edit + reader->edit_count;
    int64_t at = reader->read_at; /* in the edited body, then in the body behind the edits passed */
    int64_t original = 0;         /* the same place in the body as it came */
    ssize_t n;

    /* An edited body is a stretch of the original, an edit's text, a stretch, ... */
    for (; edit < end && at >= edit->at - original + (int64_t)edit->text_bytes; edit++) {
        at -= edit->at - original + (int64_t)edit->text_bytes;
        original = edit->at + edit->bytes;
    }
    if (edit < end && at >= edit->at - original) {
        at -= edit->at - original;
        size = at_most(size, (int64_t)edit->text_bytes - at);
        memcpy(bytes, edit->text + at, size);
        n = (ssize_t)size;
    } else {
        int64_t from = original + at;

        size = at_most(size, (edit < end ? edit->at : reader->spool->bytes) - from);
        n = spool_read_at(reader->spool, from, bytes, size);
    }
    if (n > 0)
        reader->read_at += n;
    return n;
}
