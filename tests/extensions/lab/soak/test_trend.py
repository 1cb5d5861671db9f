import numpy as np

from perfci.extensions.lab.soak.trend import trend, trend_p


def test_a_trend_is_seen_beyond_noise_and_seldom_where_there_is_none():
    rng = np.random.default_rng(12)
    noise = rng.normal(size=(500, 20))

    false = sum(trend_p(series) < 0.01 for series in noise)
    trends = [trend(series + 0.2 * np.arange(20)) for series in noise[:100]]

    assert false <= 12  # 5 are expected
    assert all(trend_p(series + np.arange(20)) < 1e-6 for series in noise[:20])
    assert sum(trend.low <= 0.2 <= trend.high for trend in trends) >= 88
