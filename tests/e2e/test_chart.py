"""The chart by helm and by the API server: it is clean, takes what it should, and says what is wrong with the rest."""

from __future__ import annotations

import base64
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import chart_rules
import pytest
import yaml
from chart_rules import CHART, NAMESPACE, rendered, succeeded
from timeslice_api.tls import TlsFiles

pytestmark = pytest.mark.timeout(120)

NODE_ACCOUNT = f"system:serviceaccount:{NAMESPACE}:timeslice-node"
ORCHESTRATOR_ACCOUNT = f"system:serviceaccount:{NAMESPACE}:timeslice-orchestrator"
EVERYTHING = {
    "tls": {"existingSecret": "ours", "existingNodeSecret": "of-nodes", "caConfigMap": "our-authority"},
    "groups": {"trainer-group": {"seats": 3, "jobs": ["a"], "hostMemoryPerGPU": "80Gi"}, "open": None},
    "imagePullSecrets": [{"name": "registry"}],
    "node": {
        "mode": "slots",
        "hostMemory": "800Gi",
        "nodeSelector": {"pool": "rl"},
        "podAnnotations": {"a": "b"},
        "extraEnv": [{"name": "GPU_EMULATOR_SOCKET", "value": "/run/gpus"}],
        "extraVolumes": [{"name": "more", "emptyDir": {}}],
        "extraVolumeMounts": [{"name": "more", "mountPath": "/more"}],
    },
    "orchestrator": {
        "replicas": 3,
        "nodeSelector": {"pool": "system"},
        "affinity": {"nodeAffinity": {}},
        "tolerations": [{"operator": "Exists"}],
        "podAnnotations": {"a": "b"},
        "extraEnv": [{"name": "A", "value": "b"}],
        "extraVolumes": [{"name": "more", "emptyDir": {}}],
        "extraVolumeMounts": [{"name": "more", "mountPath": "/more"}],
    },
    "podMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
    "resourceQuota": {"enabled": True},
    "fullnameOverride": "shared-gpus",
}
NOTHING = {
    "node": {"affinity": None, "tolerations": []},
    "policies": {"fillInClaims": "false", "admitClaims": False, "limitNodes": False},
    "networkPolicy": {"enabled": False},
    "podDisruptionBudget": {"enabled": False},
    "uninstallHook": {"enabled": False},
}
VALUES: dict[str, dict[str, Any]] = {"defaults": {}, "everything": EVERYTHING, "nothing": NOTHING}


@pytest.fixture
def values_file(tmp_path: Path, request: pytest.FixtureRequest) -> str:
    path = tmp_path / "values.yaml"
    path.write_text(yaml.safe_dump(request.param))
    return f"--values={path}"


@pytest.fixture(scope="module")
def rules() -> Iterator[None]:
    yield from chart_rules.rules()


def of_kind(objects: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [each for each in objects if each["kind"] == kind]


@pytest.mark.parametrize("values_file", VALUES.values(), ids=VALUES, indirect=True)
def test_the_chart_is_clean(values_file: str) -> None:
    succeeded("helm", "lint", "--strict", f"--namespace={NAMESPACE}", str(CHART), values_file)


@pytest.mark.parametrize("values_file", VALUES.values(), ids=VALUES, indirect=True)
def test_every_object_of_the_chart_is_one_that_the_api_server_takes(rules: None, values_file: str) -> None:
    objects = [each for each in rendered(values_file) if each["kind"] != "PodMonitor"]  # of the Prometheus operator
    for each in objects:
        if each["kind"] not in CLUSTER_SCOPED:
            each["metadata"].setdefault("namespace", NAMESPACE)
    command = ("kubectl", "apply", "--server-side", "--force-conflicts", "--dry-run=server", "--filename=-")
    done = chart_rules.run(*command, given=yaml.safe_dump_all(objects))
    assert done.returncode == 0, done.stderr
    assert "unknown field" not in done.stderr
    assert len(done.stdout.splitlines()) == len(objects)


CLUSTER_SCOPED = {
    "ClusterRole",
    "ClusterRoleBinding",
    "MutatingAdmissionPolicy",
    "MutatingAdmissionPolicyBinding",
    "TimesliceGroup",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
}


def test_policies_for_nodes_name_the_account_that_the_nodes_have() -> None:
    for options, namespace in (((), NAMESPACE), (("--set=fullnameOverride=shared-gpus",), "elsewhere")):
        objects = rendered(*options, namespace=namespace)
        (daemon_set,) = of_kind(objects, "DaemonSet")
        account = daemon_set["spec"]["template"]["spec"]["serviceAccountName"]
        assert account in {each["metadata"]["name"] for each in of_kind(objects, "ServiceAccount")}
        policies = {each["metadata"]["name"]: each for each in of_kind(objects, "ValidatingAdmissionPolicy")}
        for name in ("timeslice-node-slices", "timeslice-node-claims"):
            (condition,) = policies[name]["spec"]["matchConditions"]
            assert (
                condition["expression"] == f"request.userInfo.username == 'system:serviceaccount:{namespace}:{account}'"
            )


def test_selectors_find_their_pods_and_no_others() -> None:
    objects = rendered("--set=podDisruptionBudget.enabled=true")
    pods = {
        each["metadata"]["name"]: each["spec"]["template"]["metadata"]["labels"]
        for kind in ("DaemonSet", "Deployment", "Job")
        for each in of_kind(objects, kind)
    }
    selectors = {
        f"{each['kind']} {each['metadata']['name']}": each["spec"].get("selector") or each["spec"].get("podSelector")
        for kind in ("DaemonSet", "Deployment", "Service", "PodDisruptionBudget", "NetworkPolicy")
        for each in of_kind(objects, kind)
    }
    assert len(selectors) == 6
    for name, selector in selectors.items():
        wanted = selector.get("matchLabels", selector).items()
        assert [pod for pod, labels in pods.items() if wanted <= labels.items()] == [name.split()[1]]


def test_two_pods_of_a_node_can_run_at_once_so_that_an_update_has_no_gap() -> None:
    (daemon_set,) = of_kind(rendered(), "DaemonSet")
    assert daemon_set["spec"]["updateStrategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    pod = daemon_set["spec"]["template"]["spec"]
    assert "hostNetwork" not in pod
    assert not [port for container in pod["containers"] for port in container["ports"] if "hostPort" in port]
    env = {each["name"]: each for each in pod["containers"][0]["env"]}
    assert env["POD_UID"]["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.uid"


def test_every_mount_has_its_volume_and_names_are_not_used_twice() -> None:
    objects = rendered()
    for each in [*of_kind(objects, "DaemonSet"), *of_kind(objects, "Deployment")]:
        pod = each["spec"]["template"]["spec"]
        volumes = [volume["name"] for volume in pod["volumes"]]
        mounts = [mount["name"] for mount in pod["containers"][0]["volumeMounts"]]
        assert sorted(volumes) == sorted(set(mounts)) == sorted(mounts)
        env = [variable["name"] for variable in pod["containers"][0]["env"]]
        assert len(env) == len(set(env))


def test_no_container_may_write_to_its_image_or_has_more_rights_than_are_listed() -> None:
    for options in ((), ("--set=node.privileged=false,node.runtimeClassName=nvidia",)):
        objects = rendered(*options)
        for each in [each for kind in ("DaemonSet", "Deployment", "Job") for each in of_kind(objects, kind)]:
            pod = each["spec"]["template"]["spec"]
            (container,) = pod["containers"]
            rights = container["securityContext"]
            assert rights["readOnlyRootFilesystem"]
            assert "hostNetwork" not in pod
            if each["kind"] == "DaemonSet" and not options:
                assert rights["privileged"]
                continue
            assert not rights["allowPrivilegeEscalation"]
            assert rights["capabilities"]["drop"] == ["ALL"]
            profile = {**pod.get("securityContext", {}), **rights}["seccompProfile"]
            assert profile == {"type": "RuntimeDefault"}
            if each["kind"] != "DaemonSet":
                assert "add" not in rights["capabilities"]
                assert pod["securityContext"]["runAsNonRoot"]
    (daemon_set,) = of_kind(objects, "DaemonSet")
    assert daemon_set["spec"]["template"]["spec"]["runtimeClassName"] == "nvidia"


def volume(objects: list[dict[str, Any]], kind: str, name: str) -> dict[str, Any]:
    (daemon,) = of_kind(objects, kind)
    volumes: list[dict[str, Any]] = daemon["spec"]["template"]["spec"]["volumes"]
    return next(each for each in volumes if each["name"] == name)


def secrets(objects: list[dict[str, Any]], folder: Path) -> dict[str, TlsFiles]:
    """What is in each Secret, as files."""
    found = {}
    for secret in of_kind(objects, "Secret"):
        name = secret["metadata"]["name"]
        paths = [folder / f"{name}.{key}" for key in ("ca.crt", "tls.crt", "tls.key")]
        for path in paths:
            path.write_bytes(base64.b64decode(secret["data"][path.name.removeprefix(f"{name}.")]))
        found[name] = TlsFiles(*map(str, paths))
        found[name].check()
    return found


def is_for(files: TlsFiles, host: str) -> bool:
    """Whether who knows the authority takes the certificate for that of a host."""
    options = ("-x509_strict", "-CAfile", files.ca, "-verify_hostname", host)
    return chart_rules.run("openssl", "verify", *options, files.cert).returncode == 0


def test_helm_makes_certificates_of_one_authority_and_nodes_have_neither_name_nor_key_of_the_orchestrator(
    tmp_path: Path,
) -> None:
    objects = rendered()
    made = secrets(objects, tmp_path)
    (authority,) = of_kind(objects, "ConfigMap")
    orchestrator, node = made["timeslice-orchestrator-tls"], made["timeslice-node-tls"]
    assert authority["data"] == {"ca.crt": Path(orchestrator.ca).read_text()} == {"ca.crt": Path(node.ca).read_text()}
    for host in ("", ".timeslice", ".timeslice.svc", ".timeslice.svc.cluster.local"):
        assert is_for(orchestrator, f"timeslice-orchestrator{host}")
        assert not is_for(node, f"timeslice-orchestrator{host}")
    assert is_for(node, "timeslice-node.timeslice.svc")
    assert volume(objects, "DaemonSet", "ca")["configMap"]["name"] == authority["metadata"]["name"]
    assert volume(objects, "DaemonSet", "tls")["secret"]["secretName"] == "timeslice-node-tls"
    assert volume(objects, "Deployment", "tls")["secret"]["secretName"] == "timeslice-orchestrator-tls"
    assert "timeslice-orchestrator-tls" not in str(of_kind(objects, "DaemonSet"))


def test_certificates_of_cert_manager_or_of_ones_own_take_the_place_of_helms() -> None:
    managed = rendered("--set=tls.certManager.issuerRef.name=ours,tls.certManager.issuerRef.kind=ClusterIssuer")
    certificates = {each["spec"]["secretName"]: each["spec"] for each in of_kind(managed, "Certificate")}
    assert [each["issuerRef"]["kind"] for each in certificates.values()] == ["ClusterIssuer"] * 2
    assert "timeslice-orchestrator.timeslice.svc" in certificates["timeslice-orchestrator-tls"]["dnsNames"]
    assert certificates["timeslice-node-tls"]["dnsNames"] == ["timeslice-node.timeslice.svc"]
    own = "--set=tls.existingSecret=own,tls.existingNodeSecret=of-nodes"
    for objects, name, of_nodes in ((managed, *certificates), (rendered(own), "own", "of-nodes")):
        assert of_kind(objects, "Secret") == of_kind(objects, "ConfigMap") == []
        assert volume(objects, "Deployment", "tls")["secret"]["secretName"] == name
        assert volume(objects, "DaemonSet", "tls")["secret"]["secretName"] == of_nodes
        only_the_authority = {"secretName": of_nodes, "items": [{"key": "ca.crt", "path": "ca.crt"}]}
        assert volume(objects, "DaemonSet", "ca")["secret"] == only_the_authority
    apart = rendered(f"{own},tls.caConfigMap=authority")
    assert volume(apart, "DaemonSet", "ca")["configMap"]["name"] == "authority"


@pytest.mark.parametrize("values_file", [{}, EVERYTHING], ids=["defaults", "everything"], indirect=True)
def test_prometheus_knows_the_certificate_of_what_it_reads(values_file: str, tmp_path: Path) -> None:
    objects = rendered(values_file, "--set=podMonitor.enabled=true")
    monitors = {
        each["spec"]["selector"]["matchLabels"]["app.kubernetes.io/component"]: each
        for each in of_kind(objects, "PodMonitor")
    }
    assert sorted(monitors) == ["node", "orchestrator"]
    made = secrets(objects, tmp_path)
    for component, monitor in monitors.items():
        (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
        assert endpoint["scheme"] == "https"
        assert endpoint["tlsConfig"]["ca"]["configMap"] == {
            "name": "our-authority" if not made else "timeslice-orchestrator-ca",
            "key": "ca.crt",
        }
        if made:
            assert is_for(made[f"timeslice-{component}-tls"], endpoint["tlsConfig"]["serverName"])


@pytest.mark.parametrize(("kind", "ready"), [("DaemonSet", "/readyz"), ("Deployment", "/healthz")])
def test_probes_ask_by_tls_and_give_a_slow_start_minutes(kind: str, ready: str) -> None:
    """One that stands by for the orchestrator never leads, which is what /readyz asks, and is as ready as can be."""
    (daemon,) = of_kind(rendered(), kind)
    (container,) = daemon["spec"]["template"]["spec"]["containers"]
    start, live, serves = (container[f"{name}Probe"] for name in ("startup", "liveness", "readiness"))
    assert [probe["httpGet"]["path"] for probe in (start, live, serves)] == ["/healthz", "/healthz", ready]
    for probe in (start, live, serves):
        assert (probe["httpGet"]["port"], probe["httpGet"]["scheme"]) == ("telemetry", "HTTPS")
    assert start["periodSeconds"] * start["failureThreshold"] >= 300


def test_without_the_prometheus_operator_there_is_nothing_of_it() -> None:
    assert of_kind(rendered(), "PodMonitor") == []


def test_both_daemons_outlive_jobs_when_a_node_is_short_of_room() -> None:
    objects = rendered()
    classes = {
        kind: of_kind(objects, kind)[0]["spec"]["template"]["spec"]["priorityClassName"]
        for kind in ("DaemonSet", "Deployment")
    }
    assert classes == {"DaemonSet": "system-node-critical", "Deployment": "system-cluster-critical"}
    chosen = rendered("--set=node.priorityClassName=high,orchestrator.priorityClassName=low")
    assert of_kind(chosen, "DaemonSet")[0]["spec"]["template"]["spec"]["priorityClassName"] == "high"
    assert of_kind(chosen, "Deployment")[0]["spec"]["template"]["spec"]["priorityClassName"] == "low"


def test_the_network_lets_jobs_and_nodes_to_the_orchestrator_and_only_readers_of_metrics_to_nodes() -> None:
    policies = {each["metadata"]["name"]: each["spec"] for each in of_kind(rendered(), "NetworkPolicy")}
    orchestrator, node = policies["timeslice-orchestrator"], policies["timeslice-node"]
    for name, spec in (("orchestrator", orchestrator), ("node", node)):
        assert spec["podSelector"]["matchLabels"]["app.kubernetes.io/component"] == name
        assert spec["policyTypes"] == ["Ingress"]
    everybody: dict[str, Any] = {"namespaceSelector": {}}
    calls, metrics = orchestrator["ingress"]
    assert (calls["ports"], metrics["ports"]) == ([{"port": "grpc"}], [{"port": "telemetry"}])
    (nodes, jobs) = calls["from"]
    assert nodes["podSelector"]["matchLabels"]["app.kubernetes.io/component"] == "node"
    assert jobs == everybody
    assert node["ingress"] == [{"ports": [{"port": "telemetry"}], "from": [everybody]}]
    closed = of_kind(rendered("--set=networkPolicy.metrics=null"), "NetworkPolicy")
    assert "telemetry" not in str(closed)


def test_where_the_api_server_has_no_mutating_policies_the_chart_has_none() -> None:
    command = ("helm", "template", "timeslice", str(CHART), f"--namespace={NAMESPACE}", "--kube-version=1.35.0")
    objects = [each for each in yaml.safe_load_all(succeeded(*command)) if each]
    assert of_kind(objects, "MutatingAdmissionPolicy") == []
    validating = [each["metadata"]["name"] for each in of_kind(rendered(), "ValidatingAdmissionPolicy")]
    assert validating
    assert [each["metadata"]["name"] for each in of_kind(objects, "ValidatingAdmissionPolicy")] == validating


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--set=node.mod=lanes"], "additional properties 'mod' not allowed"),
        (["--set=node.mode=fast"], "value must be one of 'auto', 'lanes', 'slots'"),
        (["--set=groups.rl-a.seats=0"], "minimum: got 0, want 1"),
        (["--set=groups.RL.seats=1"], 'groups: "RL" cannot be the name of a group: at most 40 small letters'),
        (["--set=groups.slot-1.seats=1"], 'groups: "slot-1" cannot be the name of a group'),
        (["--namespace=default"], "wants a namespace of its own"),
        (
            ["--set=tls.existingSecret=s,tls.existingNodeSecret=n,tls.certManager.issuerRef.name=i"],
            "tls: existingSecret and certManager.issuerRef",
        ),
        (["--set=tls.existingSecret=s"], "one for the metrics of nodes with the name timeslice-node.timeslice.svc"),
        (["--set=tls.existingNodeSecret=s"], "tls: existingSecret and existingNodeSecret go together"),
        (["--set=node.runtimeClassName=nvidia"], "Set node.privileged: false too"),
        (["--set=tls.caConfigMap=c"], "tls.caConfigMap: it goes with existingSecret or certManager"),
        (["--set=telemetry.orchestratorPort=7070"], "orchestrator.port and telemetry.orchestratorPort are both 7070"),
        (["--set=node.updateStrategy.rollingUpdate.maxSurge=0"], "node.updateStrategy: maxSurge and maxUnavailable"),
        (["--set=node.extraEnv[0].name=POD_UID"], "node.extraEnv: the chart sets POD_UID itself"),
        (["--set=orchestrator.extraEnv[0].name=POD_UID"], "orchestrator.extraEnv: the chart sets POD_UID itself"),
        (["--set=policies.fillInClaims=true", "--kube-version=1.35.0"], "no MutatingAdmissionPolicy v1"),
        (["--set=node.mode=lanes", "--kube-version=1.36.2"], "node.mode: lanes need Kubernetes 1.36.3"),
        (["--kube-version=1.33.0"], "chart requires kubeVersion: >=1.34.2-0"),
    ],
    ids=lambda value: value[0].removeprefix("--") if isinstance(value, list) else "",
)
def test_a_bad_value_is_refused_with_what_is_wrong(options: list[str], message: str) -> None:
    namespace = [] if any(option.startswith("--namespace") for option in options) else [f"--namespace={NAMESPACE}"]
    done = chart_rules.run("helm", "template", "timeslice", str(CHART), *namespace, *options)
    assert done.returncode != 0
    assert message in done.stderr


def test_an_upgrade_onto_an_older_crd_is_refused_with_the_command_that_mends_it(rules: None) -> None:
    crd = "customresourcedefinition/timeslicegroups.timeslice.dev"
    upgrade = (
        "helm",
        "template",
        "timeslice",
        str(CHART),
        f"--namespace={NAMESPACE}",
        "--is-upgrade",
        "--dry-run=server",
    )
    assert chart_rules.run(*upgrade).returncode == 0
    succeeded("kubectl", "annotate", "--overwrite", crd, "timeslice.dev/schema=0")
    try:
        done = chart_rules.run(*upgrade)
    finally:
        succeeded("kubectl", "annotate", "--overwrite", crd, "timeslice.dev/schema=1")
    assert done.returncode != 0
    assert "has schema 0, this chart needs 1" in done.stderr
    assert "helm show crds CHART | kubectl apply --server-side --force-conflicts -f -" in done.stderr


def test_notes_tell_how_to_run_the_first_shared_job() -> None:
    done = succeeded(
        "helm", "install", "timeslice", str(CHART), f"--namespace={NAMESPACE}", "--dry-run=client", "--hide-secret"
    )
    notes = done.partition("NOTES:")[2]
    assert "kind: TimesliceGroup" in notes
    assert "deviceClassName: trainer-group.timeslice.dev" in notes
    assert "timeslice.dev/job: job-a" in notes


# Rights


def may(account: str, verb: str, resource: str, *, group: str = "", namespace: str = "ml", name: str = "") -> bool:
    attributes = {"verb": verb, "resource": resource.partition("/")[0], "group": group, "namespace": namespace}
    attributes |= {"name": name} if name else {}
    attributes |= {"subresource": resource.partition("/")[2]} if "/" in resource else {}
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": account, "resourceAttributes": attributes},
    }
    answer = json.loads(succeeded("kubectl", "create", "--output=json", "--filename=-", given=json.dumps(body)))
    return bool(answer["status"]["allowed"])


DRA = "resource.k8s.io"


def test_a_node_has_the_rights_that_it_needs_and_few_others(rules: None) -> None:
    assert may(NODE_ACCOUNT, "get", "resourceclaims", group=DRA)
    assert may(NODE_ACCOUNT, "patch", "resourceclaims/status", group=DRA)
    own = {"group": DRA, "name": "gpu.timeslice.dev"}
    assert may(NODE_ACCOUNT, "associated-node:patch", "resourceclaims/driver", **own)
    assert not may(NODE_ACCOUNT, "arbitrary-node:patch", "resourceclaims/driver", **own)
    other = {"group": DRA, "name": "gpu.nvidia.com"}
    assert not may(NODE_ACCOUNT, "associated-node:patch", "resourceclaims/driver", **other)
    for verb, resource in itertools.product(("create", "patch", "delete"), ("pods", "nodes", "secrets", "pods/exec")):
        assert not may(NODE_ACCOUNT, verb, resource), f"{verb} {resource}"
    assert may(NODE_ACCOUNT, "create", "serviceaccounts/token")
    assert not may(NODE_ACCOUNT, "create", "tokenreviews", group="authentication.k8s.io")
    assert not may(NODE_ACCOUNT, "update", "resourceclaims", group=DRA)
    assert not may(NODE_ACCOUNT, "patch", "timeslicegroups", group="timeslice.dev")


def test_the_orchestrator_has_the_rights_that_it_needs_and_few_others(rules: None) -> None:
    assert may(ORCHESTRATOR_ACCOUNT, "patch", "timeslicegroups/status", group="timeslice.dev")
    assert may(ORCHESTRATOR_ACCOUNT, "create", "pods/eviction")
    assert may(ORCHESTRATOR_ACCOUNT, "create", "tokenreviews", group="authentication.k8s.io")
    assert may(ORCHESTRATOR_ACCOUNT, "create", "subjectaccessreviews", group="authorization.k8s.io")
    assert not may(ORCHESTRATOR_ACCOUNT, "create", "serviceaccounts/token")
    lease = {"group": "coordination.k8s.io", "namespace": NAMESPACE}
    assert may(ORCHESTRATOR_ACCOUNT, "update", "leases", **lease, name="timeslice-orchestrator")
    assert not may(ORCHESTRATOR_ACCOUNT, "update", "leases", **lease, name="somebody-else")
    assert not may(ORCHESTRATOR_ACCOUNT, "create", "leases", group="coordination.k8s.io", namespace="ml")
    for verb, resource in itertools.product(("create", "patch", "delete"), ("pods", "nodes", "secrets", "pods/exec")):
        assert not may(ORCHESTRATOR_ACCOUNT, verb, resource), f"{verb} {resource}"
    for resource in ("resourceclaims", "resourceclaims/status", "resourceclaims/binding", "resourceslices"):
        assert not may(ORCHESTRATOR_ACCOUNT, "patch", resource, group=DRA)
    assert not may(ORCHESTRATOR_ACCOUNT, "delete", "timeslicegroups", group="timeslice.dev")


def test_the_api_server_finds_no_fault_in_the_policies(rules: None) -> None:
    checked = "--for=jsonpath={.status.observedGeneration}"
    succeeded("kubectl", "wait", checked, "--timeout=30s", "validatingadmissionpolicies", "--all")
    found = json.loads(succeeded("kubectl", "get", "validatingadmissionpolicies", "--output=json"))["items"]
    ours = [each for each in found if each["metadata"]["name"].startswith("timeslice-")]
    assert len(ours) == 6
    warnings = {
        each["metadata"]["name"]: each["status"]["typeChecking"]["expressionWarnings"]
        for each in ours
        if each.get("status", {}).get("typeChecking", {}).get("expressionWarnings")
    }
    assert warnings == {}


def test_examples_are_taken_by_the_api_server(rules: None) -> None:
    succeeded(
        "kubectl",
        "apply",
        "--namespace=default",
        "--dry-run=server",
        f"--filename={CHART.parents[2] / 'examples/kubernetes'}",
    )
