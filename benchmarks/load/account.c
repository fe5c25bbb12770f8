/* Who has got what: order, duplicates, completeness and content of the messages. */

#include "load.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Digits of the parts of a stamp. */
enum { PRODUCER_DIGITS = 4, NUMBER_DIGITS = 10, TIME_DIGITS = 19 };

/* Those who share messages: the consumers of a queue; each consumer of a topic is one for itself. */
static int groups;
static int *members;              /* [group] consumers in it */
static uint64_t **seen;           /* [group * producers + producer] a bit for each number */
static uint64_t *of_stream;       /* the same: how many have come */
static uint64_t *next;            /* [consumer * producers + producer] above the last number */
static uint64_t *of_group;        /* how many have come */
static uint64_t *expected;        /* [group] how many are to come */
static uint64_t total, to_come, first_came_ns;
static char *filler;
static struct histogram times;

static int group_of(int consumer)
{
    return given.topic ? consumer : destination_of(consumer);
}

static bool wants(int group, int producer)
{
    int destination = given.topic ? destination_of(group) : group;
    return destination == destination_of(producer);
}

uint64_t share_of(int producer)
{
    uint64_t producers = (uint64_t)given.producers;
    return given.messages / producers + ((uint64_t)producer < given.messages % producers);
}

int destination_of(int member)
{
    return member % given.destinations;
}

void open_account(void)
{
    size_t producers = (size_t)given.producers;
    groups = given.topic ? given.consumers : given.destinations;
    if (given.consumers == 0)
        groups = 0;
    members = reserve((size_t)groups, sizeof *members);
    of_group = reserve((size_t)groups, sizeof *of_group);
    expected = reserve((size_t)groups, sizeof *expected);
    seen = reserve((size_t)groups * producers, sizeof *seen);
    of_stream = reserve((size_t)groups * producers, sizeof *of_stream);
    next = reserve((size_t)given.consumers * producers, sizeof *next);
    for (int consumer = 0; consumer < given.consumers; consumer++)
        members[group_of(consumer)]++;
    for (int group = 0; group < groups; group++)
        for (int producer = 0; producer < given.producers; producer++)
            if (wants(group, producer)) {
                seen[group * given.producers + producer]
                    = reserve(share_of(producer) / 64 + 1, sizeof **seen);
                expected[group] += share_of(producer);
                to_come += share_of(producer);
            }
    filler = reserve(given.body_octets, 1);
    make_body(filler);
}

void make_body(char *body)
{
    for (size_t i = 0; i < given.body_octets; i++)
        body[i] = (char)('a' + i % 23);
}

void stamp(char *body, int producer, uint64_t number, uint64_t ns)
{
    put_digits(body, PRODUCER_DIGITS, (uint64_t)producer);
    body += PRODUCER_DIGITS;
    *body++ = ' ';
    put_digits(body, NUMBER_DIGITS, number);
    body += NUMBER_DIGITS;
    *body++ = ' ';
    put_digits(body, TIME_DIGITS, ns);
    body[TIME_DIGITS] = ' ';
}

static void check(int consumer, const char *body, size_t octets, uint64_t *producer,
                  uint64_t *number, uint64_t *ns)
{
    if (octets != given.body_octets)
        wrong("consumer %d got a wrong body: %zu octets, not %zu", consumer, octets,
              given.body_octets);
    const char *second = body + PRODUCER_DIGITS + 1, *third = second + NUMBER_DIGITS + 1;
    if (!get_digits(body, PRODUCER_DIGITS, producer) || second[-1] != ' '
        || !get_digits(second, NUMBER_DIGITS, number) || third[-1] != ' '
        || !get_digits(third, TIME_DIGITS, ns) || body[STAMP_OCTETS - 1] != ' '
        || *producer >= (uint64_t)given.producers || *number >= share_of((int)*producer))
        wrong("consumer %d got a wrong body, which begins with %.*s", consumer, STAMP_OCTETS, body);
    if (memcmp(body + STAMP_OCTETS, filler + STAMP_OCTETS, octets - STAMP_OCTETS))
        wrong("consumer %d got a wrong body: that of message %" PRIu64 " of producer %" PRIu64
              " is spoilt", consumer, *number, *producer);
}

/* How many of a stream are missing; the first of them. */
static uint64_t missing(int group, int producer, uint64_t *first)
{
    int stream = group * given.producers + producer;
    uint64_t share = share_of(producer);
    for (*first = 0; *first < share; ++*first)
        if (!(seen[stream][*first / 64] >> *first % 64 & 1))
            break;
    return share - of_stream[stream];
}

static _Noreturn void tell_lost(int group, int producer)
{
    uint64_t first, count = missing(group, producer, &first);
    wrong("%" PRIu64 " of %" PRIu64 " messages of producer %d to %s %d are lost, or late: the first"
          " is number %" PRIu64, count, share_of(producer), producer, given.topic ? "consumer" : "queue",
          group, first);
}

void take_body(int consumer, const char *body, size_t octets)
{
    uint64_t from, number, ns, now = now_ns();
    check(consumer, body, octets, &from, &number, &ns);
    int producer = (int)from, group = group_of(consumer);
    int stream = group * given.producers + producer;
    if (!wants(group, producer))
        wrong("consumer %d got message %" PRIu64 " of producer %d, which was sent elsewhere",
              consumer, number, producer);
    uint64_t *bits = &seen[stream][number / 64], bit = UINT64_C(1) << number % 64;
    if (*bits & bit)
        wrong("consumer %d got message %" PRIu64 " of producer %d, which had been delivered: a"
              " duplicate", consumer, number, producer);
    uint64_t *after = &next[consumer * given.producers + producer];
    if (number < *after && !given.unordered)
        wrong("consumer %d got message %" PRIu64 " of producer %d after number %" PRIu64
              ": out of order", consumer, number, producer, *after - 1);
    *after = number + 1;
    *bits |= bit;
    of_stream[stream]++;
    of_group[group]++;
    if (total++ == 0)
        first_came_ns = now;
    record(&times, now > ns ? now - ns : 0);
    /* Nothing can come after the last one, where nobody else takes some. */
    bool is_last = number + 1 == share_of(producer) && members[group] == 1 && !given.unordered;
    if (is_last && of_stream[stream] < share_of(producer))
        tell_lost(group, producer);
}

bool all_received(void)
{
    return total == to_come;
}

uint64_t received_by_all(void)
{
    if (!given.topic)
        return total;
    uint64_t least = groups ? of_group[0] : 0;
    for (int group = 1; group < groups; group++)
        if (of_group[group] < least)
            least = of_group[group];
    return least;
}

uint64_t deliveries(void)
{
    return total;
}

uint64_t first_ns(void)
{
    return first_came_ns;
}

const struct histogram *latencies(void)
{
    return &times;
}

void tell_missing(void)
{
    for (int group = 0; group < groups; group++)
        for (int producer = 0; producer < given.producers; producer++)
            if (wants(group, producer)
                && of_stream[group * given.producers + producer] < share_of(producer))
                tell_lost(group, producer);
    wrong("nothing more came for %g s, though not all receipts are there", given.timeout_s);
}
