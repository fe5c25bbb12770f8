"""Fifteen tests of the service, on the broker selected by pytest's options."""

from __future__ import annotations

import json
import queue
import threading
from contextlib import suppress
from dataclasses import replace

import pytest
from conftest import places_on

PIZZA = {"dish": "pizza"}


def test_an_order_is_answered(places, service, customer, stomp_broker):
    service(places)
    ann = customer(places)
    ann.listen(answers := stomp_broker.queue("answers"))
    ann.order(places, PIZZA, reply_to=answers)
    assert json.loads(ann.next().body) == {"price": 8}


def test_an_answer_names_its_order(places, service, customer, stomp_broker):
    service(places)
    ann = customer(places)
    ann.listen(answers := stomp_broker.queue("answers"))
    ann.order(places, PIZZA, reply_to=answers, correlation_id="a:1")
    assert ann.next().headers["correlation-id"] == "a:1"


def test_each_customer_gets_its_own_answers(places, service, customer, stomp_broker):
    service(places)
    ann, bob = customer(places), customer(places)
    for who, name, dish in ((ann, "ann", "pizza"), (bob, "bob", "soup")):
        who.listen(stomp_broker.queue(name))
        who.order(places, {"dish": dish}, reply_to=stomp_broker.queue(name))
    assert json.loads(ann.next().body) == {"price": 8}
    assert json.loads(bob.next().body) == {"price": 5}


def test_orders_are_answered_in_their_order(places, service, customer, stomp_broker):
    service(places)
    ann = customer(places)
    ann.listen(answers := stomp_broker.queue("answers"))
    # CoilMQ cannot read frames that arrive in more than 4,096 bytes at a time.
    for count in range(1, 7):
        ann.order(places, {"dish": "soup", "count": count}, reply_to=answers)
    prices = [json.loads(ann.next().body)["price"] for _ in range(6)]
    assert prices == [5, 10, 15, 20, 25, 30]


@pytest.mark.stomp_requires("topic")
def test_those_who_watch_hear_of_an_order(places, service, customer):
    service(places)
    cook, waiter, ann = (customer(places) for _ in range(3))
    cook.listen(places.events)
    waiter.listen(places.events)
    ann.order(places, PIZZA)
    assert json.loads(cook.next().body) == json.loads(waiter.next().body) == PIZZA


@pytest.mark.stomp_requires("topic")
def test_a_dish_with_accents_arrives_as_it_was(places, service, customer):
    service(places)
    cook, ann = customer(places), customer(places)
    cook.listen(places.events)
    ann.order(places, {"dish": "crème brûlée", "for": "Zoë ☃"})
    assert json.loads(cook.next().body) == {"dish": "crème brûlée", "for": "Zoë ☃"}


@pytest.mark.parametrize("body", ["no json", '{"dish": "stones"}', "[]", "{}"])
def test_what_makes_no_sense_is_rejected(places, service, customer, body):
    service(places)
    ann = customer(places)
    ann.listen(places.rejected)
    ann.order(places, body)
    assert ann.next().body == body


@pytest.mark.stomp_requires("ack")
def test_an_order_is_acknowledged_once_it_is_answered(places, service, customer, stomp_broker):
    service(places)
    ann = customer(places)
    ann.listen(answers := stomp_broker.queue("answers"))
    ann.order(places, PIZZA, reply_to=answers)
    ann.next()
    frames = stomp_broker.frames
    # The service of the test before can still be ending.
    own = frames.wait_for("MESSAGE", destination=places.orders).connection
    acknowledged = frames.wait_for("ACK", connection=own)
    committed = frames.find("COMMIT", connection=own)
    assert [each.at_s <= acknowledged.at_s for each in committed] == [True]


@pytest.mark.stomp_requires("ack", "redelivered")
def test_an_order_of_a_service_that_died_is_done_by_another(
    places, service, customer, stomp_broker
):
    has_it, may_go_on = threading.Event(), threading.Event()

    def think(order):
        has_it.set()
        may_go_on.wait()

    dying = service(places, before_answer=think)
    ann = customer(places)
    ann.listen(answers := stomp_broker.queue("answers"))
    ann.order(places, PIZZA, reply_to=answers)
    assert has_it.wait(20)
    dying.die()
    may_go_on.set()
    service(places)
    assert json.loads(ann.next().body) == {"price": 8}


@pytest.mark.stomp_requires("transactions", "topic")
def test_nobody_hears_of_an_order_whose_transaction_is_not_committed(
    places, customer, stomp_broker
):
    cook, ann = customer(places), customer(places)
    cook.listen(places.events)
    transaction = ann.connection.begin()
    ann.connection.send(places.events, "never", transaction=transaction)
    ann.connection.abort(transaction)
    ann.connection.send(places.events, "last")
    assert cook.next().body == "last"


@pytest.mark.stomp_requires("restart")
def test_the_service_comes_back_with_its_broker(places, service, customer, stomp_broker):
    service(places)
    stomp_broker.restart()
    ann = customer(replace(places, port=stomp_broker.port))
    ann.listen(answers := stomp_broker.queue("answers"))
    ann.order(places, PIZZA, reply_to=answers)
    assert json.loads(ann.next().body) == {"price": 8}


@pytest.mark.stomp_requires("frames")
def test_the_service_comes_back_where_the_network_cuts_it_off(
    places, service, customer, stomp_broker, stomp_proxy
):
    service(replace(places, host=stomp_proxy.host, port=stomp_proxy.port))
    ann = customer(places)
    ann.listen(answers := stomp_broker.queue("answers"))
    answer = None
    with stomp_proxy.reset("MESSAGE", times=1) as fault:
        while answer is None:
            # Some brokers lose messages in flight; Ann orders again if no answer arrives.
            ann.order(places, PIZZA, reply_to=answers)
            with suppress(queue.Empty):
                answer = ann.next(timeout_s=3.0)
        assert fault.count == 1
    assert json.loads(answer.body) == {"price": 8}


def test_a_broker_of_its_own_has_nothing_of_others(places, service, customer, stomp_broker_factory):
    broker = stomp_broker_factory()
    there = places_on(broker)
    service(there)
    ann = customer(there)
    ann.listen(answers := broker.queue("answers"))
    ann.order(there, PIZZA, reply_to=answers)
    assert json.loads(ann.next().body) == {"price": 8}


@pytest.mark.stomp_requires("receipt")
def test_the_other_side_may_be_the_client_of_the_plugin(
    places, service, stomp_broker, stomp_client
):
    service(places)
    stomp_client.subscribe(answers := stomp_broker.queue("answers"))
    stomp_client.send(places.orders, '{"dish": "pizza"}', reply_to=answers)
    assert json.loads(stomp_client.receive().text) == {"price": 8}


@pytest.mark.stomp_requires("kill")
def test_orders_wait_for_a_broker_that_was_killed(places, service, customer, stomp_broker):
    service(places)
    stomp_broker.kill()
    stomp_broker.restart()
    ann = customer(places)
    ann.listen(places.rejected)
    ann.order(places, "nonsense")
    assert ann.next().body == "nonsense"
