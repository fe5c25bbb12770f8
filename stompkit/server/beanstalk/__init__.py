"""beanstalkd clients on the broker's queues: a tube NAME is the queue /queue/NAME."""

from stompkit.server.beanstalk.protocol import BeanstalkFactory

__all__ = ["BeanstalkFactory"]
