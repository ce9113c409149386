"""The order in which a worker tries addresses: a model of package worker's routes_test.go."""

import random

import pytest

from fermata import _routes
from fermata._routes import MAX_ADVERTISED, Routes


def claim_all(routes, now=0.0, avoid=""):
    out = []
    while True:
        route, _ = routes.claim_next(now, avoid)
        if route is None:
            return out
        out.append(route.address)


def test_order_of_addresses():
    routes = Routes(["c1", "c2"])
    routes.replace_advertised(["a1", "a2"])
    worked = routes.find("a1")
    routes.mark_welcomed(worked)
    routes.mark_welcomed(routes.find("c2"))
    assert claim_all(routes) == ["c2", "c1", "a1", "a2"]


def test_addresses_of_a_drain_come_first_and_its_own_last():
    routes = Routes(["c1", "c2"])
    routes.mark_welcomed(routes.find("c1"))
    routes.prefer(["d1"])
    assert claim_all(routes, avoid="c1") == ["d1", "c2"]  # the others may lead to a node
    for route in routes.all:
        route.dialing = False
        if route.address != "c1":
            route.failures, route.retry_at = 2, 0.0
    assert claim_all(routes, avoid="c1") == ["c2", "c1", "d1"]


def test_unreached_addresses_wait_longer():
    routes = Routes(["c"])
    routes.replace_advertised(["a"])
    routes.mark_failed(routes.find("c"), 0.0, 0.0)
    routes.mark_failed(routes.find("a"), 0.0, 0.0)
    assert 0.05 <= routes.find("c").retry_at <= 0.1
    assert 2.5 <= routes.find("a").retry_at <= 5.0
    routes.mark_failed(routes.find("c"), 0.0, 3600.0)
    assert routes.find("c").retry_at <= 5.0
    routes.mark_failed(routes.find("c"), 0.0, 0.0, refused=True)
    assert 1.0 <= routes.find("c").retry_at <= 2.0
    route, at = routes.claim_next(0.0, "")
    assert route is None and at is not None and at <= 2.0


def test_few_unverified_addresses_at_once():
    routes = Routes(["c"])
    routes.replace_advertised([f"a{i}" for i in range(9)])
    assert claim_all(routes)[0] == "c" and len([r for r in routes.all if r.dialing]) == 1 + _routes.MAX_UNVERIFIED_DIALS


def test_brief_sessions_count_as_failures():
    routes = Routes(["c"])
    routes.mark_welcomed(routes.find("c"))
    for n in range(_routes.MAX_BRIEF_SESSIONS):
        assert routes.find("c").failures == 0, n
        routes.mark_ended("c", 0.0, True, 0.0)
    assert routes.find("c").failures == 1


@pytest.mark.parametrize("seed", range(20))
def test_advertised_addresses_are_bounded(seed):
    random.seed(seed)
    routes = Routes(["c"])
    for _ in range(50):
        routes.replace_advertised([f"a{random.randrange(200)}" for _ in range(random.randrange(60))])
        routes.prefer([f"d{random.randrange(200)}"])
        for route in routes.all:
            if random.random() < 0.3:
                routes.mark_failed(route, 0.0, 1.0)
    advertised = [r for r in routes.all if not r.configured]
    assert len(advertised) <= MAX_ADVERTISED and routes.find("c")
