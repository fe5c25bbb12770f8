/* Connections that come and go: connect, CONNECT, CONNECTED, SEND, DISCONNECT, RECEIPT, close.

   Each place among those that are open at a time is a producer, whose messages are numbered: who
   drains the queue later finds out whether all have come. Their order does not matter: no broker
   promises any between connections. */

#include "load.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

/* Addresses to come from: each has only so many ports, and one that was used rests for a minute. */
enum { MOST_EVENTS = 64, SOURCES = 16 };

struct visit {
    struct connection connection;
    struct template message;
    uint64_t began_ns, number;
    bool is_connected;
};

static int poller;
static struct histogram times;

static void begin(struct visit *visit)
{
    struct connection *connection = &visit->connection;
    visit->began_ns = now_ns();
    visit->is_connected = false;
    connection->in.start = connection->in.end = 0;
    connection->source = (int)(visit->number % SOURCES);
    dial(connection);
    append_connect(&connection->out);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = visit};
    /* So few octets always have room in a new socket. */
    if (!flush(connection) || epoll_ctl(poller, EPOLL_CTL_ADD, connection->fd, &event))
        unusable("a socket cannot be used: %s", strerror(errno));
}

static void send_one(struct visit *visit)
{
    struct connection *connection = &visit->connection;
    append_message(&connection->out, &visit->message, connection->number, visit->number, now_ns());
    append(&connection->out, "DISCONNECT\nreceipt:done\n\n%c", 0);
    flush(connection);
}

/* Reads; says whether the visit is over. */
static bool go_on(struct visit *visit)
{
    struct connection *connection = &visit->connection;
    if (!receive(connection))
        return false;
    struct buffer *in = &connection->in;
    while (in->start < in->end && (in->data[in->start] == '\n' || in->data[in->start] == '\r'))
        in->start++;
    char *frame = in->data + in->start;
    char *nul = memchr(frame, 0, in->end - in->start);
    if (nul == NULL)
        return false;
    in->start += (size_t)(nul + 1 - frame);
    const char *wanted = visit->is_connected ? "RECEIPT" : "CONNECTED";
    if (strncmp(frame, wanted, strlen(wanted)))
        wrong("the broker answers %.100s, not %s", frame, wanted);
    if (visit->is_connected)
        return true;
    visit->is_connected = true;
    record(&times, now_ns() - visit->began_ns);
    send_one(visit);
    return false;
}

void run_churn(void)
{
    struct epoll_event events[MOST_EVENTS];
    struct visit *visits = reserve((size_t)given.parallel, sizeof *visits);
    uint64_t done = 0, began_ns = now_ns();
    double used_s = cpu_s();
    poller = epoll_create1(EPOLL_CLOEXEC);
    for (int i = 0; i < given.parallel; i++) {
        visits[i].connection.number = i;
        visits[i].connection.is_producer = true;
        visits[i].message = stomp.make(i);
        if (share_of(i))
            begin(&visits[i]);
    }
    while (done < given.messages) {
        int count = epoll_wait(poller, events, MOST_EVENTS, (int)(given.timeout_s * 1000));
        if (count == 0)
            wrong("no connection has come further for %g s", given.timeout_s);
        for (int i = 0; i < count; i++) {
            struct visit *visit = events[i].data.ptr;
            if (!go_on(visit))
                continue;
            close(visit->connection.fd);
            done++;
            if (++visit->number < share_of(visit->connection.number))
                begin(visit);
        }
    }
    double took_s = (double)(now_ns() - began_ns) / 1e9;
    printf("{\"mode\": \"churn\", \"messages\": %" PRIu64 ", \"deliveries\": 0, ", done);
    printf("\"seconds\": %.6f, \"per_second\": %.1f, ", took_s, (double)done / took_s);
    print_histogram("latency_us", &times);
    printf("\"generator_cpu_s\": %.6f}\n", cpu_s() - used_s);
}
