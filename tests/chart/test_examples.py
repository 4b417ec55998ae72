"""The YAML that the documents show to users."""

from __future__ import annotations

from typing import Any

from chart_files import EXAMPLES, documents
from timeslice_api.kinds import decode_group, group_of_class, names

ALL: list[dict[str, Any]] = [document for path in EXAMPLES for document in documents(path)]


def of_kind(kind: str) -> list[dict[str, Any]]:
    return [document for document in ALL if document["kind"] == kind]


def test_every_group_is_a_good_one_and_every_claim_asks_for_one_of_them() -> None:
    groups = {decode_group(document).name for document in of_kind("TimesliceGroup")}
    classes = [
        request["exactly"]["deviceClassName"]
        for template in of_kind("ResourceClaimTemplate")
        for request in template["spec"]["spec"]["devices"]["requests"]
    ]
    assert classes
    assert {group_of_class(each) for each in classes} == groups


def test_each_template_names_a_job_of_its_own() -> None:
    jobs = [template["spec"]["metadata"]["labels"][names.LABEL_JOB] for template in of_kind("ResourceClaimTemplate")]
    assert len(jobs) == len(set(jobs)) == 2


def test_each_container_uses_the_claim_that_its_pod_makes_from_a_template_of_the_same_file() -> None:
    for path in EXAMPLES:
        found = documents(path)
        made = {document["metadata"]["name"] for document in found if document["kind"] == "ResourceClaimTemplate"}
        for job in (document for document in found if document["kind"] == "Job"):
            pod = job["spec"]["template"]["spec"]
            assert {claim["resourceClaimTemplateName"] for claim in pod["resourceClaims"]} == made
            assert [claim["name"] for claim in pod["containers"][0]["resources"]["claims"]] == [
                claim["name"] for claim in pod["resourceClaims"]
            ]
