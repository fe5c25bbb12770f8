/* A load generator for message brokers: options, and what they lead to.

   One process and one thread: so much is written and read at a time that it is never the limit;
   `generator_cpu_s` of its report tells. Each message carries its producer, its number and the
   time, and every consumer checks that all come, once, in their order, and whole. Where they don't,
   a sentence says so and the exit status is 1; 2 where nothing could be measured.

   engine.c is the loop; template.c makes messages; stomp.c, beanstalk.c and raw.c are protocols;
   account.c checks. */

#include "load.h"

#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct options given = {
    .mode = "",
    .version = "1.2",
    .host = "127.0.0.1",
    .producers = 1,
    .consumers = 1,
    .destination = "/queue/load",
    .destinations = 1,
    .ack = "auto",
    .messages = 100000,
    .body_octets = 100,
    .outstanding = 10000,
    .write_octets = 65536,
    .timeout_s = 30,
    .parallel = 1,
};

static const char help[] =
    "Use: load stomp|raw|beanstalk|churn|idle|relay --port PORT [OPTIONS]\n"
    "\n"
    "  stomp      producers and consumers of a STOMP broker\n"
    "  raw        the same through a relay that forwards octets\n"
    "  beanstalk  the same with beanstalkd: put, reserve, delete\n"
    "  churn      STOMP connections that send a message each, --parallel at a time; as many as\n"
    "             --messages; an --unordered drain with as many producers finds all\n"
    "  idle       as many STOMP connections as --messages, opened --parallel at a time: once they\n"
    "             are open that is reported, and they stay so until a line comes in\n"
    "  relay      be such a relay\n"
    "\n"
    "  --messages N             of all producers (100000)\n"
    "  --producers N            connections that send (1)\n"
    "  --consumers N            connections that receive (1)\n"
    "  --phase both|fill|drain  fill: nobody receives; drain: nobody sends, what the same\n"
    "                           producers have filled in is received (both)\n"
    "  --topic                  every consumer gets all\n"
    "  --varied                 heads differ: two headers of its own for each message, and six\n"
    "                           usual ones; else all have the same head, with few headers\n"
    "  --unordered              the order does not matter\n"
    "  --destination NAME       (/queue/load)\n"
    "  --destinations N         producer and consumer I use NAME-(I modulo N) (1)\n"
    "  --ack MODE               auto, client or client-individual (auto)\n"
    "  --body N                 octets, 36 at least (100)\n"
    "  --outstanding N          messages sent and not received (10000)\n"
    "  --window N               a receipt for each message, at most N without it per producer;\n"
    "                           for beanstalkd answers to put, or to 100 reserves (0: none)\n"
    "  --rate N                 messages a second; latency is from when one was due\n"
    "  --write-octets N         most octets of messages in a write, or of acknowledgements; with 1\n"
    "                           each is a write of its own (65536)\n"
    "  --send-header NAME:VALUE, --subscribe-header NAME:VALUE  may be repeated\n"
    "  --version 1.1|1.2  --host NAME  --login USER  --passcode PASSWORD  of CONNECT\n"
    "  --parallel N             connections at a time (1)\n"
    "  --most SECONDS           after which idle opens no more (0: all are opened)\n"
    "  --timeout SECONDS        without any progress (30)\n";

enum {
    PORT = 256, VERSION, HOST, LOGIN, PASSCODE, PHASE, PRODUCERS, CONSUMERS, DESTINATION,
    DESTINATIONS, TOPIC, VARIED, UNORDERED, ACK, SEND_HEADER, SUBSCRIBE_HEADER, MESSAGES, BODY,
    OUTSTANDING, WINDOW, RATE, WRITE_OCTETS, TIMEOUT, PARALLEL, MOST, HELP,
};

static const struct option names[] = {
    {"port", required_argument, NULL, PORT},
    {"version", required_argument, NULL, VERSION},
    {"host", required_argument, NULL, HOST},
    {"login", required_argument, NULL, LOGIN},
    {"passcode", required_argument, NULL, PASSCODE},
    {"phase", required_argument, NULL, PHASE},
    {"producers", required_argument, NULL, PRODUCERS},
    {"consumers", required_argument, NULL, CONSUMERS},
    {"destination", required_argument, NULL, DESTINATION},
    {"destinations", required_argument, NULL, DESTINATIONS},
    {"topic", no_argument, NULL, TOPIC},
    {"varied", no_argument, NULL, VARIED},
    {"unordered", no_argument, NULL, UNORDERED},
    {"ack", required_argument, NULL, ACK},
    {"send-header", required_argument, NULL, SEND_HEADER},
    {"subscribe-header", required_argument, NULL, SUBSCRIBE_HEADER},
    {"messages", required_argument, NULL, MESSAGES},
    {"body", required_argument, NULL, BODY},
    {"outstanding", required_argument, NULL, OUTSTANDING},
    {"window", required_argument, NULL, WINDOW},
    {"rate", required_argument, NULL, RATE},
    {"write-octets", required_argument, NULL, WRITE_OCTETS},
    {"timeout", required_argument, NULL, TIMEOUT},
    {"parallel", required_argument, NULL, PARALLEL},
    {"most", required_argument, NULL, MOST},
    {"help", no_argument, NULL, HELP},
    {0},
};

static uint64_t whole(const char *text, uint64_t least, uint64_t most)
{
    char *end;
    unsigned long long number = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || number < least || number > most)
        unusable("%s is not a whole number from %llu to %llu", text, (unsigned long long)least,
                 (unsigned long long)most);
    return number;
}

static enum phase phase_of(const char *text)
{
    if (strcmp(text, "both") == 0)
        return BOTH;
    if (strcmp(text, "fill") == 0)
        return FILL;
    if (strcmp(text, "drain") == 0)
        return DRAIN;
    unusable("--phase is both, fill or drain, not %s", text);
}

static void add(const char **headers, const char *line)
{
    size_t count = 0;
    while (headers[count])
        count++;
    if (count == MOST_HEADERS - 1)
        unusable("there are too many headers: %d at most", MOST_HEADERS - 1);
    headers[count] = line;
}

static void set(int name, const char *value)
{
    switch (name) {
    case PORT: given.port = (int)whole(value, 0, 65535); break;
    case VERSION: given.version = value; break;
    case HOST: given.host = value; break;
    case LOGIN: given.login = value; break;
    case PASSCODE: given.passcode = value; break;
    case PHASE: given.phase = phase_of(value); break;
    case PRODUCERS: given.producers = (int)whole(value, 1, 9999); break;
    case CONSUMERS: given.consumers = (int)whole(value, 0, 9999); break;
    case DESTINATION: given.destination = value; break;
    case DESTINATIONS: given.destinations = (int)whole(value, 1, 9999); break;
    case TOPIC: given.topic = true; break;
    case VARIED: given.varied = true; break;
    case UNORDERED: given.unordered = true; break;
    case ACK: given.ack = value; break;
    case SEND_HEADER: add(given.send_headers, value); break;
    case SUBSCRIBE_HEADER: add(given.subscribe_headers, value); break;
    case MESSAGES: given.messages = whole(value, 1, 1000000000); break;
    case BODY: given.body_octets = whole(value, STAMP_OCTETS, 1 << 30); break;
    case OUTSTANDING: given.outstanding = whole(value, 1, 1000000000); break;
    case WINDOW: given.window = whole(value, 0, 1000000000); break;
    case RATE: given.rate = whole(value, 0, 1000000000); break;
    case WRITE_OCTETS: given.write_octets = whole(value, 1, 1 << 30); break;
    case TIMEOUT: given.timeout_s = strtod(value, NULL); break;
    case PARALLEL: given.parallel = (int)whole(value, 1, 9999); break;
    case MOST: given.most_s = strtod(value, NULL); break;
    case HELP: fputs(help, stdout); exit(0);
    default: unusable("load --help tells the options");
    }
}

static void check(void)
{
    if (given.topic && given.destinations > 1)
        unusable("--topic has one destination");
    if (given.phase == FILL)
        given.consumers = 0;
    else if (given.consumers < given.destinations)
        unusable("each of the --destinations needs a consumer");
    if (given.producers < given.destinations)
        unusable("each of the --destinations needs a producer");
    if (given.window == 0 && strcmp(given.mode, "beanstalk") == 0)
        unusable("beanstalk needs a --window: beanstalkd answers everything");
    if (given.timeout_s <= 0)
        unusable("--timeout is a number of seconds above 0");
}

int main(int count, char **words)
{
    int name;
    while ((name = getopt_long(count, words, "", names, NULL)) != -1)
        set(name, optarg);
    if (optind != count - 1)
        unusable("one mode is needed; load --help tells them");
    given.mode = words[optind];
    if (strcmp(given.mode, "churn") == 0)
        given.producers = given.parallel;
    check();
    signal(SIGPIPE, SIG_IGN);
    if (strcmp(given.mode, "stomp") == 0)
        run_load(&stomp);
    else if (strcmp(given.mode, "raw") == 0)
        run_load(&raw);
    else if (strcmp(given.mode, "beanstalk") == 0)
        run_load(&beanstalk);
    else if (strcmp(given.mode, "churn") == 0)
        run_churn();
    else if (strcmp(given.mode, "idle") == 0)
        run_idle();
    else if (strcmp(given.mode, "relay") == 0)
        run_relay();
    else
        unusable("there is no mode %s; load --help tells them", given.mode);
    return 0;
}
