/*
 * token_count.c - runs of characters of one kind, and what a run costs; see token_count.h.
 *
 * Tokenizers cut a text into words with the blank before them, numbers in threes, marks, line ends and
 * indentations first, and look for known pieces inside of these. Common words are one token, so a run
 * costs about one, and more where it is long or its pieces are seldom. The weights were fitted by least
 * squares of the relative error to o200k_base over documentation, source code, JSON and Chinese;
 * tests/worker/test_token_count.c says how good they are.
 */
#include "worker/token_count.h"

#include <string.h>

enum kind {
    NONE,
    WORD,
    NUMBER,
    BLANK,
    LINE,
    MARK,
    HAN,
    ALONE, /* no runs: each character for itself, already counted */
};

/* In thousandths of a token. */
enum weight {
    WORD_PARTS = 1000,
    WORD_SPACED_PARTS = 1040, /* with a blank before it */
    WORD_LETTER_PARTS = 55,   /* of such a word, each letter above... */
    WORD_LETTERS = 6,
    WORD_LONG_PARTS = 250, /* of any word, each letter above... */
    WORD_LONG = 12,
    CAPITALS_PARTS = 1100,
    CAPITAL_PARTS = 40,      /* each but the first */
    LETTER_WIDE_PARTS = 200, /* each letter that is not ASCII: known pieces are shorter */
    NUMBER_PARTS = 1050,     /* three digits, or less */
    BLANKS_PARTS = 1100,     /* several, or one that is not a word's */
    LINE_PARTS = 770,
    LINE_MARK_PARTS = -450, /* behind a mark: ";" and the line end are one */
    MARKS_PARTS = 1125,
    MARK_PARTS = 365, /* each but the first, up to... */
    MARKS = 8,
    MARK_WORD_PARTS = -695, /* the last one and the word behind it often are one */
    HAN_RUN_PARTS = 200,
    HAN_PARTS = 760,
    KANA_PARTS = 700,      /* Hangul, too */
    EAST_MARK_PARTS = 500, /* full-width marks, quotes, dashes */
    OTHER_PARTS = 550,     /* other scripts, arrows, lines of boxes */
    BROAD_PARTS = 1800,    /* beyond the basic plane: emoji */
};

/* Of ASCII. */
#define W WORD
#define N NUMBER
#define B BLANK
#define L LINE
#define M MARK
static const unsigned char kinds[128] = {
    M, M, M, M, M, M, M, M, M, B, L, M, M, L, M, M, M, M, M, M, M, M, M, M, M, M, M, M, M, M, M, M,
    B, M, M, M, M, M, M, M, M, M, M, M, M, M, M, M, N, N, N, N, N, N, N, N, N, N, M, M, M, M, M, M,
    M, W, W, W, W, W, W, W, W, W, W, W, W, W, W, W, W, W, W, W, W, W, W, W, W, W, W, M, M, M, M, M,
    M, W, W, W, W, W, W, W, W, W, W, W, W, W, W, W, W, W, W, W, W, W, W, W, W, W, W, M, M, M, M, M,
};
#undef W
#undef N
#undef B
#undef L
#undef M

/* ---- the cost of a run ----------------------------------------------------------------------- */

static int64_t above(int64_t length, int64_t limit)
{
    return length > limit ? length - limit : 0;
}

static int64_t word_parts(const struct token_count *count)
{
    int64_t length = count->length;
    int64_t parts = LETTER_WIDE_PARTS * count->wide;

    if (!count->lower && length > 1 && count->wide == 0)
        return CAPITALS_PARTS + CAPITAL_PARTS * (length - 1);
    parts += WORD_LONG_PARTS * above(length, WORD_LONG);
    if (count->before != BLANK)
        return parts + WORD_PARTS;
    return parts + WORD_SPACED_PARTS + WORD_LETTER_PARTS * above(length, WORD_LETTERS);
}

static int64_t run_parts(const struct token_count *count, enum kind next)
{
    int64_t length = count->length;

    switch ((enum kind)count->run) {
    case NONE:
    case ALONE:
        return 0;
    case WORD:
        return word_parts(count);
    case NUMBER:
        return NUMBER_PARTS * ((length + 2) / 3);
    case BLANK:
        return length > 1 || next == NUMBER || next == LINE ? BLANKS_PARTS : 0;
    case LINE:
        return count->before == MARK ? LINE_MARK_PARTS : LINE_PARTS;
    case MARK:
        return MARKS_PARTS + MARK_PARTS * (length < MARKS ? length - 1 : MARKS - 1) +
               (next == WORD ? MARK_WORD_PARTS : 0);
    case HAN:
        return HAN_RUN_PARTS + HAN_PARTS * length;
    }
    return 0;
}

static void add_run(struct token_count *count, enum kind next)
{
    int64_t parts = run_parts(count, next);

    count->parts += parts;
    if (count->run == HAN || (count->run == WORD && count->script))
        count->script_parts += parts;
}

static void begin_run(struct token_count *count, enum kind kind)
{
    add_run(count, kind);
    count->before = count->run;
    count->run = (unsigned char)kind;
    count->length = 0;
    count->wide = 0;
    count->lower = count->script = false;
}

/* ---- characters ------------------------------------------------------------------------------ */

static void add_ascii(struct token_count *count, unsigned char c)
{
    bool upper = c >= 'A' && c <= 'Z';
    enum kind kind = (enum kind)kinds[c];

    if (kind != (enum kind)count->run || (upper && count->lower))
        begin_run(count, kind);
    count->lower = count->lower || (kind == WORD && !upper);
    count->length++;
}

/* Characters that make no runs. */
static const struct {
    uint32_t first, last;
    int parts;
} alone[] = {
    {0x2010, 0x2040, EAST_MARK_PARTS}, {0x3000, 0x303F, EAST_MARK_PARTS},
    {0x3040, 0x30FF, KANA_PARTS},      {0xAC00, 0xD7A3, KANA_PARTS},
    {0xFF00, 0xFFEF, EAST_MARK_PARTS}, {0x10000, UINT32_MAX, BROAD_PARTS},
};

static bool is_letter(uint32_t code)
{
    return (code >= 0xC0 && code < 0x250) || (code >= 0x370 && code < 0x530) ||
           (code >= 0x1E00 && code < 0x2000);
}

static bool is_han(uint32_t code)
{
    return (code >= 0x4E00 && code <= 0x9FFF) || (code >= 0x3400 && code < 0x4DC0);
}

/* Of any script but Latin; no punctuation, no symbols. */
static bool is_of_script(uint32_t code)
{
    return code >= 0x370 && !(code >= 0x1E00 && code < 0x1F00) &&
           !(code >= 0x2000 && code < 0x2C00) && !(code >= 0x1F000 && code < 0x1FC00) &&
           code != 0xFFFD;
}

static void add_alone(struct token_count *count, uint32_t code)
{
    int parts = OTHER_PARTS;

    for (size_t i = 0; i < sizeof alone / sizeof *alone; i++)
        if (code >= alone[i].first && code <= alone[i].last)
            parts = alone[i].parts;
    if (count->run != ALONE)
        begin_run(count, ALONE);
    count->parts += parts;
    if (is_of_script(code))
        count->script_parts += parts;
}

static void add_wide(struct token_count *count, uint32_t code)
{
    enum kind kind = is_letter(code) ? WORD : HAN;

    if (kind == HAN && !is_han(code)) {
        add_alone(count, code);
        return;
    }
    if (count->run != kind)
        begin_run(count, kind);
    count->lower = kind == WORD;
    count->script = count->script || is_of_script(code);
    count->length++;
    count->wide++;
}

/* UTF-8, taken as it comes: what is wrong in it is a character, too. */
static void add_byte(struct token_count *count, unsigned char c)
{
    if (count->pending > 0 && (c & 0xC0) == 0x80) {
        count->code = count->code << 6 | (c & 0x3F);
        if (--count->pending == 0)
            add_wide(count, count->code);
        return;
    }
    if (count->pending > 0) {
        count->pending = 0;
        add_alone(count, 0xFFFD);
    }
    if (c < 0x80) {
        add_ascii(count, c);
    } else if (c < 0xC0 || c >= 0xF8) {
        add_alone(count, 0xFFFD);
    } else {
        count->pending = c < 0xE0 ? 1 : c < 0xF0 ? 2 : 3;
        count->code = c & (0x3FU >> count->pending);
    }
}

/* How many small letters there are. Most bytes of most texts are. */
static size_t small_letters(const unsigned char *at, const unsigned char *end)
{
    const unsigned char *from = at;

    while (at < end && *at >= 'a' && *at <= 'z')
        at++;
    return (size_t)(at - from);
}

void token_count_add(struct token_count *count, const char *bytes, size_t length)
{
    /* On a copy: the compiler must not fear that bytes point into the count. */
    struct token_count now = *count;
    const unsigned char *at = (const unsigned char *)bytes, *end = at + length;

    while (at < end) {
        add_byte(&now, *at++);
        if (now.run == WORD && now.lower && now.pending == 0) {
            size_t letters = small_letters(at, end);

            now.length += (int64_t)letters;
            at += letters;
        }
    }
    *count = now;
}

int64_t token_count_parts(const struct token_count *count)
{
    struct token_count ended = *count;

    token_count_break(&ended);
    return ended.parts;
}

int64_t token_count_script_parts(const struct token_count *count)
{
    struct token_count ended = *count;

    token_count_break(&ended);
    return ended.script_parts;
}

void token_count_break(struct token_count *count)
{
    if (count->pending > 0)
        add_alone(count, 0xFFFD);
    add_run(count, NONE);
    /* Line ends behind marks are cheaper than nothing, a text is not. */
    *count = (struct token_count){.parts = count->parts, .script_parts = count->script_parts};
}
