from __future__ import annotations

import pytest
from timeslice_driver.doctor import settings
from timeslice_driver.settings import SETTINGS, harmful

GOOD = {
    "NCCL_P2P_DISABLE": "1",
    "NCCL_NVLS_ENABLE": "0",
    "NCCL_CUMEM_ENABLE": "0",
    "NCCL_CUMEM_HOST_ENABLE": "0",
    "NCCL_RAS_ENABLE": "0",
    "TORCH_NCCL_ENABLE_MONITORING": "0",
    "VLLM_ALLREDUCE_USE_SYMM_MEM": "0",
}


def names(environ: dict[str, str], *, devices: int = 2) -> set[str]:
    return {setting.name for setting in harmful(environ, devices=devices)}


def test_a_job_with_all_settings_right_has_nothing_to_mend() -> None:
    assert names(GOOD) == set()
    assert [check.verdict for check in settings(GOOD, devices=8)] == ["ok"]


def test_a_job_of_several_devices_that_sets_nothing_breaks_every_rule_about_communication() -> None:
    assert names({}) == {setting.name for setting in SETTINGS if setting.several_devices}
    assert names({}, devices=1) == set()


@pytest.mark.parametrize(
    ("change", "broken"),
    [
        ({"NCCL_P2P_DISABLE": "0"}, {"NCCL_P2P_DISABLE"}),
        ({"NCCL_CUMEM_ENABLE": "1"}, set()),  # without P2P nothing is shared
        ({"NCCL_CUMEM_ENABLE": "1", "NCCL_P2P_DISABLE": "0"}, {"NCCL_CUMEM_ENABLE", "NCCL_P2P_DISABLE"}),
        ({"NCCL_NVLS_ENABLE": "1"}, {"NCCL_NVLS_ENABLE"}),
        ({"NCCL_RAS_ENABLE": "1"}, {"NCCL_RAS_ENABLE"}),
        ({"TORCH_NCCL_ENABLE_MONITORING": "1"}, {"TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC"}),
        ({"TORCH_NCCL_ENABLE_MONITORING": "1", "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC": "7200"}, set()),
        (
            {"TORCH_NCCL_ENABLE_MONITORING": "1", "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC": "soon"},
            {"TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC"},
        ),
        ({"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:64,expandable_segments:True"}, {"PYTORCH_CUDA_ALLOC_CONF"}),
        ({"PYTORCH_ALLOC_CONF": "expandable_segments: True"}, {"PYTORCH_CUDA_ALLOC_CONF"}),
        ({"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:False"}, set()),
        ({"CUDA_MPS_PIPE_DIRECTORY": "/tmp/mps"}, {"CUDA_MPS_PIPE_DIRECTORY"}),
    ],
)
def test_each_setting_that_breaks_a_park_is_found(change: dict[str, str], broken: set[str]) -> None:
    assert names({**GOOD, **change}) == broken


def test_what_is_found_says_the_value_the_harm_and_the_mend() -> None:
    (check,) = settings({**GOOD, "NCCL_NVLS_ENABLE": "2"}, devices=2)
    assert (check.name, check.verdict) == ("NCCL_NVLS_ENABLE", "warn")
    assert check.found.startswith("2: with NVLink multicast")
    assert check.mend == "NCCL_NVLS_ENABLE=0"
