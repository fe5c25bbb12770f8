"""The Celery settings that a worker and its test share."""

from __future__ import annotations

from collections.abc import Mapping

from celery import Celery

import stompkit.kombu  # noqa: F401  # registers the scheme

__all__ = ["configured"]


def configured(settings: Mapping[str, str]) -> Celery:
    """Return an application that shares the broker, but no queue, with others."""
    queue = settings["TEST_QUEUE"]
    app = Celery("application", set_as_current=False)
    app.conf.update(
        broker_url=settings["TEST_BROKER_URL"],
        result_backend=settings["TEST_RESULT_BACKEND"],
        task_default_queue=queue,
        control_exchange=f"{queue}.control",
        event_exchange=f"{queue}.events",
        event_queue_prefix=f"{queue}.events",
        worker_prefetch_multiplier=1,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        broker_transport_options={"heartbeat_s": 2.0},
    )
    return app
