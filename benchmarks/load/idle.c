/* Connections that are open and do nothing: so that somebody can look at what they cost. */

#include "load.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* Connections from one address: fewer than it has ports, and than brokers let in from one. */
enum { PER_ADDRESS = 5000 };

static void allow_files(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit))
        unusable("the limit of open files cannot be read: %s", strerror(errno));
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
}

static void begin(struct connection *connection, int number)
{
    connection->number = number;
    connection->is_producer = true; /* it gets no messages */
    connection->source = number / PER_ADDRESS;
    dial(connection);
    append_connect(&connection->out);
    flush(connection);
}

/* Nobody may have been closed, or been sent anything but line ends. */
static void check(struct connection *connections, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        struct buffer *in = &connections[i].in;
        if (receive(&connections[i]))
            while (in->start < in->end
                   && (in->data[in->start] == '\n' || in->data[in->start] == '\r'))
                in->start++;
        if (in->start < in->end)
            wrong("connection %" PRIu64 ", which is idle, was sent %.100s", i,
                  in->data + in->start);
        /* A buffer for each would be more than there is memory. */
        free(in->data);
        *in = (struct buffer){0};
    }
}

void run_idle(void)
{
    struct connection *connections = reserve(given.messages, sizeof *connections);
    uint64_t open = 0, began_ns = now_ns(), parallel = (uint64_t)given.parallel;
    uint64_t most_ns = (uint64_t)(given.most_s * 1e9);
    double used_s = cpu_s();
    char line[16];
    allow_files();
    while (open < given.messages && (most_ns == 0 || now_ns() - began_ns < most_ns)) {
        uint64_t left = given.messages - open, count = left < parallel ? left : parallel;
        for (uint64_t i = open; i < open + count; i++)
            begin(&connections[i], (int)i);
        for (uint64_t i = open; i < open + count; i++) {
            await(&stomp, &connections[i]);
            free(connections[i].in.data);
            free(connections[i].out.data);
            connections[i].in = connections[i].out = (struct buffer){0};
        }
        open += count;
    }
    double took_s = (double)(now_ns() - began_ns) / 1e9;
    printf("{\"mode\": \"idle\", \"messages\": %" PRIu64 ", \"deliveries\": 0, ", open);
    printf("\"seconds\": %.6f, \"per_second\": %.1f, ", took_s, (double)open / took_s);
    printf("\"generator_cpu_s\": %.6f}\n", cpu_s() - used_s);
    fflush(stdout);
    if (read(STDIN_FILENO, line, sizeof line) < 0)
        unusable("standard input cannot be read: %s", strerror(errno));
    check(connections, open);
}
