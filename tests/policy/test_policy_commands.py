"""`autoscaler policy ...` as the operator sees it: two streams and an exit code."""

from __future__ import annotations

import io
import json

from jsonschema import Draft202012Validator

from autoscaler.cli import policy as policy_commands
from tests.policy.policies import NOW_MS, SMALL, Folder, changed


def check(folder: Folder, text: str, *, as_json: bool = False) -> tuple[int, str]:
    out = io.StringIO()
    code = policy_commands.check(str(folder.write(text)), NOW_MS, out, as_json=as_json)
    return code, out.getvalue().replace(f"{folder.path}/", "")


def test_check_of_a_good_policy(folder: Folder) -> None:
    code, text = check(folder, SMALL)
    assert code == 0
    assert text.startswith("policy.yaml: ok, 1 provider, 0 funds, 1 runner type; 0 warnings; hash ")


def test_warnings_leave_the_exit_code_alone(folder: Folder) -> None:
    code, text = check(folder, SMALL + "include: [none/*.yaml]\n")
    assert code == 0
    warning, verdict = text.splitlines()
    assert warning == "warning: policy.yaml:8: include[0]: `none/*.yaml` matches no file"
    assert "1 warning;" in verdict


def test_errors_are_listed_and_exit_with_1(folder: Folder) -> None:
    code, text = check(folder, changed("kind: sim", "kid: sim"))
    assert code == 1
    assert text.splitlines() == [
        "error: policy.yaml:3: providers.lab.kind: is required",
        "error: policy.yaml:3: providers.lab.kid: unknown key; did you mean `kind`?",
        "policy.yaml: 2 errors",
    ]


def test_check_as_json_is_one_document(folder: Folder) -> None:
    code, text = check(folder, SMALL + "include: [none/*.yaml]\n", as_json=True)
    document = json.loads(text)
    assert code == 0
    assert (document["ok"], document["file"], document["errors"]) == (True, "policy.yaml", [])
    assert (document["providers"], document["funds"], document["runner_types"]) == (1, 0, 1)
    assert len(document["hash"]) == 16
    assert document["warnings"] == [
        {
            "file": "policy.yaml",
            "line": 8,
            "path": "include[0]",
            "message": "`none/*.yaml` matches no file",
        }
    ]
    code, text = check(folder, changed("kind: sim", "kind: 5"), as_json=True)
    assert code == 1
    (error,) = json.loads(text)["errors"]
    assert (error["file"], error["line"], error["path"]) == ("policy.yaml", 3, "providers.lab.kind")
    assert error["message"] == "expected text, got `5`; put it in quotes"


def test_check_of_a_file_that_is_not_there() -> None:
    out = io.StringIO()
    assert policy_commands.check("nowhere.yaml", NOW_MS, out) == 1
    assert out.getvalue().startswith("error: nowhere.yaml:1: cannot be read: no such file or directory\n")


def test_schema_is_printed_as_json() -> None:
    out = io.StringIO()
    assert policy_commands.schema(out) == 0
    Draft202012Validator.check_schema(json.loads(out.getvalue()))
