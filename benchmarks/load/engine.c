/* Producers and consumers: what is sent when, and how long it takes. */

#include "load.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

enum { MOST_EVENTS = 64 };
/* Writes of one message in a row. */
enum { MOST_SINGLE_WRITES = 16 };

struct producer {
    struct connection connection;
    struct template message;
    uint64_t sent, confirmed, share;
    uint64_t *sent_ns;  /* by number, 0 once it is confirmed; where there are receipts */
};

static struct producer *producers;
static struct connection *consumers;
static uint64_t sent, unconfirmed, began_ns;
static struct histogram receipts;
static int poller, alarm_fd = -1;

static void take_all(const struct protocol *protocol, struct connection *connection)
{
    struct buffer *in = &connection->in;
    while (in->start < in->end) {
        size_t octets = protocol->take(connection, in->data + in->start, in->end - in->start);
        if (octets == 0)
            break;
        in->start += octets;
        if (connection->out.end - connection->out.start >= given.write_octets)
            flush(connection);
    }
}

void await(const struct protocol *protocol, struct connection *connection)
{
    struct pollfd wanted = {.fd = connection->fd};
    connection->answered = false;
    while (!connection->answered) {
        wanted.events = (short)(flush(connection) ? POLLIN : POLLIN | POLLOUT);
        if (poll(&wanted, 1, (int)(given.timeout_s * 1000)) == 0)
            wrong("the broker has not answered for %g s", given.timeout_s);
        if (receive(connection))
            take_all(protocol, connection);
    }
}

void confirm(int number_of_producer, uint64_t number)
{
    struct producer *producer = &producers[number_of_producer];
    if (number >= producer->sent || producer->sent_ns[number] == 0)
        wrong("producer %d got a receipt for message %" PRIu64 " that it has not asked for, or has"
              " got before", number_of_producer, number);
    record(&receipts, now_ns() - producer->sent_ns[number]);
    producer->sent_ns[number] = 0;
    producer->confirmed++;
    unconfirmed--;
}

/* When a message is due, where there is a rate. */
static uint64_t due_ns(const struct producer *producer, uint64_t number)
{
    uint64_t place = number * (uint64_t)given.producers + (uint64_t)producer->connection.number;
    return began_ns + (uint64_t)((double)place * (double)NS_PER_S / (double)given.rate);
}

/* How many messages a producer may send now. */
static uint64_t allowed(const struct producer *producer, uint64_t now)
{
    uint64_t most = producer->share - producer->sent;
    if (given.phase == BOTH) {
        uint64_t on_the_way = sent - received_by_all();
        uint64_t left = given.outstanding > on_the_way ? given.outstanding - on_the_way : 0;
        most = left < most ? left : most;
    }
    if (given.window) {
        uint64_t left = given.window - (producer->sent - producer->confirmed);
        most = left < most ? left : most;
    }
    if (given.rate) {
        uint64_t due = 0;
        while (due < most && due_ns(producer, producer->sent + due) <= now)
            due++;
        most = due;
    }
    return most;
}

static void put_message(struct producer *producer, uint64_t now)
{
    struct connection *connection = &producer->connection;
    uint64_t number = producer->sent++;
    append_message(&connection->out, &producer->message, connection->number, number,
                   given.rate ? due_ns(producer, number) : now);
    sent++;
    if (given.window) {
        producer->sent_ns[number] = now;
        unconfirmed++;
    }
}

/* Has the poller tell when there is room in the socket, if that is waited for. */
static void watch(struct connection *connection, bool is_new)
{
    bool waits = connection->out.start < connection->out.end;
    if (waits == connection->waits && !is_new)
        return;
    connection->waits = waits;
    struct epoll_event event = {.events = waits ? EPOLLIN | EPOLLOUT : EPOLLIN,
                                .data.ptr = connection};
    if (epoll_ctl(poller, is_new ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, connection->fd, &event))
        unusable("a socket cannot be watched: %s", strerror(errno));
}

/* Sends one write of messages; says whether there are more to send at once. */
static bool produce(struct producer *producer)
{
    if (producer->connection.out.start < producer->connection.out.end)
        return false;
    uint64_t now = now_ns(), most = allowed(producer, now);
    if (most == 0)
        return false;
    uint64_t batch = given.write_octets / producer->message.length;
    batch = batch ? batch : 1;
    batch = batch < most ? batch : most;
    for (uint64_t i = 0; i < batch; i++)
        put_message(producer, now);
    bool is_written = flush(&producer->connection);
    watch(&producer->connection, false);
    return is_written && batch < most;
}

/* Sends one write of many messages, or a few of one message; then it is time to look what has come. */
static bool produce_some(struct producer *producer)
{
    int writes = given.write_octets < producer->message.length ? MOST_SINGLE_WRITES : 1;
    bool more = true;
    while (more && writes--)
        more = produce(producer);
    return more;
}

static void set_alarm(void)
{
    uint64_t first = UINT64_MAX;
    for (int i = 0; i < given.producers; i++)
        if (producers[i].sent < producers[i].share) {
            uint64_t due = due_ns(&producers[i], producers[i].sent);
            first = due < first ? due : first;
        }
    if (first == UINT64_MAX)
        return;
    struct itimerspec at = {.it_value = {.tv_sec = (time_t)(first / NS_PER_S),
                                         .tv_nsec = (long)(first % NS_PER_S)}};
    timerfd_settime(alarm_fd, TFD_TIMER_ABSTIME, &at, NULL);
}

static bool produce_all(void)
{
    static int turn;
    bool more = false;
    if (given.phase == DRAIN)
        return false;
    for (int i = 0; i < given.producers; i++)
        more |= produce_some(&producers[(turn + i) % given.producers]);
    turn = (turn + 1) % given.producers;
    if (given.rate && !more)
        set_alarm();
    return more;
}

static bool is_done(void)
{
    if (given.phase != DRAIN && (sent < given.messages || unconfirmed))
        return false;
    for (int i = 0; given.phase != DRAIN && i < given.producers; i++)
        if (producers[i].connection.out.start < producers[i].connection.out.end)
            return false;
    return given.phase == FILL || all_received();
}

static void handle(const struct protocol *protocol, const struct epoll_event *event)
{
    struct connection *connection = event->data.ptr;
    if (connection == NULL) {
        uint64_t times;
        if (read(alarm_fd, &times, sizeof times) < 0 && errno != EAGAIN)
            unusable("the timer cannot be read: %s", strerror(errno));
        return;
    }
    if (event->events & (EPOLLIN | EPOLLHUP | EPOLLERR) && receive(connection))
        take_all(protocol, connection);
    flush(connection);
    watch(connection, false);
}

static void loop(const struct protocol *protocol)
{
    struct epoll_event events[MOST_EVENTS];
    for (;;) {
        bool more = produce_all();
        if (is_done())
            break;
        int timeout_ms = more ? 0 : (int)(given.timeout_s * 1000);
        int count = epoll_wait(poller, events, MOST_EVENTS, timeout_ms);
        if (count == 0 && !more)
            tell_missing();
        for (int i = 0; i < count; i++)
            handle(protocol, &events[i]);
    }
}

static void open_consumers(const struct protocol *protocol)
{
    for (int i = 0; i < given.consumers; i++) {
        consumers[i].number = i;
        dial(&consumers[i]);
        protocol->open(&consumers[i]);
    }
    /* A backlog begins to come with the first subscription. */
    began_ns = now_ns();
    for (int i = 0; i < given.consumers; i++) {
        protocol->subscribe(&consumers[i]);
        watch(&consumers[i], true);
    }
}

static void open_producers(const struct protocol *protocol)
{
    for (int i = 0; i < given.producers; i++) {
        struct producer *producer = &producers[i];
        producer->connection.number = i;
        producer->connection.is_producer = true;
        producer->share = share_of(i);
        producer->message = protocol->make(i);
        if (given.window)
            producer->sent_ns = reserve(producer->share, sizeof *producer->sent_ns);
        dial(&producer->connection);
        protocol->open(&producer->connection);
        watch(&producer->connection, true);
    }
}

static void open_alarm(void)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
    alarm_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    if (alarm_fd < 0 || epoll_ctl(poller, EPOLL_CTL_ADD, alarm_fd, &event))
        unusable("a timer cannot be had: %s", strerror(errno));
}

static void print(double took_s, double used_s)
{
    double many = given.phase == FILL ? (double)sent : (double)deliveries();
    printf("{\"mode\": \"%s\", \"messages\": %" PRIu64 ", \"deliveries\": %" PRIu64 ", ",
           given.mode, given.messages, deliveries());
    printf("\"seconds\": %.6f, \"per_second\": %.1f, ", took_s, many / took_s);
    printf("\"writes\": %" PRIu64 ", ", writes());
    if (deliveries()) {
        printf("\"first_s\": %.6f, ", (double)(first_ns() - began_ns) / 1e9);
        print_histogram("latency_us", latencies());
    }
    if (receipts.total)
        print_histogram("receipt_us", &receipts);
    printf("\"generator_cpu_s\": %.6f}\n", used_s);
}

void run_load(const struct protocol *protocol)
{
    poller = epoll_create1(EPOLL_CLOEXEC);
    producers = reserve((size_t)given.producers, sizeof *producers);
    consumers = reserve((size_t)given.consumers, sizeof *consumers);
    open_account();
    open_consumers(protocol);
    if (given.phase != DRAIN) {
        open_producers(protocol);
        began_ns = now_ns();
    }
    if (given.rate)
        open_alarm();
    double used_s = cpu_s();
    loop(protocol);
    uint64_t ended_ns = now_ns();
    used_s = cpu_s() - used_s;
    /* Without receipts only the last answer tells that all has been taken. */
    for (int i = 0; given.phase != DRAIN && i < given.producers; i++)
        protocol->close(&producers[i].connection);
    if (given.phase == FILL && !given.window)
        ended_ns = now_ns();
    for (int i = 0; i < given.consumers; i++)
        protocol->close(&consumers[i]);
    print((double)(ended_ns - began_ns) / 1e9, used_s);
}
