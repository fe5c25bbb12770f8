/* What the parts of the load generator share. Read load.c first. */

#ifndef LOAD_H
#define LOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NS_PER_S UINT64_C(1000000000)
/* Headers of one kind that can be given on the command line. */
#define MOST_HEADERS 16
/* Values of a head that differ from message to message. */
#define MOST_FIELDS 8
/* What a body begins with: producer, number and time in ns, each followed by a space. */
#define STAMP_OCTETS 36

/* ---- options (load.c) ---- */

enum phase { BOTH, FILL, DRAIN };

struct options {
    const char *mode;        /* stomp, raw, beanstalk, churn, idle or relay */
    int port;                /* of 127.0.0.1 */
    const char *version;     /* of STOMP: 1.1 or 1.2 */
    const char *host;        /* CONNECT's host header */
    const char *login, *passcode;
    enum phase phase;
    int producers, consumers;
    const char *destination; /* a number is appended where there are several */
    int destinations;
    bool topic;              /* every consumer gets all */
    bool varied;             /* heads differ from message to message, as those of applications */
    bool unordered;          /* the order is not looked at */
    const char *ack;         /* auto, client-individual or client */
    const char *send_headers[MOST_HEADERS];
    const char *subscribe_headers[MOST_HEADERS];
    uint64_t messages;       /* of all producers */
    size_t body_octets;
    uint64_t outstanding;    /* messages sent and not received */
    uint64_t window;         /* messages of a producer without receipt; 0: no receipts */
    uint64_t rate;           /* messages a second; 0: as fast as it goes */
    size_t write_octets;     /* most octets of SENDs, or of acknowledgements, in a write */
    double timeout_s;        /* without any progress */
    int parallel;            /* connections at a time, for churn and idle */
    double most_s;           /* opens no more after so long, for idle; 0: opens all */
};

extern struct options given;

/* ---- ends, time, buffers, connections (common.c) ---- */

/* The broker does wrong: a sentence on standard error, exit status 1. */
_Noreturn void wrong(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Nothing can be measured: a sentence on standard error, exit status 2. */
_Noreturn void unusable(const char *format, ...) __attribute__((format(printf, 1, 2)));

void *reserve(size_t count, size_t octets);
uint64_t now_ns(void);
double cpu_s(void);

/* Octets from `start` to `end` of what `data` points to. */
struct buffer {
    char *data;
    size_t start, end, size;
};

/* Where to write so many octets; `end` is moved by whoever has written them. */
char *room(struct buffer *buffer, size_t octets);
void append(struct buffer *buffer, const char *format, ...) __attribute__((format(printf, 2, 3)));

struct connection {
    int fd;
    int number;              /* among the producers, or among the consumers */
    int source;              /* comes from 127.0.0.(1 + this) */
    bool is_producer;
    bool waits;              /* for room in the socket */
    bool answered;           /* what was waited for has come */
    bool may_end;            /* the end of the connection is an answer, too */
    struct buffer in, out;
    uint64_t asked, answers; /* counted by protocols whose answers come in order */
};

/* Connects, blocking. */
void dial(struct connection *connection);
/* Writes what the socket takes; says whether that was all. */
bool flush(struct connection *connection);
/* How many writes have been made to all connections. */
uint64_t writes(void);
/* Reads what is there; false: nothing was. The end of the connection is wrong, unless it may end. */
bool receive(struct connection *connection);

/* Times in ns, in classes whose width is at most 1/32 of them. */
struct histogram {
    uint64_t counts[64 * 32];
    uint64_t total, most;
};

void record(struct histogram *histogram, uint64_t ns);
/* Prints percentiles as a JSON object, in microseconds. */
void print_histogram(const char *name, const struct histogram *histogram);

/* ---- who has got what (account.c) ---- */

void open_account(void);
/* Messages that a producer sends. */
uint64_t share_of(int producer);
/* Where a producer sends to, or a consumer reads. */
int destination_of(int member);
/* Writes number and time into a body that `make_body` has made. */
void stamp(char *body, int producer, uint64_t number, uint64_t ns);
void make_body(char *body);
/* Checks a body that a consumer got, and that it was the right one to get it. */
void take_body(int consumer, const char *body, size_t octets);
/* Whether all have got everything. */
bool all_received(void);
/* Messages that have come to all who want them. */
uint64_t received_by_all(void);
uint64_t deliveries(void);
const struct histogram *latencies(void);
/* When the first message came; 0 before. */
uint64_t first_ns(void);
/* Ends with the first message that is missing. */
_Noreturn void tell_missing(void);

/* ---- messages (template.c) ---- */

/* A value of a head that differs from message to message. */
enum value { NUMBER, SENT_NS, EXPIRY_MS, TRACE };

struct field {
    enum value value;
    size_t at;
    int digits;
};

/* A frame that sends a message, and where in it values go. */
struct template {
    char *octets;
    size_t length, body;
    struct field fields[MOST_FIELDS];
    int field_count;
};

/* Appends a header with a value that `append_message` writes, and its line end. */
void append_field(struct template *made, struct buffer *out, const char *before, enum value value,
                  int digits, const char *after);
/* Appends a message of a producer. */
void append_message(struct buffer *out, const struct template *message, int producer,
                    uint64_t number, uint64_t ns);

/* ---- protocols (stomp.c, raw.c, beanstalk.c) ---- */

struct protocol {
    void (*open)(struct connection *connection);
    void (*subscribe)(struct connection *connection);
    struct template (*make)(int producer);
    /* Takes one frame; gives its length, 0 if it is not whole yet. */
    size_t (*take)(struct connection *connection, const char *data, size_t length);
    void (*close)(struct connection *connection);
};

extern const struct protocol stomp, raw, beanstalk;

/* Writes a whole number with leading zeros. */
void put_digits(char *to, int digits, uint64_t number);
/* Reads one; false where something else is there. */
bool get_digits(const char *from, int digits, uint64_t *number);

/* Appends CONNECT. */
void append_connect(struct buffer *out);

/* ---- what runs (engine.c, churn.c, idle.c, relay.c) ---- */

void run_load(const struct protocol *protocol);
/* A message of a producer is confirmed. */
void confirm(int producer, uint64_t number);
/* Flushes, then reads and takes frames until `answered`. */
void await(const struct protocol *protocol, struct connection *connection);
void run_churn(void);
void run_idle(void);
void run_relay(void);

#endif
