import re
from pathlib import Path

import pytest
import yaml

from mia_audit.errors import UserError
from mia_audit.serving.section import read_served


def test_a_service_is_read(files):
    served = read_served(files()[0])
    assert served.terms.budget == 2.0
    assert served.protocol == "adaptive"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"seed": 1}, "unknown key 'seed'"),
        ({"protocol": "adaptave"}, "protocol: unknown protocol 'adaptave': did you mean 'adaptive'"),
        ({"callers": {}}, "callers"),
        ({"callers": {"alice": 0}}, "callers.alice"),
        ({"callers": {"al ice": 1}}, "callers"),
        ({"budget": float("inf")}, "budget"),
        ({"model": "somewhere"}, "expected one of black_box"),
        ({"black_box": "", "model": "somewhere"}, "model and architecture belong together"),
        ({"black_box": "box.py"}, "expected file.py:function, got 'box.py'"),
        ({"delta": 1}, "delta"),
    ],
)
def test_a_mistake_is_one_line_that_names_the_key(files, changes, words):
    path, _ = files()
    with pytest.raises(UserError, match=words) as caught:
        path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | changes))
        read_served(path)
    assert "\n" not in str(caught.value) and str(path) in str(caught.value)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(UserError, match="no such file; a service is one YAML file"):
        read_served(tmp_path / "nothing.yaml")


def test_the_example_of_the_documentation_is_a_service(tmp_path):
    page = (Path(__file__).parents[2] / "docs" / "private_explanations.md").read_text(encoding="utf-8")
    (example,) = [text for text in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL) if "callers:" in text]
    (tmp_path / "service.yaml").write_text(example)
    assert read_served(tmp_path / "service.yaml").callers == {"alice": 0.5, "bob": 1.0}
    other = re.sub("(?m)^black_box", "# black_box", example).replace("# model", "model").replace("# arch", "arch")
    (tmp_path / "service.yaml").write_text(other)
    assert read_served(tmp_path / "service.yaml").model == "results/release-model"
