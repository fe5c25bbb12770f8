"""Jobs in the broker's queues: deadlines, queues, and STOMP consumers of the same queues."""

from __future__ import annotations

import pytest

from stompkit.frames import Frame
from stompkit.server import BrokerConfig
from stompkit.server.beanstalk.jobs import queue_of
from stompkit.server.domain.queues.queue import Queue
from stompkit.server.domain.queues.upkeep import Selection, Sweep, move_to
from stompkit.server.settings.broker import DestinationConfig
from stompkit.server.stores.memory import MemoryStore
from stompkit.testing.memory import MemoryBroker
from tests.server.beanstalk.peers import Front, MemoryWorker, document, job_id
from tests.server.brokers import stored
from tests.server.failing import HeldRunner

NOW = b"reserve-with-timeout 0\r\n"
TIMED_OUT = b"TIMED_OUT\r\n"


def put(worker: MemoryWorker, body: bytes, pri: int = 9, delay: int = 0, ttr: int = 60) -> int:
    return job_id(worker.ask(b"put %d %d %d %d\r\n%b\r\n" % (pri, delay, ttr, len(body), body)))


def reserved(job: int, body: bytes) -> bytes:
    return b"RESERVED %d %d\r\n%b\r\n" % (job, len(body), body)


def about(worker: MemoryWorker, job: int) -> dict[str, str]:
    return document(worker.ask(b"stats-job %d\r\n" % job))


# Reserving.


def test_a_worker_that_waits_gets_what_is_put(front: Front) -> None:
    first, second, producer = front.worker(), front.worker(), front.worker()
    assert first.ask(b"reserve\r\n") == b""
    assert second.ask(b"reserve\r\n") == b""
    job = put(producer, b"x")
    assert (first.heard(), second.heard()) == (reserved(job, b"x"), b"")
    other = put(producer, b"y")
    assert second.heard() == reserved(other, b"y")


def test_a_wait_ends_with_its_time(front: Front, worker: MemoryWorker) -> None:
    assert worker.ask(b"reserve-with-timeout 3\r\n") == b""
    front.clock.advance(2.5)
    assert worker.heard() == b""
    front.clock.advance(0.5)
    assert worker.heard() == TIMED_OUT


def test_commands_behind_a_wait_are_done_after_it(front: Front, worker: MemoryWorker) -> None:
    assert worker.ask(b"reserve-with-timeout 1\r\nlist-tube-used\r\n") == b""
    front.clock.advance(1)
    assert worker.heard() == TIMED_OUT + b"USING default\r\n"


def test_a_worker_that_has_closed_its_end_is_told_that_there_is_nothing(
    worker: MemoryWorker,
) -> None:
    worker.ask(b"reserve\r\n")
    worker.transport.end()
    assert worker.heard() == TIMED_OUT
    assert worker.transport.eof


def test_a_delayed_job_is_ready_in_time(front: Front, worker: MemoryWorker) -> None:
    job = put(worker, b"later", delay=5)
    assert about(worker, job)["state"] == "delayed"
    assert worker.ask(NOW) == TIMED_OUT
    worker.ask(b"reserve\r\n")
    front.clock.advance(5)
    assert worker.heard() == reserved(job, b"later")


def test_a_job_tells_the_delay_of_its_last_release(worker: MemoryWorker) -> None:
    job = put(worker, b"x", delay=5)
    assert about(worker, job)["delay"] == "5"
    worker.ask(b"kick-job %d\r\n" % job)
    for delay in (7, 0):
        assert worker.ask(NOW) == reserved(job, b"x")
        assert worker.ask(b"release %d 9 %d\r\n" % (job, delay)) == b"RELEASED\r\n"
        assert about(worker, job)["delay"] == str(delay)
        worker.ask(b"kick-job %d\r\n" % job)


def test_no_job_of_a_paused_tube_is_reserved(front: Front, worker: MemoryWorker) -> None:
    assert worker.ask(b"pause-tube default 4\r\n") == b"PAUSED\r\n"
    job = put(worker, b"x")
    assert document(worker.ask(b"stats-tube default\r\n"))["pause-time-left"] == "4"
    assert worker.ask(b"reserve\r\n") == b""
    front.clock.advance(4)
    assert worker.heard() == reserved(job, b"x")


def test_no_job_of_a_queue_that_an_operator_has_paused_is_reserved(
    front: Front, worker: MemoryWorker
) -> None:
    job = put(worker, b"x")
    broker = front.broker.broker
    queue = broker.hosts[""].destinations["/queue/default"]
    assert isinstance(queue, Queue)
    queue.is_paused = True
    assert worker.ask(NOW) == TIMED_OUT
    assert worker.ask(b"reserve\r\n") == b""
    queue.resume()
    broker.flush()
    assert worker.heard() == reserved(job, b"x")


# Deadlines of jobs.


def test_a_job_comes_back_when_its_time_is_over(front: Front, worker: MemoryWorker) -> None:
    job = put(worker, b"x", ttr=3)
    assert worker.ask(NOW) == reserved(job, b"x")
    front.clock.advance(2)
    assert about(worker, job)["time-left"] == "1"
    assert worker.ask(b"touch %d\r\n" % job) == b"TOUCHED\r\n"
    front.clock.advance(2.9)
    assert about(worker, job)["state"] == "reserved"
    front.clock.advance(0.1)
    found = about(worker, job)
    assert (found["state"], found["timeouts"], found["reserves"]) == ("ready", "1", "1")
    assert worker.ask(b"delete %d\r\n" % job) == b"DELETED\r\n"


def test_a_worker_whose_time_is_short_does_not_wait(front: Front, worker: MemoryWorker) -> None:
    put(worker, b"x", ttr=3)
    worker.ask(NOW)
    assert worker.ask(b"reserve\r\n") == b""
    front.clock.advance(2)
    assert worker.heard() == b"DEADLINE_SOON\r\n"
    assert worker.ask(b"reserve\r\n") == b"DEADLINE_SOON\r\n"
    other = put(worker, b"y")
    assert worker.ask(b"reserve\r\n") == reserved(other, b"y")


def test_a_lost_connection_gives_its_jobs_back_in_their_order(front: Front) -> None:
    worker, other = front.worker(), front.worker()
    jobs = [put(worker, body) for body in (b"1", b"2", b"3")]
    worker.ask(NOW + NOW)
    worker.transport.lose(ConnectionError())
    assert other.ask(NOW * 3) == b"".join(map(reserved, jobs, (b"1", b"2", b"3")))


def test_nobody_settles_the_job_of_another(front: Front) -> None:
    worker, other = front.worker(), front.worker()
    job = put(worker, b"x")
    worker.ask(NOW)
    for command in (b"delete %d", b"touch %d", b"release %d 0 0", b"bury %d 0", b"kick-job %d"):
        assert other.ask(command % job + b"\r\n") == b"NOT_FOUND\r\n"


# Together with STOMP.


def test_a_job_is_a_message_for_stomp(front: Front, worker: MemoryWorker) -> None:
    client = front.broker.client()
    client.subscribe("/queue/mail", id="1", ack="client-individual")
    worker.ask(b"use mail\r\n")
    job = put(worker, b"a\0b", pri=70_000, ttr=7)
    front.clock.advance(0)
    [message] = client.take("MESSAGE")
    assert message.body == b"a\0b"
    assert message.headers["beanstalk-pri"] == "70000"
    assert message.headers["beanstalk-ttr"] == "7"
    assert message.headers["priority"] == "4"
    assert about(worker, job)["state"] == "reserved"
    assert worker.ask(b"delete %d\r\n" % job) == b"NOT_FOUND\r\n"
    client.send("ACK", {"id": message.headers["ack"]})
    assert worker.ask(b"stats-job %d\r\n" % job) == b"NOT_FOUND\r\n"


def test_a_message_of_stomp_is_a_job(front: Front, worker: MemoryWorker) -> None:
    worker.ask(b"watch mail\r\n")
    worker.ask(b"reserve\r\n")
    front.broker.client().publish("/queue/mail", b"from stomp")
    answer = worker.heard()
    job = job_id(answer)
    assert answer == reserved(job, b"from stomp")
    found = about(worker, job)
    assert (found["tube"], found["pri"], found["ttr"]) == ('"mail"', "65536", "60")
    assert worker.ask(b"delete %d\r\n" % job) == b"DELETED\r\n"
    assert "/queue/mail" not in front.broker.destinations


def test_buried_jobs_are_dead_letters(front: Front, worker: MemoryWorker) -> None:
    job = put(worker, b"bad")
    worker.ask(NOW)
    assert worker.ask(b"bury %d 5\r\n" % job) == b"BURIED\r\n"
    client = front.broker.client()
    client.subscribe("/dlq/default", id="1", browser="true")
    message = client.take("MESSAGE")[0]
    assert message.headers["dead-letter-reason"] == "buried"
    assert message.headers["original-destination"] == "/queue/default"
    found = about(worker, job)
    assert (found["state"], found["pri"], found["buries"]) == ("buried", "5", "1")
    assert worker.ask(b"kick 10\r\n") == b"KICKED 1\r\n"
    assert worker.ask(NOW) == reserved(job, b"bad")
    assert about(worker, job)["kicks"] == "1"


def test_what_stomp_has_rejected_can_be_kicked(front: Front, worker: MemoryWorker) -> None:
    client = front.broker.client()
    client.publish("/queue/default", b"x")
    client.subscribe("/queue/default", id="1", ack="client-individual")
    [message] = client.take("MESSAGE")
    client.send("NACK", {"id": message.headers["ack"], "requeue": "false"})
    client.close()
    assert worker.ask(b"kick 1\r\n") == b"KICKED 1\r\n"
    assert worker.ask(NOW).endswith(b"\r\nx\r\n")


def reject(front: Front, destination: str, **connect: str) -> None:
    """Make a STOMP consumer refuse the only message of a queue."""
    client = front.broker.client(**connect)
    client.subscribe(destination, id="1", ack="client-individual")
    [message] = client.take("MESSAGE")
    client.nack(message, requeue="false")
    client.close()


def test_what_is_kicked_has_the_headers_of_its_sender(front: Front, worker: MemoryWorker) -> None:
    sender = front.broker.client()
    own = {"original-destination": "/queue/z", "dead-letter-reason": "mine", "colour": "red"}
    sender.send("SEND", {"destination": "/queue/default", **own}, b"x")
    reject(front, "/queue/default")
    assert worker.ask(b"kick 1\r\n") == b"KICKED 1\r\n"
    job = job_id(worker.ask(NOW))
    assert worker.ask(b"release %d 7 0\r\n" % job) == b"RELEASED\r\n"
    reader = front.broker.client()
    reader.subscribe("/queue/default", id="1")
    [message] = reader.take("MESSAGE")
    assert {name: message.headers[name] for name in own} == own
    assert not any(name.startswith("stompkit-") for name in message.headers)


def test_what_is_kicked_keeps_its_time(front: Front, worker: MemoryWorker) -> None:
    client = front.broker.client()
    client.publish("/queue/default", b"x", expiration="5000")
    reject(front, "/queue/default")
    assert worker.ask(b"kick 1\r\n") == b"KICKED 1\r\n"
    front.clock.advance(5.0)
    assert worker.ask(NOW) == TIMED_OUT
    client.publish("/queue/default", b"y", expiration="5000")
    reject(front, "/queue/default")
    front.clock.advance(5.0)
    assert worker.ask(b"kick 1\r\n") == b"KICKED 0\r\n"


def test_what_a_client_calls_a_dead_letter_is_not_kicked(
    front: Front, worker: MemoryWorker
) -> None:
    client = front.broker.client()
    names = ("original-destination", "stompkit-dead-letter-source")
    record = dict.fromkeys(names, "/queue/default")
    client.send("SEND", {"destination": "/dlq/default", "dead-letter-reason": "x", **record}, b"x")
    job = put(worker, b"later", delay=100)
    assert worker.ask(b"kick 5\r\n") == b"KICKED 1\r\n"
    assert worker.ask(NOW) == reserved(job, b"later")
    assert worker.ask(NOW) == TIMED_OUT
    assert stored(front.broker, "/dlq/default") == [b"x"]


def test_jobs_are_kicked_that_are_behind_many_others(front: Front, worker: MemoryWorker) -> None:
    client = front.broker.client()
    for _ in range(300):
        client.publish("/dlq/default", b"no job")
    job = put(worker, b"job")
    worker.ask(NOW)
    worker.ask(b"bury %d 1\r\n" % job)
    assert worker.ask(b"peek-buried\r\n").endswith(b"\r\njob\r\n")
    assert worker.ask(b"kick 5\r\n") == b"KICKED 1\r\n"
    assert worker.ask(NOW) == reserved(job, b"job")


def test_jobs_are_kicked_that_only_the_store_has() -> None:
    front = Front(MemoryBroker(BrokerConfig(window_messages=2), store=MemoryStore()))
    worker, client = front.worker(), front.broker.client()
    for number in range(6):
        client.publish("/dlq/default", b"no job")
        job = put(worker, b"%d" % number)
        worker.ask(NOW)
        worker.ask(b"bury %d 1\r\n" % job)
    assert worker.ask(b"kick 5\r\n") == b"KICKED 5\r\n"
    assert worker.ask(b"kick 5\r\n") == b"KICKED 1\r\n"
    assert worker.ask(b"kick 5\r\n") == b"KICKED 0\r\n"
    bodies = [worker.ask(NOW).split(b"\r\n")[1] for _ in range(6)]
    assert bodies == [b"%d" % number for number in range(6)]
    assert worker.ask(NOW) == TIMED_OUT


def test_a_tube_that_is_called_like_a_durable_subscription_has_its_own_buried_jobs(
    front: Front, worker: MemoryWorker
) -> None:
    client = front.broker.client(client_id="c")
    name = {"activemq.subscriptionName": "n"}
    client.subscribe("/topic/t", id="1", ack="client-individual", **name)
    front.broker.client().publish("/topic/t", b"letter")
    client.nack(client.take("MESSAGE")[0], requeue="false")
    worker.ask(b"use durable/c/n\r\nwatch durable/c/n\r\n")
    assert worker.ask(b"kick 10\r\n") == b"KICKED 0\r\n"
    job = put(worker, b"own")
    worker.ask(NOW)
    assert worker.ask(b"bury %d 1\r\n" % job) == b"BURIED\r\n"
    assert worker.ask(b"kick 10\r\n") == b"KICKED 1\r\n"
    assert stored(front.broker, "/dlq/durable/c/n") == [b"letter"]


def test_copies_of_a_fan_out_are_jobs_apart() -> None:
    fanout = DestinationConfig(name="/fanout/f", children=("/queue/a", "/queue/b"))
    front = Front(MemoryBroker(BrokerConfig(destinations=(fanout,)), store=MemoryStore()))
    worker = front.worker()
    worker.ask(b"watch a\r\nwatch b\r\n")
    front.broker.client().publish("/fanout/f", b"x")
    first, second = job_id(worker.ask(NOW)), job_id(worker.ask(NOW))
    assert first != second
    assert worker.ask(b"delete %d\r\ndelete %d\r\n" % (first, second)) == b"DELETED\r\n" * 2


@pytest.mark.parametrize("known", [1, 100])
@pytest.mark.parametrize("tube", ["a", "b", "c"])
def test_copies_of_a_message_are_reserved_apart_wherever_they_are(tube: str, known: int) -> None:
    """The first copy is moved to a tube, which can be that of another one."""
    children = tuple(queue_of(each) for each in "abc")
    fanout = DestinationConfig(name="/fanout/f", children=children)
    front = Front(
        MemoryBroker(BrokerConfig(destinations=(fanout,)), store=MemoryStore()),
        max_known_jobs=known,
    )
    workers = [front.worker() for _ in range(2)]
    for worker in workers:
        worker.ask(b"watch a\r\nwatch b\r\nwatch c\r\n")
    front.broker.client().publish("/fanout/f", b"x")
    source, target = (front.broker.destinations[queue_of(each)] for each in ("a", tube))
    assert isinstance(source, Queue) and isinstance(target, Queue)
    if source is not target:
        Sweep(source, Selection(), move_to(target), lambda _: None).start()
        front.clock.advance(0)
    got = [(each, job_id(each.ask(NOW))) for each in (*workers, workers[0])]
    assert len({job for _, job in got}) == 3
    for worker, job in got:
        assert worker.ask(b"release %d 9 0\r\n" % job) == b"RELEASED\r\n"
    got = [(each, job_id(each.ask(NOW))) for each in (*workers, workers[0])]
    for worker, job in got:
        assert worker.ask(b"delete %d\r\n" % job) == b"DELETED\r\n"
    assert workers[0].ask(NOW) == TIMED_OUT


def test_stomp_goes_by_the_nearest_priority() -> None:
    config = BrokerConfig().changed(priority=True)
    front = Front(MemoryBroker(config))
    worker, client = front.worker(), front.broker.client()
    for pri in (2**32 - 1, 70_000, 2_000, 0):
        put(worker, b"%d" % pri, pri=pri)
    client.subscribe("/queue/default", id="1", ack="client-individual")
    taken: list[Frame] = client.take("MESSAGE")
    assert [each.body for each in taken] == [b"0", b"2000", b"70000", b"4294967295"]


@pytest.mark.parametrize("known", [1, 10_000])
@pytest.mark.parametrize("has_store", [False, True])
def test_a_search_among_many_jobs_leaves_time_for_others(known: int, *, has_store: bool) -> None:
    store = MemoryStore() if has_store else None
    config = BrokerConfig(window_messages=10_000)
    front = Front(MemoryBroker(config, store=store), max_known_jobs=known)
    worker, other = front.worker(), front.worker()
    worker.ask(b"use long\r\n")
    jobs = [put(worker, b"%d" % number) for number in range(6_000)]
    for job, reply in ((jobs[-1], b"DELETED\r\n"), (jobs[-1], b"NOT_FOUND\r\n")):
        worker.transport.deliver(b"delete %d\r\n" % job)
        turns = 0
        while not (answer := worker.transport.take()):
            assert other.ask(b"list-tube-used\r\n") == b"USING default\r\n"
            turns += 1
        assert answer == reply
        # The id of a deleted job is known not to exist, as long as none has been forgotten.
        assert bool(turns) is (reply == b"DELETED\r\n" or known == 1)
    assert worker.ask(b"delete %d\r\n" % jobs[0]) == b"DELETED\r\n"


# Limits.


def test_a_full_queue_is_told() -> None:
    front = Front(MemoryBroker(BrokerConfig().changed(max_queue_messages=1)))
    worker = front.worker()
    put(worker, b"x")
    assert worker.ask(b"put 1 0 1 1\r\ny\r\n") == b"OUT_OF_MEMORY\r\n"
    assert worker.ask(b"list-tube-used\r\n") == b"USING default\r\n"


def test_a_put_waits_for_room_where_the_policy_says_so() -> None:
    config = BrokerConfig().changed(max_queue_messages=1, when_full="block")
    front = Front(MemoryBroker(config))
    producer, worker = front.worker(), front.worker()
    first = put(producer, b"x")
    assert producer.ask(b"put 1 0 9 1\r\ny\r\nlist-tube-used\r\n") == b""
    worker.ask(NOW)
    worker.ask(b"delete %d\r\n" % first)
    assert producer.heard().startswith(b"INSERTED ")


def test_a_job_is_found_in_a_store_that_has_only_the_buried_ones() -> None:
    config = BrokerConfig(
        window_messages=1,
        destinations=(DestinationConfig(name="/queue/default", storage="memory"),),
    )
    front = Front(MemoryBroker(config, store=MemoryStore()), max_known_jobs=1)
    worker = front.worker()
    jobs = [put(worker, b"x") for _ in range(5)]
    for job in jobs:
        assert worker.ask(NOW) == reserved(job, b"x")
        assert worker.ask(b"bury %d 9\r\n" % job) == b"BURIED\r\n"
    put(worker, b"in memory")
    assert about(worker, jobs[-1])["state"] == "buried"


@pytest.mark.parametrize("has_store", [False, True])
def test_a_burst_leaves_a_tube_that_drops_the_oldest_the_newest(*, has_store: bool) -> None:
    config = BrokerConfig().changed(
        max_queue_messages=3, when_full="drop-oldest", window_messages=2
    )
    front = Front(MemoryBroker(config, store=MemoryStore() if has_store else None))
    worker = front.worker()
    answers = worker.ask(b"".join(b"put 9 0 60 2\r\n%02d\r\n" % n for n in range(20)))
    assert answers.count(b"INSERTED") == 20
    for at in (17, 18, 19):
        assert worker.ask(NOW).endswith(b" 2\r\n%02d\r\n" % at)
    # Reserved jobs are not dropped, and leave no room.
    assert worker.ask(b"put 9 0 60 1\r\nx\r\n") == b"OUT_OF_MEMORY\r\n"


@pytest.mark.parametrize("has_store", [False, True])
def test_delayed_jobs_on_their_way_are_counted(*, has_store: bool) -> None:
    config = BrokerConfig().changed(max_delayed=3)
    front = Front(MemoryBroker(config, store=MemoryStore() if has_store else None))
    worker = front.worker()
    answers = worker.ask(b"put 9 100 60 1\r\nx\r\n" * 5)
    assert (answers.count(b"INSERTED"), answers.count(b"OUT_OF_MEMORY")) == (3, 2)
    job = put(worker, b"y")
    worker.ask(NOW)
    assert worker.ask(b"release %d 9 100\r\n" % job) == b"OUT_OF_MEMORY\r\n"
    assert worker.ask(b"release %d 9 0\r\n" % job) == b"RELEASED\r\n"


def test_octets_of_reserved_jobs_are_bounded() -> None:
    config = BrokerConfig().changed(max_unacknowledged_bytes=1_000)
    front = Front(MemoryBroker(config))
    worker = front.worker()
    jobs = [put(worker, b"x" * 600) for _ in range(3)]
    for job in jobs[:2]:
        assert worker.ask(NOW).startswith(b"RESERVED %d " % job)
    assert worker.ask(NOW) == TIMED_OUT
    worker.ask(b"delete %d\r\n" % jobs[0])
    assert worker.ask(NOW).startswith(b"RESERVED %d " % jobs[2])


def test_jobs_that_are_reserved_by_their_ids_are_bounded_as_well(front: Front) -> None:
    worker = Front(front.broker, max_reserved=2).worker()
    first, second, third = (put(worker, b"x") for _ in range(3))
    assert worker.ask(b"reserve-job %d\r\n" % second) == reserved(second, b"x")
    assert worker.ask(NOW) == reserved(first, b"x")
    assert worker.ask(b"reserve-job %d\r\n" % third) == b"OUT_OF_MEMORY\r\n"
    assert about(worker, third)["state"] == "ready"
    worker.ask(b"delete %d\r\n" % first)
    assert worker.ask(b"reserve-job %d\r\n" % third) == reserved(third, b"x")


def test_tubes_that_are_not_allowed_are_refused(front: Front) -> None:
    front = Front(front.broker, tubes=("jobs.>",))
    worker = front.worker()
    assert worker.ask(b"put 0 0 1 1\r\nx\r\n") == b"BAD_FORMAT\r\n"
    assert worker.ask(b"use other\r\nwatch other\r\n") == b"BAD_FORMAT\r\n" * 2
    assert worker.ask(b"use jobs.a\r\n") == b"USING jobs.a\r\n"
    front.broker.client().publish("/queue/default", b"secret")
    assert worker.ask(NOW) == TIMED_OUT
    assert worker.ask(b"use jobs.a\r\npeek-ready\r\n").endswith(b"NOT_FOUND\r\n")


def test_a_draining_front_end_takes_no_jobs(front: Front) -> None:
    worker = Front(front.broker, draining=True).worker()
    assert worker.ask(b"put 0 0 1 1\r\nx\r\n") == b"DRAINING\r\n"


def total_of(worker: MemoryWorker, tube: str, key: str) -> str:
    return document(worker.ask(b"stats-tube %b\r\n" % tube.encode()))[key]


def test_counts_of_tubes_that_are_gone_are_forgotten(front: Front, worker: MemoryWorker) -> None:
    """A new tube of the same name starts at zero; the totals of the server go on."""
    for number in range(1_200):
        worker.ask(b"use tube-%d\r\n" % number)
        worker.ask(b"pause-tube tube-%d 0\r\n" % number)
        worker.ask(b"delete %d\r\n" % put(worker, b"x"))
    assert total_of(worker, "tube-1199", "total-jobs") == "1"
    for tube in ("tube-1", "tube-1198", "tube-1199"):
        worker.ask(b"use %b\r\n" % tube.encode())
        for key in ("total-jobs", "cmd-delete", "cmd-pause-tube"):
            assert total_of(worker, tube, key) == "0"
    assert document(worker.ask(b"stats\r\n"))["total-jobs"] == "1200"


def test_deletions_in_tubes_that_are_gone_are_forgotten_where_others_have_sent(
    front: Front, worker: MemoryWorker
) -> None:
    producer = front.broker.client()
    for number in range(1_200):
        producer.publish(f"/queue/tube-{number}", b"x")
        worker.ask(b"watch tube-%d\r\n" % number)
        answer = worker.ask(NOW)
        assert answer.startswith(b"RESERVED ")
        worker.ask(b"delete %b\r\n" % answer.split()[1])
        worker.ask(b"ignore tube-%d\r\n" % number)
    worker.ask(b"use tube-1\r\n")
    assert total_of(worker, "tube-1", "cmd-delete") == "0"


def test_a_client_that_does_not_read_is_not_served(front: Front, worker: MemoryWorker) -> None:
    put(worker, b"x" * 60_000)
    worker.transport.stop_reading(100_000)
    worker.transport.deliver(b"peek-ready\r\n" * 1_000)
    assert worker.transport.unread_bytes < 200_000
    worker.transport.start_reading()
    assert worker.heard().count(b"FOUND") == 1_000


@pytest.mark.parametrize("window", [1, 3])
def test_jobs_that_are_only_in_the_store_are_found(window: int) -> None:
    config = BrokerConfig().changed(window_messages=window)
    front = Front(MemoryBroker(config, store=MemoryStore()))
    worker = front.worker()
    jobs = [put(worker, b"%d" % at) for at in range(10)]
    assert about(worker, jobs[8])["state"] == "ready"
    assert worker.ask(b"peek %d\r\n" % jobs[9]) == b"FOUND %d 1\r\n9\r\n" % jobs[9]
    assert worker.ask(b"delete %d\r\n" % jobs[7]) == b"DELETED\r\n"
    assert worker.ask(b"stats-job %d\r\n" % jobs[7]) == b"NOT_FOUND\r\n"
    left = [at for at in range(10) if at != 7]
    for at in left:
        assert worker.ask(NOW) == reserved(jobs[at], b"%d" % at)
        assert worker.ask(b"delete %d\r\n" % jobs[at]) == b"DELETED\r\n"
    assert worker.ask(NOW) == TIMED_OUT


def test_a_broker_that_is_started_again_knows_its_jobs() -> None:
    store = MemoryStore()
    front = Front(MemoryBroker(BrokerConfig(), store=store))
    worker = front.worker()
    ready, late = put(worker, b"r", pri=3), put(worker, b"l", delay=50)
    buried = put(worker, b"b", pri=0)
    worker.ask(NOW)
    worker.ask(b"bury %d 0\r\n" % buried)
    clock = front.clock
    front.broker.broker.close()
    again = Front(MemoryBroker(BrokerConfig(), store=store, clock=clock))
    worker = again.worker()
    assert about(worker, ready)["pri"] == "3"
    assert about(worker, late)["state"] == "delayed"
    assert about(worker, buried)["state"] == "buried"
    assert worker.ask(b"kick-job %d\r\n" % late) == b"KICKED\r\n"
    assert worker.ask(NOW) == reserved(ready, b"r")
    assert worker.ask(NOW) == reserved(late, b"l")
    assert worker.ask(b"delete %d\r\n" % buried) == b"DELETED\r\n"
    assert put(worker, b"n") > late


def test_a_job_that_is_being_deleted_is_not_read_from_the_store_any_more() -> None:
    runner = HeldRunner()
    broker = MemoryBroker(BrokerConfig(window_messages=4), store=MemoryStore(), runner=runner)
    front = Front(broker)
    worker, other, sender = front.worker(), front.worker(), broker.client()
    jobs = [put(worker, b"x") for _ in range(12)]
    runner.is_held = True
    other.transport.deliver(b"delete %d\r\n" % jobs[4])
    # The store is busy when the broker finds the job. It reads more messages before that ends.
    sender.publish("/queue/other", b"x")
    runner.step()
    worker.transport.deliver(b"reserve\r\n" * 11)
    for _ in range(4):
        runner.step()
    runner.go_on()
    assert other.heard() == b"DELETED\r\n"
    del jobs[4]
    assert worker.heard() == b"".join(reserved(job, b"x") for job in jobs)
    queue = broker.destinations["/queue/default"]
    assert (queue.ready, queue.is_idle) == (0, False)
