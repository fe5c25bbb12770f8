"""Clients of beanstalkd on the queues of the broker: a tube NAME is the queue /queue/NAME."""

from stompkit.server.beanstalk._protocol import BeanstalkFactory

__all__ = ["BeanstalkFactory"]
