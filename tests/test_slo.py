"""Objectives and rates: every text is one or a sentence, verdicts know their doubt, and advice repeats."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from greenbench.errors import ExitCode, PlanError
from greenbench.rates import CLOSE, ladder, next_rate, parse_rates, rounded
from greenbench.slo import Limit, Slo, Trial, Verdict, _binomial_tails, advise, deciding, highest_rate, parse_slo
from greenbench.tails import LEAST, Metric

ITL_P99 = Limit(Metric.ITL, 99, 20_000)
STEP_P95 = Limit(Metric.STEP, 95, 100)

limits = st.builds(Limit, st.sampled_from(Metric), st.sampled_from(sorted(LEAST)), st.floats(1e-6, 1e9, exclude_min=True))
objectives = st.lists(limits, min_size=1, max_size=5, unique_by=lambda limit: limit.name)
trials = st.lists(
    st.builds(
        Trial,
        st.sampled_from(["streams", "green", "mps"]),
        st.sampled_from(["", "20", "36"]),
        st.sampled_from([1.0, 2.0, 5.0, 10.0]),
        st.sampled_from(Verdict),
        st.sampled_from([(), (ITL_P99,)]),
    ),
    max_size=20,
    unique_by=lambda trial: (trial.mechanism, trial.split, trial.rate_per_s),
)


def refusal(text: str) -> str:
    """Return the sentence with which `--slo` refuses a text."""
    with pytest.raises(PlanError) as caught:
        parse_slo(text)
    assert caught.value.exit_code is ExitCode.USAGE
    return str(caught.value)


def test_objectives_are_read_with_their_units() -> None:
    """The example of the manual, and each unit."""
    assert parse_slo("itl_p99=20ms,ttft_p99=500ms").limits == (ITL_P99, Limit(Metric.TTFT, 99, 500_000))
    assert [parse_slo(f"step_p95={text}").limits[0].us for text in ("100us", "0.1 ms", "0.0001s", "100µs")] == [100.0] * 4


@given(drawn=objectives)
def test_objectives_read_back_from_their_text(drawn: list[Limit]) -> None:
    """Text and objectives are two forms of one thing, to the last bit of a limit."""
    slo = Slo(tuple(drawn))
    assert parse_slo(slo.text) == slo


@given(
    text=st.text(max_size=25) | st.from_regex(r"(itl|ttft|step)_p(50|95|99|9)=[0-9.]{0,4}(us|ms|s|h)?(,[a-z=]*)?", fullmatch=True)
)
def test_any_text_is_an_objective_or_a_sentence(text: str) -> None:
    """Whatever is typed: objectives with positive limits, or a PlanError that starts with the option."""
    problem = ""
    try:
        slo = parse_slo(text)
    except PlanError as error:
        problem = str(error)
    if problem:
        assert problem.startswith("--slo")
    else:
        assert slo.limits
        assert all(limit.us > 0 for limit in slo.limits)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "blank item"),
        ("itl_p99", "is no objective; write METRIC_pQ=TIME"),
        ("itl_p99=20", "has no unit; give us, ms or s"),
        ("itl_p99=20h", "has the unit 'h'"),
        ("itl_p98=20ms", "'itl_p98' in 'itl_p98=20ms' is no percentile"),
        ("tpot_p99=20ms", "give step_p50, step_p95"),
        ("itl_p99=0ms", "out of range"),
        ("itl_p99=-1ms", "is no objective"),
        ("itl_p99=1ms,itl_p99=2ms", "itl_p99 is given twice"),
    ],
)
def test_what_is_no_objective_is_told_why(text: str, said: str) -> None:
    """Value and way out are in the sentence."""
    assert said in refusal(text)


def test_enough_values_are_judged_by_their_percentile() -> None:
    """With 3,000 values the p99 is the 2,970th: 30 above the limit hold it, 31 break it, as the column would show."""
    assert ITL_P99.verdict([20_000.0] * 2970 + [20_001.0] * 30) is Verdict.HOLDS
    assert ITL_P99.verdict([20_000.0] * 2969 + [20_001.0] * 31) is Verdict.BROKEN


@pytest.mark.parametrize(
    ("good", "bad", "expected"),
    [
        (0, 0, Verdict.UNKNOWN),
        (58, 0, Verdict.UNKNOWN),
        (59, 0, Verdict.HOLDS),
        (59, 1, Verdict.UNKNOWN),
        (0, 2, Verdict.BROKEN),
        (20, 1, Verdict.UNKNOWN),
        (17, 3, Verdict.UNKNOWN),
        (16, 4, Verdict.BROKEN),
        (999 - 200, 200, Verdict.BROKEN),
    ],
)
def test_few_values_are_judged_where_there_is_no_doubt(good: int, bad: int, expected: Verdict) -> None:
    """A p95 of fewer than 1,000 values: 59 without one above show that it holds, 4 above of 20 that it does not."""
    assert STEP_P95.verdict([100.0] * good + [101.0] * bad) is expected


@given(n=st.integers(0, 400), share=st.floats(0, 1), p=st.sampled_from([0.01, 0.05, 0.5]))
def test_binomial_tails_are_those_of_the_textbook(n: int, share: float, p: float) -> None:
    """P(B <= k) and P(B >= k) agree with scipy."""
    from scipy.stats import binom

    k = round(n * share)
    at_most, at_least = _binomial_tails(n, k, p)
    assert at_most == pytest.approx(binom.cdf(k, n, p), abs=1e-9)
    assert at_least == pytest.approx(binom.sf(k - 1, n, p), abs=1e-9)


def test_a_point_holds_all_objectives_or_none() -> None:
    """Broken beats undecided, undecided beats held, and a queue that grew holds nothing whatever its values."""
    slo = parse_slo("itl_p99=20ms,ttft_p99=500ms")
    fast, slow, few = [1.0] * 3000, [1e9] * 3000, [1.0] * 10
    assert slo.verdict({Metric.ITL: fast, Metric.TTFT: fast}) == (Verdict.HOLDS, "")
    assert slo.verdict({Metric.ITL: few, Metric.TTFT: slow}) == (Verdict.BROKEN, "ttft_p99=500ms is not met")
    assert slo.verdict({Metric.ITL: few, Metric.TTFT: fast}) == (
        Verdict.UNKNOWN,
        "itl_p99=20ms is undecided after 10 of 3000 requests",
    )
    assert slo.verdict({Metric.ITL: fast, Metric.TTFT: fast}, {Metric.TTFT}) == (
        Verdict.BROKEN,
        "ttft_p99: the queue was still growing",
    )
    assert slo.verdict({Metric.ITL: fast})[0] is Verdict.UNKNOWN


def test_objectives_that_no_role_can_meet_are_told_beforehand() -> None:
    """A token's latency needs all layers; a metric that neither role has is named with those that there are."""
    slo = parse_slo("itl_p99=20ms")
    assert slo.obstacle([Metric.ITL, Metric.TTFT]) == ""
    assert "add --layers full, or give step_p99" in slo.obstacle([Metric.STEP, Metric.TTFT])
    assert "neither role has itl; there is ttft" in slo.obstacle([Metric.TTFT])
    assert parse_slo("step_p50=1ms,step_p99=2ms").request_limit_us([Metric.STEP]) == 2000
    assert slo.request_limit_us([Metric.TTFT]) is None


def test_a_rate_that_holds_above_one_that_does_not_is_luck() -> None:
    """The highest rate is the last one before the first that does not hold."""
    found = [Trial("green", "20", rate, Verdict.BROKEN if rate == 5 else Verdict.HOLDS) for rate in (10, 1, 5, 2)]
    assert highest_rate(found) == 2


@given(drawn=trials)
def test_advice_is_the_best_rate_and_everyone_who_holds_it(drawn: list[Trial]) -> None:
    """Against each mechanism on its own: nobody holds more, all who hold as much are named, the first in order leads."""
    slo = Slo((ITL_P99,))
    keys = list(dict.fromkeys((trial.mechanism, trial.split) for trial in drawn))
    alone = {key: highest_rate([trial for trial in drawn if (trial.mechanism, trial.split) == key]) for key in keys}
    held = [rate for rate in alone.values() if rate is not None]
    advice = advise(slo, drawn)
    if not held:
        assert advice.rate_per_s is None
        wanting = [trial for trial in drawn if trial.verdict is Verdict.UNKNOWN and trial.wanting]
        assert advice.undecided == len(wanting)
        assert ("not decided at" in advice.text) == bool(wanting) == (not advice.decided)
        assert ("no mechanism holds it" in advice.text) == (not wanting)
        return
    assert advice.decided
    assert advice.rate_per_s == max(held)
    assert [(advice.mechanism, advice.split), *advice.also] == [key for key in keys if alone[key] == max(held)]
    assert f"holds it up to {max(held):g} a second" in advice.text


@pytest.mark.parametrize(
    ("rates", "said"),
    [
        ((10.0,), "at 10 a second, the only rate that was tried"),
        ((10.0, 40.0, 20.0), "at any rate that was tried from 10 to 40 a second"),
        ((), "at any rate that was tried"),
    ],
)
def test_what_was_tried_in_vain_is_said(rates: tuple[float, ...], said: str) -> None:
    """A range where there is one; a single rate is no range."""
    advice = advise(parse_slo("ttft_p99=1ms"), [Trial("green", "20", rate, Verdict.BROKEN) for rate in rates])
    assert advice.text == f"ttft_p99=1ms: no mechanism holds it {said}"


def test_undecided_is_not_failed() -> None:
    """What could not be judged for want of requests is not said to be broken, and it is said what would decide it."""
    slo = parse_slo("step_p95=20ms,step_p99=30ms,ttft_p99=500ms")
    few = Trial("green", "20", 5.0, Verdict.UNKNOWN, slo.limits)
    broken = Trial("green", "20", 10.0, Verdict.BROKEN)
    assert advise(slo, [few, broken]).text == (
        f"{slo.text}: not decided at any rate that was tried from 5 to 10 a second: 1 point had too few requests to be judged; "
        "--steps 3000 decides step_p95 and step_p99, 3,000 requests decide ttft_p99 (more --steps bring more)"
    )
    two = [few, Trial("mps", "", 5.0, Verdict.UNKNOWN, slo.limits[:1]), Trial("streams", "", 5.0, Verdict.UNKNOWN)]
    told = advise(slo, two)
    assert (told.undecided, told.failed) == (2, 1)
    assert "2 points had too few requests to be judged; 1 point failed; --steps" in told.text
    assert deciding(slo.limits[:1]) == "--steps 1000 decides step_p95"
    lost = advise(slo, [broken, two[2]])
    assert lost.text.endswith("no mechanism holds it at any rate that was tried from 5 to 10 a second (1 point failed)")
    held = advise(slo, [Trial("mps", "", 5.0, Verdict.HOLDS), few])
    assert held.text == f"{slo.text}: mps holds it up to 5 a second (1 point had too few requests to be judged)"


def test_rates_are_read_or_refused_with_the_value() -> None:
    """Reals above 0 in their order; auto alone is for the ladder."""
    assert parse_rates("5,0.5,1e2") == (5, 0.5, 100)
    assert parse_rates("auto") == ()
    for text, said in [("0", "'0' is no rate"), ("5,5.0", "'5.0' is given twice"), ("auto,5", "stands alone"), ("-1", "'-1'")]:
        with pytest.raises(PlanError, match=said):
            parse_rates(text)


@given(text=st.text(max_size=15) | st.text(alphabet="0123456789.,e-auto", max_size=15))
def test_any_text_is_rates_or_a_sentence(text: str) -> None:
    """Whatever follows --rates: distinct rates above 0, or a PlanError that starts with the option."""
    problem = ""
    try:
        rates = parse_rates(text)
    except PlanError as error:
        problem = str(error)
    if problem:
        assert problem.startswith("--rates")
    else:
        assert len(set(rates)) == len(rates)
        assert all(rate > 0 for rate in rates)


@given(alone=st.floats(1e-3, 1e6))
def test_the_ladder_rises_to_below_the_throughput_alone(alone: float) -> None:
    """Eight distinct rates of two digits, from a twentieth to nine tenths; a change of 0.1 % moves none by more than a digit."""
    rates = ladder(alone)
    assert len(rates) == 8
    assert list(rates) == sorted(set(rates))
    assert rates[-1] < alone
    assert all(rounded(rate) == rate for rate in rates)
    assert all(abs(a - b) <= 0.1001 * a for a, b in zip(rates, ladder(alone * 1.001), strict=True))


@given(held=st.floats(0.1, 1e5).map(rounded), factor=st.floats(1.001, 100))
def test_the_search_narrows_and_ends(held: float, factor: float) -> None:
    """Each new rate lies strictly between the two, and ten halvings reach rates that are close or leave nothing between."""
    broken = rounded(held * factor)
    for _ in range(10):
        rate = next_rate(held, broken)
        if rate is None:
            break
        assert held < rate < broken
        broken = rate
    else:
        pytest.fail("the search did not end")
    assert broken <= held * CLOSE or next_rate(held, broken) is None


def test_nothing_lies_between_one_rate() -> None:
    """Where all rates hold, or none does, there is no rate to try between."""
    assert next_rate(None, 5.0) is None
    assert next_rate(5.0, None) is None
    assert next_rate(10.0, 20.0) == 14.0
