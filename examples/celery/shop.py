"""A small application of Celery on a STOMP broker."""

import os

from celery import Celery

import stompkit.kombu

stompkit.kombu.register()  # the import does so, too
app = Celery("shop", broker=os.environ.get("BROKER_URL", "stomp://localhost:61613//"))
app.conf.update(
    result_backend="rpc://",
    task_acks_late=True,  # a task whose worker dies is done by another one
    task_reject_on_worker_lost=True,
    worker_prefetch_multiplier=1,
)


@app.task
def add(x, y):
    return x + y


@app.task(bind=True, autoretry_for=(ConnectionError,), retry_backoff=1, max_retries=3)
def charge(self, customer):
    if self.request.retries < 2:
        raise ConnectionError("the bank is closed")
    return f"{customer} has paid"
