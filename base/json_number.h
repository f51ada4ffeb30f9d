/* json_number.h - the grammar of a JSON number as a machine: one state, one byte, the next state.
 */
#ifndef BASE_JSON_NUMBER_H
#define BASE_JSON_NUMBER_H

#include <stdbool.h>

enum json_number {
    JSON_NUMBER_MINUS,
    JSON_NUMBER_ZERO,
    JSON_NUMBER_WHOLE,
    JSON_NUMBER_POINT,
    JSON_NUMBER_FRACTION,
    JSON_NUMBER_E,
    JSON_NUMBER_E_SIGN,
    JSON_NUMBER_EXPONENT,
    JSON_NUMBER_OVER, /* the byte is not part of it */
};

static inline bool json_is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* What a number in this state is after c. */
static inline enum json_number json_number_step(enum json_number number, char c)
{
    switch (number) {
    case JSON_NUMBER_MINUS:
        return c == '0'           ? JSON_NUMBER_ZERO
               : json_is_digit(c) ? JSON_NUMBER_WHOLE
                                  : JSON_NUMBER_OVER;
    case JSON_NUMBER_WHOLE:
        if (json_is_digit(c))
            return JSON_NUMBER_WHOLE;
        return c == '.' ? JSON_NUMBER_POINT : (c | 0x20) == 'e' ? JSON_NUMBER_E : JSON_NUMBER_OVER;
    case JSON_NUMBER_ZERO:
        return c == '.' ? JSON_NUMBER_POINT : (c | 0x20) == 'e' ? JSON_NUMBER_E : JSON_NUMBER_OVER;
    case JSON_NUMBER_POINT:
        return json_is_digit(c) ? JSON_NUMBER_FRACTION : JSON_NUMBER_OVER;
    case JSON_NUMBER_FRACTION:
        return json_is_digit(c)    ? JSON_NUMBER_FRACTION
               : (c | 0x20) == 'e' ? JSON_NUMBER_E
                                   : JSON_NUMBER_OVER;
    case JSON_NUMBER_E:
        if (c == '+' || c == '-')
            return JSON_NUMBER_E_SIGN;
        return json_is_digit(c) ? JSON_NUMBER_EXPONENT : JSON_NUMBER_OVER;
    case JSON_NUMBER_E_SIGN:
    case JSON_NUMBER_EXPONENT:
        return json_is_digit(c) ? JSON_NUMBER_EXPONENT : JSON_NUMBER_OVER;
    case JSON_NUMBER_OVER:
        break;
    }
    return JSON_NUMBER_OVER;
}

/* Is it whole if nothing follows? */
static inline bool json_number_may_end(enum json_number number)
{
    return number == JSON_NUMBER_ZERO || number == JSON_NUMBER_WHOLE ||
           number == JSON_NUMBER_FRACTION || number == JSON_NUMBER_EXPONENT;
}

#endif
