/* Messages: what is the same in each, and the values that are not. */

#include "load.h"

#include <string.h>
#include <time.h>

/* An application that has no use for a message later than in an hour says so. */
#define EXPIRES_MS UINT64_C(3600000)

/* The time of day in ms for one of `now_ns`. */
static uint64_t epoch_ms(uint64_t ns)
{
    static int64_t later_ns;
    if (later_ns == 0) {
        struct timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        later_ns = (int64_t)now.tv_sec * (int64_t)NS_PER_S + now.tv_nsec - (int64_t)now_ns();
    }
    return (uint64_t)((int64_t)ns + later_ns) / 1000000;
}

/* 64 bits that look random, and are others for each number (the finaliser of MurmurHash3). */
static uint64_t mix(uint64_t number)
{
    number = (number ^ number >> 33) * UINT64_C(0xff51afd7ed558ccd);
    number = (number ^ number >> 33) * UINT64_C(0xc4ceb9fe1a85ec53);
    return number ^ number >> 33;
}

static void put_hex(char *to, int digits, uint64_t bits)
{
    while (digits--) {
        to[digits] = "0123456789abcdef"[bits & 15];
        bits >>= 4;
    }
}

void append_field(struct template *made, struct buffer *out, const char *before, enum value value,
                  int digits, const char *after)
{
    append(out, "%s", before);
    made->fields[made->field_count++] = (struct field){value, out->end, digits};
    append(out, "%0*d%s\n", digits, 0, after);
}

static void put_field(char *to, const struct field *field, int producer, uint64_t number,
                      uint64_t ns)
{
    to += field->at;
    switch (field->value) {
    case NUMBER: put_digits(to, field->digits, number); break;
    case SENT_NS: put_digits(to, field->digits, ns); break;
    case EXPIRY_MS: put_digits(to, field->digits, epoch_ms(ns) + EXPIRES_MS); break;
    case TRACE: put_hex(to, field->digits, mix(number << 16 | (uint64_t)producer)); break;
    }
}

void append_message(struct buffer *out, const struct template *message, int producer,
                    uint64_t number, uint64_t ns)
{
    char *to = room(out, message->length);
    memcpy(to, message->octets, message->length);
    stamp(to + message->body, producer, number, ns);
    for (int i = 0; i < message->field_count; i++)
        put_field(to, &message->fields[i], producer, number, ns);
    out->end += message->length;
}
