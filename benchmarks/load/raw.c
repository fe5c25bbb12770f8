/* A relay that forwards octets: what is sent to it comes out as it is. */

#include "load.h"

#include <stdlib.h>
#include <string.h>

static void open_line(struct connection *connection)
{
    if (connection->is_producer) {
        append(&connection->out, "produce %d\n", destination_of(connection->number));
        await(&raw, connection);
    }
}

static void subscribe(struct connection *connection)
{
    append(&connection->out, "consume %d\n", destination_of(connection->number));
    await(&raw, connection);
}

static struct template make(int producer)
{
    (void)producer;
    struct buffer out = {0};
    append(&out, "%010zu", given.body_octets);
    make_body(room(&out, given.body_octets));
    return (struct template){
        .octets = out.data, .length = out.end + given.body_octets, .body = out.end};
}

static size_t take(struct connection *connection, const char *data, size_t length)
{
    uint64_t octets;
    if (length >= 3 && memcmp(data, "ok\n", 3) == 0) {
        connection->answered = true;
        return 3;
    }
    if (length < 10)
        return 0;
    if (connection->is_producer || !get_digits(data, 10, &octets))
        wrong("the relay sends what nobody has sent");
    if (length < 10 + octets)
        return 0;
    take_body(connection->number, data + 10, octets);
    return 10 + octets;
}

static void close_line(struct connection *connection)
{
    (void)connection;
}

const struct protocol raw = {
    .open = open_line,
    .subscribe = subscribe,
    .make = make,
    .take = take,
    .close = close_line,
};
