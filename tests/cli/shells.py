"""What the shells offer after a Tab, asked of the shells themselves."""

import os
import pty
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

BIN = Path(sys.executable).parent
PATIENCE = 60.0
BASH = """
source {script}
read -r -a known <<< "$(complete -p {program})"
for at in "${{!known[@]}}"; do
    [ "${{known[at]}}" = -F ] && offer="${{known[at + 1]}}"
done
COMP_WORDS=({words})
COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
"$offer" {program} "${{COMP_WORDS[-1]}}"
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
FISH = "source {script}; complete -C '{line}'"
# Each match passes `compadd`; calls with -A, -D or -O only ask what would match.
ZSH = """
PS1=
autoload -Uz compinit && compinit -u -D
source {script}
compadd() {{
    if [[ ${{(M)@[1,(i)-]:#-[AOD]}} ]]; then builtin compadd "$@"; return; fi
    local -a matches
    builtin compadd -A matches "$@"
    print -rl -- $matches >> {offered}
    builtin compadd "$@"
}}
comppostfuncs=(exit)
bindkey '^I' complete-word
: > {ready}
"""


def has(shell: str) -> bool:
    return shutil.which(shell) is not None


def offered(shell: str, script: Path, line: str, environment: Mapping[str, str]) -> list[str]:
    """For the last word of the line, which may be empty."""
    env = {**os.environ, **environment, "PATH": f"{BIN}:{os.environ['PATH']}", "TERM": "xterm"}
    if shell == "zsh":
        return _offered_by_zsh(script, line, env)
    if shell == "fish":
        command = ["fish", "--no-config", "-c", FISH.format(script=script, line=line)]
    else:
        words = line if not line.endswith(" ") else f"{line}''"
        program = line.split()[0]
        command = ["bash", "-c", BASH.format(script=script, program=program, words=words)]
    done = subprocess.run(
        command, env=env, capture_output=True, text=True, timeout=PATIENCE, check=True
    )
    found = (found.partition("\t")[0].strip() for found in done.stdout.splitlines())
    return sorted(word for word in found if word)


def _offered_by_zsh(script: Path, line: str, env: Mapping[str, str]) -> list[str]:
    """It completes only at a prompt, so it gets a terminal; it leaves after the first Tab."""
    told, ready, begin = (script.with_name(name) for name in ("offered", "ready", "begin"))
    told.write_text("")
    ready.unlink(missing_ok=True)
    begin.write_text(ZSH.format(script=script, offered=told, ready=ready))
    end, theirs = pty.openpty()
    zsh = subprocess.Popen(
        ["zsh", "-f", "-i"], stdin=theirs, stdout=theirs, stderr=theirs, env=env,
        start_new_session=True,
    )  # fmt: skip
    os.close(theirs)
    try:
        os.write(end, f"source {begin}\n".encode())
        _read(end, zsh, until=ready)
        os.write(end, f"{line}\t".encode())
        _read(end, zsh)
    finally:
        zsh.kill()
        zsh.wait(PATIENCE)
        os.close(end)
    return sorted({word.strip() for word in told.read_text().splitlines()} - {""})


def _read(end: int, zsh: "subprocess.Popen[bytes]", until: Path | None = None) -> None:
    """What it prints is of no interest; it has to be taken from it until it is done."""
    deadline = time.monotonic() + PATIENCE
    while zsh.poll() is None and not (until is not None and until.exists()):
        assert time.monotonic() < deadline, "zsh did not come to an end"
        if select.select([end], [], [], 0.05)[0]:
            try:
                os.read(end, 4096)
            except OSError:  # EIO: it has left
                return
