"""Facts about GPUs: peaks by name and compute capability, models, and that nothing unknown is made up."""

from __future__ import annotations

import pickle
import re
import tomllib
from dataclasses import fields, replace
from importlib.resources import files
from pathlib import Path

import pytest

from greenbench import facts
from greenbench.errors import UsageError
from greenbench.schema import Backend, DeviceFacts

TABLES = tomllib.loads(files("greenbench").joinpath("devices.toml").read_text(encoding="utf-8"))


def a_device(name: str, cc: tuple[int, int], **more: object) -> DeviceFacts:
    """A measured device that reports no clocks unless told."""
    base = facts.model_facts("h200").device
    bare = replace(base, name=name, compute_capability=cc, backend=Backend.CUDA, max_sm_clock_mhz=None, max_mem_clock_mhz=None)
    return replace(bare, mem_bus_bits=None, **more)  # type: ignore[arg-type]


def test_the_h200_bus_peaks_at_4814_gb_s() -> None:
    """2 x 3201 MHz x 6016 bit / 8, as NVBench reports it; a 6144-bit bus would give a wrong 4917."""
    assert facts.peaks(facts.model_facts("h200").device).hbm_gb_s == pytest.approx(4814, abs=0.5)


def test_the_devices_own_clock_and_bus_go_before_the_table() -> None:
    """What the device reports wins; without it the table of names answers; a device with neither has no figure."""
    own = facts.peaks(a_device("NVIDIA H200", (9, 0), max_mem_clock_mhz=1000))
    assert own.hbm_gb_s == pytest.approx(4814, abs=0.5)
    both = replace(a_device("NVIDIA H200", (9, 0)), max_mem_clock_mhz=1000, mem_bus_bits=512)
    assert facts.peaks(both).hbm_gb_s == pytest.approx(128)
    assert facts.peaks(a_device("NVIDIA L40", (8, 9))).hbm_gb_s == 864
    assert facts.peaks(a_device("NVIDIA RTX 6000 Ada Generation", (8, 9))).hbm_gb_s is None


@pytest.mark.parametrize(
    ("name", "cc", "clock_mhz", "sms", "tflop_s"),
    [
        ("NVIDIA H200", (9, 0), 1830, 132, 989.4),
        ("NVIDIA H200", (9, 0), 1980, 132, 1070.5),
        ("NVIDIA A100-SXM4-80GB", (8, 0), 1410, 108, 312),
        ("NVIDIA L40S", (8, 9), 2490, 142, 362),
        ("NVIDIA GeForce RTX 4090", (8, 9), 2520, 128, 165.2),
        ("NVIDIA B200", (10, 0), 1860, 148, 2250),
    ],
)
def test_published_bf16_peaks_come_out(name: str, cc: tuple[int, int], clock_mhz: float, sms: int, tflop_s: float) -> None:
    """FLOP per clock and SM times SMs times clock is the peak that the vendor publishes."""
    rate = facts.peaks(a_device(name, cc)).flop("bfloat16")
    assert rate is not None
    assert sms * rate * clock_mhz / 1e6 == pytest.approx(tflop_s, rel=0.005)


def test_an_unknown_name_gets_what_its_compute_capability_has() -> None:
    """Rates are the architecture's, clocks and memory of the product are None."""
    found = facts.peaks(a_device("NVIDIA X9000", (9, 0)))
    assert found.flop("bf16") == 4096
    assert found.link_bytes_per_clk_sm == 64
    assert (found.nominal_mhz, found.hbm_gb_s, found.l2_bytes_per_clk, found.hbm_cycles) == (None, None, None, None)


def test_an_unknown_compute_capability_gets_nothing() -> None:
    """Nothing is invented for a GPU of the future: every limit is None, no dtype has a rate, no source is named."""
    found = facts.peaks(a_device("NVIDIA X9000", (13, 0)))
    assert found == facts.Peaks(flop_per_clk_sm={})
    assert found.flop("bf16") is None
    assert found.most_flop("bf16") is None
    assert found.clock_mhz is None


def test_half_rate_products_have_their_own_rates() -> None:
    """GeForce and L40 run tensor cores at half rate with fp32 accumulation; with fp16 accumulation they are full."""
    for name, cc in (("NVIDIA GeForce RTX 3090", (8, 6)), ("NVIDIA GeForce RTX 4070", (8, 9)), ("NVIDIA L40", (8, 9)),
                     ("NVIDIA GeForce RTX 5090", (12, 0))):  # fmt: skip
        found = facts.peaks(a_device(name, cc))
        assert (found.flop("fp16"), found.most_flop("fp16"), found.flop("bf16")) == (512, 1024, 512), name
        assert found.flop("float32") == 256
    assert facts.peaks(a_device("NVIDIA L40S", (8, 9))).flop("fp16") == 1024


def test_dtypes_have_one_rate_under_every_name() -> None:
    """float32 and fp32 are one, fp64 has a tensor core apart, and fp32 numbers may reach the tf32 unit at most."""
    found = facts.peaks(a_device("NVIDIA H200", (9, 0)))
    assert found.flop("float32") == found.flop("fp32") == 256
    assert found.flop("float8_e4m3") == found.flop("fp8") == 8192
    assert (found.flop("float64"), found.flop("float64", tensor=True)) == (128, 256)
    assert (found.most_flop("float64"), found.most_flop("float32")) == (256, 2048)
    assert found.flop("int64") is None


@pytest.mark.parametrize(("dtype", "since"), [("bfloat16", (8, 0)), ("float16", (8, 0)), ("tf32", (8, 0)), ("e4m3", (8, 9))])
def test_every_gemm_has_a_peak(dtype: str, since: tuple[int, int]) -> None:
    """The tensor cores' rate of each dtype of a GEMM is known for every listed compute capability; e4m3 has none before 8.9."""
    for name in TABLES["cc"]:
        major, minor = map(int, name.split("."))
        rate = facts.peaks(a_device("NVIDIA X9000", (major, minor))).flop(dtype, tensor=True)
        assert (rate is not None) == ((major, minor) >= since), name
    found = facts.peaks(a_device("NVIDIA H200", (9, 0)))
    assert found.flop(dtype, tensor=True) == {"tf32": 2048, "e4m3": 8192}.get(dtype, 4096)


def test_the_clock_to_assume_is_the_maximum() -> None:
    """A bound at the nominal clock would be beaten by a boosting GPU; nominal stands in only where no maximum is known."""
    assert facts.peaks(replace(a_device("NVIDIA H200", (9, 0)), max_sm_clock_mhz=1980)).clock_mhz == 1980
    assert facts.peaks(a_device("NVIDIA H200", (9, 0))).clock_mhz == 1830


def test_peaks_say_where_they_come_from() -> None:
    """Each source is named with its grade, those of the name, the compute capability and the device itself."""
    notes = facts.peaks(facts.model_facts("h200").device).sources
    assert len(notes) == 3
    assert all(re.search(r"\[(measured|vendor|derived|public|unverified|device)\]$", note) for note in notes)


def test_every_table_has_a_source_and_a_known_grade() -> None:
    """A figure without a source does not get into devices.toml."""
    for table in (*TABLES["cc"].values(), *TABLES["gpu"], *TABLES["model"].values()):
        assert table["source"]
        assert table["grade"] in {"measured", "vendor", "derived", "public", "unverified"}


def test_no_key_of_the_tables_is_misspelt() -> None:
    """A key that no code reads would be a fact without effect."""
    limits = {field.name for field in fields(facts.Peaks)} - {"sources", "max_mhz"}
    shared = {"source", "grade"}
    for table in TABLES["cc"].values():
        assert set(table) <= limits | shared
    for table in TABLES["gpu"]:
        assert set(table) <= limits | shared | {"match", "mem_clock_mhz", "mem_bus_bits"}
    known = {field.name for field in fields(facts.ModelFacts)} - {"name", "peaks"} | {"match"}
    for table in TABLES["model"].values():
        assert set(table) <= known


@pytest.mark.parametrize("name", facts.model_names())
def test_models_are_complete(name: str) -> None:
    """Every fact of a modelled device is there, so that nothing that runs on it meets a None."""
    model = facts.model_facts(name)
    assert model.device.backend is Backend.MODELLED
    nullable = {field.name for field in fields(DeviceFacts) if getattr(model.device, field.name) is None}
    assert not nullable
    assert model.peaks.hbm_gb_s
    assert model.peaks.l2_bytes_per_clk
    assert model.link_bytes_per_clk_sm
    assert model.peaks.flop("bf16")
    assert set(model.achieved) == {"gemm", "memory", "link", "l2"}
    assert all(0 < share <= 1 for share in model.achieved.values())
    assert 0 < model.l1_cycles < model.l2_cycles < model.hbm_cycles
    assert 0 < model.graph_launch_us < model.launch_us
    assert pickle.loads(pickle.dumps(model)) == model


def test_the_models_are_the_three_of_the_design() -> None:
    """h200, h100 and a100, with the split rules of their compute capability."""
    assert facts.model_names() == ("a100", "h100", "h200")
    rules = {n: (facts.model_facts(n).device.min_partition, facts.model_facts(n).device.alignment) for n in facts.model_names()}
    assert rules == {"a100": (4, 2), "h100": (8, 8), "h200": (8, 8)}
    assert facts.model_facts("H200").device.sm_count == 132


def test_an_unknown_model_is_a_usage_error_with_the_names() -> None:
    """The sentence holds the value and the choices."""
    with pytest.raises(UsageError, match=r"no model 'h300': choose a100, h100, h200, or give model:FILE\.toml"):
        facts.model_facts("h300")


def test_the_drivers_version_decides_what_a_model_can_do() -> None:
    """13.0 has no workqueues and splits by count; 13.1 has both the structured split and workqueues."""
    old = facts.model_facts("h200").device
    assert (old.cuda, old.split_api) == ((13, 0), "count")
    assert old.workqueue_obstacle == "workqueue configuration needs driver 13.1, this is 13.0"
    new = facts.model_facts("h200", (13, 1)).device
    assert (new.cuda_text, new.split_api, new.workqueue_obstacle) == ("13.1", "structured", "")


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("NVIDIA H200", "h200"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA A100-SXM4-80GB", "a100"),
        ("NVIDIA H100 PCIe", None),
        ("NVIDIA H200 NVL", None),
        ("NVIDIA GH200 144G HBM3e", None),
        ("NVIDIA A100-SXM4-40GB", None),
    ],
)
def test_a_measured_device_finds_its_model_by_name(name: str, model: str | None) -> None:
    """Only the very part is predicted: a cousin with other clocks or memory has no model."""
    found = facts.model_of(a_device(name, (9, 0)))
    assert (found.name if found else None) == model


def test_a_model_of_ones_own_starts_from_a_base() -> None:
    """A file names what differs: the rest, latencies included, is the base's."""
    own = {"base": "h200", "refused_sms": [24], "jitter_pct": 0, "l1_cycles": 40, "device": {"sm_count": 48, "name": "Mine"}}
    model = facts.model_from_table("mine", own, (12, 8), place="mine.toml")
    assert (model.device.sm_count, model.device.name, model.device.l2_bytes) == (48, "Mine", 62914560)
    assert (model.refused_sms, model.jitter_pct, model.l1_cycles) == ((24,), 0, 40)
    assert model.device.cuda == (12, 8)
    assert model.peaks.l2_bytes_per_clk == facts.model_facts("h200").peaks.l2_bytes_per_clk


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"base": "h300"}, r"mine\.toml: base = 'h300' is no model: choose a100, h100, h200"),
        ({"base": "h200", "device": {"sms": 48}}, r"mine\.toml: \[device\] has no key 'sms'; keys are .*sm_count"),
        (
            {"device": {"name": "Mine"}},
            r"mine\.toml: without a base a model also needs compute_capability, .*launch_us.* base = 'h200'",
        ),
        ({"base": "h200", "launch_us": "soon"}, r"mine\.toml: a value has the wrong type .*soon"),
        (
            {"base": "h200", "device": {"compute_capability": "9.0"}},
            r"mine\.toml: compute_capability = '9\.0' is not a pair",
        ),
        ({"base": "h200", "device": {"sm_count": 0}}, r"mine\.toml: sm_count = 0 leaves no SM"),
    ],
)
def test_a_wrong_model_file_is_one_sentence(table: dict[str, object], words: str) -> None:
    """Whatever is wrong, the sentence names the file, the key or value, and the way out."""
    with pytest.raises(UsageError, match=words):
        facts.model_from_table("mine", table, place="mine.toml")


def test_a_model_with_a_device_of_its_own_needs_all_constants() -> None:
    """Without a base a missing constant is named."""
    device = dict(TABLES["model"]["h200"]["device"], name="Unknown part")
    whole = {**{k: v for k, v in TABLES["model"]["h200"].items() if k != "match"}, "device": device}
    with pytest.raises(UsageError, match=r"x\.toml: key 'l1_cycles' is missing"):
        facts.model_from_table("x", whole, place="x.toml")
    with pytest.raises(UsageError, match=r"x\.toml: without a base a model also needs launch_us; "):
        facts.model_from_table("x", {k: v for k, v in TABLES["model"]["h200"].items() if k != "launch_us"}, place="x.toml")


def test_devices_toml_is_beside_the_module() -> None:
    """The file is read from the package, so a wheel has it."""
    assert Path(facts.__file__).with_name("devices.toml").is_file()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("sm_clock_mhz", 0),
        ("sm_clock_mhz", 1e300),
        ("sm_clock_mhz", float("nan")),
        ("l2_cycles", -1),
        ("launch_us", -1000),
        ("launch_us", float("inf")),
        ("jitter_pct", 1000),
        ("achieved", {}),
        ("achieved", {"gemm": 0.7, "memory": 0.0, "link": 0.5, "l2": 0.5}),
    ],
)
def test_absurd_facts_of_a_model_are_refused(key: str, value: object) -> None:
    """A clock of 0, a share of nothing or a NaN is one sentence with key, value and range, not an arithmetic error later."""
    with pytest.raises(UsageError, match=rf"mine.toml: {key}.* is not possible; give a number from "):
        facts.model_from_table("mine", {"base": "h200", key: value}, place="mine.toml")
