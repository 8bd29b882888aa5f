"""The command `check`, for people and for programs."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.cli.session import on_a_terminal
from watchdog.cli.main import main
from watchdog.cli.policy_text import render_policy
from watchdog.config.document import declaration_documents, policy_document
from watchdog.config.load import load_policy

GOOD = 'mode = "observe"\n[[rule]]\nname = "all"\nmatch = {}\n'


def check(file: Path, *arguments: str) -> Result:
    """Run `check` on a file."""
    return CliRunner().invoke(main, ["check", str(file), *arguments])


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "policy.toml"


def test_a_valid_policy_as_json(file: Path) -> None:
    """A policy with a warning: valid, compiled with every effective value, and exit code 0."""
    file.write_text(GOOD.replace("match = {}\n", ""), encoding="utf-8")
    done = check(file, "--json")
    policy = load_policy(file)
    assert (done.exit_code, done.stderr) == (0, "")
    assert json.loads(done.stdout) == {
        "valid": True,
        "mistakes": [],
        "warnings": list(policy.warnings),
        "policy": json.loads(json.dumps(policy_document(policy))),
        "declarations": json.loads(json.dumps(declaration_documents(policy.declarations))),
    }
    assert any("rule[0]" in warning for warning in policy.warnings)


def test_mistakes_as_json(file: Path) -> None:
    """Each mistake with its place, null where it has none; no policy; exit code 1 with a reason on stderr."""
    file.write_text(GOOD.replace("observe", "maybe") + 'step = [{ do = "slay" }]\n', encoding="utf-8")
    done = check(file, "--json")
    found = json.loads(done.stdout)
    assert (done.exit_code, found["valid"], found["policy"], found["warnings"]) == (1, False, None, [])
    assert all(set(mistake) == {"source", "path", "line", "what"} for mistake in found["mistakes"])
    assert {"mode", "rule[0].step[0].do"} <= {mistake["path"] for mistake in found["mistakes"]}
    assert {mistake["source"] for mistake in found["mistakes"]} == {str(file)}
    assert str(file) in done.stderr


def test_a_syntax_error_as_json(file: Path) -> None:
    """What is wrong with the file as a whole has its line, and no path."""
    file.write_text('mode = "observe"\nrule = [\n', encoding="utf-8")
    (mistake,) = json.loads(check(file, "--json").stdout)["mistakes"]
    assert (mistake["path"], mistake["line"]) == (None, 2)
    (missing,) = json.loads(check(file.with_name("nowhere"), "--json").stdout)["mistakes"]
    assert (missing["line"], "there is no such file" in missing["what"]) == (None, True)


def test_for_people(file: Path) -> None:
    """Without --json: the compiled policy on stdout, or every mistake on a line of stderr, with the same exit codes."""
    file.write_text(GOOD, encoding="utf-8")
    done = check(file)
    assert (done.exit_code, done.stdout) == (0, render_policy(load_policy(file)) + "\n")
    file.write_text(GOOD.replace("observe", "maybe"), encoding="utf-8")
    done = check(file)
    assert (done.exit_code, done.stdout, done.stderr.startswith(f"{file}: mode: ")) == (1, "", True)


def test_on_a_terminal_its_lines_fit(file: Path) -> None:
    """On a terminal no line is longer than it is wide; elsewhere each mistake and each warning is one line."""
    file.write_text(f"schemes = []\n{GOOD}", encoding="utf-8")
    text = on_a_terminal("check", file.name, columns=70, cwd=file.parent)
    assert max(map(len, text.splitlines())) <= 70
    assert "policy.toml: warning:" in text
    file.write_text(GOOD.replace("observe", "enfroce") + 'step = [{ do = "wran" }]\n', encoding="utf-8")
    text = on_a_terminal("check", file.name, columns=70, cwd=file.parent)
    assert max(map(len, text.splitlines())) <= 70
    assert "\n  " in text
    assert len(check(file).stderr.splitlines()) == 4


def test_a_mistake_names_its_rule_and_what_was_meant(file: Path) -> None:
    """Nobody has to count rules, and for a word close to a valid one that is suggested."""
    file.write_text(GOOD.replace("observe", "Enforce") + 'step = [{ do = "wran", above = 1 }]\n', encoding="utf-8")
    lines = check(file).stderr.splitlines()
    assert lines[0] == (
        f'{file}: mode: must be "observe" or "enforce", not the text "Enforce"; did you mean "enforce"?'
    )
    do = next(line for line in lines if line.startswith(f"{file}: rule[0].step[0].do: "))
    assert do.endswith('; did you mean "warn"? (rule "all")')
