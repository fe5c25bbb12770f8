/* Ends, time, buffers, connections and percentiles. */

#include "load.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define READ_OCTETS (256 * 1024)

static _Noreturn void leave(int status, const char *format, va_list values)
{
    fflush(stdout);
    vfprintf(stderr, format, values);
    fputc('\n', stderr);
    exit(status);
}

void wrong(const char *format, ...)
{
    va_list values;
    va_start(values, format);
    leave(1, format, values);
}

void unusable(const char *format, ...)
{
    va_list values;
    va_start(values, format);
    leave(2, format, values);
}

void *reserve(size_t count, size_t octets)
{
    void *memory = calloc(count ? count : 1, octets);
    if (memory == NULL)
        unusable("there is no memory for %zu times %zu octets", count, octets);
    return memory;
}

uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

double cpu_s(void)
{
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec)
        + (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
}

char *room(struct buffer *buffer, size_t octets)
{
    if (buffer->start == buffer->end)
        buffer->start = buffer->end = 0;
    if (buffer->end + octets > buffer->size && buffer->start) {
        memmove(buffer->data, buffer->data + buffer->start, buffer->end - buffer->start);
        buffer->end -= buffer->start;
        buffer->start = 0;
    }
    if (buffer->end + octets > buffer->size) {
        buffer->size = 2 * (buffer->end + octets);
        buffer->data = realloc(buffer->data, buffer->size);
        if (buffer->data == NULL)
            unusable("there is no memory for a buffer of %zu octets", buffer->size);
    }
    return buffer->data + buffer->end;
}

void append(struct buffer *buffer, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    int needed = vsnprintf(NULL, 0, format, values);
    va_end(values);
    char *to = room(buffer, (size_t)needed + 1);
    va_start(values, format);
    vsnprintf(to, (size_t)needed + 1, format, values);
    va_end(values);
    buffer->end += (size_t)needed;
}

void dial(struct connection *connection)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET,
        .sin_port = htons((uint16_t)given.port),
        .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
    };
    int one = 1;
    connection->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connection->fd < 0)
        unusable("a socket cannot be had: %s", strerror(errno));
    struct sockaddr_in source = {
        .sin_family = AF_INET,
        .sin_addr.s_addr = htonl(INADDR_LOOPBACK + (uint32_t)connection->source),
    };
    /* The port is chosen with the other end in mind: each address has as many for each broker. */
    if (connection->source
        && (setsockopt(connection->fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &one, sizeof one)
            || bind(connection->fd, (struct sockaddr *)&source, sizeof source)))
        unusable("127.0.0.%d cannot be used: %s", 1 + connection->source, strerror(errno));
    if (connect(connection->fd, (struct sockaddr *)&address, sizeof address))
        unusable("127.0.0.1 port %d cannot be connected to: %s", given.port, strerror(errno));
    setsockopt(connection->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

static uint64_t write_count;

uint64_t writes(void)
{
    return write_count;
}

bool flush(struct connection *connection)
{
    struct buffer *out = &connection->out;
    while (out->start < out->end) {
        ssize_t sent = send(connection->fd, out->data + out->start, out->end - out->start,
                            MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0 && errno == EAGAIN)
            return false;
        if (sent < 0) {
            /* The connection has ended: who reads it finds out, and maybe an ERROR before. */
            out->start = out->end;
            return true;
        }
        out->start += (size_t)sent;
        write_count++;
    }
    return true;
}

bool receive(struct connection *connection)
{
    char *to = room(&connection->in, READ_OCTETS);
    ssize_t got = recv(connection->fd, to, READ_OCTETS, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    if (got == 0 && connection->may_end) {
        connection->answered = true;
        return false;
    }
    if (got <= 0)
        wrong("the broker has closed the connection of %s %d%s%s",
              connection->is_producer ? "producer" : "consumer", connection->number,
              got < 0 ? ": " : "", got < 0 ? strerror(errno) : "");
    connection->in.end += (size_t)got;
    return true;
}

void record(struct histogram *histogram, uint64_t ns)
{
    /* A class has the same highest six bits: `shift` is how many there are below them. */
    unsigned shift = ns < 64 ? 0 : 63U - (unsigned)__builtin_clzll(ns) - 5;
    if (ns < 64)
        histogram->counts[ns]++;
    else
        histogram->counts[shift * 32 + (ns >> shift)]++;
    histogram->total++;
    if (ns > histogram->most)
        histogram->most = ns;
}

static double percentile_us(const struct histogram *histogram, double part)
{
    double before = part * (double)histogram->total;
    uint64_t seen = 0;
    for (size_t i = 0; i < sizeof histogram->counts / sizeof *histogram->counts; i++) {
        seen += histogram->counts[i];
        if (seen && (double)seen >= before) {
            uint64_t shift = i < 64 ? 0 : i / 32 - 1, head = i < 64 ? i : i - shift * 32;
            double ns = (double)((2 * head + 1) << shift) / 2;
            return (ns < (double)histogram->most ? ns : (double)histogram->most) / 1e3;
        }
    }
    return 0;
}

void print_histogram(const char *name, const struct histogram *histogram)
{
    printf("\"%s\": {\"p50\": %.1f, \"p99\": %.1f, \"p99.9\": %.1f, \"max\": %.1f}, ", name,
           percentile_us(histogram, 0.5), percentile_us(histogram, 0.99),
           percentile_us(histogram, 0.999), (double)histogram->most / 1e3);
}

void put_digits(char *to, int digits, uint64_t number)
{
    while (digits--) {
        to[digits] = (char)('0' + number % 10);
        number /= 10;
    }
}

bool get_digits(const char *from, int digits, uint64_t *number)
{
    uint64_t value = 0;
    for (int i = 0; i < digits; i++) {
        unsigned digit = (unsigned)(from[i] - '0');
        if (digit > 9)
            return false;
        value = value * 10 + digit;
    }
    *number = value;
    return true;
}
