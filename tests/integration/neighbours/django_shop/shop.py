"""A Django project in one module: settings, a view that sends an order, and its URL."""

from __future__ import annotations

import stomp
from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.urls import path

SECRET_KEY = "of tests"
ALLOWED_HOSTS = ["*"]
ROOT_URLCONF = "shop"
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}
STATIC_URL = "/static/"
#: Address of the broker, and destination of orders; tests set them.
STOMP_ADDRESS = ("localhost", 61613)
ORDERS = "/queue/orders"


def order(request: HttpRequest) -> HttpResponse:
    connection = stomp.Connection12([settings.STOMP_ADDRESS])
    connection.connect(wait=True)
    connection.send(settings.ORDERS, request.body)
    connection.disconnect()
    return HttpResponse(status=202)


urlpatterns = [path("orders", order)]
