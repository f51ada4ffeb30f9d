/* body_reader.c - a request's body for one attempt; see body_reader.h. */
#include "worker/body_reader.h"

#include <string.h>

void body_reader_init(struct body_reader *reader, const struct spool *spool,
                      const struct body_edit *edit)
{
    static const struct body_edit none = {.bytes = -1};

    *reader = (struct body_reader){.spool = spool, .edit = edit ? *edit : none};
    REQUIRE(reader->edit.bytes < 0 ||
            (reader->edit.at >= 0 && reader->edit.at <= spool->bytes - reader->edit.bytes));
}

int64_t body_reader_bytes(const struct body_reader *reader)
{
    const struct body_edit *edit = &reader->edit;

    return reader->spool->bytes + (edit->bytes < 0 ? 0 : (int64_t)edit->text_bytes - edit->bytes);
}

/* At most size bytes from the body as it came, from `at` up to `end`. */
static ssize_t read_original(const struct body_reader *reader, int64_t at, int64_t end, char *bytes,
                             size_t size)
{
    if (size > (uint64_t)(end - at))
        size = (size_t)(end - at);
    return spool_read_at(reader->spool, at, bytes, size);
}

ssize_t body_reader_read(void *context, char *bytes, size_t size)
{
    struct body_reader *reader = context;
    const struct body_edit *edit = &reader->edit;
    int64_t at = reader->read_at;
    int64_t edit_end = edit->at + (int64_t)edit->text_bytes; /* in the edited body */
    ssize_t n;

    if (edit->bytes < 0) {
        n = read_original(reader, at, reader->spool->bytes, bytes, size);
    } else if (at < edit->at) {
        n = read_original(reader, at, edit->at, bytes, size);
    } else if (at < edit_end) {
        if (size > (uint64_t)(edit_end - at))
            size = (size_t)(edit_end - at);
        memcpy(bytes, edit->text + (at - edit->at), size);
        n = (ssize_t)size;
    } else {
        n = read_original(reader, at - edit_end + edit->at + edit->bytes, reader->spool->bytes,
                          bytes, size);
    }
    if (n > 0)
        reader->read_at += n;
    return n;
}
