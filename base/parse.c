/* parse.c - strict readers for numbers, durations, sizes, switches and globs; see parse.h. */
#include "base/parse.h"

#include <string.h>
#include <strings.h>

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

bool parse_u64_bytes(const char *bytes, size_t length, uint64_t *ret_number)
{
    uint64_t number = 0;

    if (length == 0)
        return false;
    for (size_t i = 0; i < length; i++) {
        uint64_t digit;

        if (!is_digit(bytes[i]))
            return false;
        digit = (uint64_t)(bytes[i] - '0');
        if (number > (UINT64_MAX - digit) / 10)
            return false;
        number = number * 10 + digit;
    }
    *ret_number = number;
    return true;
}

bool parse_u64(const char *string, uint64_t *ret_number)
{
    return parse_u64_bytes(string, strlen(string), ret_number);
}

bool parse_rounded_up(const char *bytes, size_t length, uint64_t *ret_number)
{
    const char *point = memchr(bytes, '.', length);
    size_t digits = point ? (size_t)(point - bytes) : length;
    uint64_t number;
    bool more = false;

    if (!parse_u64_bytes(bytes, digits, &number) || digits + 1 == length)
        return false;
    for (size_t i = digits + 1; i < length; i++) {
        if (!is_digit(bytes[i]))
            return false;
        more = more || bytes[i] != '0';
    }
    if (more && number == UINT64_MAX)
        return false;
    *ret_number = number + more;
    return true;
}

bool parse_duration_ms(const char *string, int64_t unit_ms, int64_t *ret_ms)
{
    static const struct {
        const char *name;
        int64_t ms;
    } units[] = {{"ms", 1}, {"s", 1000}, {"m", 60000}, {"h", 3600000}, {"d", 86400000}};
    uint64_t whole;
    int64_t thousandths = 0;
    int64_t scale = 100;
    size_t digits = strspn(string, "0123456789");
    const char *rest = string + digits;

    if (!parse_u64_bytes(string, digits, &whole) || whole > INT64_C(1000000000000))
        return false;
    if (*rest == '.') {
        if (!is_digit(rest[1]))
            return false;
        for (rest++; is_digit(*rest); rest++) {
            thousandths += (*rest - '0') * scale;
            scale /= 10;
        }
    }
    for (size_t i = 0; *rest && i < LENGTH(units); i++) {
        if (strcasecmp(rest, units[i].name) == 0) {
            unit_ms = units[i].ms;
            rest = "";
        }
    }
    if (*rest || (int64_t)whole > INT64_MAX / 2 / unit_ms)
        return false;
    *ret_ms = (int64_t)whole * unit_ms + thousandths * unit_ms / 1000;
    return true;
}

bool parse_size(const char *string, uint64_t *ret_bytes)
{
    static const char prefixes[] = "kmgt";
    uint64_t number;
    uint64_t factor = 1;
    size_t digits = strspn(string, "0123456789");
    const char *rest = string + digits;
    const char *prefix;

    if (!parse_u64_bytes(string, digits, &number))
        return false;
    if (*rest && (prefix = strchr(prefixes, lower(*rest))) != NULL) {
        factor = UINT64_C(1) << (10 * (prefix - prefixes + 1));
        rest++;
        if (lower(*rest) == 'i' && lower(rest[1]) == 'b')
            rest++;
    }
    if (lower(*rest) == 'b')
        rest++;
    if (*rest || number > UINT64_MAX / factor)
        return false;
    *ret_bytes = number * factor;
    return true;
}

bool parse_bool(const char *string, bool *ret_value)
{
    static const char *const yes[] = {"true", "yes", "on", "1"};
    static const char *const no[] = {"false", "no", "off", "0"};

    for (size_t i = 0; i < LENGTH(yes); i++) {
        if (strcasecmp(string, yes[i]) == 0 || strcasecmp(string, no[i]) == 0) {
            *ret_value = strcasecmp(string, yes[i]) == 0;
            return true;
        }
    }
    return false;
}

/* Greedy matching that goes back only to the last star: the classic iterative form. */
bool parse_glob_matches(const char *glob, const char *text, size_t length)
{
    const char *star = NULL;
    size_t star_at = 0;
    size_t at = 0;

    while (at < length) {
        if (*glob == '*') {
            star = glob++;
            star_at = at;
        } else if (*glob && (*glob == '?' || lower(*glob) == lower(text[at]))) {
            glob++;
            at++;
        } else if (star) {
            glob = star + 1;
            at = ++star_at;
        } else {
            return false;
        }
    }
    while (*glob == '*')
        glob++;
    return *glob == '\0';
}

bool parse_is_token(const char *string)
{
    static const char others[] = "!#$%&'*+-.^_`|~";
    const char *at = string;

    while (is_digit(*at) || (lower(*at) >= 'a' && lower(*at) <= 'z') ||
           (*at && strchr(others, *at)))
        at++;
    return at > string && *at == '\0';
}

size_t parse_trim(const char **text, size_t length)
{
    static const char blanks[] = " \t\r\n";

    for (; length > 0 && memchr(blanks, **text, 4); length--)
        (*text)++;
    while (length > 0 && memchr(blanks, (*text)[length - 1], 4))
        length--;
    return length;
}

bool parse_is_word(const char *text, size_t length, const char *word)
{
    length = parse_trim(&text, length);
    return length == strlen(word) && memcmp(text, word, length) == 0;
}
