"""A test that needs RabbitMQ, whichever broker the others use."""


def test_a_rejected_order_comes_again(stomp_broker_factory):
    broker = stomp_broker_factory("rabbitmq")
    orders = broker.queue("orders")
    with broker.client() as client:
        client.send(orders, b"one pizza")
        client.subscribe(orders, ack="client-individual")
        client.nack(client.receive())
        assert client.receive().headers["redelivered"] == "true"
