/* beanstalkd: put, and reserve with delete, many on the way at a time. */

#include "load.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Seconds that a job may be reserved, and reserves of a consumer that may be unanswered: with more,
   deletes wait behind them, which takes longer. As many as the prefetch of STOMP's consumers. */
enum { RESERVED_S = 600, MOST_RESERVES = 100 };

/* Jobs that a consumer takes: as many each, since nobody answers a reserve for one too many. */
static uint64_t share_of_consumer(const struct connection *connection)
{
    uint64_t sharing = 0, jobs = 0;
    int destination = destination_of(connection->number), place = 0;
    for (int i = 0; i < given.consumers; i++)
        if (destination_of(i) == destination) {
            sharing++;
            place += i < connection->number;
        }
    for (int i = 0; i < given.producers; i++)
        if (destination_of(i) == destination)
            jobs += share_of(i);
    return jobs / sharing + ((uint64_t)place < jobs % sharing);
}

static void open_session(struct connection *connection)
{
    if (!connection->is_producer)
        return;
    append(&connection->out, "use %s-%d\r\n", given.destination,
           destination_of(connection->number));
    await(&beanstalk, connection);
}

static void ask(struct connection *connection)
{
    if (connection->asked == share_of_consumer(connection))
        return;
    append(&connection->out, "reserve\r\n");
    connection->asked++;
}

static void subscribe(struct connection *connection)
{
    uint64_t window = given.window < MOST_RESERVES ? given.window : MOST_RESERVES;
    append(&connection->out, "watch %s-%d\r\nignore default\r\n", given.destination,
           destination_of(connection->number));
    await(&beanstalk, connection);
    for (uint64_t i = 0; i < window; i++)
        ask(connection);
    flush(connection);
}

static struct template make(int producer)
{
    (void)producer;
    struct buffer out = {0};
    struct template made = {0};
    append(&out, "put 0 0 %d %zu\r\n", RESERVED_S, given.body_octets);
    made.body = out.end;
    make_body(room(&out, given.body_octets + 2));
    out.end += given.body_octets;
    append(&out, "\r\n");
    made.octets = out.data;
    made.length = out.end;
    return made;
}

static bool starts(const char *line, const char *text)
{
    return strncmp(line, text, strlen(text)) == 0;
}

/* Takes a job; gives how many octets follow the line. */
static size_t take_job(struct connection *connection, const char *line, const char *body,
                       size_t left)
{
    uint64_t job;
    size_t octets;
    if (sscanf(line, "RESERVED %" SCNu64 " %zu", &job, &octets) != 2)
        wrong("beanstalkd answers reserve by %s", line);
    if (left < octets + 2)
        return 0;
    take_body(connection->number, body, octets);
    append(&connection->out, "delete %" PRIu64 "\r\n", job);
    ask(connection);
    return octets + 2;
}

static size_t take(struct connection *connection, const char *data, size_t length)
{
    char line[128];
    const char *eol = memchr(data, '\n', length);
    if (eol == NULL)
        return 0;
    size_t octets = (size_t)(eol + 1 - data);
    if (octets >= sizeof line)
        wrong("beanstalkd answers by a line of %zu octets", octets);
    memcpy(line, data, octets);
    line[octets - 1] = 0;
    if (connection->is_producer && starts(line, "INSERTED "))
        confirm(connection->number, connection->answers++);
    else if (!connection->is_producer && starts(line, "RESERVED ")) {
        size_t more = take_job(connection, line, eol + 1, length - octets);
        return more ? octets + more : 0;
    } else if (!connection->is_producer && starts(line, "DELETED"))
        connection->answered = ++connection->answers == connection->asked;
    else if (starts(line, "USING ") || starts(line, "WATCHING 1"))
        connection->answered = true;
    else if (!starts(line, "WATCHING "))
        wrong("beanstalkd answers %s", line);
    return octets;
}

/* All is done when every job is deleted. */
static void close_session(struct connection *connection)
{
    if (!connection->is_producer && connection->answers < connection->asked)
        await(&beanstalk, connection);
}

const struct protocol beanstalk = {
    .open = open_session,
    .subscribe = subscribe,
    .make = make,
    .take = take,
    .close = close_session,
};
