"""Commands that were quoted over several lines."""

import shlex

import pytest

from midflight.cli.command_text import fold

GUIDE_1 = """horovodrun
            --verbose
            -np $((${workers}*${gpus}))
            --host-discovery-script /usr/local/bin/discover_hosts.sh
            python /examples/elastic/pytorch_synthetic_benchmark_elastic.py
            --num-iters=10000"""
GUIDE_2 = """horovodrun \\
    -np $((${workers}*${gpus})) \\
    --host-discovery-script /etc/edl/discover_hosts.sh \\
    python /examples/elastic/tensorflow2_mnist_elastic.py
    """


def test_the_command_of_guide_1_becomes_one_line() -> None:
    assert fold(GUIDE_1) == (
        "horovodrun --verbose -np $((${workers}*${gpus})) "
        "--host-discovery-script /usr/local/bin/discover_hosts.sh "
        "python /examples/elastic/pytorch_synthetic_benchmark_elastic.py --num-iters=10000"
    )


def test_the_command_of_guide_2_becomes_one_line() -> None:
    assert fold(GUIDE_2) == (
        "horovodrun -np $((${workers}*${gpus})) "
        "--host-discovery-script /etc/edl/discover_hosts.sh "
        "python /examples/elastic/tensorflow2_mnist_elastic.py"
    )


@pytest.mark.parametrize(
    ("command", "folded"),
    [
        ("python train.py", "python train.py"),
        ("  python train.py \n", "python train.py"),
        ("python train.py\n--lr 1\ndata", "python train.py --lr 1 data"),
        ("python train.py\r\n  --lr 1", "python train.py --lr 1"),
        ("python train.py\n\n  --lr 1", "python train.py --lr 1"),
        ("python train.py\n  # the rate\n  --lr 1", "python train.py --lr 1"),
        ("a \\\nb", "a b"),
        ("", ""),
    ],
)
def test_line_breaks_with_their_indent_become_one_blank(command: str, folded: str) -> None:
    assert fold(command) == folded


def test_what_is_inside_quotes_keeps_its_line_breaks() -> None:
    command = "python -c \"import os\nprint(1)\"\n   --name 'two\n lines'"
    folded = fold(command)
    assert shlex.split(folded) == shlex.split(command)
    assert folded == "python -c \"import os\nprint(1)\" --name 'two\n lines'"


def test_quotes_inside_quotes_and_escaped_quotes_do_not_confuse_it() -> None:
    command = 'echo "it\'s \\" fine"\n  it\\\'s\n  done'
    assert fold(command) == 'echo "it\'s \\" fine" it\\\'s done'


def test_a_script_of_several_commands_is_left_alone() -> None:
    script = "cd /data\nif true; then\n  python a.py\nfi\npython b.py"
    assert fold(script) == script
    assert fold("cd /data \\\n  && ls\npython b.py") == "cd /data && ls\npython b.py"


def test_a_here_document_is_left_alone_and_a_shift_is_none() -> None:
    document = "cat <<EOF\n  - one\nEOF"
    assert fold(document) == document
    assert fold("echo $((1<<2))\n  more") == "echo $((1<<2)) more"
