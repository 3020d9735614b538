"""Which hook is told of which alert."""

from __future__ import annotations

from stream_calib.alerts.model import Alert
from stream_calib.alerts.severity import RANK
from stream_calib.config_alerts import AlertsSection, RouteSection

_ALL = RouteSection.model_fields["severity"].default
"""The least severity of the route that each hook has where the configuration has none."""


class Routing:
    """A hook is told of what any route that names it asks for; without routes, of all warnings and worse. All routes
    count, in no order, because a hook that has to be told must not depend on what is written above its route."""

    def __init__(self, section: AlertsSection) -> None:
        hooks = [hook.name for hook in section.hooks]
        routes = section.routes or ([RouteSection(hooks=hooks, severity=_ALL)] if hooks else [])
        self._routes = {name: [route for route in routes if name in route.hooks] for name in hooks}

    def tells(self, hook: str, alert: Alert) -> bool:
        """Whether the hook is told of it."""
        return any(_asks_for(route, alert) for route in self._routes[hook])


def _asks_for(route: RouteSection, alert: Alert) -> bool:
    return (
        RANK[alert.severity] >= RANK[route.severity]
        and (not route.kinds or alert.kind in route.kinds)
        and (not route.models or is_of_model(alert, *route.models))
    )


def is_of_model(alert: Alert, *models: str) -> bool:
    """Whether the alert is of one of the models, each given as `name` or `name/version`."""
    return not {alert.model, f"{alert.model}/{alert.model_version}"}.isdisjoint(models)
