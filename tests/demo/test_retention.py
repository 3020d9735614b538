"""What the report reads at the end of the demo is still there then."""

from stream_calib.config_file import load_config
from stream_calib.demo.flights import load_flights
from workers.demo import demo_config_file


def test_every_pane_of_the_flights_is_kept() -> None:
    config, days = load_config(demo_config_file(), {}), load_flights().days()
    panes = (days[-1].end_ms - days[0].start_ms) // config.windows.pane_ms

    assert config.kept_panes().archive > panes
