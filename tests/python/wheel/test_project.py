"""`[project]` of `pyproject.toml`: what a key does not take is told with the key and with what it takes."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest
from opsmith.build import _metadata, _project
from opsmith.build._crate import Crate
from opsmith.jit import BuildError
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet

PACKAGE = {
    "version": "0.1.0",
    "authors": [],
    "keywords": [],
    **dict.fromkeys(["description", "license", "license_file", "readme"]),
    **dict.fromkeys(["homepage", "repository", "documentation"]),
}


def read(folder: Path, project: str, name: str = "row-ops") -> _metadata.Metadata:
    """What is read of a crate of that name."""
    (folder / "pyproject.toml").write_text(project, encoding="utf-8")
    return _metadata.read(Crate(folder, folder, PACKAGE | {"name": name}))


@pytest.mark.parametrize(
    ("project", "message"),
    [
        ("name = ", "pyproject.toml: Invalid value.*\n  → it must be TOML"),
        ("a = " + "[" * 5000, "recursion.*\n  → it must be TOML"),
        (f'[project]\nreadme = "{"a" * 5000}"', "there is no such file\n  → correct `readme`"),
        ("project = 3", "`project` is a table, not 3\n  → write"),
        ('[[project]]\nname = "rows"', "`project` is a table, not"),
        (
            '[project.scripts]\nrows = "rows:main"',
            "`scripts`, which a package of operators cannot have\n  →",
        ),
        ('[project]\nauthor = "Ada"', "has `author`, .*\n  → did you mean `authors`"),
        ('[project]\nlicense-files = ["no*"]', "no file matches .*\n  → correct `license-files`"),
        ('[project]\nreadme = "no.md"', "no.md: there is no such file\n  → correct `readme`"),
    ],
)
def test_a_project_that_cannot_be(project: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(BuildError, match=message):
        read(tmp_path, project)


@pytest.mark.parametrize(
    ("key", "value", "wrong"),
    [
        ("name", '""', "''"),
        ("name", '"a b"', "'a b'"),
        ("name", '"-x/../y"', "'-x/../y'"),
        ("name", '"rows\\n"', "'rows\\n'"),
        ("name", "3", "3"),
        ("license", '"My Licence"', "'My Licence'"),
        ("license", '"MIT OR"', "'MIT OR'"),
        ("license", '"(MIT"', "'(MIT'"),
        ("license", '"MIT WITH AND"', "'MIT WITH AND'"),
        ("license", '"WITH"', "'WITH'"),
        ("classifiers", '["Foo"]', "'Foo'"),
        ("version", '"one"', "'one'"),
        ("version", "1.5", "1.5"),
        ("description", "7", "7"),
        ("readme", "7", "7"),
        ("readme", '{ content-type = "text/plain" }', "{'content-type': 'text/plain'}"),
        ("readme", '{ text = "a", file = "b" }', "{'text': 'a', 'file': 'b'}"),
        ("requires-python", '"banana"', "'banana'"),
        ("requires-python", "3.11", "3.11"),
        ("requires-python", '""', "''"),
        ("license", '{ text = "MIT" }', "{'text': 'MIT'}"),
        ("license", '""', "''"),
        ("license-files", '"LICENSE"', "'LICENSE'"),
        ("license-files", '["../*"]', "'../*'"),
        ("license-files", '["LICENSE", "texts/../../*"]', "'texts/../../*'"),
        ("license-files", '["/etc/passwd"]', "'/etc/passwd'"),
        ("license-files", '[""]', "''"),
        ("authors", '"Ada"', "'Ada'"),
        ("authors", '["Ada"]', "'Ada'"),
        ("maintainers", "[{ name = 3 }]", "{'name': 3}"),
        ("keywords", '"rows"', "'rows'"),
        ("classifiers", "[1]", "1"),
        ("urls", '["https://example.org"]', "['https://example.org']"),
        ("urls", "{ Home = 3 }", "{'Home': 3}"),
        ("dependencies", '"numpy"', "'numpy'"),
        ("dependencies", '["scipy", "not a req !!"]', "'not a req !!'"),
        ("dependencies", "{ numpy = 2 }", "{'numpy': 2}"),
        ("optional-dependencies", '["scipy"]', "['scipy']"),
        ("optional-dependencies", '{ plots = "scipy" }', "'scipy'"),
        ("optional-dependencies", '{ plots = ["scipy =1"] }', "'scipy =1'"),
        ("optional-dependencies", '{ "a b" = ["scipy"] }', "'a b'"),
        ("dynamic", '"version"', "'version'"),
    ],
)
def test_what_a_key_does_not_take(key: str, value: str, wrong: str, tmp_path: Path) -> None:
    told = rf"pyproject.toml: `{key}` takes .*, and has {re.escape(wrong)}\n  → write one such as {key} = "
    with pytest.raises(BuildError, match=told):
        read(tmp_path, f"[project]\n{key} = {value}")


REQUIREMENTS = [
    "numpy",
    "NumPy >= 2",
    " scipy[all, extra-1] >=1.11,<2 ; python_version > '3.11'",
    "a.b_c-d (>=1, !=1.5.*)",
    "a[]",
    "a==1.0+cu121",
    "a~=1.4.2rc1",
    "a===any-thing",
    "a >= 1!2.0.post1.dev3",
    "a @ https://example.org/a-1.whl ; os_name == 'posix'",
    "a @ https://example.org/a-1.whl",
    "a; (sys_platform == 'linux' or sys_platform != \"win32\") and 'x86' in platform_machine",
    "a; extra not in 'x'",
    *("", "not a req !!", "-a", "a-", "a b", "a =1", "a >=", "a >= banana", "a ~= 1", "a >= 1.*", "a >1+x"),
    *("a[", "a[b", "a (>=1", "a @", "a;", "a; linux", "a; os_name ==", "a; (os_name == 'a'", "a>=1,,<2"),
    *("a; os_name == 'a' os_name == 'b'", "a; os_name == 'a' and", "größe", "../a", "a\nb", "a; \0"),
]


@pytest.mark.parametrize("text", REQUIREMENTS)
def test_requirements_are_those_of_pip(text: str) -> None:
    try:
        name = Requirement(text).name
    except InvalidRequirement:
        name = None
    assert _project.requirement_name(text) == name


@pytest.mark.parametrize(
    "text",
    [">=3.10", ">=3.10,<4", "~=3.10", "==3.*", "banana", "3.10", ">=3.10.*", ">=", "=>3", "^3.10"],
)
def test_versions_of_python_are_those_of_pip(text: str, tmp_path: Path) -> None:
    try:
        SpecifierSet(text)
    except InvalidSpecifier:
        with pytest.raises(BuildError, match="`requires-python` takes versions of Python"):
            read(tmp_path, f'[project]\nrequires-python = "{text}"')
    else:
        assert ("Requires-Python", text) in read(tmp_path, f'[project]\nrequires-python = "{text}"').fields


@pytest.mark.parametrize("name", ["opsmith", "NumPy", "torch", "tensorflow_cpu", "jax", "jaxlib"])
def test_the_name_of_a_package_that_everybody_has(name: str, tmp_path: Path) -> None:
    told = f"a package `{name}` would replace the one of that name\n  → choose another name"
    with pytest.raises(BuildError, match=told):
        read(tmp_path, f'[project]\nname = "{name}"')
    with pytest.raises(BuildError, match=told):
        read(tmp_path, "", name)
    assert read(tmp_path, '[project]\nname = "rows"', name).name == "rows"


def test_a_crate_s_name_that_no_package_can_have(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match=r"cannot be called '_rows', as the crate is\n  → choose"):
        read(tmp_path, "", "_rows")


def test_no_damaged_project_is_another_package(tmp_path: Path) -> None:
    attack = runpy.run_path(str(Path(__file__).parents[3] / "attacks" / "damaged_projects.py"))
    outcomes = list(attack["outcomes"](tmp_path, 1000, 1))
    assert set(outcomes) == {"package", "refused"}
    assert outcomes.count("package") >= 100


@pytest.mark.parametrize("text", ["mit and(ISC)", "mit  AND (ISC)", "mit And ( ISC )"])
def test_licences_are_written_in_one_way(text: str, tmp_path: Path) -> None:
    fields = read(tmp_path, f'[project]\nlicense = "{text}"').fields
    assert ("License-Expression", "mit AND (ISC)") in fields


@pytest.mark.parametrize(
    "expression",
    [
        "MIT",
        "MIT OR Apache-2.0",
        "(MIT OR Apache-2.0) AND BSD-3-Clause",
        "Apache-2.0 WITH LLVM-exception",
        "GPL-2.0+ AND (ISC OR (Zlib AND LicenseRef-own))",
    ],
)
def test_licences_are_expressions(expression: str, tmp_path: Path) -> None:
    fields = read(tmp_path, f'[project]\nlicense = "{expression}"').fields
    assert ("License-Expression", expression) in fields


@pytest.mark.parametrize(
    ("package", "message"),
    [
        (
            {"license": "My Licence"},
            r"Cargo.toml: `license` is 'My Licence', .*\n  → write one such as \"MIT\"",
        ),
        ({"authors": ["Ada <ada"]}, "Cargo.toml: 'Ada <ada' is no author\n  → write `Name <"),
        ({"authors": ["<>"]}, "Cargo.toml: '<>' is no author"),
    ],
)
def test_what_cargo_takes_and_python_does_not(
    package: dict[str, object], message: str, tmp_path: Path
) -> None:
    with pytest.raises(BuildError, match=message):
        _metadata.read(Crate(tmp_path, tmp_path, PACKAGE | {"name": "rows"} | package))
