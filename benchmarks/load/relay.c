/* A relay that forwards octets without looking at them: what moving them costs at all.

   A client begins with a line, `produce N` or `consume N`, and gets a line `ok`. From then on all
   that the producers of a group send goes to each of its consumers. While one of them does not
   read, nothing is read from the producers. */

#include "load.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MOST_GROUPS = 10000, MOST_EVENTS = 64, READ_OCTETS = 65536 };

struct line {
    struct connection connection; /* is_producer, number: of the group, -1 before the first line */
    struct line *next;            /* in the group */
};

static struct line *groups[MOST_GROUPS];
static int poller;

static void watch(struct line *line, uint32_t wanted, int operation)
{
    struct epoll_event event = {.events = wanted, .data.ptr = line};
    if (epoll_ctl(poller, operation, line->connection.fd, &event))
        unusable("a socket cannot be watched: %s", strerror(errno));
}

static bool is_full(int group)
{
    for (struct line *line = groups[group]; line; line = line->next)
        if (!line->connection.is_producer && line->connection.waits)
            return true;
    return false;
}

static void let_send(int group, bool may)
{
    for (struct line *line = groups[group]; line; line = line->next)
        if (line->connection.is_producer)
            watch(line, may ? EPOLLIN : 0, EPOLL_CTL_MOD);
}

static void forward(int group, const char *data, size_t octets)
{
    bool fills = false;
    for (struct line *line = groups[group]; line; line = line->next) {
        struct connection *to = &line->connection;
        if (to->is_producer)
            continue;
        memcpy(room(&to->out, octets), data, octets);
        to->out.end += octets;
        if (!flush(to)) {
            to->waits = fills = true;
            watch(line, EPOLLIN | EPOLLOUT, EPOLL_CTL_MOD);
        }
    }
    if (fills)
        let_send(group, false);
}

static void leave(struct line *line)
{
    int group = line->connection.number;
    struct line **at = group < 0 ? NULL : &groups[group];
    while (at && *at != line)
        at = &(*at)->next;
    if (at)
        *at = line->next;
    bool waited = line->connection.waits;
    close(line->connection.fd);
    free(line->connection.in.data);
    free(line->connection.out.data);
    free(line);
    if (waited && !is_full(group))
        let_send(group, true);
}

/* Reads the first line; says whether it makes sense. */
static bool join(struct line *line, const char *text, size_t octets)
{
    struct connection *connection = &line->connection;
    char copy[64] = "", word[64];
    int group;
    memcpy(copy, text, octets < sizeof copy ? octets : sizeof copy - 1);
    if (sscanf(copy, "%15s %d", word, &group) != 2 || group < 0 || group >= MOST_GROUPS)
        return false;
    connection->is_producer = strcmp(word, "produce") == 0;
    connection->number = group;
    line->next = groups[group];
    groups[group] = line;
    append(&connection->out, "ok\n");
    return flush(connection);
}

static void read_line(struct line *line)
{
    static char data[READ_OCTETS];
    struct connection *connection = &line->connection;
    ssize_t got = recv(connection->fd, data, sizeof data, MSG_DONTWAIT);
    if (got < 0 && errno == EAGAIN)
        return;
    if (got > 0 && connection->number >= 0)
        forward(connection->number, data, (size_t)got);
    /* The first line comes alone, and whole: whoever sends it waits for the answer. */
    else if (got <= 0 || !join(line, data, (size_t)got))
        leave(line);
}

static void write_line(struct line *line)
{
    struct connection *connection = &line->connection;
    if (!flush(connection))
        return;
    connection->waits = false;
    watch(line, EPOLLIN, EPOLL_CTL_MOD);
    if (!is_full(connection->number))
        let_send(connection->number, true);
}

static void welcome(int listening)
{
    int one = 1, fd = accept4(listening, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0)
        return;
    struct line *line = reserve(1, sizeof *line);
    line->connection.fd = fd;
    line->connection.number = -1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    watch(line, EPOLLIN, EPOLL_CTL_ADD);
}

static int listen_on(void)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET,
        .sin_port = htons((uint16_t)given.port),
        .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
    };
    int one = 1, listening = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(listening, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (listening < 0 || bind(listening, (struct sockaddr *)&address, sizeof address)
        || listen(listening, SOMAXCONN))
        unusable("127.0.0.1 port %d cannot be listened on: %s", given.port, strerror(errno));
    return listening;
}

void run_relay(void)
{
    struct epoll_event events[MOST_EVENTS];
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
    int listening = listen_on();
    poller = epoll_create1(EPOLL_CLOEXEC);
    epoll_ctl(poller, EPOLL_CTL_ADD, listening, &event);
    for (;;) {
        int count = epoll_wait(poller, events, MOST_EVENTS, -1);
        for (int i = 0; i < count; i++) {
            struct line *line = events[i].data.ptr;
            if (line == NULL)
                welcome(listening);
            else if (events[i].events & EPOLLOUT)
                write_line(line);
            else
                read_line(line);
        }
    }
}
