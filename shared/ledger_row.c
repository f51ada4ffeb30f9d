/* ledger_row.c - values into a prepared statement; see ledger_row.h. */
#include "shared/ledger_row.h"

#include <string.h>

#define TEXT_MAX 255U /* bytes of a name that is made clean */
#define EACH_BYTE UINT64_C(0x0101010101010101)
#define HIGH_BITS (EACH_BYTE << 7)

void row_begin(struct row *row, struct ledger *ledger, enum ledger_statement which)
{
    row->ledger = ledger;
    row->statement = ledger->statements[which];
    row->column = 0;
    row->time_count = 0;
}

bool row_end(struct row *row)
{
    bool ok = sqlite3_step(row->statement) == SQLITE_DONE ||
              ledger_failed(row->ledger, "the ledger takes no row");

    (void)sqlite3_reset(row->statement);
    (void)sqlite3_clear_bindings(row->statement);
    return ok;
}

/* A failed bind (out of memory) leaves NULL, which the step then refuses or keeps: never a crash.
 */
void row_number(struct row *row, int64_t number)
{
    (void)sqlite3_bind_int64(row->statement, ++row->column, number);
}

void row_null(struct row *row)
{
    row->column++; /* a cleared binding is NULL */
}

void row_known(struct row *row, int64_t number)
{
    if (number < 0)
        row_null(row);
    else
        row_number(row, number);
}

void row_static(struct row *row, const char *text)
{
    (void)sqlite3_bind_text(row->statement, ++row->column, text, -1, SQLITE_STATIC);
}

/* Only bytes from 0x20 to 0x7e? Eight at a time: in those below, in 0x7f and in those above the highest
 * bit is set by one of the three. */
static bool is_plain(const char *bytes, size_t length)
{
    uint64_t seen = 0;
    size_t at = 0;

    for (; length - at >= 8; at += 8) {
        uint64_t word;

        memcpy(&word, bytes + at, sizeof word);
        seen |= word | (word - 0x20 * EACH_BYTE) | (word + EACH_BYTE);
    }
    for (; at < length; at++) {
        unsigned char c = (unsigned char)bytes[at];

        seen |= c < 0x20 || c > 0x7e ? HIGH_BITS : 0;
    }
    return (seen & HIGH_BITS) == 0;
}

/* Length of the printable UTF-8 sequence at bytes; 0: there is none. */
static size_t printable_length(const unsigned char *bytes, size_t length)
{
    unsigned char lead = bytes[0];
    size_t need = lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
    uint32_t rune = need == 1 ? lead : lead & (0x7fU >> need);
    static const uint32_t smallest[] = {0, 0x20, 0xa0, 0x800, 0x10000}; /* shorter is over-long */

    if ((lead >= 0x80 && lead < 0xc2) || lead > 0xf4 || need > length)
        return 0;
    for (size_t i = 1; i < need; i++) {
        if ((bytes[i] & 0xc0U) != 0x80)
            return 0;
        rune = rune << 6 | (bytes[i] & 0x3fU);
    }
    if (rune < smallest[need] || rune == 0x7f || rune > 0x10ffff || rune >> 11 == 0x1b)
        return 0;
    return need;
}

static void clean_into(char *out, const char *bytes, size_t length)
{
    for (size_t i = 0; i < length;) {
        size_t step = printable_length((const unsigned char *)bytes + i, length - i);

        if (step == 0) {
            *out++ = '?';
            i++;
        }
        for (; step > 0; step--)
            *out++ = bytes[i++];
    }
    *out = '\0';
}

void row_text(struct row *row, const char *bytes, size_t size)
{
    size_t length = strnlen(bytes, size);
    char clean[TEXT_MAX + 1];

    if (is_plain(bytes, length)) {
        (void)sqlite3_bind_text(row->statement, ++row->column, bytes, (int)length, SQLITE_STATIC);
        return;
    }
    clean_into(clean, bytes, length < TEXT_MAX ? length : TEXT_MAX);
    (void)sqlite3_bind_text(row->statement, ++row->column, clean, -1, SQLITE_TRANSIENT);
}

void row_known_text(struct row *row, const char *bytes, size_t size)
{
    if (*bytes == '\0')
        row_null(row);
    else
        row_text(row, bytes, size);
}

void row_time(struct row *row, int64_t wall_ms)
{
    char *text;

    INVARIANT(row->time_count < ROW_TIMES_MAX);
    text = row->times[row->time_count++];
    clock_iso(wall_ms, text);
    row_static(row, text);
}
