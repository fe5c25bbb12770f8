"""The settings of the broker that the program uses, in a test."""


def test_an_order_is_tried_twice(stomp_broker_factory, tmp_path):
    settings = tmp_path / "stompkit.toml"
    settings.write_text('[[destination]]\nname = "/queue/orders"\nmax_deliveries = 2\n')
    with stomp_broker_factory("stompkit", config=settings).client() as client:
        client.subscribe("/queue/orders", ack="client-individual")
        client.subscribe("/dlq/orders")
        client.send("/queue/orders", "one pizza")
        client.nack(client.receive())
        client.nack(client.receive())
        assert client.receive().headers["dead-letter-reason"] == "max-deliveries"
