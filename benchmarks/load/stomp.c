/* STOMP 1.2, or 1.1 for brokers that can do no more. */

#include "load.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Digits of the number in a receipt header. */
enum { RECEIPT_DIGITS = 10 };

struct slice {
    const char *at;
    size_t length;
};

struct frame {
    struct slice command, body;
    struct slice ack, message, message_id, receipt_id, subscription;
};

static bool is_12(void)
{
    return strcmp(given.version, "1.2") == 0;
}

static bool starts(const char *line, size_t length, const char *name, size_t name_length,
                   struct slice *value)
{
    if (length < name_length || memcmp(line, name, name_length))
        return false;
    /* Of headers that are repeated the first counts. */
    if (value->at == NULL)
        *value = (struct slice){line + name_length, length - name_length};
    return true;
}

#define STARTS(name, value) starts(line, length, name, sizeof name - 1, value)

/* Keeps a header line, if it is one that matters. */
static void keep(struct frame *frame, struct slice *content_length, const char *line, size_t length)
{
    switch (*line) {
    case 'a':
        STARTS("ack:", &frame->ack);
        break;
    case 'c':
        STARTS("content-length:", content_length);
        break;
    case 'm':
        if (!STARTS("message-id:", &frame->message_id))
            STARTS("message:", &frame->message);
        break;
    case 'r':
        STARTS("receipt-id:", &frame->receipt_id);
        break;
    case 's':
        STARTS("subscription:", &frame->subscription);
        break;
    }
}

/* Reads a frame, or line ends between frames; gives its length, 0 if it is not whole. */
static size_t parse(const char *data, size_t length, struct frame *frame)
{
    const char *end = data + length, *at = data;
    struct slice content_length = {0};
    memset(frame, 0, sizeof *frame);
    while (at < end && (*at == '\n' || *at == '\r'))
        at++;
    if (at > data)
        return (size_t)(at - data);
    for (;;) {
        const char *eol = memchr(at, '\n', (size_t)(end - at));
        if (eol == NULL)
            return 0;
        size_t line = (size_t)(eol - at) - (eol > at && eol[-1] == '\r');
        if (line == 0)
            break;
        if (frame->command.at == NULL)
            frame->command = (struct slice){at, line};
        else
            keep(frame, &content_length, at, line);
        at = eol + 1;
    }
    at = (const char *)memchr(at, '\n', (size_t)(end - at)) + 1;
    if (content_length.at) {
        size_t octets = strtoul(content_length.at, NULL, 10);
        if ((size_t)(end - at) < octets + 1)
            return 0;
        if (at[octets])
            wrong("a frame has no NUL where its content-length of %zu says", octets);
        frame->body = (struct slice){at, octets};
    } else {
        const char *nul = memchr(at, 0, (size_t)(end - at));
        if (nul == NULL)
            return 0;
        frame->body = (struct slice){at, (size_t)(nul - at)};
    }
    return (size_t)(frame->body.at + frame->body.length + 1 - data);
}

static bool is(const struct slice *slice, const char *text)
{
    return slice->length == strlen(text) && memcmp(slice->at, text, slice->length) == 0;
}

static void acknowledge(struct connection *connection, const struct frame *frame)
{
    struct slice id = is_12() ? frame->ack : frame->message_id;
    if (id.at == NULL)
        wrong("a MESSAGE has no %s header", is_12() ? "ack" : "message-id");
    const char *name = is_12() ? "ACK\nid:" : "ACK\nsubscription:1\nmessage-id:";
    size_t name_length = strlen(name);
    char *to = room(&connection->out, name_length + id.length + 3);
    memcpy(to, name, name_length);
    memcpy(to + name_length, id.at, id.length);
    memcpy(to + name_length + id.length, "\n\n\0", 3);
    connection->out.end += name_length + id.length + 3;
}

static void take_receipt(struct connection *connection, const struct frame *frame)
{
    uint64_t number;
    if (is(&frame->receipt_id, "done")) {
        connection->answered = true;
        return;
    }
    if (!connection->is_producer || frame->receipt_id.length != RECEIPT_DIGITS
        || !get_digits(frame->receipt_id.at, RECEIPT_DIGITS, &number))
        wrong("a RECEIPT came for %.*s, which nobody asked for", (int)frame->receipt_id.length,
              frame->receipt_id.at ? frame->receipt_id.at : "");
    confirm(connection->number, number);
}

static size_t take(struct connection *connection, const char *data, size_t length)
{
    struct frame frame;
    size_t octets = parse(data, length, &frame);
    if (octets == 0 || frame.command.at == NULL)
        return octets;
    if (!connection->is_producer && is(&frame.command, "MESSAGE")) {
        take_body(connection->number, frame.body.at, frame.body.length);
        if (given.ack[0] == 'c')
            acknowledge(connection, &frame);
    } else if (is(&frame.command, "RECEIPT"))
        take_receipt(connection, &frame);
    else if (is(&frame.command, "CONNECTED"))
        connection->answered = true;
    else if (is(&frame.command, "ERROR"))
        wrong("the broker answers ERROR: %.*s; %.*s", (int)frame.message.length,
              frame.message.at ? frame.message.at : "", (int)frame.body.length, frame.body.at);
    else
        wrong("%.*s came, which %s", (int)frame.command.length, frame.command.at,
              connection->is_producer ? "a producer does not get" : "is no frame of a server");
    return octets;
}

static void end_frame(struct connection *connection)
{
    memcpy(room(&connection->out, 2), "\n\0", 2);
    connection->out.end += 2;
}

void append_connect(struct buffer *out)
{
    append(out, "CONNECT\naccept-version:%s\nhost:%s\nheart-beat:0,0\n", given.version, given.host);
    if (given.login)
        append(out, "login:%s\npasscode:%s\n", given.login, given.passcode ? given.passcode : "");
    append(out, "\n%c", 0);
}

static void open_session(struct connection *connection)
{
    append_connect(&connection->out);
    await(&stomp, connection);
}

/* The destination of a producer or a consumer, in a buffer that the next call overwrites. */
static const char *destination(int member)
{
    static char text[1024];
    if (given.destinations == 1)
        snprintf(text, sizeof text, "%s", given.destination);
    else
        snprintf(text, sizeof text, "%s-%d", given.destination, destination_of(member));
    return text;
}

static void subscribe(struct connection *connection)
{
    struct buffer *out = &connection->out;
    append(out, "SUBSCRIBE\nid:1\ndestination:%s\nack:%s\nreceipt:done\n",
           destination(connection->number), given.ack);
    for (size_t i = 0; given.subscribe_headers[i]; i++)
        append(out, "%s\n", given.subscribe_headers[i]);
    end_frame(connection);
    await(&stomp, connection);
}

/* What applications send: two headers of its own for each message, and six that are usual. */
static void append_varied(struct template *made, struct buffer *out)
{
    append_field(made, out, "correlation-id:order-", NUMBER, 10, "");
    append_field(made, out, "sent-at:", SENT_NS, 19, "");
    append(out, "content-type:application/json\npriority:4\n");
    append_field(made, out, "expires:", EXPIRY_MS, 13, "");
    append(out, "reply-to:/queue/replies\ntype:order-created\n");
    append_field(made, out, "traceparent:00-0af7651916cd43dd8448eb211c80319c-", TRACE, 16, "-01");
}

static struct template make(int producer)
{
    struct buffer out = {0};
    struct template made = {0};
    append(&out, "SEND\ndestination:%s\ncontent-length:%zu\n", destination(producer),
           given.body_octets);
    if (given.varied)
        append_varied(&made, &out);
    for (size_t i = 0; given.send_headers[i]; i++)
        append(&out, "%s\n", given.send_headers[i]);
    if (given.window)
        append_field(&made, &out, "receipt:", NUMBER, RECEIPT_DIGITS, "");
    append(&out, "\n");
    made.body = out.end;
    make_body(room(&out, given.body_octets + 1));
    out.end += given.body_octets;
    out.data[out.end++] = 0;
    made.octets = out.data;
    made.length = out.end;
    return made;
}

/* Once the RECEIPT is there, the broker has taken everything. Consumers have everything by now:
 * Artemis closes their connections without a RECEIPT, if DISCONNECT follows a delivery closely. */
static void close_session(struct connection *connection)
{
    connection->may_end = !connection->is_producer;
    append(&connection->out, "DISCONNECT\nreceipt:done\n");
    end_frame(connection);
    await(&stomp, connection);
}

const struct protocol stomp = {
    .open = open_session,
    .subscribe = subscribe,
    .make = make,
    .take = take,
    .close = close_session,
};
