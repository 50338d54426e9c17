"""The files of cluster/: held to the published schemas, the shell's pitfalls, and the programs."""

import importlib.util
import itertools
import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
import urllib.request
from pathlib import Path

import click
import dask.config
import jsonschema
import pytest
import yaml
from helpers.cluster_cases import CLUSTER, blocks, environment
from helpers.processes import free_port, running, wait_for_port

from dadagrad.cli import dadagrad
from dadagrad.training.engines.dask.engine import CLUSTER_SETTINGS


def package(name):
    """The folder of an installed package, which is not imported."""
    spec = importlib.util.find_spec(name)
    return Path(spec.submodule_search_locations[0])


def check_schema(schema, document, wrong, error):
    """Raise unless a document suits its schema, and a wrong one does not."""
    validator = jsonschema.validators.validator_for(schema)(schema)
    validator.validate(document)
    with pytest.raises(jsonschema.ValidationError, match=error):
        validator.validate(wrong)


@pytest.fixture(scope="module")
def compose():
    return yaml.safe_load((CLUSTER / "compose.yaml").read_text())


@pytest.fixture(scope="module")
def manifests():
    documents = yaml.safe_load_all((CLUSTER / "kubernetes.yaml").read_text())
    return {document["kind"]: document for document in documents}


def check_options(command):
    from distributed.cli import dask_scheduler, dask_worker

    program, name, *arguments = command
    # Commands keep the names of their help option from their first use.
    parent = click.Context(dadagrad, **dadagrad.context_settings)
    commands = {
        ("dask", "scheduler"): dask_scheduler.main,
        ("dask", "worker"): dask_worker.main,
        ("dadagrad", name): dadagrad.get_command(parent, name),
    }
    settings = {"parent": parent} if program == "dadagrad" else {}
    commands[program, name].make_context(name, arguments, **settings)


class TestCompose:
    def test_the_schema_of_compose_files(self, compose):
        folder = package("check_jsonschema") / "builtin_schemas/vendor"
        schema = json.loads((folder / "compose-spec.json").read_text())
        services = compose["services"]
        wrong = services | {"worker": services["worker"] | {"memory_limit": "3g"}}
        check_schema(schema, compose, compose | {"services": wrong}, "memory_limit")

    def test_the_programs_take_the_commands(self, compose):
        for name in ("scheduler", "worker", "train"):
            check_options(shlex.split(compose["services"][name]["command"]))

    def test_references_lead_to_existing_things(self, compose):
        services = compose["services"]
        for service in services.values():
            assert set(service.get("depends_on", ())) <= services.keys()
            for volume in service["volumes"]:
                source = volume.partition(":")[0]
                assert source in compose["volumes"] or source == "./tls"
        build = services["train"]["build"]
        assert (CLUSTER / build["context"] / build["dockerfile"]).exists()
        for command in blocks("Docker compose")[0].replace("\\\n", " ").splitlines()[1:]:
            words = shlex.split(command)
            assert words[:4] == ["docker", "compose", "-f", "cluster/compose.yaml"]
            if words[4] == "run":
                check_options(words[words.index("train") + 1 :])


class TestSettings:
    """Dask's settings for clusters that are started for a run, which dask.yaml has too."""

    def test_the_file_has_the_settings_of_started_clusters(self):
        (given,) = dask.config.collect_yaml([str(CLUSTER / "dask.yaml")])
        expected = {"distributed": {"scheduler": {"worker-ttl": "25s"}}}
        with dask.config.set(CLUSTER_SETTINGS, config=expected):
            assert given == expected

    def test_the_file_suits_the_schema_of_dask(self):
        schema = yaml.safe_load((package("distributed") / "distributed-schema.yaml").read_text())
        (given,) = dask.config.collect_yaml([str(CLUSTER / "dask.yaml")])
        wrong = {"distributed": {"worker": {"profile": {"enabled": "no"}}}}
        check_schema(schema, given, wrong, "'no' is not of type 'boolean'")


def test_the_image_has_what_is_installed_from():
    """The image copies all that the project's build needs, onto a Python that it supports."""
    lines = (CLUSTER / "Dockerfile").read_text().splitlines()
    copies = [line.split()[1:] for line in lines if line.startswith("COPY")]
    assert ["cluster/dask.yaml", "/etc/dask/dadagrad.yaml"] in copies  # where Dask looks
    copied = {word for words in copies for word in words[:-1]} - {"cluster/dask.yaml"}
    project = tomllib.loads((CLUSTER.parent / "pyproject.toml").read_text())["project"]
    assert {"pyproject.toml", "dadagrad", project["readme"], *project["license-files"]} == copied
    assert all((CLUSTER.parent / name).exists() for name in copied)
    (version,) = re.findall(r"^FROM python:3\.(\d+)-slim$", "\n".join(lines), re.M)
    assert int(version) >= int(project["requires-python"].removeprefix(">=3."))


def strict(schema):
    """A schema of Kubernetes that also refuses what it would ignore."""
    if isinstance(schema, list):
        return [strict(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    made = {name: strict(one) for name, one in schema.items()}
    if isinstance(schema.get("properties"), dict):
        made.setdefault("additionalProperties", False)
    return made


class TestKubernetes:
    @pytest.mark.parametrize("kind", ["DaskCluster", "DaskAutoscaler"])
    def test_the_schemas_of_the_operator(self, manifests, kind):
        folder = package("dask_kubernetes") / "operator/deployment/helm/dask-kubernetes-operator"
        text = (folder / f"crds/{kind.lower()}.yaml").read_text()
        definition = yaml.load(text, yaml.CSafeLoader)["spec"]
        manifest = manifests[kind]
        (version,) = (one for one in definition["versions"] if one["served"])
        assert manifest["apiVersion"] == f"{definition['group']}/{version['name']}"
        assert manifest["metadata"].keys() == {"name"}
        schema = strict(version["schema"]["openAPIV3Schema"]["properties"]["spec"])
        check_schema(schema, manifest["spec"], manifest["spec"] | {"wokers": 3}, "wokers")

    def test_the_job(self, manifests):
        from kubernetes.client.models.v1_job import V1Job
        from pydantic import ValidationError

        job = manifests["Job"]
        V1Job.model_validate(job)
        with pytest.raises(ValidationError, match="backoffLimits"):
            V1Job.model_validate(job | {"spec": job["spec"] | {"backoffLimits": 1}})

    def pods(self, manifests):
        cluster = manifests["DaskCluster"]["spec"]
        job = manifests["Job"]["spec"]["template"]["spec"]
        pods = {"scheduler": cluster["scheduler"]["spec"], "worker": cluster["worker"]["spec"]}
        return pods | {"train": job}

    def test_references_lead_to_existing_things(self, manifests):
        name = manifests["DaskCluster"]["metadata"]["name"]
        assert manifests["DaskAutoscaler"]["spec"]["cluster"] == name
        created = " ".join(blocks("Kubernetes")).split()
        for pod in self.pods(manifests).values():
            (container,) = pod["containers"]
            assert {one["name"] for one in container["volumeMounts"]} == {"tls"}
            for volume in pod["volumes"]:
                assert volume["secret"]["secretName"] in created
            for source in container["envFrom"]:
                (kind, reference), *_ = source.items()
                assert kind in ("secretRef", "configMapRef")
                assert reference["name"] in created
            assert container["image"] in created
        service = manifests["DaskCluster"]["spec"]["scheduler"]["service"]
        (scheduler,) = self.pods(manifests)["scheduler"]["containers"]
        named = {port["name"]: port["containerPort"] for port in scheduler["ports"]}
        assert {port["targetPort"]: port["port"] for port in service["ports"]} == named
        assert service["selector"]["dask.org/cluster-name"] == name

    def test_the_programs_take_the_commands(self, manifests):
        for pod in self.pods(manifests).values():
            check_options(pod["containers"][0]["args"])

    def test_the_operator_gets_its_answers_from_the_scheduler(self, manifests, tmp_path):
        """Over HTTP: its own certificates and versions of Dask do not matter then."""
        (container,) = self.pods(manifests)["scheduler"]["containers"]
        port = free_port()
        command = ["-m", *container["args"], "--host", "127.0.0.1", "--port", "0"]
        command += ["--dashboard-address", f"127.0.0.1:{port}"]
        variables = {one["name"]: one["value"] for one in container["env"]}
        with running([sys.executable, *command], environment=environment(tmp_path, **variables)):
            wait_for_port(port)
            for path, expected in (
                (container["readinessProbe"]["httpGet"]["path"], b"ok"),
                ("/api/v1/adaptive_target", b'{"workers": 0}'),
            ):
                with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
                    assert answer.read() == expected


def shellcheck(script):
    """Raise if ShellCheck finds a fault, except for files that it cannot follow."""
    found = shutil.which("shellcheck", path=str(Path(sys.executable).parent))
    command = [found or "shellcheck", "--exclude", "SC1091", str(script)]
    answer = subprocess.run(command, capture_output=True, text=True)
    assert answer.returncode == 0, answer.stdout


class TestSlurm:
    def test_the_script_and_the_commands_of_the_guide(self, tmp_path):
        shellcheck(CLUSTER / "slurm.sh")
        headings = ("By hand", "TLS", "Docker compose", "SLURM")
        script = tmp_path / "guide.sh"
        script.write_text("\n".join(["#!/bin/bash", *itertools.chain(*map(blocks, headings))]))
        shellcheck(script)
